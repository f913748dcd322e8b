// rms_norm over V16.
#include "../kernels_decl.h"
#include "vec.h"

namespace camshaft::CAMSHAFT_ISA {

void rms_norm(const float* x, const float* w, int n, float eps, float* y) {
  V16 squares = zero();
  for_lanes(n, [&](int i, int lanes) {
    const V16 v = load_up_to(x + i, lanes);
    squares = fma(v, v, squares);
  });
  const V16 inv = set1(1.0f / __builtin_sqrtf(hsum(squares) / static_cast<float>(n) + eps));
  for_lanes(n, [&](int i, int lanes) { store_up_to(y + i, mul(mul(load_up_to(x + i, lanes), inv), load_up_to(w + i, lanes)), lanes); });
}

}  // namespace camshaft::CAMSHAFT_ISA
