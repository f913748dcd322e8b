// What one thread will read soon, fetched piece by piece while it has nothing else to do: a piece of each place in turn.
#pragma once
#include <atomic>
#include <cstdint>

#include "camshaft/pool.h"

namespace camshaft {

class alignas(kAlign) Ahead {
 public:
  void set(const Reading& r) {
    end_.store(0, std::memory_order_relaxed);  // a mixture of an old and a new reading costs a useless fetch; a fetch cannot fault
    data_.store(reinterpret_cast<uintptr_t>(r.data), std::memory_order_relaxed);
    apart_.store(r.apart, std::memory_order_relaxed);
    places_.store(size_t(r.places), std::memory_order_relaxed);
    next_.store(0, std::memory_order_relaxed);
    end_.store(r.bytes / kPiece * size_t(r.places), std::memory_order_relaxed);
  }
  // False if there is nothing left to fetch.
  bool fetch() {
    if (next_.load(std::memory_order_relaxed) >= end_.load(std::memory_order_relaxed)) return false;
    const size_t piece = next_.fetch_add(1, std::memory_order_relaxed), places = places_.load(std::memory_order_relaxed);
    const uintptr_t at = data_.load(std::memory_order_relaxed) + piece % places * apart_.load(std::memory_order_relaxed) + piece / places * kPiece;
    for (uintptr_t line = 0; line < kPiece; line += kAlign) __builtin_prefetch(reinterpret_cast<const void*>(at + line), 0, 2);
    return true;
  }

 private:
  static constexpr uintptr_t kPiece = 1024;  // about as long as a few pauses
  std::atomic<uintptr_t> data_{0};
  std::atomic<size_t> apart_{0}, places_{1}, next_{0}, end_{0};  // the last two in pieces
};

}  // namespace camshaft
