// A loop is dealt out in even shares, one for each thread (share.h). Even workers take the first of their own, odd ones the last: then the same
// tokens of one loop after another mostly fall to the same core, whose caches have them. Who has none left helps the one that has most, from
// the other end. Half of what a share has left is taken at once, single chunks at the end (guided self-scheduling: Polychronopoulos and Kuck,
// IEEE ToC 1987): a core that is slower than the other keeps it waiting for little, and small chunks need not be paid for one by one.
//
// A thread takes chunks with a compare-and-swap, so one that wakes late finds the shares exhausted and touches nothing else; the caller waits
// for chunks that were taken, never for threads. A loop stays in the shares until every taken chunk is done. The caller has its own first piece
// without asking: who asks waits until all that it wrote has reached the other cores.
//
// A worker whose core somebody else takes in the middle of a chunk holds everybody up for a time slice. It is then told to stay away for a
// while, so that a pool on a busy machine is not slower than fewer threads would be.
#include "camshaft/pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "ahead.h"
#include "float_mode.h"
#include "share.h"

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

// Spins until `done()`, and fetches `ahead` all along; false if it was not so within kSpin, or, while `in_step`, kSpinInStep.
template <class Done> bool spin(const std::atomic<bool>& in_step, Done done, Ahead& ahead) {
  const auto began = Clock::now();
  Clock::duration spun{0};
  do {
    for (int i = 0; i < kPausesPerCheck; ++i) {
      if (done()) return true;
      if (!ahead.fetch()) pause();
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

Piece even_share(uint32_t chunks, int threads, int worker) {
  const auto from = [&](int i) { return uint32_t(uint64_t(chunks) * uint64_t(i) / uint64_t(threads)); };
  return {from(worker), from(worker + 1) - from(worker)};
}

}  // namespace

struct ThreadPool::State {
  State(int threads, bool pinned) : shares(size_t(threads)), ahead(size_t(threads)), expected(size_t(threads)), places(pinned, threads) {
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
    call_all();
    for (std::thread& t : workers) t.join();
  }

  void call_all() {
    for (size_t i = 1; i < shares.size(); ++i) shares[i].call();
    wake_sleepers();
  }

  // After a call: a worker that was not yet among the sleepers here sees the call before it sleeps.
  void wake_sleepers() {
    if (sleepers.fetch_add(0) == 0) return;
    for (size_t i = 1; i < shares.size(); ++i) shares[i].notify();
  }

  void sleep(Share& own, uint32_t known) {
    sleepers.fetch_add(1);
    own.wait(known);
    sleepers.fetch_sub(1);
  }

  // Takes chunks until there are none; returns how many it ran. Of its own share a worker takes until it is empty, of another's once: it may
  // have become the wrong one to help.
  int drain(int worker) {
    int ran = 0;
    const auto took = [&](Share& share, bool last) {
      const Piece piece = share.take(last);
      if (piece.count) share.loop().run(piece, worker);
      ran += int(piece.count);
      return piece.count > 0;
    };
    while (took(shares[size_t(worker)], takes_last(worker))) {}
    for (int other = fullest(); other >= 0; other = fullest()) took(shares[size_t(other)], !takes_last(other));
    return ran;
  }

  // Whose share has most left, or -1.
  int fullest() const {
    int found = -1;
    uint32_t most = 0;
    for (size_t i = 0; i < shares.size(); ++i)
      if (const uint32_t left = shares[i].left(); left > most) most = left, found = int(i);
    return found;
  }

  void work(int worker) {
    const FloatMode mode;
    Share& own = shares[size_t(worker)];
    uint32_t known = 0;
    Leave leave;
    while (true) {
      if (!spin(in_step, [&] { return own.calls() != known; }, ahead[size_t(worker)])) sleep(own, known);
      known = own.calls();
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

  void run(const Loop& loop) {
    const auto chunks = uint32_t(ceil_div(loop.n, loop.grain));
    const int threads = int(shares.size());
    pending.store(int(chunks), std::memory_order_relaxed);
    for (int i = threads - 1; i > 0; --i) shares[size_t(i)].put(loop, even_share(chunks, threads, i));
    const Piece share = even_share(chunks, threads, 0), mine = half_of(share, takes_last(0));
    shares[0].put(loop, {share.begin + mine.count, share.count - mine.count});
    if (sleepers.load(std::memory_order_relaxed) > 0) wake_sleepers();  // who sleeps on would do nothing of a long piece
    const auto began = Clock::now();
    if (mine.count) loop.run(mine, 0);
    hand_on_expected();
    wake_sleepers();
    const int ran = int(mine.count) + drain(0);
    const auto ready = Clock::now();
    pending.fetch_sub(ran, std::memory_order_acq_rel);
    if (spin(in_step, [&] { return pending.load(std::memory_order_acquire) == 0; }, ahead[0])) return;
    for (int left = pending.load(std::memory_order_acquire); left != 0; left = pending.load(std::memory_order_acquire)) pending.wait(left);
    const auto waited = Clock::now() - ready;
    if (ran == 0 || waited < kLate + (ready - began) / ran * kLateChunks) return;
    lost.store(waited.count(), std::memory_order_relaxed);
    // Whoever finished last; where two were late together, either will do.
    sent_away.store(finisher.load(std::memory_order_relaxed), std::memory_order_release);
  }

  // While workers are at work: one that waits for it would lose its place in `ahead` to the caller's writing.
  void hand_on_expected() {
    for (size_t i = 0; i < expected.size(); ++i)
      if (expected[i]) ahead[i].set(*std::exchange(expected[i], std::nullopt));
  }

  std::vector<std::thread> workers;
  std::vector<Share> shares;
  std::vector<Ahead> ahead;  // of each thread
  std::vector<std::optional<Reading>> expected;
  Places places;
  // What workers read at every loop lies apart from what is written at every loop.
  alignas(kAlign) std::atomic<bool> stopping{false};
  std::atomic<bool> in_step{false};
  std::atomic<int> sent_away{0};  // the worker that was late; 0: none
  std::atomic<Clock::rep> lost{0};  // what the others waited for it
  alignas(kAlign) std::atomic<int> pending{0};
  std::atomic<int> finisher{0};  // the worker that gave chunks back last
  alignas(kAlign) std::atomic<int> sleepers{0};
};

ThreadPool::ThreadPool(int threads, bool pinned) : state_(std::make_unique<State>(std::max(1, threads), pinned)) {}
ThreadPool::~ThreadPool() = default;
void ThreadPool::expect(int worker, const Reading& reading) { state_->expected[size_t(worker)] = reading; }
int ThreadPool::size() const { return int(state_->workers.size()) + 1; }

std::pair<int, int> ThreadPool::share_of(int chunks, int worker) const {
  const Piece share = even_share(uint32_t(chunks), size(), worker);
  return {int(share.begin), int(share.count)};
}

std::pair<int, int> ThreadPool::first_of(int chunks, int worker) const {
  const Piece first = half_of(even_share(uint32_t(chunks), size(), worker), false);
  return {int(first.begin), int(first.count)};
}

ThreadPool::Step::Step(ThreadPool& pool) : pool_(pool) {
  State& state = *pool.state_;
  if (state.workers.empty()) return;
  state.places.keep_off_the_callers(state.workers);
  state.in_step.store(true, std::memory_order_relaxed);
  state.call_all();  // by the first loop they are there
}

ThreadPool::Step::~Step() { pool_.state_->in_step.store(false, std::memory_order_relaxed); }

void ThreadPool::run(int n, int grain, LoopBody body) {
  if (n <= 0) return;
  const FloatMode mode;
  const Loop loop{&body, n, std::max(1, grain)};
  // Alone there is nothing to hand out and nobody to wake.
  if (n <= loop.grain || state_->workers.empty()) body(0, n, 0);
  else state_->run(loop);
}

}  // namespace camshaft
