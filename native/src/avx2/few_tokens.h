// Products with few tokens, up to three a pass: weights go from the packed tile to registers, and nothing is kept for the next pass.
//
// One pass takes M tokens over a row of tiles, with both 8-row halves of a tile at once: an activation word, broadcast from memory, meets
// both halves, and 2 * M sums plus 2 * M accumulators fit the sixteen registers. With unsigned 4-bit weights all eight products of a lane
// fit 16 bits (8 * 2 * 15 * 127 = 30480), so a group costs eight vpmaddubsw, seven additions and one widening a half and token.
#pragma once
#include "../simd/tiles256.h"
// The width comes first.
#include "../forms/layout.h"
#include "../simd/columns.inl"
#include "../simd/finish.inl"
#include "acts.h"

namespace camshaft::avx2 {
namespace {

constexpr int kHalves = 2;           // of a tile: rows 0..7 and 8..15
constexpr int kStreams = 4;           // far places that one token's pass reads weights from at once
constexpr size_t kAheadBytes = 1024;  // how far ahead of their use it asks for them
constexpr size_t kFarBytes = 4096;    // the same for passes with one stream, into the rows of tiles to come

template <int M>
using Ints = __m256i[kHalves][M];
template <int M>
using Floats = __m256[kHalves][M];

// Keeps the compiler from reassociating integer sums, or loading a value twice: either spills half of the registers.
inline void pin(__m256i& x) { asm volatile("" : "+x"(x)); }

inline __m256i load_bytes(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m256i load_half(const uint8_t (&u)[kRowTile][4], int h) { return load_bytes(u[8 * h]); }
inline __m256 load_8_f16(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline __m256i ones16() { return _mm256_set1_epi16(1); }

inline __m256i broadcast_quad(const ActGroup& a, int quad) {
  int32_t word;
  __builtin_memcpy(&word, a.q + 4 * quad, 4);
  return _mm256_set1_epi32(word);
}

// Unsigned weights of quads i and i + 4 for both halves: w[0..1] low, w[2..3] high.
template <class Tile>
inline void load_quads(const Tile& t, int i, __m256i (&w)[4]) {
  const __m256i low = _mm256_set1_epi8(15);
  for (int h = 0; h < kHalves; h++) {
    const __m256i both = load_half(t.u[i], h);
    w[h] = _mm256_and_si256(both, low);
    w[2 + h] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
  }
}

inline void load_quads(const TileQ5& t, int i, __m256i (&w)[4]) {
  load_quads<TileQ5>(t, i, w);
  const __m256i fifth = _mm256_set1_epi8(16);
  for (int h = 0; h < kHalves; h++) {
    const __m256i bits = load_half(t.high, h);
    w[h] = _mm256_or_si256(w[h], _mm256_and_si256(_mm256_slli_epi16(bits, 4 - i), fifth));
    w[2 + h] = _mm256_or_si256(w[2 + h], _mm256_and_si256(_mm256_srli_epi16(bits, i), fifth));
  }
}

// Fetches what lies `ahead` bytes behind a tile. Where nothing is, nothing happens.
template <class Tile>
inline void fetch(const Tile* tile, size_t ahead) {
  const char* bytes = reinterpret_cast<const char*>(tile) + ahead;
  for (size_t line = 0; line < sizeof(Tile); line += 64) _mm_prefetch(bytes + line, _MM_HINT_T0);
}

inline void add_product(__m256i& sum, __m256i w, __m256i q, bool first) {
  const __m256i product = _mm256_maddubs_epi16(w, q);
  sum = first ? product : _mm256_add_epi16(sum, product);
  pin(sum);
}

// Sums of u * q over steps [begin, end) of load_quads, as int32.
template <int M, class Tile>
inline void unsigned_sums(const Tile& t, const ActGroup* const (&a)[M], int begin, int end, Ints<M>& sums) {
#pragma GCC unroll 4
  for (int i = begin; i < end; i++) {
    __m256i w[4];
    load_quads(t, i, w);
    for (__m256i& x : w) pin(x);
#pragma GCC unroll 4
    for (int k = 0; k < M; k++) {
      const __m256i low = broadcast_quad(*a[k], i), high = broadcast_quad(*a[k], i + 4);
      add_product(sums[0][k], w[0], low, i == begin);
      add_product(sums[1][k], w[1], low, i == begin);
      add_product(sums[0][k], w[2], high, false);
      add_product(sums[1][k], w[3], high, false);
    }
  }
  for (auto& half : sums)
    for (__m256i& s : half) s = _mm256_madd_epi16(s, ones16());
}

// Sums of s * q over quads [begin, end) for the rows of half h: |s| times q with the sign of s, since vpmaddubsw wants one side unsigned. One
// product can reach 2 * 128 * 127, so each is widened before it is added.
template <int M>
inline void signed_sums(const int8_t (*s)[kRowTile][4], const ActGroup* const (&a)[M], int h, int begin, int end, __m256i (&sums)[M]) {
#pragma GCC unroll 8
  for (int i = begin; i < end; i++) {
    __m256i w = load_bytes(s[i][8 * h]), size = _mm256_abs_epi8(w);
    pin(w), pin(size);
#pragma GCC unroll 4
    for (int k = 0; k < M; k++) {
      const __m256i q = _mm256_sign_epi8(broadcast_quad(*a[k], i), w);
      const __m256i product = _mm256_madd_epi16(_mm256_maddubs_epi16(size, q), ones16());
      sums[k] = i == begin ? product : _mm256_add_epi32(sums[k], product);
      pin(sums[k]);
    }
  }
}

inline __m256 add_scaled(__m256i sum, __m256 d, const ActGroup& a, __m256 acc) {
  return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(d, _mm256_set1_ps(a.d)), acc);
}

// One group into the accumulators, for each form.
template <int M, class Tile>
inline void add_sums_with_minimum(const Tile& t, const ActGroup* const (&a)[M], const Ints<M>& sums, Floats<M>& acc) {
  for (int h = 0; h < kHalves; h++) {
    const __m256 d = load_8_f16(t.d + 8 * h), m = load_8_f16(t.m + 8 * h);
    for (int k = 0; k < M; k++) {
      acc[h][k] = add_scaled(sums[h][k], d, *a[k], acc[h][k]);
      acc[h][k] = _mm256_fmadd_ps(m, _mm256_set1_ps(a[k]->sum), acc[h][k]);
    }
  }
}

template <int M>
inline void add_group(const TileQ4& t, const ActGroup* const (&a)[M], Floats<M>& acc) {
  Ints<M> sums;
  unsigned_sums<M>(t, a, 0, 4, sums);
  add_sums_with_minimum<M>(t, a, sums, acc);
}

template <int M>
inline void add_group(const TileQ4s& t, const ActGroup* const (&a)[M], Floats<M>& acc) {
  Ints<M> sums;
  unsigned_sums<M>(t, a, 0, 4, sums);
  for (int h = 0; h < kHalves; h++) {
    const __m256 d = load_8_f16(t.d + 8 * h);
    for (int k = 0; k < M; k++) acc[h][k] = add_scaled(_mm256_add_epi32(sums[h][k], _mm256_set1_epi32(a[k]->minus8)), d, *a[k], acc[h][k]);
  }
}

template <int M>
inline void add_group(const TileQ5& t, const ActGroup* const (&a)[M], Floats<M>& acc) {
  Ints<M> sums, rest;  // 4 * 2 * 31 * 127 = 31496: four products fit 16 bits, not eight
  unsigned_sums<M>(t, a, 0, 2, sums);
  unsigned_sums<M>(t, a, 2, 4, rest);
  for (int h = 0; h < kHalves; h++)
    for (int k = 0; k < M; k++) sums[h][k] = _mm256_add_epi32(sums[h][k], rest[h][k]);
  add_sums_with_minimum<M>(t, a, sums, acc);
}

template <int M>
inline void add_group(const TileQ8& t, const ActGroup* const (&a)[M], Floats<M>& acc) {
  for (int h = 0; h < kHalves; h++) {
    __m256i sums[M];
    signed_sums<M>(t.s, a, h, 0, kQuads, sums);
    const __m256 d = load_8_f16(t.d + 8 * h);
    for (int k = 0; k < M; k++) acc[h][k] = add_scaled(sums[k], d, *a[k], acc[h][k]);
  }
}

template <int M>
inline void add_group(const TileQ8h& t, const ActGroup* const (&a)[M], Floats<M>& acc) {
  for (int h = 0; h < kHalves; h++)
    for (int part = 0; part < 2; part++) {
      __m256i sums[M];
      signed_sums<M>(t.s, a, h, 4 * part, 4 * part + 4, sums);
      const __m256 d = load_8_f16(t.d[part] + 8 * h);
      for (int k = 0; k < M; k++) acc[h][k] = add_scaled(sums[k], d, *a[k], acc[h][k]);
    }
}

// M tokens from t on over one row of tiles.
template <int M, class Tile>
void pass(const LinearArgs& a, const ActLayout& at, int t, int r) {
  const Tile *row = tile_row<Tile>(a.w, r), *tile = row;
  const ActGroup* acts[M];
  Floats<M> acc;
  for (int k = 0; k < M; k++) {
    acts[k] = at.narrow(a.q.data) + int64_t(t + k) * at.groups;
    acc[0][k] = acc[1][k] = _mm256_setzero_ps();
  }
  for (int g = 0; g < at.groups; g++, tile++) {
    fetch(tile, kFarBytes);
    add_group<M>(*tile, acts, acc);
    for (auto& p : acts) p++;
  }
  for (int k = 0; k < M; k++) finish(a, t + k, r, add_towers(row, at.towers_of_token(a.q.data, t + k), {acc[0][k], acc[1][k]}));
}

// One token over R rows of tiles, `apart` rows from one another: R streams keep more of memory's latency in flight than one.
template <int R, class Tile>
void pass_one(const LinearArgs& a, const ActLayout& at, int r, int apart) {
  const int64_t stride = int64_t(apart) * at.groups;
  const Tile *row = tile_row<Tile>(a.w, r), *tile = row;
  const ActGroup* acts[1] = {at.narrow(a.q.data)};
  Floats<1> acc[R];
  for (auto& one : acc) one[0][0] = one[1][0] = _mm256_setzero_ps();
  for (int g = 0; g < at.groups; g++, tile++, acts[0]++)
#pragma GCC unroll 4
    for (int i = 0; i < R; i++) {
      fetch(tile + i * stride, kAheadBytes);
      add_group<1>(tile[i * stride], acts, acc[i]);
    }
  const TowerList towers = at.towers_of_token(a.q.data, 0);
  for (int i = 0; i < R; i++) finish(a, 0, r + i * apart, add_towers(row + i * stride, towers, {acc[i][0][0], acc[i][1][0]}));
}

// Three tokens a pass, the last four as two and two.
template <class Tile>
void few_tokens(const LinearArgs& a, const ActLayout& at, int tile_begin, int tile_end) {
  if (a.tokens == 1) {
    const int apart = (tile_end - tile_begin) / kStreams;
    for (int r = tile_begin; r < tile_begin + apart; r++) pass_one<kStreams, Tile>(a, at, r, apart);
    tile_begin += kStreams * apart;
  }
  for (int r = tile_begin; r < tile_end; r++)
    for (int t = 0; t < a.tokens;) {
      const int left = a.tokens - t, n = left == 4 ? 2 : left < 3 ? left : 3;
      (n == 1 ? pass<1, Tile> : n == 2 ? pass<2, Tile> : pass<3, Tile>)(a, at, t, r);
      t += n;
    }
}

}  // namespace
}  // namespace camshaft::avx2
