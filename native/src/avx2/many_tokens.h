// Products with many tokens: a tile is decoded once into a panel for a whole batch of tokens, whose accumulators lie in memory.
//
// A block of kBlock tokens and both 8-row halves of a tile make 2 * kBlock integer sums, which with two registers of weights and two of
// products are all sixteen. The accumulators are read and written once a group, which is little beside its 8 * kBlock products.
#pragma once
#include "few_tokens.h"

namespace camshaft::avx2 {
namespace {

constexpr int kBatch = 48;  // tokens that share a panel
constexpr int kBlock = 6;   // tokens whose sums are in registers
constexpr size_t kRowsBytes = 96 << 10;  // of weights that stay in the second-level cache while all batches meet them
static_assert(kBatch % kBlock == 0 && kBatch % kActTile == 0);

using Accumulators = float[kBatch][kRowTile];

// Unsigned levels: q4, q4s, q5.
struct LevelPanel {
  uint8_t u[kQuads][kRowTile][4];
  float d[kRowTile], m[kRowTile];
};
// Signed weights as int16, in the order of ActWide: q8, q8h.
struct WidePanel {
  int16_t even[kQuads][kRowTile][2], odd[kQuads][kRowTile][2];
  float d[2][kRowTile];
};

inline void store_bytes(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
inline void widen(const uint16_t (&from)[kRowTile], float (&to)[kRowTile]) {
  for (int h = 0; h < kHalves; h++) _mm256_storeu_ps(to + 8 * h, load_8_f16(from + 8 * h));
}

template <class Tile>
inline void decode(const Tile& t, LevelPanel& to) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    __m256i w[4];
    load_quads(t, i, w);
    for (int h = 0; h < kHalves; h++) store_bytes(to.u[i][8 * h], w[h]), store_bytes(to.u[i + 4][8 * h], w[2 + h]);
  }
  widen(t.d, to.d);
  if constexpr (requires { t.m; }) widen(t.m, to.m);
}

inline void decode_signed(const int8_t (&s)[kQuads][kRowTile][4], WidePanel& to) {
  for (int i = 0; i < kQuads; i++)
    for (int h = 0; h < kHalves; h++) {
      const __m256i w = load_bytes(s[i][8 * h]);
      store_bytes(to.even[i][8 * h], _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8));
      store_bytes(to.odd[i][8 * h], _mm256_srai_epi16(w, 8));
    }
}
inline void decode(const TileQ8& t, WidePanel& to) { decode_signed(t.s, to), widen(t.d, to.d[0]); }
inline void decode(const TileQ8h& t, WidePanel& to) { decode_signed(t.s, to), widen(t.d[0], to.d[0]), widen(t.d[1], to.d[1]); }

template <class Tile> struct PanelOf { using Type = LevelPanel; };
template <> struct PanelOf<TileQ8> { using Type = WidePanel; };
template <> struct PanelOf<TileQ8h> { using Type = WidePanel; };

// What must melt into its caller: a call, or a loop that is not unrolled, would put the sums into memory.
#define CAMSHAFT_INLINE inline __attribute__((always_inline))

// One group of one token.
struct Cell {
  const ActGroup* narrow;
  const ActWide* wide;
};

// Both halves' sums for one broadcast word of activations: vpmaddubsw with levels, or vpmaddwd with int16. In assembly, since the compiler
// reorders the intrinsics and runs out of registers.
template <bool kWide>
CAMSHAFT_INLINE void start_sums(__m256i& low, __m256i& high, __m256i w_low, __m256i w_high, const void* word) {
  const auto& q = *static_cast<const int32_t*>(word);
  if constexpr (kWide)
    asm volatile("vpbroadcastd %4, %1; vpmaddwd %1, %2, %0; vpmaddwd %1, %3, %1"
                 : "=&x"(low), "=&x"(high) : "x"(w_low), "x"(w_high), "m"(q));
  else
    asm volatile("vpbroadcastd %4, %1; vpmaddubsw %1, %2, %0; vpmaddubsw %1, %3, %1"
                 : "=&x"(low), "=&x"(high) : "x"(w_low), "x"(w_high), "m"(q));
}
template <bool kWide>
CAMSHAFT_INLINE void add_to_sums(__m256i& low, __m256i& high, __m256i w_low, __m256i w_high, const void* word) {
  const auto& q = *static_cast<const int32_t*>(word);
  __m256i a, b;
  if constexpr (kWide)
    asm volatile("vpbroadcastd %6, %2; vpmaddwd %2, %4, %3; vpmaddwd %2, %5, %2; vpaddd %3, %0, %0; vpaddd %2, %1, %1"
                 : "+x"(low), "+x"(high), "=&x"(a), "=&x"(b) : "x"(w_low), "x"(w_high), "m"(q));
  else
    asm volatile("vpbroadcastd %6, %2; vpmaddubsw %2, %4, %3; vpmaddubsw %2, %5, %2; vpaddw %3, %0, %0; vpaddw %2, %1, %1"
                 : "+x"(low), "+x"(high), "=&x"(a), "=&x"(b) : "x"(w_low), "x"(w_high), "m"(q));
}

// One step of four inputs (levels) or two (wide): 16 rows of `w` with the word at `offset` of each token's activations.
template <bool kWide, int M>
CAMSHAFT_INLINE void add_step(const void* w, const char* const (&acts)[M], int offset, bool first, Ints<M>& sums) {
  __m256i low = load_bytes(w), high = load_bytes(static_cast<const char*>(w) + sizeof low);
  asm volatile("" : "+x"(low), "+x"(high));  // loaded here, once
#pragma GCC unroll 6
  for (int k = 0; k < M; k++) {
    if (first) start_sums<kWide>(sums[0][k], sums[1][k], low, high, acts[k] + offset);
    else add_to_sums<kWide>(sums[0][k], sums[1][k], low, high, acts[k] + offset);
  }
}

// Sums over quads [begin, end): of 16 bits for levels, which must hold them, and of 32 for wide weights.
template <int M>
CAMSHAFT_INLINE void add_quads(const LevelPanel& w, const Cell (&x)[M], int begin, int end, Ints<M>& sums) {
  const char* acts[M];
  for (int k = 0; k < M; k++) acts[k] = reinterpret_cast<const char*>(x[k].narrow->q);
#pragma GCC unroll 8
  for (int i = begin; i < end; i++) add_step<false, M>(w.u[i], acts, 4 * i, i == begin, sums);
}
template <int M>
CAMSHAFT_INLINE void add_quads(const WidePanel& w, const Cell (&x)[M], int begin, int end, Ints<M>& sums) {
  const char* acts[M];
  for (int k = 0; k < M; k++) acts[k] = reinterpret_cast<const char*>(x[k].wide);
#pragma GCC unroll 8
  for (int i = begin; i < end; i++) {
    add_step<true, M>(w.even[i], acts, 4 * i, i == begin, sums);
    add_step<true, M>(w.odd[i], acts, 4 * i + int(sizeof ActWide::even), false, sums);
  }
}

// acc += float(sum) * (d * d_a), and then m * sum_a for forms with a minimum. Sum<int, int> makes int32 of half h, token k.
template <int M, class Sum>
CAMSHAFT_INLINE void add_scaled_sums(Sum sum, const float (&d)[kRowTile], const float* m, const Cell (&x)[M], float (*acc)[kRowTile]) {
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; h++) {
    __m256 scale = _mm256_loadu_ps(d + 8 * h), minimum = m ? _mm256_loadu_ps(m + 8 * h) : scale;
    asm volatile("" : "+x"(scale), "+x"(minimum));  // once for all tokens
#pragma GCC unroll 6
    for (int k = 0; k < M; k++) {
      float* to = acc[k] + 8 * h;
      __m256 v = add_scaled(sum(h, k), scale, *x[k].narrow, _mm256_loadu_ps(to));
      if (m) v = _mm256_fmadd_ps(minimum, _mm256_set1_ps(x[k].narrow->sum), v);
      _mm256_storeu_ps(to, v);
    }
  }
}

// One group of M tokens into their accumulators, for each form.
template <class Tile> struct Adder;
template <> struct Adder<TileQ4> {
  template <int M> static CAMSHAFT_INLINE void add(const LevelPanel& w, const Cell (&x)[M], float (*acc)[kRowTile]) {
    Ints<M> sums;
    add_quads<M>(w, x, 0, kQuads, sums);
    const auto sum = [&](int h, int k) __attribute__((always_inline)) { return _mm256_madd_epi16(sums[h][k], ones16()); };
    add_scaled_sums<M>(sum, w.d, w.m, x, acc);
  }
};
template <> struct Adder<TileQ4s> {
  template <int M> static CAMSHAFT_INLINE void add(const LevelPanel& w, const Cell (&x)[M], float (*acc)[kRowTile]) {
    Ints<M> sums;
    add_quads<M>(w, x, 0, kQuads, sums);
    const auto sum = [&](int h, int k) __attribute__((always_inline)) {
      return _mm256_add_epi32(_mm256_madd_epi16(sums[h][k], ones16()), _mm256_set1_epi32(x[k].narrow->minus8));
    };
    add_scaled_sums<M>(sum, w.d, nullptr, x, acc);
  }
};
template <> struct Adder<TileQ5> {
  template <int M> static CAMSHAFT_INLINE void add(const LevelPanel& w, const Cell (&x)[M], float (*acc)[kRowTile]) {
    Ints<M> first, sums;  // 4 * 2 * 31 * 127 = 31496: four products fit 16 bits, not eight
    add_quads<M>(w, x, 0, kQuads / 2, first);
    for (auto& half : first)
      for (__m256i& s : half) s = _mm256_madd_epi16(s, ones16());
    add_quads<M>(w, x, kQuads / 2, kQuads, sums);
    const auto sum = [&](int h, int k) __attribute__((always_inline)) {
      return _mm256_add_epi32(first[h][k], _mm256_madd_epi16(sums[h][k], ones16()));
    };
    add_scaled_sums<M>(sum, w.d, w.m, x, acc);
  }
};
template <> struct Adder<TileQ8> {
  template <int M> static CAMSHAFT_INLINE void add(const WidePanel& w, const Cell (&x)[M], float (*acc)[kRowTile]) {
    Ints<M> sums;
    add_quads<M>(w, x, 0, kQuads, sums);
    add_scaled_sums<M>([&](int h, int k) __attribute__((always_inline)) { return sums[h][k]; }, w.d[0], nullptr, x, acc);
  }
};
template <> struct Adder<TileQ8h> {
  template <int M> static CAMSHAFT_INLINE void add(const WidePanel& w, const Cell (&x)[M], float (*acc)[kRowTile]) {
#pragma GCC unroll 2
    for (int part = 0; part < 2; part++) {
      Ints<M> sums;
      add_quads<M>(w, x, part * kQuads / 2, (part + 1) * kQuads / 2, sums);
      add_scaled_sums<M>([&](int h, int k) __attribute__((always_inline)) { return sums[h][k]; }, w.d[part], nullptr, x, acc);
    }
  }
};

// M consecutive tokens, `stride` cells apart.
template <class Tile, int M>
CAMSHAFT_INLINE void add_tokens(const typename PanelOf<Tile>::Type& w, Cell x, int64_t stride, float (*acc)[kRowTile]) {
  Cell cells[M];
  for (int k = 0; k < M; k++) cells[k] = {x.narrow + k * stride, x.wide + k * stride};
  Adder<Tile>::template add<M>(w, cells, acc);
}

// Fewer tokens than a block: M is known at run time only.
template <class Tile, int M = kBlock - 1>
inline void add_fewer(int n, const typename PanelOf<Tile>::Type& w, Cell x, int64_t stride, float (*acc)[kRowTile]) {
  if (n == M) add_tokens<Tile, M>(w, x, stride, acc);
  else if constexpr (M > 1) add_fewer<Tile, M - 1>(n, w, x, stride, acc);
}

// Tokens [t, t + n), at most kBatch, over one row of tiles.
template <class Tile>
void batch(const LinearArgs& a, const ActLayout& at, int t, int n, int r) {
  alignas(kAlign) typename PanelOf<Tile>::Type panel;
  alignas(kAlign) Accumulators acc;
  for (int k = 0; k < n; k++) {
    store(acc[k], zero());
    __builtin_prefetch(a.y[t + k] + r * kRowTile, 1);  // outputs of many tokens lie in no near cache, and are written all at once
  }
  const Tile* tile = tile_row<Tile>(a.w, r);
  const int64_t cell = int64_t(t) * at.groups;
  for (int g = 0; g < at.groups; g++) {
    fetch(tile + g, kFarBytes);
    decode(tile[g], panel);
    Cell x{at.narrow(a.q.data) + cell + g, at.wide(a.q.data) + cell + g};
    int k = 0;
    for (; k + kBlock <= n; k += kBlock, x.narrow += kBlock * at.groups, x.wide += kBlock * at.groups)
      add_tokens<Tile, kBlock>(panel, x, at.groups, acc + k);
    if (k < n) add_fewer<Tile>(n - k, panel, x, at.groups, acc + k);
  }
  // Tile by tile of tokens and not token by token, since how many towers a token has is hard to foretell.
  for (int k = 0; k < n; k += kActTile)
    for (const Tower& tower : at.towers_of_tile(a.q.data, t + k)) {
      float* to = acc[k + tower.token];
      store(to, fma(column(tile[tower.group], tower), set1(tower.x), load(to)));
    }
  for (int k = 0; k < n; k++) finish(a, t + k, r, load(acc[k]));
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
