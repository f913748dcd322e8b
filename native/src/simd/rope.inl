// rope over V16: a lane is a pair.
#include "../kernels_decl.h"
#include "vec.h"

namespace camshaft::CAMSHAFT_ISA {

void rope(float* x, int n_heads, int head_dim, const float* cos, const float* sin, int half) {
  for (int h = 0; h < n_heads; h++, x += head_dim)
    for_lanes(half, [&](int i, int lanes) {
      const V16 a = load_up_to(x + i, lanes), b = load_up_to(x + half + i, lanes);
      const V16 c = load_up_to(cos + i, lanes), s = load_up_to(sin + i, lanes);
      store_up_to(x + i, fms(a, c, mul(b, s)), lanes);
      store_up_to(x + half + i, fma(b, c, mul(a, s)), lanes);
    });
}

}  // namespace camshaft::CAMSHAFT_ISA
