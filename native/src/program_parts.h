// What a Program is made of.
#pragma once
#include <atomic>

#include "step.h"

namespace camshaft {

struct Program::Parts {
  Parts(std::unique_ptr<Network> network, std::unique_ptr<ThreadPool> threads, KvPool kv_pool);

  std::unique_ptr<Network> net;
  std::unique_ptr<ThreadPool> pool;
  KvPool kv;
  std::vector<Slot> slots;
  StepBatch batch;
  ActCache acts;
  Sampler sampler;
  LapTimes times;
  std::vector<float*> scratch;
  SplitRoom splits;
  HeadRoom head;
  Rows logits;
  bool keeping = false;
  std::vector<float> kept;
};

}  // namespace camshaft
