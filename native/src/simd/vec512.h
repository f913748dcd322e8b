// The 16 lanes of a kernel as one 512-bit register. Same functions as vec256.h; kernels in *.inl are written over either.
#pragma once
#include <cstddef>
#include <cstdint>

#include "../avx512/intrin.h"

#define CAMSHAFT_ISA avx512

namespace camshaft::avx512 {

struct V16 {
  __m512 v;
};

constexpr int kAccumulators = 24;  // V16 sums that fit the 32 registers beside four loaded V16 and a broadcast

inline V16 zero() { return {_mm512_setzero_ps()}; }
inline V16 set1(float x) { return {_mm512_set1_ps(x)}; }
inline V16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, V16 v) { _mm512_storeu_ps(p, v.v); }

// Ones in lanes begin <= i < end, clipped to the 16 there are.
inline __mmask16 lane_mask(int begin, int end) {
  const auto below = [](int n) { return n <= 0 ? 0u : n >= 16 ? 0xffffu : (1u << n) - 1u; };
  return static_cast<__mmask16>(below(end) & ~below(begin));
}
// The first n < 16 elements; the other lanes are zero, their memory is not touched.
inline V16 load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(lane_mask(0, n), p)}; }
inline void store_n(float* p, V16 v, int n) { _mm512_mask_storeu_ps(p, lane_mask(0, n), v.v); }
// v in lanes begin <= i < end, `other` elsewhere.
inline V16 keep_lanes(V16 v, int begin, int end, V16 other) { return {_mm512_mask_mov_ps(other.v, lane_mask(begin, end), v.v)}; }

inline V16 add(V16 a, V16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline V16 sub(V16 a, V16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline V16 mul(V16 a, V16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline V16 div(V16 a, V16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline V16 min(V16 a, V16 b) { return {_mm512_min_ps(a.v, b.v)}; }  // b where a lane is NaN
inline V16 max(V16 a, V16 b) { return {_mm512_max_ps(a.v, b.v)}; }  // likewise
inline V16 fma(V16 a, V16 b, V16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline V16 fms(V16 a, V16 b, V16 c) { return {_mm512_fmsub_ps(a.v, b.v, c.v)}; }    // a * b - c
inline V16 fnma(V16 a, V16 b, V16 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a * b
inline V16 neg(V16 a) {
  return {_mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(a.v), _mm512_set1_epi32(static_cast<int>(0x80000000u))))};
}
// p with the low byte of t's mantissa, a signed integer, added to its exponent.
inline V16 add_exponent(V16 p, V16 t) {
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p.v), _mm512_slli_epi32(_mm512_castps_si512(t.v), 23)))};
}
// v, but 0 where x < bound (not where x is NaN).
inline V16 zero_below(V16 v, V16 x, float bound) {
  return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(bound), _CMP_NLT_UQ), v.v)};
}

inline __m256 lower_half(__m512 v) { return _mm512_castps512_ps256(v); }
inline __m256 upper_half(__m512 v) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1)); }

// Sum of the lanes in the contract's order: i += i + 8, then 4, 2, 1.
inline float hsum(V16 v) {
  const __m256 a = _mm256_add_ps(lower_half(v.v), upper_half(v.v));
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
inline float hmax(V16 v) {
  const __m256 a = _mm256_max_ps(lower_half(v.v), upper_half(v.v));
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

// 16 bf16 as float32. One widening load keeps the natural order here, so `natural` has nothing to do.
inline V16 load_split(const uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline V16 natural(V16 split) { return split; }

// float32 to bf16, to nearest even; NaN keeps its upper bits and becomes quiet. Not vcvtneps2bf16, which flushes subnormals.
inline void store_bf16(uint16_t* p, V16 v) {
  const __m512i u = _mm512_castps_si512(v.v), upper = _mm512_srli_epi32(u, 16);
  const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(v.v, v.v, _CMP_UNORD_Q);
  const __m512i words = _mm512_mask_mov_epi32(rounded, nan, _mm512_or_si512(upper, _mm512_set1_epi32(0x40)));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(words));
}

}  // namespace camshaft::avx512
