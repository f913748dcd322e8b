// Groups of activations to int8, both planes, with 256-bit instructions on every x86 set. For the namespace of vec256.h or vec512.h.
#pragma once
#include <cstring>
#include "camshaft/view.h"

namespace camshaft::CAMSHAFT_ISA {

struct QuantisedGroup {
  __m256i q;          // 32 int8
  float d;
  int32_t sums[2];  // of q, inputs 0..15 and 16..31
};

// max|x| over the group by the order of the bits, so that a NaN wins.
inline float largest(const __m256 (&x)[4]) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_and_si256(_mm256_castps_si256(x[0]), mask);
  for (int i = 1; i < 4; i++) most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(x[i]), mask));
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return _mm_cvtss_f32(_mm_castsi128_ps(m));
}

inline __m256i round_clamped(__m256 x, __m256 inverse) {
  __m256 v = _mm256_min_ps(_mm256_mul_ps(x, inverse), _mm256_set1_ps(127.0f));  // 127 where the product is NaN
  v = _mm256_max_ps(v, _mm256_set1_ps(-127.0f));
  return _mm256_cvtps_epi32(v);
}

inline QuantisedGroup quantise_group(const __m256 (&x)[4]) {
  const float most = largest(x);
  const __m256 inverse = _mm256_set1_ps(most == 0 ? 0 : 127.0f / most);
  QuantisedGroup out;
  out.d = most / 127.0f;
  const __m256i a = _mm256_packs_epi32(round_clamped(x[0], inverse), round_clamped(x[1], inverse));
  const __m256i b = _mm256_packs_epi32(round_clamped(x[2], inverse), round_clamped(x[3], inverse));
  // The packs work within 128-bit halves; this permutation of words puts the bytes in order.
  out.q = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  const __m256i one = _mm256_set1_epi16(1);
  const __m256i pairs = _mm256_hadd_epi32(_mm256_madd_epi16(a, one), _mm256_madd_epi16(b, one));  // a a b b | a a b b
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  out.sums[0] = _mm_cvtsi128_si32(s);
  out.sums[1] = _mm_extract_epi32(s, 2);
  return out;
}

inline int sum_of_squares(__m256i q) {
  const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8), odd = _mm256_srai_epi16(q, 8);
  const __m256i s = _mm256_add_epi32(_mm256_madd_epi16(even, even), _mm256_madd_epi16(odd, odd));
  __m128i h = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
  h = _mm_add_epi32(h, _mm_shuffle_epi32(h, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(h, _mm_shuffle_epi32(h, 0xb1)));
}

// x less what its quantised form stands for.
inline void subtract(const QuantisedGroup& from, __m256 (&x)[4]) {
  const __m256 minus_d = _mm256_set1_ps(-from.d);
  const __m128i half[2] = {_mm256_castsi256_si128(from.q), _mm256_extracti128_si256(from.q, 1)};
  for (int i = 0; i < 4; i++) {
    const __m128i bytes = i % 2 ? _mm_srli_si128(half[i / 2], 8) : half[i / 2];
    x[i] = _mm256_fmadd_ps(minus_d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), x[i]);
  }
}

// Calls first(t, g, quantised) and, where the second plane is not empty, second(t, g, quantised) for one group of 32 floats.
template <class First, class Second> inline void quantise_planes(const float* p, int t, int g, First first, Second second) {
  __m256 x[4] = {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8), _mm256_loadu_ps(p + 16), _mm256_loadu_ps(p + 24)};
  const QuantisedGroup most = quantise_group(x);
  first(t, g, most);
  if (sum_of_squares(most.q) >= kOutlierBelow) return;
  subtract(most, x);
  const QuantisedGroup rest = quantise_group(x);
  if (rest.d != 0) second(t, g, rest);
}

// The same for every group of tokens [t_begin, t_end), the last group of a row filled up with zeros.
template <class First, class Second> inline void for_groups(Rows x, int cols, int t_begin, int t_end, First first, Second second) {
  const int whole = cols / kGroup;
  for (int t = t_begin; t < t_end; t++) {
    for (int g = 0; g < whole; g++) quantise_planes(x[t] + g * kGroup, t, g, first, second);
    if (whole * kGroup == cols) continue;
    float tail[kGroup] = {};
    std::memcpy(tail, x[t] + whole * kGroup, static_cast<size_t>(cols - whole * kGroup) * sizeof(float));
    quantise_planes(tail, t, whole, first, second);
  }
}

}  // namespace camshaft::CAMSHAFT_ISA
