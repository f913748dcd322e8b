// Reading packed tiles as 16 lanes, on two 256-bit registers. Same functions as tiles512.h.
#pragma once
#include "vec256.h"

namespace camshaft::avx2 {

struct I16 {
  __m256i lo, hi;  // int32 lanes 0..7, 8..15
};

// 64 bytes: four input bytes for each of 16 rows.
inline I16 load_words(const void* p) {
  const __m256i* v = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
}
template <int N> inline I16 shift_right(I16 x) { return {_mm256_srli_epi32(x.lo, N), _mm256_srli_epi32(x.hi, N)}; }
inline I16 shift_right(I16 x, int n) {
  const __m128i by = _mm_cvtsi32_si128(n);
  return {_mm256_srl_epi32(x.lo, by), _mm256_srl_epi32(x.hi, by)};
}
template <int N> inline I16 shift_left(I16 x) { return {_mm256_slli_epi32(x.lo, N), _mm256_slli_epi32(x.hi, N)}; }
inline I16 masked(I16 x, int mask) {
  const __m256i m = _mm256_set1_epi32(mask);
  return {_mm256_and_si256(x.lo, m), _mm256_and_si256(x.hi, m)};
}
inline I16 either(I16 a, I16 b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
// The lowest byte of each lane, signed.
inline I16 signed_byte(I16 x) {
  return {_mm256_srai_epi32(_mm256_slli_epi32(x.lo, 24), 24), _mm256_srai_epi32(_mm256_slli_epi32(x.hi, 24), 24)};
}
inline V16 to_floats(I16 x) { return {_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)}; }

inline V16 load_f16(const uint16_t* p) {
  const __m128i* v = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(v)), _mm256_cvtph_ps(_mm_loadu_si128(v + 1))};
}
inline V16 load_bf16(const uint16_t* p) {
  const __m128i* v = reinterpret_cast<const __m128i*>(p);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(v)), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(v + 1)), 16))};
}

}  // namespace camshaft::avx2
