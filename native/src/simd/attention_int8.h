// Attention's two products over an int8 cache: sums of products of int16 and int8, exact in int32, so that their order is free.
#pragma once
#include "../fixed.h"
#include "attention_tile.h"

namespace camshaft::CAMSHAFT_ISA {
namespace {

constexpr int kPairBytes = 2 * kLanes;  // of 16 lanes of K or V
// Vectors of lanes at once. Integer sums wait for each other no longer than a cycle and need no company, and more would not leave the compiler
// the registers that it wants.
constexpr int kAtOnce = 1;
// Steps of a loop that are written out: they share what counting and fetching ahead cost, which is as much as two queries' products.
constexpr int kSteps = 4;
static_assert(kSubBlock / 2 % kSteps == 0);

inline Sums largest_of(const float* x, int n) {
  Sums most = zero_sums();
  for_lanes(n, [&](int i, int lanes) { most = max_bits(most, load_up_to(x + i, lanes)); });
  return most;
}
// A row of floats holds integers in the first half of each vector.
inline int16_t* words_of(float* row) { return reinterpret_cast<int16_t*>(row); }
inline V16 to_levels(V16 x, V16 inverse, float n) { return min(mul(x, inverse), set1(n)); }  // n for NaN

// Fetches part `part` of `parts`, ahead of a loop that reads B vectors at each of kSteps steps for N queries.
template <int N, int B> Fetch<kSteps * B * kPairBytes, N> fetch_int8(const int8_t* const* sub_blocks, int dim, int part, int parts) {
  return {sub_blocks, kv_sub_block_bytes(KvType::int8, dim), part, parts};
}

// N queries, as words [N][stride], and what their sums of products are to be multiplied by: step * scale.
struct Int8Queries {
  const int16_t* words;
  ptrdiff_t stride;
  const float* factor;
};

// s[r][b * 16 + lane] for B sub-blocks from `first` on. Not inlined, since the caller would leave it too few registers for its sums.
template <int N, int B = kAtOnce>
__attribute__((noinline)) void score_int8(const Int8Queries& queries, const SpanView<int8_t>& span, int first, int pairs, float* s) {
  const int16_t* q[N];
  const int8_t* k[B];
  Sums sum[N][B];
  for (int r = 0; r < N; r++) q[r] = queries.words + r * queries.stride;
  for (int b = 0; b < B; b++) k[b] = span.k[first + b];
  for (int r = 0; r < N; r++)
    for (int b = 0; b < B; b++) sum[r][b] = zero_sums();
  auto ahead = fetch_int8<N, B>(span.v, 2 * pairs, first / B, kSubBlocks / B);
  const auto step = [&](ptrdiff_t i) __attribute__((always_inline)) {
    Pairs ki[B];
    for (int b = 0; b < B; b++) ki[b] = load_pairs(k[b] + i * kPairBytes);
    for (int r = 0; r < N; r++) {
      const Pairs qi = set1_pair(q[r] + 2 * i);
      for (int b = 0; b < B; b++) sum[r][b] = dot(qi, ki[b], sum[r][b]);
    }
  };
  ptrdiff_t i = 0;
  for (; i + kSteps <= pairs; i += kSteps) {
    ahead.step();
#pragma GCC unroll 4
    for (int j = 0; j < kSteps; j++) step(i + j);
  }
  for (; i < pairs; i++) step(i);
  s += first * kSubBlock;
  for (int b = 0; b < B; b++) {
    const V16 scale = load_bf16(reinterpret_cast<const uint16_t*>(k[b] + pairs * kPairBytes));
    for (int r = 0; r < N; r++) store(s + r * kScoreStride + b * kSubBlock, mul(mul(to_float(sum[r][b]), scale), set1(queries.factor[r])));
  }
}

// O[r][c * 16 + lane] merged with the sum of w_rj * v_j over `seen`, for N queries and C vectors of d from d0 on. Where the dimensions end
// inside a vector the other lanes read what follows in the sub-block, its scales, and nobody reads those lanes.
template <int N, int C = kAtOnce> void mix_int8(const Tile& tile, int first, const SpanView<int8_t>& span, Range seen, int d0) {
  const ptrdiff_t row = 2 * (tile.dim + tile.dim % 2);  // bytes of a pair of tokens
  const int16_t* words = words_of(tile.s + first * kScoreStride);
  Sums sum[N][C];
  for (int r = 0; r < N; r++)
    for (int c = 0; c < C; c++) sum[r][c] = zero_sums();
  auto ahead = fetch_int8<N, C>(span.ahead, tile.dim, d0 / (C * kLanes), ceil_div(tile.dim, C * kLanes));
  for (int b = seen.begin / kSubBlock; b * kSubBlock < seen.end; b++) {
    const Range in = clip(seen, b * kSubBlock, kSubBlock);
    const int16_t* w = words + 2 * b * kSubBlock;
    const int8_t* v = span.v[b] + 2 * d0;
    const auto step = [&](ptrdiff_t i) __attribute__((always_inline)) {
      Pairs vi[C];
      for (int c = 0; c < C; c++) vi[c] = load_pairs(v + i * row + c * kPairBytes);
      for (int r = 0; r < N; r++) {
        const Pairs wi = set1_pair(w + 2 * r * kScoreStride + 2 * i);
        for (int c = 0; c < C; c++) sum[r][c] = dot(wi, vi[c], sum[r][c]);
      }
    };
    if (in.begin > 0 || in.end < kSubBlock) {
      for (ptrdiff_t i = in.begin / 2; 2 * i < in.end; i++) step(i);
      continue;
    }
    for (ptrdiff_t i = 0; i < kSubBlock / 2; i += kSteps) {
      ahead.step();
#pragma GCC unroll 4
      for (int j = 0; j < kSteps; j++) step(i + j);
    }
  }
  for (int r = 0; r < N; r++)
    for (int c = 0; c < C; c++) {
      float* o = tile.o + (first + r) * tile.dim_lanes + d0 + c * kLanes;
      const V16 here = mul(to_float(sum[r][c]), set1(tile.w_step[first + r]));
      store(o, fma(load(o), set1(tile.keep[first + r]), mul(here, set1(tile.take[first + r]))));
    }
}

struct Int8Kv {
  using T = int8_t;
  static V16 natural(V16 v) { return v; }
  static void open(Tile& tile, int i, const float* q) {
    const float most = hmax_bits(largest_of(q, tile.dim));
    const V16 inverse = set1(fixed_inverse(most, kWordLevels));
    tile.q_step[i] = fixed_step(most, kWordLevels);
    for_lanes(tile.dim, [&](int d, int lanes) {
      store_words(words_of(tile.q + i * tile.q_stride) + d, to_levels(load_up_to(q + d, lanes), inverse, kWordLevels));
    });
  }
  static void score(const AttnArgs& a, Tile& tile, const Micro& micro, const SpanView<T>& span, Range seen) {
    const int pairs = ceil_div(tile.dim, 2), end = ceil_div(seen.end, kSubBlock);
    float factor[kMicro];
    for (int r = 0; r < micro.n; r++) factor[r] = tile.q_step[micro.first + r] * a.scale;
    const Int8Queries queries{words_of(tile.q + micro.first * tile.q_stride), 2 * tile.q_stride, factor};
    with_count(micro.n, [&]<int N>() {
      float* s = tile.s + micro.first * kScoreStride;
      for (int b = seen.begin / kSubBlock; b < end; b += kAtOnce) score_int8<N>(queries, span, b, pairs, s);
    });
  }
  // w from p and the scales of V. Those of unseen tokens may be anything, so that 0 * scale would not do.
  static void weigh(Tile& tile, const SpanView<T>& span, int base) {
    alignas(64) float inverse[kMaxTile];
    for (int r = 0; r < tile.n; r++) {
      float* s = tile.s + r * kScoreStride;
      const Range seen = clip(tile.query_sees[r], base, kSpan);
      Sums most = zero_sums();
      for (int b = seen.begin / kSubBlock; b * kSubBlock < seen.end; b++) {
        float* at = s + b * kSubBlock;
        V16 w = mul(load(at), load_bf16(reinterpret_cast<const uint16_t*>(span.v[b] + kSubBlock * (tile.dim + tile.dim % 2))));
        if (seen.begin > b * kSubBlock || seen.end < (b + 1) * kSubBlock) w = keep_lanes(w, seen.begin - b * kSubBlock, seen.end - b * kSubBlock, zero());
        store(at, w);
        most = max_bits(most, w);
      }
      const float top = hmax_bits(most);
      inverse[r] = fixed_inverse(top, kWordLevels), tile.w_step[r] = fixed_step(top, kWordLevels);
    }
    for (int i = 0; i < tile.n_micros; i++) {
      const Micro& micro = tile.micro[i];
      const Range blocks = blocks_of(clip(micro.sees, base, kSpan));
      for (int r = micro.first; r < micro.first + micro.n; r++)
        for (int at = r * kScoreStride + blocks.begin * kSubBlock; at < r * kScoreStride + blocks.end * kSubBlock; at += kSubBlock)
          store_words(words_of(tile.s + at), to_levels(load(tile.s + at), set1(inverse[r]), kWordLevels));
    }
  }
  static void mix(const Tile& tile, const Micro& micro, const SpanView<T>& span, Range seen) {
    with_count(micro.n, [&]<int N>() {
      for (int d = 0; d < tile.dim; d += kAtOnce * kLanes) mix_int8<N>(tile, micro.first, span, seen, d);
    });
  }
};

}  // namespace
}  // namespace camshaft::CAMSHAFT_ISA
