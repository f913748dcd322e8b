// 16 lanes of two int16 each, and of their sums of products in int32, as two 256-bit registers. Same functions as pairs512.h.
#pragma once
#include "vec256.h"

namespace camshaft::avx2 {

struct Pairs {
  __m256i lo, hi;
};
struct Sums {
  __m256i lo, hi;
};

inline Sums zero_sums() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
// 16 pairs of int8.
inline Pairs load_pairs(const int8_t* p) {
  const auto* from = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtepi8_epi16(_mm_loadu_si128(from)), _mm256_cvtepi8_epi16(_mm_loadu_si128(from + 1))};
}
inline Pairs set1_pair(const int16_t* p) {
  int32_t both;
  __builtin_memcpy(&both, p, 4);
  return {_mm256_set1_epi32(both), _mm256_set1_epi32(both)};
}
// Added in place: left to itself, GCC 12 adds into other registers and moves all sums back at every step of a loop.
inline Sums dot(Pairs a, Pairs b, Sums c) {
  asm("vpaddd %1, %0, %0" : "+x"(c.lo) : "x"(_mm256_madd_epi16(a.lo, b.lo)));
  asm("vpaddd %1, %0, %0" : "+x"(c.hi) : "x"(_mm256_madd_epi16(a.hi, b.hi)));
  return c;
}
inline V16 to_float(Sums s) { return {_mm256_cvtepi32_ps(s.lo), _mm256_cvtepi32_ps(s.hi)}; }

// Rounded to nearest even; v is within the type.
inline void store_words(int16_t* p, V16 v) {
  const __m256i packed = _mm256_packs_epi32(_mm256_cvtps_epi32(v.lo), _mm256_cvtps_epi32(v.hi));  // 128-bit halves interleave
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
inline void store_bytes(int8_t* p, V16 v) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(_mm256_cvtps_epi32(v.lo), _mm256_cvtps_epi32(v.hi)), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
inline V16 load_bf16(const uint16_t* p) {
  const auto* from = reinterpret_cast<const __m128i*>(p);
  const auto one = [](__m128i h) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)); };
  return {one(_mm_loadu_si128(from)), one(_mm_loadu_si128(from + 1))};
}

// The larger of `most` and |v| in each lane by the bits, so that NaN wins, and the largest lane.
inline Sums max_bits(Sums most, V16 v) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  return {_mm256_max_epi32(most.lo, _mm256_and_si256(_mm256_castps_si256(v.lo), mask)),
          _mm256_max_epi32(most.hi, _mm256_and_si256(_mm256_castps_si256(v.hi), mask))};
}
inline float hmax_bits(Sums most) {
  const __m256i a = _mm256_max_epi32(most.lo, most.hi);
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1))));
}

}  // namespace camshaft::avx2
