// From a row of raw logits to what the step reports: the sampled id, its log-probability, scores of known tokens.
//
// Log-probabilities are of the raw distribution: x_i - log_sum_exp(x). Then, in order: logit_bias, repetition penalty (prompt and
// output), presence and frequency penalty (output), grammar mask; then argmax (ties to the lowest id) or Drawer. What a row gets depends
// on its logits, its slot and its position, and on nothing else.
#pragma once
#include <vector>

#include "batch.h"
#include "draw.h"
#include "slots.h"

namespace camshaft {

class Sampler {
 public:
  Sampler(const Kernels& kernels, int vocab_size, int threads, Arena& arena);
  // Gives every list in `out` its final size, so that judge() allocates nothing.
  static void size_outputs(const StepBatch& batch, const std::vector<Slot>& slots, int vocab_size, std::vector<RowOutput>& out);
  // Whether all that a taken row asks for is the id of its largest logit.
  static bool wants_only_best(const Taken& taken, const StepBatch& batch, const Slot& slot);
  // Fills in what one taken row contributes. Rows may be judged at once by different workers.
  void judge(const Taken& taken, const StepBatch& batch, const Slot& slot, const float* logits, int worker, RowOutput& out);

 private:
  struct Worker {
    float* x;  // the logits after penalties, bias and mask
    Drawer drawer;
  };
  int sample(const Taken& taken, const StepBatch& batch, const Slot& slot, const float* logits, int best, Worker& w);
  void penalise(const Taken& taken, const StepBatch& batch, const Slot& slot, float* x) const;
  void report(int id, const float* logits, float lse, TokenScore& out) const;

  const Kernels& kernels_;
  int n_;
  std::vector<Worker> workers_;
};

bool is_penalised(const SlotParams& p);

}  // namespace camshaft
