// A loop is one 64-bit word: chunks in all (high half) and the next one to hand out (low half). A thread takes a chunk with a
// compare-and-swap, so one that wakes late finds the word exhausted and touches nothing else; the caller waits for chunks that were taken,
// never for threads. The loop's other fields are written before the word is published and stay until every taken chunk is done.
#include "camshaft/pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "float_mode.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace camshaft {
namespace {

constexpr auto kSpin = std::chrono::microseconds(50);
constexpr int kPausesPerCheck = 32;  // reading the clock costs as much as a few pauses

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `done()`; false if it was not so within kSpin.
template <class Done> bool spin(Done done) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerCheck; ++i) {
      if (done()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return done();
}

struct Loop {
  const LoopBody* body = nullptr;
  int n = 0, grain = 1;
  void chunk(uint32_t i, int worker) const {
    const int begin = int(i) * grain;
    (*body)(begin, std::min(n, begin + grain), worker);
  }
};

}  // namespace

struct ThreadPool::State {
  explicit State(int threads) {
    workers.reserve(size_t(threads - 1));
    try {
      for (int i = 1; i < threads; ++i) workers.emplace_back([this, i] { work(i); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~State() { stop(); }

  void stop() {
    stopping.store(true, std::memory_order_relaxed);
    wake.fetch_add(1);
    wake.notify_all();
    for (std::thread& t : workers) t.join();
  }

  // Takes chunks until there are none; returns how many it ran.
  int drain(int worker) {
    int ran = 0;
    uint64_t seen = word.load(std::memory_order_acquire);
    while (uint32_t(seen) < uint32_t(seen >> 32)) {
      if (!word.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      loop.chunk(uint32_t(seen), worker);
      ++ran;
      seen = word.load(std::memory_order_acquire);
    }
    return ran;
  }

  void work(int worker) {
    const FloatMode mode;
    uint32_t known = 0;
    while (true) {
      if (!spin([&] { return wake.load(std::memory_order_acquire) != known; })) wake.wait(known);
      known = wake.load(std::memory_order_acquire);
      if (stopping.load(std::memory_order_relaxed)) return;
      const int ran = drain(worker);
      if (ran > 0 && pending.fetch_sub(ran, std::memory_order_acq_rel) == ran) pending.notify_one();
    }
  }

  void run(const Loop& next) {
    const int chunks = ceil_div(next.n, next.grain);
    loop = next;
    pending.store(chunks, std::memory_order_relaxed);
    word.store(uint64_t(chunks) << 32, std::memory_order_release);
    wake.fetch_add(1);
    wake.notify_all();  // a system call only if somebody sleeps
    const int ran = drain(0);
    pending.fetch_sub(ran, std::memory_order_acq_rel);
    const auto finished = [&] { return pending.load(std::memory_order_acquire) == 0; };
    if (spin(finished)) return;
    for (int left = pending.load(std::memory_order_acquire); left != 0; left = pending.load(std::memory_order_acquire)) pending.wait(left);
  }

  std::vector<std::thread> workers;
  alignas(kAlign) std::atomic<uint64_t> word{0};
  alignas(kAlign) std::atomic<int> pending{0};
  alignas(kAlign) std::atomic<uint32_t> wake{0};
  std::atomic<bool> stopping{false};
  Loop loop;
};

ThreadPool::ThreadPool(int threads) : state_(std::make_unique<State>(std::max(1, threads))) {}
ThreadPool::~ThreadPool() = default;
int ThreadPool::size() const { return int(state_->workers.size()) + 1; }

void ThreadPool::run(int n, int grain, LoopBody body) {
  if (n <= 0) return;
  const FloatMode mode;
  const Loop loop{&body, n, std::max(1, grain)};
  if (n <= loop.grain || state_->workers.empty()) {
    // Alone there is nothing to hand out and nobody to wake.
    for (int i = 0; i < ceil_div(n, loop.grain); ++i) loop.chunk(uint32_t(i), 0);
    return;
  }
  state_->run(loop);
}

}  // namespace camshaft
