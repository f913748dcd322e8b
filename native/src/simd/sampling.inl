// Sampling's passes over a row of logits: argmax, log_sum_exp, exp_weights. D16 are sixteen lanes of double, defined before this is included.
#include <cfloat>
#include <cmath>

#include "../kernels_decl.h"
#include "vec.h"

namespace camshaft::CAMSHAFT_ISA {
namespace {

constexpr int kBlock = 1024;  // argmax remembers the block of the maximum and looks for the element once, there

// max over x[0, n); `spoilt` gathers NaN from every NaN and +inf: -inf is made finite first, and finite * 0 is 0.
V16 block_max(const float* x, int n, V16& spoilt) {
  V16 most = set1(-INFINITY);
  for_lanes(n, [&](int i, int lanes) {
    const V16 v = keep_lanes(load_up_to(x + i, lanes), 0, lanes, set1(-INFINITY));
    most = max(v, most);
    spoilt = fma(max(set1(-FLT_MAX), v), zero(), spoilt);  // this order of operands lets NaN through
  });
  return most;
}

}  // namespace

int argmax(const float* x, int n) {
  float most = -INFINITY;
  int where = -1;
  V16 spoilt = zero();
  for (int b = 0; b < n; b += kBlock) {
    const float m = hmax(block_max(x + b, n - b < kBlock ? n - b : kBlock, spoilt));
    if (m > most) most = m, where = b;
  }
  if (hsum(spoilt) != 0.0f || where < 0) return -1;
  while (x[where] != most) ++where;
  return where;
}

float log_sum_exp(const float* x, int n) {
  V16 spoilt = zero();
  const float most = hmax(block_max(x, n, spoilt));
  V16 sum = zero();
  for_lanes(n, [&](int i, int lanes) {
    sum = add(sum, keep_lanes(exp_small(sub(load_up_to(x + i, lanes), set1(most))), 0, lanes, zero()));
  });
  return float(double(most) + std::log(double(hsum(sum))));
}

double exp_weights(const float* x, int n, float most, float by, float* p) {
  D16 sum = zero_wide();
  for_lanes(n, [&](int i, int lanes) {
    const V16 w = keep_lanes(exp_small(mul(sub(load_up_to(x + i, lanes), set1(most)), set1(by))), 0, lanes, zero());
    store_up_to(p + i, w, lanes);
    sum = add_wide(sum, w);
  });
  double lane[kLanes];
  store_wide(lane, sum);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}

}  // namespace camshaft::CAMSHAFT_ISA
