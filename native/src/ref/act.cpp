// Scalar twins of the element-wise kernels.
#include "../kernels_decl.h"
#include "../mathf.h"

namespace camshaft::ref {

void silu_mul(const float* gate, const float* up, int n, float* y) {
  for (int i = 0; i < n; i++) y[i] = gate[i] / (1.0f + exp_f32(-gate[i])) * up[i];
}

void gelu_mul(const float* gate, const float* up, int n, float* y) {
  for (int i = 0; i < n; i++) {
    const float g = gate[i];
    const float inner = kGeluInner * std::fma(kGeluCubic * g * g, g, g);
    y[i] = (0.5f * g) * (1.0f + tanh_f32(inner)) * up[i];
  }
}

void add(const float* a, const float* b, int n, float* y) {
  for (int i = 0; i < n; i++) y[i] = a[i] + b[i];
}

void scale(float* x, int n, float by) {
  for (int i = 0; i < n; i++) x[i] *= by;
}

void softcap(float* x, int n, float cap) {
  for (int i = 0; i < n; i++) x[i] = cap * tanh_f32(x[i] / cap);
}

}  // namespace camshaft::ref
