// A fixed set of threads for parallel loops. The calling thread is worker 0. Workers spin briefly between loops of one step, then park.
#pragma once
#include <functional>
#include <memory>
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

class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  int size() const;
  // Runs body(begin, end, worker) over [0, n) in chunks of `grain`, handed out dynamically; returns when all are done. Every thread has
  // the same MXCSR (0x1F80: round to nearest, denormals kept), set on entry and restored on the caller. One loop at a time; not reentrant. An exception must not leave the body.
  void run(int n, int grain, LoopBody body);
  // What the loop after the next will read first, or nothing. Threads that wait for others fetch it into their caches meanwhile, so that
  // memory does not rest while one thread works alone. Only a hint: it is never read, and may be anything.
  void expect(const void* data, size_t bytes);
 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace camshaft
