// Scalar twin of rms_norm: the definition that every instruction set must match bit for bit.
#include <cmath>

#include "../kernels_decl.h"

namespace camshaft::ref {

void rms_norm(const float* x, const float* w, int n, float eps, float* y) {
  float lane[kLanes] = {};
  for (int i = 0; i < n; i++) lane[i % kLanes] = std::fma(x[i], x[i], lane[i % kLanes]);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) lane[i] += lane[i + half];
  const float inv = 1.0f / std::sqrt(lane[0] / static_cast<float>(n) + eps);
  for (int i = 0; i < n; i++) y[i] = (x[i] * inv) * w[i];
}

}  // namespace camshaft::ref
