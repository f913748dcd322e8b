// A loop is dealt out in even shares, one for each thread, and a share is one 64-bit word: where its chunks that are left end (high half) and
// begin (low half). Even workers take the first of their own, odd ones the last: then the same tokens of one loop after another mostly fall to
// the same core, whose caches have them. Who has none left helps the one that has most, from the other end. A word lies in its owner's
// cache, since cores may be far from each other: on two chips of one package a line takes 0.3 us from one to the other.
//
// A thread takes chunks with a compare-and-swap, so one that wakes late finds the words exhausted and touches nothing else; the caller waits
// for chunks that were taken, never for threads. The loop's other fields are written before the words are published and stay until every
// taken chunk is done. Half of what a share has left is taken at once, single chunks at the end (guided self-scheduling: Polychronopoulos and
// Kuck, IEEE ToC 1987): a core that is slower than the other keeps it waiting for little, and small chunks need not be paid for one by one.
//
// A worker whose core somebody else takes in the middle of a chunk holds everybody up for a time slice. It is then told to stay away for a
// while, so that a pool on a busy machine is not slower than fewer threads would be.
#include "camshaft/pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "float_mode.h"

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace camshaft {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr auto kSpinInStep = std::chrono::milliseconds(2);  // longer than anything that one thread does alone between two loops
constexpr auto kLate = std::chrono::milliseconds(1);  // less than a time slice, more than what interrupts and short threads take
constexpr int kLateChunks = 4;                        // and so many chunks: they differ in length
constexpr auto kShortestLeave = std::chrono::milliseconds(4), kLongestLeave = std::chrono::milliseconds(128);
constexpr int kWorthIt = 4;  // a worker may stay if it kept its core so many times as long as it then lost it
constexpr int kPausesPerCheck = 32;  // reading the clock costs as much as a few pauses

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `done()`, and does `meanwhile` all along; false if it was not so within kSpin, or, while `in_step`, kSpinInStep.
template <class Done, class Meanwhile> bool spin(const std::atomic<bool>& in_step, Done done, Meanwhile meanwhile) {
  const auto began = Clock::now();
  Clock::duration spun{0};
  do {
    for (int i = 0; i < kPausesPerCheck; ++i) {
      if (done()) return true;
      meanwhile();
    }
    spun = Clock::now() - began;
  } while (spun < kSpin || (spun < kSpinInStep && in_step.load(std::memory_order_relaxed)));
  return done();
}

#ifdef __linux__
// Keeps workers on cores of their own.
class Places {
 public:
  Places() = default;
  Places(bool wanted, int threads) {
    cpu_set_t set;
    if (!wanted || threads < 2 || sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) != threads) return;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cores_.push_back(cpu);
  }
  // Workers go to the cores that the calling thread is not on. A system call for each of them, but only after the caller has moved.
  void keep_off_the_callers(std::vector<std::thread>& workers) {
    if (cores_.empty()) return;
    const int callers = sched_getcpu();
    if (callers == callers_) return;
    callers_ = callers;
    auto core = cores_.begin();
    for (std::thread& worker : workers) {
      if (core != cores_.end() && *core == callers) ++core;
      if (core == cores_.end()) return;
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(*core++, &set);
      pthread_setaffinity_np(worker.native_handle(), sizeof set, &set);  // where it fails, the worker stays where it may
    }
  }

 private:
  std::vector<int> cores_;  // empty: the system places everybody
  int callers_ = -1;
};
#else
class Places {
 public:
  Places(bool, int) {}
  void keep_off_the_callers(std::vector<std::thread>&) {}
};
#endif

// What one thread will read soon, fetched piece by piece while it has nothing else to do: a piece of each place in turn.
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
  void fetch_or_pause() {
    if (next_.load(std::memory_order_relaxed) >= end_.load(std::memory_order_relaxed)) return pause();
    const size_t piece = next_.fetch_add(1, std::memory_order_relaxed), places = places_.load(std::memory_order_relaxed);
    const uintptr_t at = data_.load(std::memory_order_relaxed) + piece % places * apart_.load(std::memory_order_relaxed) + piece / places * kPiece;
    for (uintptr_t line = 0; line < kPiece; line += kAlign) __builtin_prefetch(reinterpret_cast<const void*>(at + line), 0, 2);
  }

 private:
  static constexpr uintptr_t kPiece = 1024;  // about as long as a few pauses
  std::atomic<uintptr_t> data_{0};
  std::atomic<size_t> apart_{0}, places_{1}, next_{0}, end_{0};  // the last two in pieces
};

// How long one worker stays away: twice as long as before each time that it loses its core soon after it was back. One that keeps it for
// much longer than it then loses it stays: all threads together are faster than one less, the waiting included.
class Leave {
 public:
  void take(Clock::duration lost, const std::atomic<bool>& stopping) {
    const auto now = Clock::now();
    const bool again = now - back_ < (kWorthIt + 1) * lost;
    length_ = again ? std::clamp(2 * length_, kShortestLeave, kLongestLeave) : std::chrono::milliseconds(0);
    while (Clock::now() - now < length_ && !stopping.load(std::memory_order_relaxed)) std::this_thread::sleep_for(kShortestLeave);
    back_ = Clock::now();
  }

 private:
  std::chrono::milliseconds length_{0};
  Clock::time_point back_{};
};

struct Loop {
  const LoopBody* body = nullptr;
  int n = 0, grain = 1;
  void chunks(uint32_t first, uint32_t count, int worker) const {
    const int begin = int(first) * grain;
    (*body)(begin, std::min(n, begin + int(count) * grain), worker);
  }
};

}  // namespace

struct ThreadPool::State {
  State(int threads, bool pinned) : shares(size_t(threads)), ahead(size_t(threads)), places(pinned, threads) {
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
    wake_all();
    for (std::thread& t : workers) t.join();
  }

  void wake_all() {
    wake.fetch_add(1);
    wake.notify_all();  // a system call only if somebody sleeps
  }

  // Takes chunks until there are none; returns how many it ran.
  int drain(int worker) {
    int ran = take_from(worker, worker);
    for (int other = fullest(); other >= 0; other = fullest()) ran += take_from(other, worker);
    return ran;
  }

  // Of its own share a worker takes until it is empty, of another's once: it may have become the wrong one to help.
  int take_from(int owner, int worker) {
    std::atomic<uint64_t>& word = shares[size_t(owner)].word;
    const bool last = (owner % 2 != 0) == (owner == worker);
    int ran = 0;
    uint64_t seen = word.load(std::memory_order_acquire);
    while (const uint32_t left = left_of(seen)) {
      const uint32_t count = std::max(1u, left / 2);
      const uint64_t less = last ? seen - (uint64_t(count) << 32) : seen + count;
      if (!word.compare_exchange_weak(seen, less, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      loop.chunks(last ? uint32_t(less >> 32) : uint32_t(seen), count, worker);
      ran += int(count);
      if (owner != worker) break;
      seen = word.load(std::memory_order_acquire);
    }
    return ran;
  }

  // Whose share has most left, or -1.
  int fullest() const {
    int found = -1;
    uint32_t most = 0;
    for (size_t i = 0; i < shares.size(); ++i)
      if (const uint32_t left = left_of(shares[i].word.load(std::memory_order_acquire)); left > most) most = left, found = int(i);
    return found;
  }
  static uint32_t left_of(uint64_t word) { return uint32_t(word >> 32) > uint32_t(word) ? uint32_t(word >> 32) - uint32_t(word) : 0; }

  void work(int worker) {
    const FloatMode mode;
    uint32_t known = 0;
    Leave leave;
    while (true) {
      if (!spin(in_step, [&] { return wake.load(std::memory_order_acquire) != known; }, [&] { ahead[size_t(worker)].fetch_or_pause(); })) wake.wait(known);
      known = wake.load(std::memory_order_acquire);
      if (stopping.load(std::memory_order_relaxed)) return;
      if (sent_away.load(std::memory_order_acquire) == worker) {
        sent_away.store(0, std::memory_order_relaxed);
        leave.take(Clock::duration(lost.load(std::memory_order_relaxed)), stopping);
      }
      const int ran = drain(worker);
      if (ran == 0) continue;
      finisher.store(worker, std::memory_order_relaxed);
      if (pending.fetch_sub(ran, std::memory_order_acq_rel) == ran) pending.notify_one();
    }
  }

  void run(const Loop& next) {
    const int chunks = ceil_div(next.n, next.grain);
    loop = next;
    pending.store(chunks, std::memory_order_relaxed);
    for (size_t i = 0, n = shares.size(); i < n; ++i) {
      const uint64_t begin = uint64_t(chunks) * i / n, end = uint64_t(chunks) * (i + 1) / n;
      shares[i].word.store(end << 32 | begin, std::memory_order_release);
    }
    wake_all();
    const auto began = Clock::now();
    const int ran = drain(0);
    const auto ready = Clock::now();
    pending.fetch_sub(ran, std::memory_order_acq_rel);
    const auto finished = [&] { return pending.load(std::memory_order_acquire) == 0; };
    if (spin(in_step, finished, [&] { ahead[0].fetch_or_pause(); })) return;
    for (int left = pending.load(std::memory_order_acquire); left != 0; left = pending.load(std::memory_order_acquire)) pending.wait(left);
    const auto waited = Clock::now() - ready;
    if (ran == 0 || waited < kLate + (ready - began) / ran * kLateChunks) return;
    lost.store(waited.count(), std::memory_order_relaxed);
    // Whoever finished last; where two were late together, either will do.
    sent_away.store(finisher.load(std::memory_order_relaxed), std::memory_order_release);
  }

  std::vector<std::thread> workers;
  struct alignas(kAlign) Share {
    std::atomic<uint64_t> word{0};
  };
  std::vector<Share> shares;
  alignas(kAlign) std::atomic<int> pending{0};
  alignas(kAlign) std::atomic<uint32_t> wake{0};
  std::atomic<bool> stopping{false}, in_step{false};
  std::atomic<int> finisher{0};   // the worker that gave chunks back last
  std::atomic<int> sent_away{0};  // the worker that was late; 0: none
  std::atomic<Clock::rep> lost{0};  // what the others waited for it
  Loop loop;
  std::vector<Ahead> ahead;  // of each thread
  Places places;
};

ThreadPool::ThreadPool(int threads, bool pinned) : state_(std::make_unique<State>(std::max(1, threads), pinned)) {}
ThreadPool::~ThreadPool() = default;
void ThreadPool::expect(int worker, const Reading& reading) { state_->ahead[size_t(worker)].set(reading); }
int ThreadPool::size() const { return int(state_->workers.size()) + 1; }

ThreadPool::Step::Step(ThreadPool& pool) : pool_(pool) {
  State& state = *pool.state_;
  if (state.workers.empty()) return;
  state.places.keep_off_the_callers(state.workers);
  state.in_step.store(true, std::memory_order_relaxed);
  state.wake_all();  // by the first loop they are there
}

ThreadPool::Step::~Step() { pool_.state_->in_step.store(false, std::memory_order_relaxed); }

void ThreadPool::run(int n, int grain, LoopBody body) {
  if (n <= 0) return;
  const FloatMode mode;
  const Loop loop{&body, n, std::max(1, grain)};
  if (n <= loop.grain || state_->workers.empty()) {
    // Alone there is nothing to hand out and nobody to wake.
    for (int i = 0; i < ceil_div(n, loop.grain); ++i) loop.chunks(uint32_t(i), 1, 0);
    return;
  }
  state_->run(loop);
}

}  // namespace camshaft
