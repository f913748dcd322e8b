// What all products of packed integer weights share: a tile's halves, its levels, and fetching it ahead.
#pragma once
#include "../simd/tiles256.h"
// The width comes first.
#include "../forms/layout.h"
#include "../simd/columns.inl"
#include "../simd/finish.inl"
#include "acts.h"

namespace camshaft::avx2 {
namespace {

constexpr int kHalves = 2;  // of a tile: rows 0..7 and 8..15

// What must melt into its caller: a call, or a loop that is not unrolled, would put the sums into memory.
#define CAMSHAFT_INLINE inline __attribute__((always_inline))

// Keeps the compiler from reassociating sums, or loading a value twice: either spills half of the registers.
CAMSHAFT_INLINE void hold(__m256i& x) { asm volatile("" : "+x"(x)); }
CAMSHAFT_INLINE void hold(__m256& x) { asm volatile("" : "+x"(x)); }

inline __m256i load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m256 load_8_f16(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline __m256i ones16() { return _mm256_set1_epi16(1); }

// Bit `bit` of each byte, as its bit 4.
template <class Tile>
inline __m256i fifth_bits(const Tile& t, int bit, int h) {
  const __m256i high = load_bytes(t.high[8 * h]);
  return _mm256_and_si256(bit < 4 ? _mm256_slli_epi16(high, 4 - bit) : _mm256_srli_epi16(high, bit - 4), _mm256_set1_epi8(16));
}

// Unsigned weights of quad i, 0 to kQuads - 1, for the rows of half h.
template <class Tile>
inline __m256i levels(const Tile& t, int i, int h) {
  __m256i both = load_bytes(t.u[i % 4][8 * h]);
  if (i >= 4) both = _mm256_srli_epi16(both, 4);
  const __m256i low = _mm256_and_si256(both, _mm256_set1_epi8(15));
  if constexpr (requires { t.high; }) return _mm256_or_si256(low, fifth_bits(t, i, h));
  else return low;
}

// Fetches what lies `ahead` bytes behind a tile. Where nothing is, nothing happens.
template <class Tile>
inline void fetch(const Tile* tile, size_t ahead) {
  const char* bytes = reinterpret_cast<const char*>(tile) + ahead;
  for (size_t line = 0; line < sizeof(Tile); line += 64) _mm_prefetch(bytes + line, _MM_HINT_T0);
}

inline __m256 add_scaled(__m256i sum, __m256 d, const ActGroup& a, __m256 acc) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(d, _mm256_set1_ps(a.d)), acc);
}

}  // namespace
}  // namespace camshaft::avx2
