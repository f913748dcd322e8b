// A fixed set of threads for parallel loops. The calling thread is worker 0. Workers spin while a step lasts and briefly after it, then park.
#pragma once
#include <functional>
#include <memory>
#include <tuple>
#include <utility>

#include "camshaft/view.h"

namespace camshaft {

// A non-owning reference to a callable: no allocation per loop.
class LoopBody {
 public:
  template <class F> LoopBody(F& f) : object_(&f), call_([](void* o, int begin, int end, int worker) { (*static_cast<F*>(o))(begin, end, worker); }) {}
  void operator()(int begin, int end, int worker) const { call_(object_, begin, end, worker); }
 private:
  void* object_;
  void (*call_)(void*, int, int, int);
};

// `bytes` bytes from each of `places` places, `apart` bytes from one another, that are read side by side.
struct Reading {
  const uint8_t* data = nullptr;
  size_t bytes = 0, apart = 0;
  int places = 1;
};

class ThreadPool {
 public:
  // `pinned`: each worker stays on a core of its own, none of them on the caller's, where the process may use exactly as many cores as there
  // are threads; elsewhere the system places them better. The caller itself is never moved.
  explicit ThreadPool(int threads, bool pinned = false);
  ~ThreadPool();
  int size() const;
  // Runs body(begin, end, worker) over [0, n) in chunks of `grain`, of which each thread has an even share and helps others when it is done;
  // several at once while many are left. Returns when all are done. Every thread has the same MXCSR (0x1F80: round to nearest, denormals kept),
  // set on entry and restored on the caller. One loop at a time; not reentrant. An exception must not leave the body.
  void run(int n, int grain, LoopBody body);
  // While one of these lives a step is computed: threads without work keep their cores. One that is given back comes back late where others
  // want it too, by as much as a time slice.
  class Step {
   public:
    explicit Step(ThreadPool& pool);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;
   private:
    ThreadPool& pool_;
  };
  // What `worker` will most likely read first in the loop after the next, or nothing. While it waits for others it fetches that into its
  // caches, so that memory does not rest while one thread works alone. Only a hint: it is never read, and may be anything.
  void expect(int worker, const Reading& reading);
  // The share of a loop's chunks that is dealt to `worker`: where it begins, and how many. It takes them from the front or, if `takes_last`,
  // from the back; helpers come from the other end.
  std::pair<int, int> share_of(int chunks, int worker) const;
  static bool takes_last(int worker) { return worker % 2 != 0; }
  // Which of the chunks of run_forwards `worker` takes first if nobody is late: where they begin, and how many.
  std::pair<int, int> first_of(int chunks, int worker) const;
 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Runs body(begin, end, worker) over pieces of [0, n), of which every thread goes through its share from the front.
template <class Body> void run_forwards(ThreadPool& pool, int n, Body body) {
  auto turned = [&](int begin, int end, int worker) {
    int owner = 0;
    auto [first, count] = pool.share_of(n, owner);
    while (begin >= first + count) std::tie(first, count) = pool.share_of(n, ++owner);
    if (ThreadPool::takes_last(owner)) std::tie(begin, end) = std::pair(2 * first + count - end, 2 * first + count - begin);
    body(begin, end, worker);
  };
  pool.run(n, 1, turned);
}

}  // namespace camshaft
