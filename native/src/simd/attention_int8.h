// Attention's two products over an int8 cache: sums of products of int16 and int8, exact in int32, so that their order is free.
#pragma once
#include "../fixed.h"
#include "attention_tile.h"

namespace camshaft::CAMSHAFT_ISA {
namespace {

constexpr int kPairBytes = 2 * kLanes;  // of 16 lanes of K or V
// Steps of a loop that are written out: they share what counting and fetching ahead cost, which is as much as two queries' products.
// One vector of lanes at once: integer sums wait for each other no longer than a cycle and need no company.
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

// Ahead of a loop that reads a vector at each of kSteps steps for N queries.
template <int N> using Int8Fetch = Fetch<kSteps * kPairBytes, N>;

// N queries, as words [N][stride], and what their sums of products are to be multiplied by: step * scale.
struct Int8Queries {
  const int16_t* words;
  ptrdiff_t stride;
  const float* factor;
};

// s[r][b * 16 + lane] for sub-blocks b of the span. Not inlined, since the caller would leave it too few registers for its sums.
template <int N>
__attribute__((noinline)) void score_int8(const Int8Queries& queries, const SpanView<int8_t>& span, Range blocks, ptrdiff_t pairs, float* s) {
  const int16_t* q[N];
  for (int r = 0; r < N; r++) q[r] = queries.words + r * queries.stride;
  const size_t bytes = kv_sub_block_bytes(KvType::int8, static_cast<int>(2 * pairs));
  for (int b = blocks.begin; b < blocks.end; b++) {
    Int8Fetch<N> ahead(span.next->k, bytes, b, kSubBlocks);
    const int8_t* k = span.k[b];
    Sums sum[N];
    for (int r = 0; r < N; r++) sum[r] = zero_sums();
    const auto step = [&](ptrdiff_t i) __attribute__((always_inline)) {
      const Pairs ki = load_pairs(k + i * kPairBytes);
      for (int r = 0; r < N; r++) sum[r] = dot(set1_pair(q[r] + 2 * i), ki, sum[r]);
    };
    ptrdiff_t i = 0;
    for (; i + kSteps <= pairs; i += kSteps) {
      ahead.step();
#pragma GCC unroll 4
      for (int j = 0; j < kSteps; j++) step(i + j);
    }
    for (; i < pairs; i++) step(i);
    const V16 scale = load_bf16(reinterpret_cast<const uint16_t*>(k + pairs * kPairBytes));
    for (int r = 0; r < N; r++) store(s + r * kScoreStride + b * kSubBlock, mul(mul(to_float(sum[r]), scale), set1(queries.factor[r])));
  }
}

// O[r][d0 + lane] merged with the sum of w_rj * v_j over `seen`, for N queries. Where the dimensions end inside a vector the other lanes read
// what follows in the sub-block, its scales, and nobody reads those lanes.
template <int N> void mix_int8(const Tile& tile, int first, const SpanView<int8_t>& span, Range seen, int d0) {
  const ptrdiff_t row = 2 * (tile.dim + tile.dim % 2);  // bytes of a pair of tokens
  const int16_t* words = words_of(tile.s + first * kScoreStride);
  Int8Fetch<N> ahead(span.next->v, kv_sub_block_bytes(KvType::int8, tile.dim), d0 / kLanes, ceil_div(tile.dim, kLanes));
  Sums sum[N];
  for (int r = 0; r < N; r++) sum[r] = zero_sums();
  const Range blocks = blocks_of(seen);
  for (int b = blocks.begin; b < blocks.end; b++) {
    const int16_t* w = words + 2 * b * kSubBlock;
    const int8_t* v = span.v[b] + 2 * d0;
    const auto step = [&](ptrdiff_t i) __attribute__((always_inline)) {
      const Pairs vi = load_pairs(v + i * row);
      for (int r = 0; r < N; r++) sum[r] = dot(set1_pair(w + 2 * r * kScoreStride + 2 * i), vi, sum[r]);
    };
    const Range in = clip(seen, b * kSubBlock, kSubBlock);
    if (in.begin > 0 || in.end < kSubBlock) {
      for (ptrdiff_t i = in.begin / 2; 2 * i < in.end; i++) step(i);
      continue;
    }
#pragma GCC unroll 2
    for (ptrdiff_t i = 0; i < kSubBlock / 2; i += kSteps) {
      ahead.step();
#pragma GCC unroll 4
      for (int j = 0; j < kSteps; j++) step(i + j);
    }
  }
  for (int r = first; r < first + N; r++)
    merge_lanes(tile, r, tile.o + r * tile.dim_lanes + d0, mul(to_float(sum[r - first]), set1(tile.w_step[r])));
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
    float factor[kMicro];
    for (int r = 0; r < micro.n; r++) factor[r] = tile.q_step[micro.first + r] * a.scale;
    const Int8Queries queries{words_of(tile.q + micro.first * tile.q_stride), 2 * tile.q_stride, factor};
    with_count(micro.n, [&]<int N>() {
      score_int8<N>(queries, span, blocks_of(seen), ceil_div(tile.dim, 2), tile.s + micro.first * kScoreStride);
    });
  }
  // Weights of values: p_j times the scale of V, in levels of the span's largest scale. Queries that see the same of it share what comes
  // before p. Scales of tokens that a query does not see may be anything, so that 0 * scale would not do.
  class Weights {
   public:
    Weights(const SpanView<T>& span, int dim) : span_(span), scales_at_(kSubBlock * (dim + dim % 2)) {}
    float soften(Tile& tile, int r, float* s, Range blocks, Range seen) {
      if (seen != seen_) see(seen);
      tile.w_step[r] = step_;
      return CAMSHAFT_ISA::soften(s, blocks, seen, tile.m[r], [&](float* at, V16 p) {
        store_words(words_of(at), to_levels(p, load(levels_ + (at - s)), kWordLevels));
      });
    }

   private:
    void see(Range seen) {
      seen_ = seen;
      V16 scale[kSubBlocks];
      Sums most = zero_sums();
      for (int b = 0; b < kSubBlocks; b++) {
        scale[b] = load_bf16(reinterpret_cast<const uint16_t*>(span_.v[b] + scales_at_));
        const Range in = clip(seen, b * kSubBlock, kSubBlock);
        if (in.begin > 0 || in.end < kSubBlock) scale[b] = keep_lanes(scale[b], in.begin, in.end, zero());
        most = max_bits(most, scale[b]);
      }
      const float top = hmax_bits(most);
      const V16 inverse = set1(fixed_inverse(top, kWordLevels));
      for (int b = 0; b < kSubBlocks; b++) store(levels_ + b * kSubBlock, mul(scale[b], inverse));
      step_ = fixed_step(top, kWordLevels);
    }

    const SpanView<T>& span_;
    const int scales_at_;
    Range seen_{0, 0};
    float step_ = 0;
    alignas(64) float levels_[kSpan];
  };
  static void mix(const Tile& tile, const Micro& micro, const SpanView<T>& span, Range seen) {
    with_count(micro.n, [&]<int N>() {
      for (int d = 0; d < tile.dim; d += kLanes) mix_int8<N>(tile, micro.first, span, seen, d);
    });
  }
};

}  // namespace
}  // namespace camshaft::CAMSHAFT_ISA
