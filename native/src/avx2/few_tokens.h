// Products with a few tokens, up to five a pass: weights go from the packed tile to registers, and nothing is kept for the next pass.
// Signed weights go this way with many tokens too: widened to int16, as a panel would have them, they take as many instructions and twice
// the cache.
//
// An activation word, broadcast from memory, meets both 8-row halves of a tile. The 2 * M integer sums of a group are in registers, the
// accumulators in memory: they are touched once a group, beside its 16 * M products.
#pragma once
#include "tiles.h"

namespace camshaft::avx2 {
namespace {

constexpr int kBatch = 48;  // tokens whose accumulators are kept while a row of tiles meets them
constexpr int kMost = 5;    // tokens whose sums are in registers, with two registers of weights, two of products and one of ones
constexpr size_t kFarBytes = 4096;  // how far ahead of their use weights are asked for

template <int M>
using Ints = __m256i[kHalves][M];

// One group of one token, and the row of accumulators that its products go to.
struct Term {
  const ActGroup* act;
  float* acc;
};

// Products of both halves' weights and one broadcast word of activations: of levels, as 16 bits. The steps are in assembly, since the
// compiler reorders the intrinsics and runs out of registers.
CAMSHAFT_INLINE void start_sums(__m256i& low, __m256i& high, __m256i w_low, __m256i w_high, const int8_t* quad) {
  const auto& q = *reinterpret_cast<const int32_t*>(quad);
  asm volatile("vpbroadcastd %4, %1; vpmaddubsw %1, %2, %0; vpmaddubsw %1, %3, %1"
               : "=&x"(low), "=&x"(high) : "x"(w_low), "x"(w_high), "m"(q));
}
CAMSHAFT_INLINE void add_to_sums(__m256i& low, __m256i& high, __m256i w_low, __m256i w_high, const int8_t* quad) {
  const auto& q = *reinterpret_cast<const int32_t*>(quad);
  __m256i a, b;
  asm volatile("vpbroadcastd %6, %2; vpmaddubsw %2, %4, %3; vpmaddubsw %2, %5, %2; vpaddw %3, %0, %0; vpaddw %2, %1, %1"
               : "+x"(low), "+x"(high), "=&x"(a), "=&x"(b) : "x"(w_low), "x"(w_high), "m"(q));
}

// Signed weights: their sizes times q with the sign of the weight, since vpmaddubsw wants one side unsigned. One product can reach
// 2 * 128 * 127, so each is widened before it is added.
struct Signed {
  __m256i size[kHalves], ones;
};
CAMSHAFT_INLINE void start_signed_sums(__m256i& low, __m256i& high, const Signed& w, const int8_t (&s)[kRowTile][4], const int8_t* quad) {
  const auto& q = *reinterpret_cast<const int32_t*>(quad);
  const auto &s_low = *reinterpret_cast<const __m256i*>(s[0]), &s_high = *reinterpret_cast<const __m256i*>(s[8]);
  asm volatile("vpbroadcastd %7, %1; vpsignb %4, %1, %0; vpsignb %5, %1, %1; vpmaddubsw %0, %2, %0; vpmaddubsw %1, %3, %1; "
               "vpmaddwd %6, %0, %0; vpmaddwd %6, %1, %1"
               : "=&x"(low), "=&x"(high) : "x"(w.size[0]), "x"(w.size[1]), "m"(s_low), "m"(s_high), "x"(w.ones), "m"(q));
}
CAMSHAFT_INLINE void add_to_signed_sums(__m256i& low, __m256i& high, const Signed& w, const int8_t (&s)[kRowTile][4], const int8_t* quad) {
  const auto& q = *reinterpret_cast<const int32_t*>(quad);
  const auto &s_low = *reinterpret_cast<const __m256i*>(s[0]), &s_high = *reinterpret_cast<const __m256i*>(s[8]);
  __m256i a, b;
  asm volatile("vpbroadcastd %9, %2; vpsignb %6, %2, %3; vpsignb %7, %2, %2; vpmaddubsw %3, %4, %3; vpmaddubsw %2, %5, %2; "
               "vpmaddwd %8, %3, %3; vpmaddwd %8, %2, %2; vpaddd %3, %0, %0; vpaddd %2, %1, %1"
               : "+x"(low), "+x"(high), "=&x"(a), "=&x"(b)
               : "x"(w.size[0]), "x"(w.size[1]), "m"(s_low), "m"(s_high), "x"(w.ones), "m"(q));
}

// Sums of levels times q over quads begin .. end - 1 and the four behind, which lie in the same bytes.
template <int M, class Tile>
CAMSHAFT_INLINE void level_sums(const Tile& t, const Term (&x)[M], int begin, int end, Ints<M>& sums) {
#pragma GCC unroll 4
  for (int i = begin; i < end; i++)
#pragma GCC unroll 2
    for (int quad = i; quad < kQuads; quad += kQuads / 2) {
      __m256i low = levels(t, quad, 0), high = levels(t, quad, 1);
      hold(low), hold(high);
#pragma GCC unroll 5
      for (int k = 0; k < M; k++) {
        if (quad == begin) start_sums(sums[0][k], sums[1][k], low, high, x[k].act->q + 4 * quad);
        else add_to_sums(sums[0][k], sums[1][k], low, high, x[k].act->q + 4 * quad);
      }
    }
}
// The same for signed weights, as 32 bits.
template <int M>
CAMSHAFT_INLINE void signed_sums(const int8_t (&s)[kQuads][kRowTile][4], const Term (&x)[M], int begin, int end, Ints<M>& sums) {
  Signed w{{}, ones16()};
  hold(w.ones);
#pragma GCC unroll 8
  for (int i = begin; i < end; i++) {
    w.size[0] = _mm256_abs_epi8(load_bytes(s[i][0])), w.size[1] = _mm256_abs_epi8(load_bytes(s[i][8]));
    hold(w.size[0]), hold(w.size[1]);
#pragma GCC unroll 5
    for (int k = 0; k < M; k++) {
      if (i == begin) start_signed_sums(sums[0][k], sums[1][k], w, s[i], x[k].act->q + 4 * i);
      else add_to_signed_sums(sums[0][k], sums[1][k], w, s[i], x[k].act->q + 4 * i);
    }
  }
}

template <int M, class Change>
CAMSHAFT_INLINE void change(Ints<M>& sums, Change by) {
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; h++)
#pragma GCC unroll 6
    for (int k = 0; k < M; k++) sums[h][k] = by(sums[h][k], h, k);
}
template <int M>
CAMSHAFT_INLINE void widen_sums(Ints<M>& sums) {
  change<M>(sums, [](__m256i s, int, int) __attribute__((always_inline)) { return _mm256_madd_epi16(s, ones16()); });
}

// Of both halves of a tile: as floats.
CAMSHAFT_INLINE void load_halves(const uint16_t (&from)[kRowTile], __m256 (&to)[kHalves]) {
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; h++) to[h] = load_8_f16(from + 8 * h), hold(to[h]);
}

// acc += float(sum) * (d * d_a), and then m * sum_a for forms with a minimum, which `m` is null without. Sums are of 32 bits.
template <int M>
CAMSHAFT_INLINE void add_scaled_sums(const Ints<M>& sums, const uint16_t (&d)[kRowTile], const uint16_t (*m)[kRowTile], const Term (&x)[M]) {
  __m256 scale[kHalves], minimum[kHalves], v[kHalves][M];
  load_halves(d, scale);
  if (m) load_halves(*m, minimum);
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; h++)
#pragma GCC unroll 5
    for (int k = 0; k < M; k++) v[h][k] = _mm256_cvtepi32_ps(sums[h][k]), hold(v[h][k]);
#pragma GCC unroll 5
  for (int k = 0; k < M; k++) {
    auto &to_low = *reinterpret_cast<__m256*>(x[k].acc), &to_high = *reinterpret_cast<__m256*>(x[k].acc + 8);
    __m256 a, b;
    if (m)
      asm volatile(
          "vbroadcastss %10, %4; vmulps %6, %4, %5; vmulps %7, %4, %4; vfmadd213ps %2, %5, %0; vfmadd213ps %3, %4, %1; vbroadcastss %11, %4; "
          "vfmadd231ps %8, %4, %0; vfmadd231ps %9, %4, %1; vmovaps %0, %2; vmovaps %1, %3"
          : "+x"(v[0][k]), "+x"(v[1][k]), "+m"(to_low), "+m"(to_high), "=&x"(a), "=&x"(b)
          : "x"(scale[0]), "x"(scale[1]), "x"(minimum[0]), "x"(minimum[1]), "m"(x[k].act->d), "m"(x[k].act->sum));
    else
      asm volatile(
          "vbroadcastss %8, %4; vmulps %6, %4, %5; vmulps %7, %4, %4; vfmadd213ps %2, %5, %0; vfmadd213ps %3, %4, %1; vmovaps %0, %2; vmovaps %1, %3"
          : "+x"(v[0][k]), "+x"(v[1][k]), "+m"(to_low), "+m"(to_high), "=&x"(a), "=&x"(b)
          : "x"(scale[0]), "x"(scale[1]), "m"(x[k].act->d));
  }
}

// One tile into the accumulators of M terms, for each form.
template <int M>
CAMSHAFT_INLINE void add_tile(const TileQ4& t, const Term (&x)[M]) {
  Ints<M> sums;  // unsigned 4-bit weights: all eight products of a lane fit 16 bits, 8 * 2 * 15 * 127 = 30480
  level_sums<M>(t, x, 0, 4, sums);
  widen_sums<M>(sums);
  add_scaled_sums<M>(sums, t.d, &t.m, x);
}
template <int M>
CAMSHAFT_INLINE void add_tile(const TileQ4s& t, const Term (&x)[M]) {
  Ints<M> sums;
  level_sums<M>(t, x, 0, 4, sums);
  widen_sums<M>(sums);
  const auto offset = [&](__m256i s, int, int k) __attribute__((always_inline)) {
    return _mm256_add_epi32(s, _mm256_set1_epi32(x[k].act->minus8));
  };
  change<M>(sums, offset);
  add_scaled_sums<M>(sums, t.d, nullptr, x);
}
template <int M>
CAMSHAFT_INLINE void add_tile(const TileQ5& t, const Term (&x)[M]) {
  Ints<M> sums, rest;  // 4 * 2 * 31 * 127 = 31496: four products fit 16 bits, not eight
  level_sums<M>(t, x, 0, 2, sums);
  widen_sums<M>(sums);
  level_sums<M>(t, x, 2, 4, rest);
  widen_sums<M>(rest);
  change<M>(sums, [&](__m256i s, int h, int k) __attribute__((always_inline)) { return _mm256_add_epi32(s, rest[h][k]); });
  add_scaled_sums<M>(sums, t.d, &t.m, x);
}
template <int M>
CAMSHAFT_INLINE void add_tile(const TileQ8& t, const Term (&x)[M]) {
  Ints<M> sums;
  signed_sums<M>(t.s, x, 0, kQuads, sums);
  add_scaled_sums<M>(sums, t.d, nullptr, x);
}
template <int M>
CAMSHAFT_INLINE void add_tile(const TileQ8h& t, const Term (&x)[M]) {
#pragma GCC unroll 2
  for (int part = 0; part < 2; part++) {
    Ints<M> sums;
    signed_sums<M>(t.s, x, part * kQuads / 2, (part + 1) * kQuads / 2, sums);
    add_scaled_sums<M>(sums, t.d[part], nullptr, x);
  }
}

using Accumulators = float[kBatch][kRowTile];

// Outputs of many tokens lie in no near cache, and are written all at once.
inline void fetch_outputs(const LinearArgs& a, int t, int n, int r) {
  for (int k = 0; k < n; k++) __builtin_prefetch(a.y[t + k] + r * kRowTile, 1);
}

// What has summed all groups of tokens [t, t + n) over one row of tiles leaves. Towers go unit by unit of tokens and not token by token,
// since how many a token has is hard to foretell.
template <class Tile>
inline void finish_tokens(const LinearArgs& a, const ActLayout& at, int t, int n, int r, float (*acc)[kRowTile]) {
  const Tile* row = tile_row<Tile>(a.w, r);
  for (int k = 0; k < n; k += kActUnit)
    for (const Tower& tower : at.towers_of_unit(a.q.data, t + k)) {
      float* to = acc[k + tower.token];
      store(to, fma(column(row[tower.group], tower), set1(tower.x), load(to)));
    }
  for (int k = 0; k < n; k++) finish(a, t + k, r, load(acc[k]));
}

// M tokens from t on over R rows of tiles, `apart` rows from one another.
template <int M, class Tile, int R = 1>
void pass(const LinearArgs& a, const ActLayout& at, int t, int r, float (*acc)[kRowTile], int apart = 0) {
  const int64_t stride = int64_t(apart) * at.groups;
  const ActGroup* act[M];
  for (int k = 0; k < M; k++) act[k] = at.groups_of(a.q.data, t + k);
  for (int k = 0; k < R * M; k++) store(acc[k], zero());
  const Tile* tile = tile_row<Tile>(a.w, r);
  for (int g = 0; g < at.groups; g++, tile++)
#pragma GCC unroll 2
    for (int i = 0; i < R; i++) {
      Term x[M];
      for (int k = 0; k < M; k++) x[k] = {act[k] + g, acc[i * M + k]};
      fetch(tile + i * stride, kFarBytes / R);
      add_tile<M>(tile[i * stride], x);
    }
}
template <class Tile, int M = kMost>
inline void pass_of(int n, const LinearArgs& a, const ActLayout& at, int t, int r, float (*acc)[kRowTile]) {
  if (n == M) pass<M, Tile>(a, at, t, r, acc);
  else if constexpr (M > 1) pass_of<Tile, M - 1>(n, a, at, t, r, acc);
}

template <class Tile>
void few_tokens(const LinearArgs& a, const ActLayout& at, int tile_begin, int tile_end) {
  alignas(kAlign) Accumulators acc;
  int r = tile_begin;
  if (a.tokens == 2) {  // memory sets the pace, and gives more to two streams than to one
    const int apart = (tile_end - tile_begin) / 2;
    for (; r < tile_begin + apart; r++) {
      pass<2, Tile, 2>(a, at, 0, r, acc, apart);
      for (int i = 0; i < 2; i++) finish_tokens<Tile>(a, at, 0, 2, r + i * apart, acc + 2 * i);
    }
    r += apart;
  }
  for (; r < tile_end; r++)
    for (int t = 0; t < a.tokens; t += kBatch) {
      const int n = a.tokens - t < kBatch ? a.tokens - t : kBatch, passes = ceil_div(n, kMost);
      fetch_outputs(a, t, n, r);
      for (int i = 0; i < passes; i++) {
        const int begin = i * n / passes, end = (i + 1) * n / passes;
        pass_of<Tile>(end - begin, a, at, t + begin, r, acc + begin);
      }
      finish_tokens<Tile>(a, at, t, n, r, acc);
    }
}

}  // namespace
}  // namespace camshaft::avx2
