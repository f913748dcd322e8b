// What a thread of a pool has of a loop: chunks of indices, of which it and its helpers take pieces.
//
// All of it lies in one line of a cache: cores may be far from each other (on two chips of one package a line takes 0.3 us from one to the
// other), and a thread that is given work has all that it needs when that line has come.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "camshaft/pool.h"

namespace camshaft {

// Chunks [begin, begin + count).
struct Piece {
  uint32_t begin = 0, count = 0;
};

// Half of the chunks [begin, end), at least one, of the first or of the last.
inline Piece half_of(uint32_t begin, uint32_t end, bool last) {
  if (begin >= end) return {};
  const uint32_t count = std::max(1u, (end - begin) / 2);
  return {last ? end - count : begin, count};
}

struct Loop {
  const LoopBody* body = nullptr;
  int n = 0, grain = 1;
  void run(const Piece& piece, int worker) const {
    const int begin = int(piece.begin) * grain;
    (*body)(begin, std::min(n, begin + int(piece.count) * grain), worker);
  }
};

class alignas(kAlign) Share {
 public:
  // Puts chunks [begin, end) of a loop here and tells whose share it is. Nobody may hold a piece of what was here.
  void put(const Loop& loop, uint32_t begin, uint32_t end) {
    loop_ = loop;
    left_.store(uint64_t(end) << 32 | begin, std::memory_order_release);
    call();
  }
  void call() { calls_.store(calls_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }  // by one thread alone
  uint32_t calls() const { return calls_.load(std::memory_order_acquire); }
  void wait(uint32_t calls) { calls_.wait(calls); }
  void notify() { calls_.notify_one(); }

  // A piece from either end, empty if nothing is left. Who has one may use loop() until it has given it back.
  Piece take(bool last) {
    uint64_t seen = left_.load(std::memory_order_acquire);
    while (true) {
      const Piece piece = half_of(uint32_t(seen), uint32_t(seen >> 32), last);
      if (piece.count == 0) return piece;
      const uint64_t rest = last ? seen - (uint64_t(piece.count) << 32) : seen + piece.count;
      if (left_.compare_exchange_weak(seen, rest, std::memory_order_acq_rel, std::memory_order_acquire)) return piece;
    }
  }
  uint32_t left() const {
    const uint64_t seen = left_.load(std::memory_order_acquire);
    return uint32_t(seen >> 32) > uint32_t(seen) ? uint32_t(seen >> 32) - uint32_t(seen) : 0;
  }
  const Loop& loop() const { return loop_; }

 private:
  std::atomic<uint64_t> left_{0};  // where the chunks that are left end (high half) and begin (low half)
  std::atomic<uint32_t> calls_{0};
  Loop loop_;
};
static_assert(sizeof(Share) == kAlign);

}  // namespace camshaft
