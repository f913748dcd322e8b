// Matrix products in float32, over V16: a lane is an output row, and each output is one chain of fma over the inputs in order.
//
// A chain waits four cycles for each fma, so speed needs eight or more of them at once: R tiles of rows x M tokens. One token takes four tiles
// together, and those that hold floats as they come from memory; many tokens take one tile, decoded once for kBatch of them, in register
// blocks of kAccumulators tokens.
#pragma once
#include "../kernels_decl.h"
#include "finish.inl"
#include "panels.inl"

namespace camshaft::CAMSHAFT_ISA {
namespace {

constexpr int kBlock = kAccumulators < 12 ? kAccumulators : 12;  // tokens in registers
constexpr int kBatch = 4 * kBlock;                               // tokens for which a tile is decoded once
constexpr size_t kAheadBytes = 512;                              // how far ahead of their use weights are asked for

using Sums = float[kBatch][kRowTile];

// Adds one group: sums[r][t0 + m] += panel r times x of token t0 + m.
template <int R, int M> void add_block(const Panel* const* panels, const float* x, int64_t stride, Sums* sums, int t0) {
  V16 acc[R][M];
  for (int r = 0; r < R; r++)
    for (int m = 0; m < M; m++) acc[r][m] = load(sums[r][t0 + m]);
#pragma GCC unroll 4
  for (int k = 0; k < kGroup; k++) {
    V16 w[R];
    for (int r = 0; r < R; r++) w[r] = load((*panels[r])[k]);
    for (int m = 0; m < M; m++) {
      const V16 input = set1(x[m * stride + k]);
      for (int r = 0; r < R; r++) acc[r][m] = fma(w[r], input, acc[r][m]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int m = 0; m < M; m++) store(sums[r][t0 + m], acc[r][m]);
}

using AddBlock = void (*)(const Panel* const*, const float*, int64_t, Sums*, int);

// add_block<R, m> for a run-time m of 1..M.
template <int R, int M> AddBlock block_of(int m) {
  if constexpr (M == 1) return add_block<R, 1>;
  else return m == M ? add_block<R, M> : block_of<R, M - 1>(m);
}

// Whether a tile holds floats, of whatever format.
template <class Tile> concept HoldsFloats = requires(const Tile& t) { weights_of_input(t, 0); };

// One token and R rows of tiles that hold floats, `apart` rows from one another. Memory sets the pace, so lines are asked for one by one
// between products: many at once wait for each other, and a panel would keep products waiting for all of a tile.
template <int R, HoldsFloats Tile> void pass_of_one(const LinearArgs& a, int tile, int apart, int token) {
  constexpr size_t kInputBytes = sizeof(Tile) / kGroup;
  const int64_t stride = int64_t(apart) * a.w.groups();
  const Tile* at = tile_row<Tile>(a.w, tile);
  const float* x = a.x[token];
  V16 acc[R];
  for (int r = 0; r < R; r++) acc[r] = zero();
  for (int g = 0; g < a.w.groups(); g++, at++, x += kGroup)
#pragma GCC unroll 4
    for (int k = 0; k < kGroup; k++) {
      const V16 input = set1(x[k]);
      for (int r = 0; r < R; r++) {
        const Tile& t = at[r * stride];
        if (k * kInputBytes % kAlign == 0) __builtin_prefetch(reinterpret_cast<const char*>(&t) + kAheadBytes + k * kInputBytes);
        acc[r] = fma(weights_of_input(t, k), input, acc[r]);
      }
    }
  for (int r = 0; r < R; r++) finish(a, token, tile + r * apart, acc[r]);
}

// Tokens [t_begin, t_end), at most kBatch, of R rows of tiles, `apart` rows from one another.
template <int R, class Tile> void batch(const LinearArgs& a, int tile, int apart, int t_begin, int t_end) {
  constexpr int kMost = R == 1 ? kBlock : R == 2 ? 2 : 1;
  alignas(64) Panel scratch[R];
  alignas(64) Sums sums[R];
  const int tokens = t_end - t_begin;
  if constexpr (HoldsFloats<Tile>)
    if (tokens == 1) return pass_of_one<R, Tile>(a, tile, apart, t_begin);
  for (int r = 0; r < R; r++)
    for (int t = 0; t < tokens; t++) store(sums[r][t], zero());
  for (int g = 0; g < a.w.groups(); g++) {
    const Panel* panels[R];
    for (int r = 0; r < R; r++) panels[r] = &panel_of(tile_row<Tile>(a.w, tile + r * apart)[g], scratch[r]);
    for (int t = 0; t < tokens; t += kMost) {
      const int m = tokens - t < kMost ? tokens - t : kMost;
      block_of<R, kMost>(m)(panels, a.x[t_begin + t] + g * kGroup, a.x.stride, sums, t);
    }
  }
  for (int r = 0; r < R; r++)
    for (int t = 0; t < tokens; t++) finish(a, t_begin + t, tile + r * apart, load(sums[r][t]));
}

// Rows of tiles R at a time, far from one another: as many streams from memory. Returns the first row that is left. The tokens of a batch
// meet all rows before the next batch comes: the inputs of all tokens would not fit a second-level cache, those of a batch do.
template <int R, class Tile> int streams(const LinearArgs& a, int tile_begin, int tile_end) {
  const int apart = (tile_end - tile_begin) / R;
  for (int t = 0; t < a.tokens; t += kBatch)
    for (int tile = tile_begin; tile < tile_begin + apart; tile++) batch<R, Tile>(a, tile, apart, t, t + kBatch < a.tokens ? t + kBatch : a.tokens);
  return tile_begin + R * apart;
}

template <class Tile> void linear_f(const LinearArgs& a, int tile_begin, int tile_end) {
  if (a.tokens == 1) tile_begin = streams<4, Tile>(a, tile_begin, tile_end);
  if (a.tokens <= 2) tile_begin = streams<2, Tile>(a, tile_begin, tile_end);
  streams<1, Tile>(a, tile_begin, tile_end);
}

}  // namespace

void linear_f_q4(const LinearArgs& a, int tile_begin, int tile_end) { linear_f<TileQ4>(a, tile_begin, tile_end); }
void linear_f_q4s(const LinearArgs& a, int tile_begin, int tile_end) { linear_f<TileQ4s>(a, tile_begin, tile_end); }
void linear_f_q5(const LinearArgs& a, int tile_begin, int tile_end) { linear_f<TileQ5>(a, tile_begin, tile_end); }
void linear_f_q8(const LinearArgs& a, int tile_begin, int tile_end) { linear_f<TileQ8>(a, tile_begin, tile_end); }
void linear_f_q8h(const LinearArgs& a, int tile_begin, int tile_end) { linear_f<TileQ8h>(a, tile_begin, tile_end); }
void linear_f_bf16(const LinearArgs& a, int tile_begin, int tile_end) { linear_f<TileBf16>(a, tile_begin, tile_end); }
void linear_f_f16(const LinearArgs& a, int tile_begin, int tile_end) { linear_f<TileF16>(a, tile_begin, tile_end); }
void linear_f_f32(const LinearArgs& a, int tile_begin, int tile_end) { linear_f<TileF32>(a, tile_begin, tile_end); }

}  // namespace camshaft::CAMSHAFT_ISA
