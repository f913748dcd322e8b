// Attention's two products over a float cache: V16 of f32 or bf16.
#pragma once
#include "attention_tile.h"

namespace camshaft::CAMSHAFT_ISA {
namespace {

// How an element is read. `natural` puts a vector into the order of memory, which that of load need not be.
struct F32 {
  using T = float;
  static V16 load(const float* p) { return CAMSHAFT_ISA::load(p); }
  static V16 load_n(const float* p, int n) { return CAMSHAFT_ISA::load_n(p, n); }
  static V16 natural(V16 v) { return v; }
};
struct Bf16 {
  using T = uint16_t;
  static V16 load(const uint16_t* p) { return load_split(p); }
  static V16 load_n(const uint16_t* p, int n) {
    uint16_t words[kLanes] = {};
    for (int i = 0; i < n; i++) words[i] = p[i];
    return load_split(words);
  }
  static V16 natural(V16 v) { return CAMSHAFT_ISA::natural(v); }
};

// Ahead of a loop that reads B vectors at a step for N queries. The caller of the loop's function makes it: where it is made inside, GCC 12
// keeps the sums in memory.
template <class T, int N, int B> using FloatFetch = Fetch<B * kLanes * sizeof(T), N>;
template <class T> size_t bytes_of(int dim) { return sizeof(T) * kSubBlock * static_cast<size_t>(dim); }

struct FloatQueries {
  const float* q;
  int stride, dim;
  float scale;
};

// s[r][b * 16 + lane] = (q_r . k_b) * scale for N queries and B sub-blocks, `apart` in the span.
template <class Load, int N, int B, class T = typename Load::T>
void score(const FloatQueries& queries, const T* const* sub_blocks, int apart, float* s, FloatFetch<T, N, B> ahead) {
  const float* q[N];
  const T* k[B];
  V16 sum[N][B];
  for (int r = 0; r < N; r++) q[r] = queries.q + r * queries.stride;
  for (int b = 0; b < B; b++) k[b] = sub_blocks[b * apart];
  for (int r = 0; r < N; r++)
    for (int b = 0; b < B; b++) sum[r][b] = zero();
  for (ptrdiff_t d = 0, dim = queries.dim; d < dim; d++) {
    ahead.step();
    for (int b = 0; b < B; b++) {
      const V16 kd = Load::load(k[b] + d * kSubBlock);
      for (int r = 0; r < N; r++) sum[r][b] = fma(set1(q[r][d]), kd, sum[r][b]);
      if (B > 1) load_again(d);
    }
  }
  for (int r = 0; r < N; r++)
    for (int b = 0; b < B; b++) store(s + r * kScoreStride + b * apart * kSubBlock, mul(Load::natural(sum[r][b]), set1(queries.scale)));
}

template <class Load, int N, class T = typename Load::T>
void score_span(const FloatQueries& queries, const SpanView<T>& span, Range seen, float* s) {
  constexpr int B = kWide<N>, kParts = kSubBlocks / B;
  const size_t bytes = bytes_of<T>(queries.dim);
  const Range blocks = blocks_of(seen);
  const int apart = (blocks.end - blocks.begin) / B;  // so that two are in different halves
  int b = blocks.begin;
  for (; b < blocks.begin + apart; b++)
    score<Load, N, B>(queries, span.k + b, apart, s + b * kSubBlock, {span.next->k, bytes, b % kParts, kParts});
  for (b += apart * (B - 1); b < blocks.end; b++) score<Load, N, 1>(queries, span.k + b, 1, s + b * kSubBlock, {span.next->k, bytes, b, kSubBlocks});
}

// O[r][c * 16 + lane] merged with the sum of p_rj * v_j over `seen`, for N queries and C vectors of d from d0 on, or the tail's one.
template <class Load, int N, int C, bool kTail, class T = typename Load::T>
void mix(const Tile& tile, int first, const SpanView<T>& span, Range seen, int d0, FloatFetch<T, N, C> ahead) {
  const int dim = tile.dim, lanes = dim - d0;
  const float* p = tile.s + first * kScoreStride;
  V16 sum[N][C];
  for (int r = 0; r < N; r++)
    for (int c = 0; c < C; c++) sum[r][c] = zero();
  for (int b = seen.begin / kSubBlock; b * kSubBlock < seen.end; b++) {
    const Range in = clip(seen, b * kSubBlock, kSubBlock);
    const T* v = span.v[b] + d0 + in.begin * dim;
    for (ptrdiff_t j = b * kSubBlock + in.begin; j < b * kSubBlock + in.end; j++, v += dim) {
      ahead.step();
      for (int c = 0; c < C; c++) {
        const V16 vd = kTail ? Load::load_n(v, lanes) : Load::load(v + c * kLanes);
        for (int r = 0; r < N; r++) sum[r][c] = fma(set1(p[r * kScoreStride + j]), vd, sum[r][c]);
        if (C > 1) load_again(j);
      }
    }
  }
  for (int r = 0; r < N; r++)
    for (int c = 0; c < C; c++) merge_lanes(tile, first + r, tile.o + (first + r) * tile.dim_lanes + d0 + c * kLanes, sum[r][c]);
}

template <class Load, int N, class T = typename Load::T>
void mix_span(const Tile& tile, int first, const SpanView<T>& span, Range seen) {
  constexpr int C = kWide<N>, step = C * kLanes;
  const size_t bytes = bytes_of<T>(tile.dim);
  const int wide = tile.dim / step, narrow = ceil_div(tile.dim, kLanes);
  int d = 0;
  for (; d + step <= tile.dim; d += step) mix<Load, N, C, false>(tile, first, span, seen, d, {span.next->v, bytes, d / step, wide});
  for (; d + kLanes <= tile.dim; d += kLanes) mix<Load, N, 1, false>(tile, first, span, seen, d, {span.next->v, bytes, d / kLanes, narrow});
  if (d < tile.dim) mix<Load, N, 1, true>(tile, first, span, seen, d, {span.next->v, bytes, d / kLanes, narrow});
}

template <class Load> struct FloatKv {
  using T = typename Load::T;
  static V16 natural(V16 v) { return Load::natural(v); }
  static void open(Tile& tile, int i, const float* q) {
    for_lanes(tile.dim, [&](int d, int lanes) { store_up_to(tile.q + i * tile.q_stride + d, load_up_to(q + d, lanes), lanes); });
  }
  static void score(const AttnArgs& a, Tile& tile, const Micro& micro, const SpanView<T>& span, Range seen) {
    const FloatQueries queries{tile.q + micro.first * tile.q_stride, tile.q_stride, tile.dim, a.scale};
    with_count(micro.n, [&]<int N>() { score_span<Load, N>(queries, span, seen, tile.s + micro.first * kScoreStride); });
  }
  // Weights of values are the probabilities themselves.
  struct Weights {
    Weights(const SpanView<T>&, int) {}
    float soften(const Tile& tile, int r, float* s, Range blocks, Range seen) {
      return CAMSHAFT_ISA::soften(s, blocks, seen, tile.m[r], [](float* at, V16 p) { store(at, p); });
    }
  };
  static void mix(const Tile& tile, const Micro& micro, const SpanView<T>& span, Range seen) {
    with_count(micro.n, [&]<int N>() { mix_span<Load, N>(tile, micro.first, span, seen); });
  }
};

}  // namespace
}  // namespace camshaft::CAMSHAFT_ISA
