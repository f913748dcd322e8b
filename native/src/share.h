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

// Half of a piece's chunks, at least one if there are any: the first or the last.
inline Piece half_of(const Piece& whole, bool last) {
  const uint32_t count = whole.count == 1 ? 1 : whole.count / 2;
  return {last ? whole.begin + whole.count - count : whole.begin, count};
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
  // Puts chunks of a loop here and tells whose share it is. Nobody may hold a piece of what was here.
  void put(const Loop& loop, const Piece& chunks) {
    loop_ = loop;
    left_.store(uint64_t(chunks.begin + chunks.count) << 32 | chunks.begin, std::memory_order_release);
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
      const Piece piece = half_of(piece_of(seen), last);
      if (piece.count == 0) return piece;
      const uint64_t rest = last ? seen - (uint64_t(piece.count) << 32) : seen + piece.count;
      if (left_.compare_exchange_weak(seen, rest, std::memory_order_acq_rel, std::memory_order_acquire)) return piece;
    }
  }
  uint32_t left() const { return piece_of(left_.load(std::memory_order_acquire)).count; }
  const Loop& loop() const { return loop_; }

 private:
  // Nobody takes more than there is, so that the end is never before the beginning.
  static Piece piece_of(uint64_t word) { return {uint32_t(word), uint32_t(word >> 32) - uint32_t(word)}; }

  std::atomic<uint64_t> left_{0};  // where the chunks that are left end (high half) and begin (low half)
  std::atomic<uint32_t> calls_{0};
  Loop loop_;
};
static_assert(sizeof(Share) == kAlign);

}  // namespace camshaft
