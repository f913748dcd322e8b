// Products with one token, which memory sets the pace of.
//
// One pass takes the token over several rows of tiles, far from one another. With unsigned 4-bit weights all eight products of a lane fit
// 16 bits (8 * 2 * 15 * 127 = 30480), so a group costs eight vpmaddubsw, seven additions and one widening a half.
#pragma once
#include "tiles.h"

namespace camshaft::avx2 {
namespace {

constexpr int kStreams = 4;           // rows of tiles that a pass reads at once
constexpr size_t kAheadBytes = 1024;  // how far ahead of their use weights are asked for

// Of both halves of a tile.
using Pair = __m256i[kHalves];
using FloatPair = __m256[kHalves];

inline __m256i broadcast_quad(const ActGroup& a, int quad) {
  int32_t word;
  __builtin_memcpy(&word, a.q + 4 * quad, 4);
  return _mm256_set1_epi32(word);
}

inline void add_product(__m256i& sum, __m256i w, __m256i q, bool first) {
  const __m256i product = _mm256_maddubs_epi16(w, q);
  sum = first ? product : _mm256_add_epi16(sum, product);
  hold(sum);
}

// Sums of u * q over quads begin .. end - 1 and the four behind, which lie in the same bytes, as int32.
template <class Tile>
inline void unsigned_sums(const Tile& t, const ActGroup& a, int begin, int end, Pair& sums) {
#pragma GCC unroll 4
  for (int i = begin; i < end; i++) {
    __m256i w[4] = {levels(t, i, 0), levels(t, i, 1), levels(t, i + 4, 0), levels(t, i + 4, 1)};
    for (__m256i& x : w) hold(x);
    const __m256i low = broadcast_quad(a, i), high = broadcast_quad(a, i + 4);
    for (int h = 0; h < kHalves; h++) add_product(sums[h], w[h], low, i == begin), add_product(sums[h], w[2 + h], high, false);
  }
  for (__m256i& s : sums) s = _mm256_madd_epi16(s, ones16());
}

// The sum of s * q over quads [begin, end) for the rows of half h: |s| times q with the sign of s, since vpmaddubsw wants one side
// unsigned. One product can reach 2 * 128 * 127, so each is widened before it is added.
inline __m256i signed_sum(const int8_t (*s)[kRowTile][4], const ActGroup& a, int h, int begin, int end) {
  __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int i = begin; i < end; i++) {
    __m256i w = load_bytes(s[i][8 * h]), size = _mm256_abs_epi8(w);
    hold(w), hold(size);
    const __m256i product = _mm256_madd_epi16(_mm256_maddubs_epi16(size, _mm256_sign_epi8(broadcast_quad(a, i), w)), ones16());
    sum = i == begin ? product : _mm256_add_epi32(sum, product);
    hold(sum);
  }
  return sum;
}

// One group into the accumulators, for each form.
template <class Tile>
inline void add_sums_with_minimum(const Tile& t, const ActGroup& a, const Pair& sums, FloatPair& acc) {
  for (int h = 0; h < kHalves; h++) {
    acc[h] = add_scaled(sums[h], load_8_f16(t.d + 8 * h), a, acc[h]);
    acc[h] = _mm256_fmadd_ps(load_8_f16(t.m + 8 * h), _mm256_set1_ps(a.sum), acc[h]);
  }
}
inline void add_group(const TileQ4& t, const ActGroup& a, FloatPair& acc) {
  Pair sums;
  unsigned_sums(t, a, 0, 4, sums);
  add_sums_with_minimum(t, a, sums, acc);
}
inline void add_group(const TileQ4s& t, const ActGroup& a, FloatPair& acc) {
  Pair sums;
  unsigned_sums(t, a, 0, 4, sums);
  for (int h = 0; h < kHalves; h++)
    acc[h] = add_scaled(_mm256_add_epi32(sums[h], _mm256_set1_epi32(a.minus8)), load_8_f16(t.d + 8 * h), a, acc[h]);
}
inline void add_group(const TileQ5& t, const ActGroup& a, FloatPair& acc) {
  Pair sums, rest;  // 4 * 2 * 31 * 127 = 31496: four products fit 16 bits, not eight
  unsigned_sums(t, a, 0, 2, sums);
  unsigned_sums(t, a, 2, 4, rest);
  for (int h = 0; h < kHalves; h++) sums[h] = _mm256_add_epi32(sums[h], rest[h]);
  add_sums_with_minimum(t, a, sums, acc);
}
inline void add_group(const TileQ8& t, const ActGroup& a, FloatPair& acc) {
  for (int h = 0; h < kHalves; h++) acc[h] = add_scaled(signed_sum(t.s, a, h, 0, kQuads), load_8_f16(t.d + 8 * h), a, acc[h]);
}
inline void add_group(const TileQ8h& t, const ActGroup& a, FloatPair& acc) {
  for (int h = 0; h < kHalves; h++)
    for (int part = 0; part < 2; part++)
      acc[h] = add_scaled(signed_sum(t.s, a, h, 4 * part, 4 * part + 4), load_8_f16(t.d[part] + 8 * h), a, acc[h]);
}

// R rows of tiles, `apart` rows from one another: R streams keep more of memory's latency in flight than one.
template <int R, class Tile>
void pass_of_one(const LinearArgs& a, const ActLayout& at, int r, int apart) {
  const int64_t stride = int64_t(apart) * at.groups;
  const Tile *row = tile_row<Tile>(a.w, r), *tile = row;
  const ActGroup* act = at.groups_of(a.q.data, 0);
  FloatPair acc[R];
  for (auto& one : acc) one[0] = one[1] = _mm256_setzero_ps();
  for (int g = 0; g < at.groups; g++, tile++, act++)
#pragma GCC unroll 4
    for (int i = 0; i < R; i++) {
      fetch(tile + i * stride, kAheadBytes);
      add_group(tile[i * stride], *act, acc[i]);
    }
  const TowerList towers = at.towers_of_token(a.q.data, 0);
  for (int i = 0; i < R; i++) finish(a, 0, r + i * apart, add_towers(row + i * stride, towers, {acc[i][0], acc[i][1]}));
}

template <class Tile>
void one_token(const LinearArgs& a, const ActLayout& at, int tile_begin, int tile_end) {
  const int apart = (tile_end - tile_begin) / kStreams;
  for (int r = tile_begin; r < tile_begin + apart; r++) pass_of_one<kStreams, Tile>(a, at, r, apart);
  for (int r = tile_begin + kStreams * apart; r < tile_end; r++) pass_of_one<1, Tile>(a, at, r, 0);
}

}  // namespace
}  // namespace camshaft::avx2
