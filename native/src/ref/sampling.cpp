// argmax, log_sum_exp and exp_weights: sampling's passes over a whole row of logits.
#include "kernels_decl.h"
#include "mathf.h"

namespace camshaft::ref {
namespace {

template <class T> T hsum(T* lane) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  return lane[0];
}

}  // namespace

int argmax(const float* x, int n) {
  int best = 0;
  bool finite = true;
  for (int i = 0; i < n; ++i) {
    finite &= x[i] < INFINITY;  // false for NaN too
    if (x[i] > x[best]) best = i;
  }
  return finite && x[best] > -INFINITY ? best : -1;
}

float log_sum_exp(const float* x, int n) {
  float max = x[0];
  for (int i = 1; i < n; ++i) max = x[i] > max ? x[i] : max;
  float lane[kLanes] = {};
  for (int i = 0; i < n; ++i) lane[i % kLanes] += exp_f32(x[i] - max);
  return float(double(max) + std::log(double(hsum(lane))));
}

double exp_weights(const float* x, int n, float max, float by, float* p) {
  double lane[kLanes] = {};
  for (int i = 0; i < n; ++i) {
    p[i] = exp_f32((x[i] - max) * by);
    lane[i % kLanes] += double(p[i]);
  }
  return hsum(lane);
}

}  // namespace camshaft::ref
