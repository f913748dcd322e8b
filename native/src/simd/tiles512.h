// Reading packed tiles as 16 lanes, on one 512-bit register. Same functions as tiles256.h.
#pragma once
#include "vec512.h"

namespace camshaft::avx512 {

struct I16 {
  __m512i v;  // int32 lanes
};

// 64 bytes: four input bytes for each of 16 rows.
inline I16 load_words(const void* p) { return {_mm512_loadu_si512(p)}; }
template <int N> inline I16 shift_right(I16 x) { return {_mm512_srli_epi32(x.v, N)}; }
inline I16 shift_right(I16 x, int n) { return {_mm512_srl_epi32(x.v, _mm_cvtsi32_si128(n))}; }
template <int N> inline I16 shift_left(I16 x) { return {_mm512_slli_epi32(x.v, N)}; }
inline I16 masked(I16 x, int mask) { return {_mm512_and_si512(x.v, _mm512_set1_epi32(mask))}; }
inline I16 either(I16 a, I16 b) { return {_mm512_or_si512(a.v, b.v)}; }
// The lowest byte of each lane, signed.
inline I16 signed_byte(I16 x) { return {_mm512_srai_epi32(_mm512_slli_epi32(x.v, 24), 24)}; }
inline V16 to_floats(I16 x) { return {_mm512_cvtepi32_ps(x.v)}; }

inline V16 load_f16(const uint16_t* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))}; }
inline V16 load_bf16(const uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}

}  // namespace camshaft::avx512
