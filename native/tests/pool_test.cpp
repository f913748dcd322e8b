#include "camshaft/pool.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#ifdef __linux__
#include <sched.h>
#endif

using namespace camshaft;

namespace {

void every_index_runs_exactly_once_for_any_size_grain_and_thread_count() {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    CHECK(pool.size() == threads);
    for (int n : {0, 1, 2, 7, 64, 1000})
      for (int grain : {1, 3, 64, 5000}) {
        std::vector<int> hits(size_t(n), 0);
        auto body = [&](int begin, int end, int worker) {
          if (worker < 0 || worker >= threads || begin % grain || (end % grain && end != n)) hits[0] += 100;
          for (int i = begin; i < end; ++i) ++hits[size_t(i)];
        };
        pool.run(n, grain, body);
        for (int h : hits) CHECK(h == 1);
      }
  }
}

// Plain memory written in one loop is read in the next by whichever thread gets there: TSan sees any missing order.
void a_loop_sees_all_that_the_loop_before_it_wrote() {
  ThreadPool pool(4);
  constexpr int n = 257;
  std::vector<int> a(n, 0), b(n, 0);
  for (int round = 1; round <= 2000; ++round) {
    auto write = [&](int begin, int end, int) { for (int i = begin; i < end; ++i) a[size_t(i)] = round + i; };
    auto read = [&](int begin, int end, int) { for (int i = begin; i < end; ++i) b[size_t(i)] = a[size_t(n - 1 - i)]; };
    pool.run(n, 5, write);
    pool.run(n, 3, read);
    for (int i = 0; i < n; i += 64) CHECK(b[size_t(i)] == round + n - 1 - i);
  }
}

void workers_that_parked_come_back() {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> sum{0};
    auto body = [&](int begin, int end, int) { for (int i = begin; i < end; ++i) sum += i; };
    pool.run(100, 1, body);
    CHECK(sum == 4950);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far longer than the spin
  }
}

// One thread holds what it took until all the others are done: the rest must not have been dealt to it in advance.
void a_slow_thread_holds_back_only_what_it_took() {
  for (int threads : {2, 3}) {
    ThreadPool pool(threads);
    std::atomic<int> done{0}, held{0};
    constexpr int n = 50;
    auto body = [&](int begin, int end, int) {
      if (begin == 0) {
        held = end;
        while (done.load() < n - end) std::this_thread::yield();
      }
      done += end - begin;
    };
    pool.run(n, 1, body);
    CHECK(done == n);
    CHECK(held <= n / (2 * threads));
  }
}

// Whoever takes them, and in whatever order: first half of a share at once, single chunks at its end. Two shares of 50.
void what_is_taken_at_once_gets_less_towards_the_end() {
  ThreadPool pool(2);
  const std::vector<int> want = {25, 25, 12, 12, 6, 6, 3, 3, 2, 2, 1, 1, 1, 1};
  for (int round = 0; round < 100; ++round) {
    std::vector<int> taken(100, 0);
    std::atomic<size_t> next{0};
    auto body = [&](int begin, int end, int) { taken[next++] = end - begin; };
    pool.run(100, 1, body);
    taken.resize(next);
    std::sort(taken.begin(), taken.end(), std::greater<>());
    CHECK(taken == want);
  }
}

void the_caller_alone_finishes_a_loop_whose_workers_are_all_asleep() {
  ThreadPool pool(8);  // more threads than this machine may have cores
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> count{0};
    auto body = [&](int begin, int end, int) { count += end - begin; };
    pool.run(16, 1, body);
    CHECK(count == 16);
  }
}

// A worker that loses its core in each chunk, as on a busy machine: it is soon left out, and the loops go on without it.
void a_worker_that_keeps_the_others_waiting_stays_away_for_a_while() {
  ThreadPool pool(2);
  std::atomic<int> helped{0}, count{0};
  auto body = [&](int begin, int end, int worker) {
    count += end - begin;
    if (worker) {
      ++helped;
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
      return;
    }
    // Time enough for the worker to take the other chunk if it wants to.
    const int before = helped;
    for (int i = 0; i < 50 && helped == before; ++i) std::this_thread::sleep_for(std::chrono::microseconds(100));
  };
  constexpr int rounds = 100;
  for (int round = 0; round < rounds; ++round) pool.run(2, 1, body);
  CHECK(count == 2 * rounds);
  CHECK(helped < rounds);  // how many rounds it sits out is a matter of the machine's load
}

void a_worker_on_leave_comes_back_and_keeps_no_pool_from_its_end() {
  for (int round = 0; round < 3; ++round) {
    ThreadPool pool(2);
    std::atomic<int> helped{0};
    auto late = [&](int, int, int worker) {
      if (worker == 0) return;
      ++helped;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    };
    while (helped == 0) pool.run(64, 1, late);
    std::atomic<bool> back{false};
    auto quick = [&](int, int, int worker) {
      if (worker) back = true;
    };
    while (!back && round) pool.run(64, 1, quick);
  }
}

void threads_without_work_stay_awake_while_a_step_lasts_and_park_after_it() {
  ThreadPool pool(4);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> count{0};
    auto body = [&](int begin, int end, int) { count += end - begin; };
    {
      const ThreadPool::Step step(pool);
      for (int loop = 0; loop < 3; ++loop) {
        pool.run(40, 1, body);
        std::this_thread::sleep_for(std::chrono::microseconds(round * 10));
      }
    }
    CHECK(count == 120);
  }
}

#ifdef __linux__
int allowed_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

// As many threads as cores: each worker gets one of its own, the caller keeps them all. Fewer threads: nobody is pinned.
void workers_are_pinned_where_they_have_the_cores_to_themselves() {
  const int cores = allowed_cores();
  if (cores < 2) return;
  for (int threads : {cores, cores + 1}) {
    ThreadPool pool(threads, true);
    std::atomic<int> free_to_move{0}, bound{0};
    auto body = [&](int, int, int worker) {
      if (worker) ++(allowed_cores() == 1 ? bound : free_to_move);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    while (bound + free_to_move == 0) {
      const ThreadPool::Step step(pool);
      pool.run(4 * threads, 1, body);
    }
    CHECK((threads == cores ? free_to_move : bound) == 0);
    CHECK(allowed_cores() == cores);
  }
}
#endif

// A hint is never read: nothing, one byte, an end that lies beyond all memory, and changes in the middle of a loop are all the same to a loop.
void what_is_expected_changes_no_loop() {
  ThreadPool pool(3);
  const uint8_t byte = 0;
  const auto* nowhere = reinterpret_cast<const uint8_t*>(UINTPTR_MAX - 4096);
  const Reading readings[] = {{}, {&byte, 1, 0, 1}, {&byte, 1 << 20, size_t(1) << 40, 4}, {nowhere, 1 << 20, 1 << 20, 2}, {nullptr, 1 << 16, 64, 1}};
  for (int round = 0; round < 500; ++round) {
    std::atomic<int> count{0};
    auto body = [&](int begin, int end, int worker) {
      if (worker == 0) pool.expect(round % 3, readings[(round + begin) % 5]);
      count += end - begin;
    };
    for (int worker = 0; worker < 3; ++worker) pool.expect(worker, readings[(round + worker) % 5]);
    pool.run(20, 1, body);
    CHECK(count == 20);
  }
}

void pools_are_made_and_destroyed_at_any_moment() {
  for (int round = 0; round < 50; ++round) {
    ThreadPool pool(1 + round % 4);
    std::atomic<int> count{0};
    auto body = [&](int begin, int end, int) { count += end - begin; };
    if (round % 3) pool.run(10, 1, body);
    CHECK(count == (round % 3 ? 10 : 0));
  }
}

void every_thread_computes_in_one_float_mode_and_the_caller_gets_its_own_back() {
#if defined(__x86_64__)
  const unsigned mine = _mm_getcsr();
  _mm_setcsr(0x1F80 | 0x8040);  // flush denormals, as some other library in the process might have asked
  for (int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::atomic<int> wrong{0};
    auto body = [&](int, int, int) { if ((_mm_getcsr() & ~0x3Fu) != 0x1F80) ++wrong; };
    pool.run(64, 1, body);
    CHECK(wrong == 0);
    CHECK((_mm_getcsr() & 0x8040) == 0x8040);
  }
  _mm_setcsr(mine);
#endif
}

}  // namespace

int main() {
  RUN(every_index_runs_exactly_once_for_any_size_grain_and_thread_count);
  RUN(a_loop_sees_all_that_the_loop_before_it_wrote);
  RUN(workers_that_parked_come_back);
  RUN(a_slow_thread_holds_back_only_what_it_took);
  RUN(what_is_taken_at_once_gets_less_towards_the_end);
  RUN(the_caller_alone_finishes_a_loop_whose_workers_are_all_asleep);
  RUN(a_worker_that_keeps_the_others_waiting_stays_away_for_a_while);
  RUN(a_worker_on_leave_comes_back_and_keeps_no_pool_from_its_end);
  RUN(threads_without_work_stay_awake_while_a_step_lasts_and_park_after_it);
#ifdef __linux__
  RUN(workers_are_pinned_where_they_have_the_cores_to_themselves);
#endif
  RUN(what_is_expected_changes_no_loop);
  RUN(pools_are_made_and_destroyed_at_any_moment);
  RUN(every_thread_computes_in_one_float_mode_and_the_caller_gets_its_own_back);
  return camshaft::test::result();
}
