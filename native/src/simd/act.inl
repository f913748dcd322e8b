// The element-wise kernels over V16.
#include "../kernels_decl.h"
#include "vec.h"

namespace camshaft::CAMSHAFT_ISA {

void silu_mul(const float* gate, const float* up, int n, float* y) {
  for_lanes(n, [&](int i, int lanes) {
    const V16 g = load_up_to(gate + i, lanes);
    store_up_to(y + i, mul(div(g, add(set1(1.0f), exp(neg(g)))), load_up_to(up + i, lanes)), lanes);
  });
}

void gelu_mul(const float* gate, const float* up, int n, float* y) {
  for_lanes(n, [&](int i, int lanes) {
    const V16 g = load_up_to(gate + i, lanes);
    const V16 inner = mul(set1(kGeluInner), fma(mul(mul(set1(kGeluCubic), g), g), g, g));
    const V16 gelu = mul(mul(set1(0.5f), g), add(set1(1.0f), tanh(inner)));
    store_up_to(y + i, mul(gelu, load_up_to(up + i, lanes)), lanes);
  });
}

void add(const float* a, const float* b, int n, float* y) {
  for_lanes(n, [&](int i, int lanes) { store_up_to(y + i, add(load_up_to(a + i, lanes), load_up_to(b + i, lanes)), lanes); });
}

void scale(float* x, int n, float by) {
  for_lanes(n, [&](int i, int lanes) { store_up_to(x + i, mul(load_up_to(x + i, lanes), set1(by)), lanes); });
}

void softcap(float* x, int n, float cap) {
  for_lanes(n, [&](int i, int lanes) { store_up_to(x + i, mul(set1(cap), tanh(div(load_up_to(x + i, lanes), set1(cap)))), lanes); });
}

}  // namespace camshaft::CAMSHAFT_ISA
