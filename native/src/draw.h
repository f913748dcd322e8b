// Drawing one token from a row of logits: temperature, top-k, top-p, min-p, then a point on the cumulative distribution.
//
// Candidates stand in order of (logit descending, id ascending), with weights p_i = exp_f32((x_i - max) / temperature). Kept is a prefix:
// the first top_k; of those, the shortest prefix with at least top_p of their weight; of those, the ones with p_i >= min_p (the first has
// p = 1). Drawn is the first kept candidate whose cumulative weight exceeds u times the weight of all kept.
// No vocabulary is sorted for that: candidates fall into buckets an eighth of a nat wide, and only buckets where something ends are sorted.
#pragma once
#include <span>

#include "camshaft/ops.h"
#include "memory.h"

namespace camshaft {

struct DrawParams {
  float temperature, top_p, min_p;
  int top_k;
};

class Drawer {
 public:
  Drawer(const Kernels& kernels, int n, Arena& arena);
  // x[n] holds no NaN and no +inf; its largest value, x[best], is finite. 0 <= u < 1.
  int draw(const float* x, int best, const DrawParams& params, double u);

 private:
  static constexpr int kPerNat = 8, kBuckets = 88 * kPerNat + 1;  // beyond 88 nats a weight is 0
  // Kept: all of the buckets before `bucket`, and the first `within` of it.
  struct Cut {
    int bucket, within;
    double mass;
  };
  void weigh(const float* x, float max, float by);
  std::span<const int32_t> ranked(int bucket);
  Cut whole() const;
  Cut cut_top_k(const Cut& c, int k);
  Cut cut_top_p(const Cut& c, double p);
  Cut cut_min_p(const Cut& c, float p);
  double mass_within(int bucket, int within);
  int pick(const Cut& c, double u);

  const Kernels& kernels_;
  int n_;
  const float* x_ = nullptr;
  float* p_;
  int32_t *bucket_of_, *ids_;
  static constexpr int kWays = 4;  // neighbours often share a bucket: in turn over four sums, no addition waits for the one before it
  struct Bin {
    double mass;
    int count;
  };
  Bin bins_[kWays][kBuckets];
  int ranked_ = -1;  // the bucket that ids_ holds in order
  int count_[kBuckets];
  double mass_[kBuckets];
};

}  // namespace camshaft
