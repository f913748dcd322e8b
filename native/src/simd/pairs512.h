// 16 lanes of two int16 each, and of their sums of products in int32, as one 512-bit register. Same functions as pairs256.h.
#pragma once
#include "vec512.h"

namespace camshaft::avx512 {

struct Pairs {
  __m512i v;
};
struct Sums {
  __m512i v;
};

inline Sums zero_sums() { return {_mm512_setzero_si512()}; }
// 16 pairs of int8.
inline Pairs load_pairs(const int8_t* p) { return {_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))}; }
inline Pairs set1_pair(const int16_t* p) {
  int32_t both;
  __builtin_memcpy(&both, p, 4);
  return {_mm512_set1_epi32(both)};
}
inline Sums dot(Pairs a, Pairs b, Sums c) { return {_mm512_dpwssd_epi32(c.v, a.v, b.v)}; }
inline V16 to_float(Sums s) { return {_mm512_cvtepi32_ps(s.v)}; }

// Rounded to nearest even; v is within the type.
inline void store_words(int16_t* p, V16 v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(v.v)));
}
inline void store_bytes(int8_t* p, V16 v) {
  const __m256i words = _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(v.v));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
inline V16 load_bf16(const uint16_t* p) { return load_split(p); }  // in natural order here

// The larger of `most` and |v| in each lane by the bits, so that NaN wins, and the largest lane.
inline Sums max_bits(Sums most, V16 v) {
  return {_mm512_max_epi32(most.v, _mm512_and_si512(_mm512_castps_si512(v.v), _mm512_set1_epi32(0x7fffffff)))};
}
inline float hmax_bits(Sums most) {
  const __m256i a = _mm256_max_epi32(_mm512_castsi512_si256(most.v), _mm512_extracti64x4_epi64(most.v, 1));
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1))));
}

}  // namespace camshaft::avx512
