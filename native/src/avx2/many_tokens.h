// Products of unsigned levels with many tokens: a tile is decoded once into a panel for a batch of them, whose accumulators lie in memory.
//
// A block of kBlock tokens and both 8-row halves of a tile make 2 * kBlock integer sums, which with two registers of weights and two of
// products are all sixteen. The accumulators are read and written once a group, which is little beside its 8 * kBlock products.
#pragma once
#include "few_tokens.h"

namespace camshaft::avx2 {
namespace {

constexpr int kBlock = 6;                // tokens whose sums are in registers
constexpr size_t kRowsBytes = 96 << 10;  // of weights that stay in the second-level cache while all batches meet them
static_assert(kBatch % kBlock == 0 && kBatch % kActUnit == 0);

struct Panel {
  uint8_t u[kQuads][kRowTile][4];
  float d[kRowTile], m[kRowTile];
};

inline void store_bytes(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
inline void widen(const uint16_t (&from)[kRowTile], float (&to)[kRowTile]) {
  for (int h = 0; h < kHalves; h++) _mm256_storeu_ps(to + 8 * h, load_8_f16(from + 8 * h));
}

template <class Tile>
inline void decode(const Tile& t, Panel& to) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    // All before the first store, behind which the tile would be read again.
    const __m256i w[4] = {levels(t, i, 0), levels(t, i, 1), levels(t, i + 4, 0), levels(t, i + 4, 1)};
    for (int h = 0; h < kHalves; h++) store_bytes(to.u[i][8 * h], w[h]), store_bytes(to.u[i + 4][8 * h], w[2 + h]);
  }
  widen(t.d, to.d);
  if constexpr (requires { t.m; }) widen(t.m, to.m);
}

// One step of four inputs: 16 rows of `w` with a quad of each token's activations.
template <int M>
CAMSHAFT_INLINE void add_step(const uint8_t (&w)[kRowTile][4], const ActGroup* const (&x)[M], int quad, bool first, Ints<M>& sums) {
  __m256i low = load_bytes(w[0]), high = load_bytes(w[8]);
  hold(low), hold(high);
#pragma GCC unroll 6
  for (int k = 0; k < M; k++) {
    if (first) start_sums(sums[0][k], sums[1][k], low, high, x[k]->q + 4 * quad);
    else add_to_sums(sums[0][k], sums[1][k], low, high, x[k]->q + 4 * quad);
  }
}

// Sums over kCount quads from `begin` on, of 16 bits, which must hold them.
template <int kCount, int M>
CAMSHAFT_INLINE void add_quads(const Panel& w, const ActGroup* const (&x)[M], int begin, Ints<M>& sums) {
#pragma GCC unroll 8
  for (int i = begin; i < begin + kCount; i++) add_step<M>(w.u[i], x, i, i == begin, sums);
}

// acc += float(sum) * (d * d_a), and then m * sum_a for forms with a minimum; sums are of 32 bits. Token by token, so that one broadcast
// serves both halves.
template <int M, bool kMinimum>
CAMSHAFT_INLINE void add_scaled_sums(Ints<M>& sums, const Panel& w, const ActGroup* const (&x)[M], float (*acc)[kRowTile]) {
  __m256 v[kHalves][M];
#pragma GCC unroll 6
  for (int k = 0; k < M; k++)
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; h++) v[h][k] = _mm256_cvtepi32_ps(sums[h][k]);
  __m256 scale[kHalves], minimum[kHalves];
#pragma GCC unroll 6
  for (int k = 0; k < M; k++) {
    const __m256 d = _mm256_set1_ps(x[k]->d), sum = _mm256_set1_ps(x[k]->sum);
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; h++) {
      // From memory until two registers of sums are free, then two more.
      if (k <= h + 1) scale[h] = _mm256_loadu_ps(w.d + 8 * h);
      if (k == h + 1) hold(scale[h]);
      float* to = acc[k] + 8 * h;
      __m256 y = _mm256_fmadd_ps(v[h][k], _mm256_mul_ps(scale[h], d), _mm256_loadu_ps(to));
      if constexpr (kMinimum) {
        if (k <= h + 2) minimum[h] = _mm256_loadu_ps(w.m + 8 * h);
        if (k == h + 2) hold(minimum[h]);
        y = _mm256_fmadd_ps(minimum[h], sum, y);
      }
      _mm256_storeu_ps(to, y);
    }
  }
}

// One group of M tokens into their accumulators, for each form.
template <class Tile> struct Adder;
template <> struct Adder<TileQ4> {
  template <int M> static CAMSHAFT_INLINE void add(const Panel& w, const ActGroup* const (&x)[M], float (*acc)[kRowTile]) {
    Ints<M> sums;
    add_quads<kQuads, M>(w, x, 0, sums);
    widen_sums<M>(sums);
    add_scaled_sums<M, true>(sums, w, x, acc);
  }
};
template <> struct Adder<TileQ4s> {
  template <int M> static CAMSHAFT_INLINE void add(const Panel& w, const ActGroup* const (&x)[M], float (*acc)[kRowTile]) {
    Ints<M> sums;
    add_quads<kQuads, M>(w, x, 0, sums);
    widen_sums<M>(sums);
    const auto offset = [&](__m256i s, int, int k) __attribute__((always_inline)) {
      return _mm256_add_epi32(s, _mm256_set1_epi32(x[k]->minus8));
    };
    change<M>(sums, offset);
    add_scaled_sums<M, false>(sums, w, x, acc);
  }
};
template <> struct Adder<TileQ5> {
  template <int M> static CAMSHAFT_INLINE void add(const Panel& w, const ActGroup* const (&x)[M], float (*acc)[kRowTile]) {
    Ints<M> first, sums;  // 4 * 2 * 31 * 127 = 31496: four products fit 16 bits, not eight
    add_quads<kQuads / 2, M>(w, x, 0, first);
    widen_sums<M>(first);
    add_quads<kQuads / 2, M>(w, x, kQuads / 2, sums);
    const auto whole = [&](__m256i s, int h, int k) __attribute__((always_inline)) {
      return _mm256_add_epi32(_mm256_madd_epi16(s, ones16()), first[h][k]);
    };
    change<M>(sums, whole);
    add_scaled_sums<M, true>(sums, w, x, acc);
  }
};

// M consecutive tokens, `stride` groups apart.
template <class Tile, int M>
CAMSHAFT_INLINE void add_tokens(const Panel& w, const ActGroup* x, int64_t stride, float (*acc)[kRowTile]) {
  const ActGroup* acts[M];
  for (int k = 0; k < M; k++) acts[k] = x + k * stride;
  Adder<Tile>::template add<M>(w, acts, acc);
}

// Fewer tokens than a block: M is known at run time only.
template <class Tile, int M = kBlock - 1>
inline void add_fewer(int n, const Panel& w, const ActGroup* x, int64_t stride, float (*acc)[kRowTile]) {
  if (n == M) add_tokens<Tile, M>(w, x, stride, acc);
  else if constexpr (M > 1) add_fewer<Tile, M - 1>(n, w, x, stride, acc);
}

// Tokens [t, t + n), at most kBatch, over one row of tiles.
template <class Tile>
void batch(const LinearArgs& a, const ActLayout& at, int t, int n, int r) {
  alignas(kAlign) Panel panel;
  alignas(kAlign) Accumulators acc;
  fetch_outputs(a, t, n, r);
  for (int k = 0; k < n; k++) store(acc[k], zero());
  const Tile* tile = tile_row<Tile>(a.w, r);
  for (int g = 0; g < at.groups; g++) {
    fetch(tile + g, kFarBytes);
    decode(tile[g], panel);
    const ActGroup* x = at.groups_of(a.q.data, t) + g;
    int k = 0;
    for (; k + kBlock <= n; k += kBlock, x += kBlock * at.groups)
      add_tokens<Tile, kBlock>(panel, x, at.groups, acc + k);
    if (k < n) add_fewer<Tile>(n - k, panel, x, at.groups, acc + k);
  }
  finish_tokens<Tile>(a, at, t, n, r, acc);
}

template <class Tile>
void many_tokens(const LinearArgs& a, const ActLayout& at, int tile_begin, int tile_end) {
  const size_t row_bytes = size_t(at.groups) * sizeof(Tile);
  const int rows = row_bytes < kRowsBytes ? int(kRowsBytes / row_bytes) : 1;
  for (int begin = tile_begin; begin < tile_end; begin += rows)
    for (int t = 0; t < a.tokens; t += kBatch) {
      const int n = a.tokens - t < kBatch ? a.tokens - t : kBatch;
      for (int r = begin; r < tile_end && r < begin + rows; r++) batch<Tile>(a, at, t, n, r);
    }
}

}  // namespace
}  // namespace camshaft::avx2
