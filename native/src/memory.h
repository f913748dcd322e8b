// Owners of memory: anonymous pages, and an arena that hands out aligned pieces of them. Pages are zero until written.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "camshaft/view.h"

namespace camshaft {

class Pages {
 public:
  Pages() = default;
  // Reserves address space; memory is taken page by page as it is written. Throws std::bad_alloc.
  explicit Pages(size_t bytes) : bytes_(bytes) {
    if (!bytes) return;
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<uint8_t*>(p);
#ifdef MADV_HUGEPAGE
    madvise(p, bytes, MADV_HUGEPAGE);  // a step walks all weights once: with 4 KiB pages it would miss the TLB at each
#endif
  }
  Pages(Pages&& o) noexcept : data_(std::exchange(o.data_, nullptr)), bytes_(std::exchange(o.bytes_, 0)) {}
  Pages& operator=(Pages&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    return *this;
  }
  ~Pages() {
    if (data_) munmap(data_, bytes_);
  }
  uint8_t* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

// Pieces live as long as the arena. No piece shares a cache line with another.
class Arena {
 public:
  uint8_t* bytes(size_t n) {
    n = round_up(std::max<size_t>(n, 1), kAlign);
    if (chunks_.empty() || chunks_.back().size() - used_ < n) {
      chunks_.emplace_back(round_up(std::max(n, kChunk), kHuge));
      used_ = 0;
    }
    uint8_t* p = chunks_.back().data() + used_;
    used_ += n;
    return p;
  }
  float* floats(size_t n) { return reinterpret_cast<float*>(bytes(n * sizeof(float))); }

 private:
  static constexpr size_t kHuge = size_t{2} << 20;
  static constexpr size_t kChunk = size_t{64} << 20;  // address space, not memory
  std::vector<Pages> chunks_;
  size_t used_ = 0;
};

}  // namespace camshaft
