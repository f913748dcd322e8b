// The 16 lanes of a kernel as two 256-bit registers (AVX2, FMA). Same functions as vec512.h; kernels in *.inl are written over either.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define CAMSHAFT_ISA avx2

namespace camshaft::avx2 {

struct V16 {
  __m256 lo, hi;  // lanes 0..7, 8..15
};

constexpr int kAccumulators = 6;  // V16 sums that fit the 16 registers beside one loaded V16 and one broadcast

inline V16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline V16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline V16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, V16 v) { _mm256_storeu_ps(p, v.lo), _mm256_storeu_ps(p + 8, v.hi); }

// All ones in lanes begin <= i < end, of lanes first .. first + 7.
inline __m256i lane_mask(int first, int begin, int end) {
  const __m256i lane = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
  return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(begin), lane), _mm256_cmpgt_epi32(_mm256_set1_epi32(end), lane));
}
// The first n < 16 elements; the other lanes are zero, their memory is not touched.
inline V16 load_n(const float* p, int n) {
  const __m256 lo = _mm256_maskload_ps(p, lane_mask(0, 0, n));
  return {lo, n > 8 ? _mm256_maskload_ps(p + 8, lane_mask(8, 0, n)) : _mm256_setzero_ps()};
}
inline void store_n(float* p, V16 v, int n) {
  _mm256_maskstore_ps(p, lane_mask(0, 0, n), v.lo);
  if (n > 8) _mm256_maskstore_ps(p + 8, lane_mask(8, 0, n), v.hi);
}
// v in lanes begin <= i < end, `other` elsewhere.
inline V16 keep_lanes(V16 v, int begin, int end, V16 other) {
  return {_mm256_blendv_ps(other.lo, v.lo, _mm256_castsi256_ps(lane_mask(0, begin, end))),
          _mm256_blendv_ps(other.hi, v.hi, _mm256_castsi256_ps(lane_mask(8, begin, end)))};
}

inline V16 add(V16 a, V16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline V16 sub(V16 a, V16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline V16 mul(V16 a, V16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline V16 div(V16 a, V16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline V16 min(V16 a, V16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }  // b where a lane is NaN
inline V16 max(V16 a, V16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }  // likewise
inline V16 fma(V16 a, V16 b, V16 c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
inline V16 fms(V16 a, V16 b, V16 c) { return {_mm256_fmsub_ps(a.lo, b.lo, c.lo), _mm256_fmsub_ps(a.hi, b.hi, c.hi)}; }      // a * b - c
inline V16 fnma(V16 a, V16 b, V16 c) { return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)}; }  // c - a * b
inline V16 neg(V16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
}
// p with the low byte of t's mantissa, a signed integer, added to its exponent.
inline V16 add_exponent(V16 p, V16 t) {
  const auto one = [](__m256 x, __m256 n) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(_mm256_castps_si256(n), 23)));
  };
  return {one(p.lo, t.lo), one(p.hi, t.hi)};
}
// v, but 0 where x < bound (not where x is NaN).
inline V16 zero_below(V16 v, V16 x, float bound) {
  const __m256 b = _mm256_set1_ps(bound);
  return {_mm256_and_ps(v.lo, _mm256_cmp_ps(x.lo, b, _CMP_NLT_UQ)), _mm256_and_ps(v.hi, _mm256_cmp_ps(x.hi, b, _CMP_NLT_UQ))};
}

// Sum of the lanes in the contract's order: i += i + 8, then 4, 2, 1.
inline float hsum(V16 v) {
  const __m256 a = _mm256_add_ps(v.lo, v.hi);
  __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
inline float hmax(V16 v) {
  const __m256 a = _mm256_max_ps(v.lo, v.hi);
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

// 16 bf16 as float32 in split order: even elements in the low half, odd ones in the high half. Two cheap operations where the natural
// order costs shuffles; `natural` puts a result back.
inline V16 load_split(const uint16_t* p) {
  const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(raw, 16)), _mm256_castsi256_ps(_mm256_and_si256(raw, upper))};
}
inline V16 natural(V16 split) {
  const __m256 a = _mm256_unpacklo_ps(split.lo, split.hi), b = _mm256_unpackhi_ps(split.lo, split.hi);
  return {_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31)};
}

// float32 to bf16, to nearest even; NaN keeps its upper bits and becomes quiet.
inline __m256i bf16_words(__m256 x) {
  const __m256i u = _mm256_castps_si256(x), upper = _mm256_srli_epi32(u, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, _mm256_set1_epi32(0x40)), nan);
}
inline void store_bf16(uint16_t* p, V16 v) {
  const __m256i packed = _mm256_packus_epi32(bf16_words(v.lo), bf16_words(v.hi));  // 128-bit halves interleave; the permutation undoes it
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}

}  // namespace camshaft::avx2
