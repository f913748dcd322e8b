#include "../simd/vec512.h"

namespace camshaft::avx512 {
namespace {

struct D16 {
  __m512d lo, hi;
};

D16 zero_wide() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
D16 add_wide(D16 a, V16 v) {
  return {_mm512_add_pd(a.lo, _mm512_cvtps_pd(_mm512_castps512_ps256(v.v))), _mm512_add_pd(a.hi, _mm512_cvtps_pd(_mm512_extractf32x8_ps(v.v, 1)))};
}
void store_wide(double* lane, D16 a) {
  _mm512_storeu_pd(lane, a.lo);
  _mm512_storeu_pd(lane + 8, a.hi);
}

}  // namespace
}  // namespace camshaft::avx512

// The width comes first.
#include "../simd/sampling.inl"
