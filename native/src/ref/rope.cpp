// Scalar twin of rope.
#include <cmath>

#include "../kernels_decl.h"

namespace camshaft::ref {

void rope(float* x, int n_heads, int head_dim, const float* cos, const float* sin, int half) {
  for (int h = 0; h < n_heads; h++, x += head_dim)
    for (int i = 0; i < half; i++) {
      const float a = x[i], b = x[i + half];
      x[i] = std::fma(a, cos[i], -(b * sin[i]));
      x[i + half] = std::fma(b, cos[i], a * sin[i]);
    }
}

}  // namespace camshaft::ref
