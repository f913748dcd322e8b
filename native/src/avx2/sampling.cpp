#include "../simd/vec256.h"

namespace camshaft::avx2 {
namespace {

struct D16 {
  __m256d q[4];
};

D16 zero_wide() { return {{_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()}}; }
D16 add_wide(D16 a, V16 v) {
  a.q[0] = _mm256_add_pd(a.q[0], _mm256_cvtps_pd(_mm256_castps256_ps128(v.lo)));
  a.q[1] = _mm256_add_pd(a.q[1], _mm256_cvtps_pd(_mm256_extractf128_ps(v.lo, 1)));
  a.q[2] = _mm256_add_pd(a.q[2], _mm256_cvtps_pd(_mm256_castps256_ps128(v.hi)));
  a.q[3] = _mm256_add_pd(a.q[3], _mm256_cvtps_pd(_mm256_extractf128_ps(v.hi, 1)));
  return a;
}
void store_wide(double* lane, D16 a) {
  for (int i = 0; i < 4; ++i) _mm256_storeu_pd(lane + 4 * i, a.q[i]);
}

}  // namespace
}  // namespace camshaft::avx2

// The width comes first.
#include "../simd/sampling.inl"
