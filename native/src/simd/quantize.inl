// Groups of activations to int8, and their towers, with 256-bit instructions on every x86 set. For the namespace of vec256.h or vec512.h.
//
// Each group needs a long chain of steps that wait for each other: a maximum, a division, the rounding, sums. So a stretch of groups is worked
// through in two loops, each over a part of the chain, whose iterations do not wait; and four groups at once find their maxima and sums.
#pragma once
#include <cstring>
#include "towers.h"

namespace camshaft::CAMSHAFT_ISA {

struct QuantisedGroup {
  __m256i q;  // 32 int8
  float d, sum;
  int32_t sums[2];  // of q, inputs 0..15 and 16..31
};

constexpr int kFour = 4;
constexpr int kStretch = 64;  // groups: as many as a mask has bits, and well inside a first-level cache

inline __m256i magnitude(__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff)); }

// For either 128-bit half: the lanes of x[k] by `op` in lane k.
template <class Op> inline __m256i across(const __m256i (&x)[kFour], Op op) {
  const __m256i a = op(_mm256_unpacklo_epi32(x[0], x[1]), _mm256_unpackhi_epi32(x[0], x[1]));
  const __m256i b = op(_mm256_unpacklo_epi32(x[2], x[3]), _mm256_unpackhi_epi32(x[2], x[3]));
  return op(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}
inline __m256i sums_of(const __m256i (&x)[kFour]) {
  return across(x, [](__m256i a, __m256i b) { return _mm256_add_epi32(a, b); });
}
inline __m128i add_halves(__m256i x) { return _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)); }

// max|x| of each of four groups, by the order of the bits, so that a NaN wins.
inline __m128 largest(const float* x) {
  __m256i most[kFour];
  for (int k = 0; k < kFour; k++, x += kGroup)
    most[k] = _mm256_max_epi32(_mm256_max_epi32(magnitude(_mm256_loadu_ps(x)), magnitude(_mm256_loadu_ps(x + 8))),
                               _mm256_max_epi32(magnitude(_mm256_loadu_ps(x + 16)), magnitude(_mm256_loadu_ps(x + 24))));
  const __m256i halves = across(most, [](__m256i a, __m256i b) { return _mm256_max_epi32(a, b); });
  return _mm_castsi128_ps(_mm_max_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)));
}

struct Scales {
  float d[kStretch], inverse[kStretch];
  bool tame;  // no product with an inverse leaves [-127.5, 127.5], or is NaN
};

// The first of each four of n groups. The last four may take some of those before once more; fewer than four count as four.
template <class Each> inline void for_fours(int n, Each each) {
  int first = 0;
  for (; first + kFour <= n; first += kFour) each(first);
  if (first < n) each(n < kFour ? 0 : n - kFour);
}

inline void find_scales(const float* x, int n, Scales& out) {
  const __m128 top = _mm_set1_ps(127.0f), least = _mm_set1_ps(1e-30f), infinity = _mm_set1_ps(__builtin_inff());
  __m128 tame = _mm_castsi128_ps(_mm_set1_epi32(-1));
  for_fours(n, [&](int g) {
    const __m128 most = largest(x + g * kGroup), is_zero = _mm_cmpeq_ps(most, _mm_setzero_ps());
    _mm_storeu_ps(out.d + g, _mm_div_ps(most, top));
    _mm_storeu_ps(out.inverse + g, _mm_andnot_ps(is_zero, _mm_div_ps(top, most)));
    tame = _mm_and_ps(tame, _mm_or_ps(is_zero, _mm_and_ps(_mm_cmpge_ps(most, least), _mm_cmplt_ps(most, infinity))));
  });
  out.tame = _mm_movemask_ps(tame) == 15;
}

template <bool kTame> inline __m256i rounded(const float* x, __m256 inverse) {
  __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x), inverse);
  if (!kTame) v = _mm256_max_ps(_mm256_min_ps(v, _mm256_set1_ps(127.0f)), _mm256_set1_ps(-127.0f));  // 127 where the product is NaN
  return _mm256_cvtps_epi32(v);
}

// The packs work within 128-bit halves; the permutation of words puts the bytes in order.
template <bool kTame> inline __m256i round_group(const float* x, float inverse) {
  const __m256 by = _mm256_set1_ps(inverse);
  const __m256i a = _mm256_packs_epi32(rounded<kTame>(x, by), rounded<kTame>(x + 8, by));
  const __m256i b = _mm256_packs_epi32(rounded<kTame>(x + 16, by), rounded<kTame>(x + 24, by));
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Calls put(g, quantised) for n groups, for some twice and beyond n to four; which of them have a tower.
template <bool kTame, class Put> inline uint64_t round_groups(const float* x, int n, const Scales& scales, Put put) {
  const __m256i one_byte = _mm256_set1_epi8(1), one = _mm256_set1_epi16(1);
  uint64_t towers = 0;
  for_fours(n, [&](int first) {
    __m256i q[kFour], sums[kFour], squares[kFour];
    for (int k = 0; k < kFour; k++) {
      q[k] = round_group<kTame>(x + (first + k) * kGroup, scales.inverse[first + k]);
      const __m256i size = _mm256_abs_epi8(q[k]);
      sums[k] = _mm256_madd_epi16(_mm256_maddubs_epi16(one_byte, q[k]), one);
      squares[k] = _mm256_madd_epi16(_mm256_maddubs_epi16(size, size), one);
    }
    const __m128 d = _mm_loadu_ps(scales.d + first);
    const __m256i halves = sums_of(sums);
    alignas(32) int32_t half[2][kFour];
    alignas(16) float sum[kFour];
    _mm256_store_si256(reinterpret_cast<__m256i*>(half[0]), halves);
    _mm_store_ps(sum, _mm_mul_ps(d, _mm_cvtepi32_ps(add_halves(halves))));
    const __m128i low = _mm_cmplt_epi32(add_halves(sums_of(squares)), _mm_set1_epi32(kTowerBelow));
    const __m128 has_tower = _mm_andnot_ps(_mm_cmpeq_ps(d, _mm_setzero_ps()), _mm_castsi128_ps(low));
    towers |= static_cast<uint64_t>(_mm_movemask_ps(has_tower)) << first;
    for (int k = 0; k < kFour; k++) put(first + k, QuantisedGroup{q[k], scales.d[first + k], sum[k], {half[0][k], half[1][k]}});
  });
  return towers;
}

template <class Put> inline uint64_t quantise_groups(const float* x, int n, Put put) {
  Scales scales;
  find_scales(x, n, scales);
  return scales.tame ? round_groups<true>(x, n, scales, put) : round_groups<false>(x, n, scales, put);
}

// Where the first of the values with the largest |x| stands in a group. The group without it goes to `rest`.
inline int take_tower(const float* x, float* rest) {
  __m256i size[kFour];
  for (int i = 0; i < kFour; i++) size[i] = magnitude(_mm256_loadu_ps(x + 8 * i));
  __m256i most = _mm256_max_epi32(_mm256_max_epi32(size[0], size[1]), _mm256_max_epi32(size[2], size[3]));
  most = _mm256_max_epi32(most, _mm256_permute2x128_si256(most, most, 1));
  most = _mm256_max_epi32(most, _mm256_shuffle_epi32(most, 0x4e));
  most = _mm256_max_epi32(most, _mm256_shuffle_epi32(most, 0xb1));
  uint32_t found = 0;
  for (int i = 0; i < kFour; i++) found |= uint32_t(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(size[i], most)))) << 8 * i;
  const int at = __builtin_ctz(found);
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (int i = 0; i < kFour; i++) {
    const __m256i is_tower = _mm256_cmpeq_epi32(lanes, _mm256_set1_epi32(at - 8 * i));
    _mm256_storeu_ps(rest + 8 * i, _mm256_andnot_ps(_mm256_castsi256_ps(is_tower), _mm256_loadu_ps(x + 8 * i)));
  }
  return at;
}

// Zeros from `floats` on to the end of n groups, or of four.
inline void pad(float* x, int floats, int n) {
  for (int i = floats; i < (n < kFour ? kFour : n) * kGroup; i++) x[i] = 0.0f;
}

// Calls put(g, quantised) for all groups of a row, the last filled up with zeros, as if none had a tower, and tower(g) for those that have.
template <class Put, class HasTower> inline void quantise_row(const float* x, int cols, Put put, HasTower has_tower) {
  for (int first = 0; first * kGroup < cols; first += kStretch) {
    const int floats = cols - first * kGroup < kStretch * kGroup ? cols - first * kGroup : kStretch * kGroup;
    const int n = ceil_div(floats, kGroup);
    const float* from = x + first * kGroup;
    alignas(32) float padded[kStretch * kGroup];
    if (n < kFour || floats % kGroup != 0) {
      std::memcpy(padded, from, static_cast<size_t>(floats) * sizeof(float));
      pad(padded, floats, n);
      from = padded;
    }
    uint64_t towers = quantise_groups(from, n, [put, first, n](int g, const QuantisedGroup& group) {
      if (g < n) put(first + g, group);
    });
    for (; towers; towers &= towers - 1) has_tower(first + __builtin_ctzll(towers));
  }
}

// Fills in the towers [list, list + n) of rows x of one unit, n no more than a stretch, and calls put(tower, quantised) for what they leave of
// their groups.
template <class Put> inline void quantise_rests(Rows x, int cols, Tower* list, int n, Put put) {
  alignas(32) float rest[kStretch * kGroup];
  for (int i = 0; i < n; i++) {
    Tower& tower = list[i];
    const int left = cols - tower.group * kGroup;
    const float* group = x[tower.token] + tower.group * kGroup;
    alignas(32) float padded[kFour * kGroup];
    if (left < kGroup) {
      std::memcpy(padded, group, static_cast<size_t>(left) * sizeof(float));
      pad(padded, left, 1);
      group = padded;
    }
    const int at = take_tower(group, rest + i * kGroup);
    tower.x = group[at], tower.quad = static_cast<uint8_t>(at / 4), tower.byte = static_cast<uint8_t>(at % 4);
  }
  pad(rest, n * kGroup, n);
  quantise_groups(rest, n, [list, n, put](int i, const QuantisedGroup& group) {
    if (i < n) put(list[i], group);
  });
}

// For every token t of [t_begin, t_end) put_of(t)(g, quantised) takes its groups, the last of a row filled up with zeros; and writes the towers.
// Which groups have one is hard to foretell, so all of a unit are done as if none had, and those that do once more.
template <class PutOf> inline void for_groups(Rows x, int cols, int t_begin, int t_end, TowerLayout at, uint8_t* towers, PutOf put_of) {
  for (int first = t_begin; first < t_end; first += kActUnit) {
    Tower* const list = at.list(towers, first);
    int n = 0;
    for (int k = 0; k < kActUnit; k++) {
      const auto note = [&](int g) { list[n++] = {0.0f, g, 0, 0, static_cast<uint8_t>(k)}; };
      if (first + k < t_end) quantise_row(x[first + k], cols, put_of(first + k), note);
      at.ends(towers, first)[k] = n;
    }
    for (int i = 0; i < n; i += kStretch)
      quantise_rests({x[first], x.stride}, cols, list + i, n - i < kStretch ? n - i : kStretch,
                     [&](const Tower& tower, const QuantisedGroup& group) { put_of(first + tower.token)(tower.group, group); });
  }
}

}  // namespace camshaft::CAMSHAFT_ISA
