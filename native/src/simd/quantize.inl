// Groups of activations to int8, and their towers, with 256-bit instructions on every x86 set. For the namespace of vec256.h or vec512.h.
#pragma once
#include <cstring>
#include "towers.h"

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

inline QuantisedGroup quantise_group(const __m256 (&x)[4], float most) {
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

// Where the first of the values with the largest |x| stands.
inline int tower_of(const __m256 (&x)[4], float most) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff), bits = _mm256_castps_si256(_mm256_set1_ps(most));
  uint32_t found = 0;
  for (int i = 0; i < 4; i++) {
    const __m256i same = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(x[i]), mask), bits);
    found |= uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(same))) << 8 * i;
  }
  return __builtin_ctz(found);
}

// Quantises one token's groups and lists its towers.
template <class Put> struct TokenQuantiser {
  int token;
  Tower* list;
  int n;
  Put put;

  void add(const float* p, int g) {
    __m256 x[4] = {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8), _mm256_loadu_ps(p + 16), _mm256_loadu_ps(p + 24)};
    const float most = largest(x);
    const QuantisedGroup all = quantise_group(x, most);
    if (all.d == 0 || sum_of_squares(all.q) >= kTowerBelow) return put(token, g, all);
    const int at = tower_of(x, most);
    list[n++] = {p[at], g, static_cast<uint8_t>(at / 4), static_cast<uint8_t>(at % 4), static_cast<uint8_t>(token % kActTile)};
    const __m256i place = _mm256_set1_epi32(at), lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int i = 0; i < 4; i++) {
      const __m256i is_tower = _mm256_cmpeq_epi32(_mm256_add_epi32(lanes, _mm256_set1_epi32(8 * i)), place);
      x[i] = _mm256_andnot_ps(_mm256_castsi256_ps(is_tower), x[i]);
    }
    put(token, g, quantise_group(x, largest(x)));
  }
};

// Calls put(t, g, quantised) for every group of tokens [t_begin, t_end), the last group of a row filled up with zeros, and writes the towers.
template <class Put> inline void for_groups(Rows x, int cols, int t_begin, int t_end, TowerLayout at, uint8_t* towers, Put put) {
  const int whole = cols / kGroup;
  for (int first = t_begin; first < t_end; first += kActTile) {
    int n = 0;
    for (int t = first; t < first + kActTile; t++) {
      if (t < t_end) {
        TokenQuantiser<Put> token{t, at.list(towers, t), n, put};
        for (int g = 0; g < whole; g++) token.add(x[t] + g * kGroup, g);
        if (whole * kGroup < cols) {
          float tail[kGroup] = {};
          std::memcpy(tail, x[t] + whole * kGroup, static_cast<size_t>(cols - whole * kGroup) * sizeof(float));
          token.add(tail, whole);
        }
        n = token.n;
      }
      at.ends(towers, first)[t - first] = n;
    }
  }
}

}  // namespace camshaft::CAMSHAFT_ISA
