// The AVX-512 intrinsics: the compiler's own, or, under CAMSHAFT_EMULATE_AVX512, SIMDe's emulation of them on AVX2 and FMA, so that a
// machine without AVX-512 can check the bits. What SIMDe lacks is written out below.
#pragma once

#ifndef CAMSHAFT_EMULATE_AVX512
// GCC 12 takes its own header's deliberately undefined registers for ours.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#ifndef __FMA__
#error "emulate with -mavx2 -mfma: without them SIMDe's fmadd rounds twice"
#endif
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <immintrin.h>

#include <simde/x86/avx512.h>

#include <cstdint>

namespace camshaft::emulated {

inline __m512 maskz_loadu_ps(__mmask16 keep, const float* p) {
  float lanes[16] = {};
  for (int i = 0; i < 16; i++)
    if (keep >> i & 1) lanes[i] = p[i];
  return _mm512_loadu_ps(lanes);
}
inline void mask_storeu_ps(float* p, __mmask16 keep, __m512 v) {
  float lanes[16];
  _mm512_storeu_ps(lanes, v);
  for (int i = 0; i < 16; i++)
    if (keep >> i & 1) p[i] = lanes[i];
}
inline __m512i cvtepu16_epi32(__m256i v) {
  uint16_t from[16];
  int32_t to[16];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(from), v);
  for (int i = 0; i < 16; i++) to[i] = from[i];
  return _mm512_loadu_si512(to);
}
inline __m256i cvtepi32_epi16(__m512i v) {
  int32_t from[16];
  uint16_t to[16];
  _mm512_storeu_si512(from, v);
  for (int i = 0; i < 16; i++) to[i] = static_cast<uint16_t>(from[i]);
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(to));
}

inline __m512i srai_epi32(__m512i v, unsigned n) {
  int32_t lanes[16];
  _mm512_storeu_si512(lanes, v);
  for (int32_t& lane : lanes) lane >>= n;
  return _mm512_loadu_si512(lanes);
}
inline __m512 cvtepi32_ps(__m512i v) {
  int32_t from[16];
  float to[16];
  _mm512_storeu_si512(from, v);
  for (int i = 0; i < 16; i++) to[i] = static_cast<float>(from[i]);
  return _mm512_loadu_ps(to);
}
inline __m512i cvtps_epi32(__m512 v) {
  float from[16];
  int32_t to[16];
  _mm512_storeu_ps(from, v);
  for (int i = 0; i < 16; i += 8) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_cvtps_epi32(_mm256_loadu_ps(from + i)));
  return _mm512_loadu_si512(to);
}
inline __m512 cvtph_ps(__m256i v) {
  float to[16];
  _mm256_storeu_ps(to, _mm256_cvtph_ps(_mm256_castsi256_si128(v)));
  _mm256_storeu_ps(to + 8, _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1)));
  return _mm512_loadu_ps(to);
}

inline __m512d cvtps_pd(__m256 v) {
  float from[8];
  double to[8];
  _mm256_storeu_ps(from, v);
  for (int i = 0; i < 8; i++) to[i] = from[i];
  return _mm512_loadu_pd(to);
}
inline __m256 extractf32x8_ps(__m512 v, int half) {
  float lanes[16];
  _mm512_storeu_ps(lanes, v);
  return _mm256_loadu_ps(lanes + 8 * half);
}

}  // namespace camshaft::emulated

// By macro, as SIMDe does it: the compiler's header has functions of these names already.
#define _mm512_maskz_loadu_ps camshaft::emulated::maskz_loadu_ps
#define _mm512_mask_storeu_ps camshaft::emulated::mask_storeu_ps
#define _mm512_cvtepu16_epi32 camshaft::emulated::cvtepu16_epi32
#define _mm512_srai_epi32 camshaft::emulated::srai_epi32
#define _mm512_cvtepi32_ps camshaft::emulated::cvtepi32_ps
#define _mm512_cvtps_epi32 camshaft::emulated::cvtps_epi32
#define _mm512_cvtph_ps camshaft::emulated::cvtph_ps
#define _mm512_cvtepi32_epi16 camshaft::emulated::cvtepi32_epi16
#define _mm512_cvtps_pd camshaft::emulated::cvtps_pd
#undef _mm512_extractf32x8_ps  // a macro of the compiler's where it does not optimise
#define _mm512_extractf32x8_ps camshaft::emulated::extractf32x8_ps
#endif
