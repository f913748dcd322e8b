// Activations to int8, a group of 32 at a time.
#include <immintrin.h>
#include <cstring>
#include "avx2/acts.h"
#include "kernels_decl.h"

namespace camshaft::avx2 {
namespace {

// max|x| over the group by the order of the bits, so that a NaN wins.
float largest(const __m256* x) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_and_si256(_mm256_castps_si256(x[0]), mask);
  for (int i = 1; i < 4; i++) most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(x[i]), mask));
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return _mm_cvtss_f32(_mm_castsi128_ps(m));
}

__m256i round_clamped(__m256 x, __m256 inverse) {
  __m256 v = _mm256_min_ps(_mm256_mul_ps(x, inverse), _mm256_set1_ps(127.0f));  // 127 where the product is NaN
  v = _mm256_max_ps(v, _mm256_set1_ps(-127.0f));
  return _mm256_cvtps_epi32(v);
}

void quantize_group(const float* p, ActGroup& out) {
  const __m256 x[4] = {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8), _mm256_loadu_ps(p + 16), _mm256_loadu_ps(p + 24)};
  const float most = largest(x);
  const __m256 inverse = _mm256_set1_ps(most == 0 ? 0 : 127.0f / most);
  out.d = most / 127.0f;
  const __m256i a = _mm256_packs_epi32(round_clamped(x[0], inverse), round_clamped(x[1], inverse));
  const __m256i b = _mm256_packs_epi32(round_clamped(x[2], inverse), round_clamped(x[3], inverse));
  // The packs work within 128-bit halves; this permutation of words puts the bytes in order.
  const __m256i q = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q), q);
  const __m256i sums = _mm256_madd_epi16(_mm256_add_epi16(a, b), _mm256_set1_epi16(1));
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  out.isum = _mm_cvtsi128_si32(s);
  out.sum = out.d * static_cast<float>(out.isum);
}

}  // namespace

size_t acts_bytes(int tokens, int cols) { return size_t(tokens) * size_t(ceil_div(cols, kGroup)) * sizeof(ActGroup); }

void quantize(Rows x, int cols, int t_begin, int t_end, int, uint8_t* acts) {
  const int groups = ceil_div(cols, kGroup), whole = cols / kGroup;
  ActGroup* out = reinterpret_cast<ActGroup*>(acts) + int64_t(t_begin) * groups;
  for (int t = t_begin; t < t_end; t++, out += groups) {
    for (int g = 0; g < whole; g++) quantize_group(x[t] + g * kGroup, out[g]);
    if (whole == groups) continue;
    alignas(32) float tail[kGroup] = {};
    std::memcpy(tail, x[t] + whole * kGroup, size_t(cols - whole * kGroup) * sizeof(float));
    quantize_group(tail, out[whole]);
  }
}

}  // namespace camshaft::avx2
