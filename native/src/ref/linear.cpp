// Matrix products, one output at a time: the definition. See ops.h for the order of the sums.
#include <cmath>
#include "forms/layout.h"
#include "kernels_decl.h"
#include "ref/acts.h"

namespace camshaft::ref {
namespace {

constexpr int kBatch = 32;  // tokens that share the reading of a weight

using Levels = int8_t[kGroup];  // one lane's integers of a tile

int dot(const Levels& w, const int8_t* q, int begin, int end) {
  int sum = 0;
  for (int k = begin; k < end; k++) sum += w[k] * q[k];
  return sum;
}

template <class Tile>
float add_group(const Tile& w, int lane, const Levels& levels, const ActGroup& a, float acc) {
  return std::fma(float(dot(levels, a.q, 0, kGroup)), f16_to_f32(w.d[lane]) * a.d, acc);
}

template <class Tile>
float add_group_with_minimum(const Tile& w, int lane, const Levels& levels, const ActGroup& a, float acc) {
  acc = std::fma(float(dot(levels, a.q, 0, kGroup)), f16_to_f32(w.d[lane]) * a.d, acc);
  return std::fma(f16_to_f32(w.m[lane]), a.sum, acc);
}
float add_group(const TileQ4& w, int lane, const Levels& levels, const ActGroup& a, float acc) { return add_group_with_minimum(w, lane, levels, a, acc); }
float add_group(const TileQ5& w, int lane, const Levels& levels, const ActGroup& a, float acc) { return add_group_with_minimum(w, lane, levels, a, acc); }

float add_group(const TileQ8h& w, int lane, const Levels& levels, const ActGroup& a, float acc) {
  for (int h = 0; h < 2; h++) acc = std::fma(float(dot(levels, a.q, 16 * h, 16 * h + 16)), f16_to_f32(w.d[h][lane]) * a.d, acc);
  return acc;
}

void finish(const LinearArgs& a, int t, int row, float acc) {
  if (a.bias) acc = acc + a.bias[row];
  float& y = a.y[t][row];
  y = a.accumulate ? y + acc : acc;
}

template <class Tile>
void linear_q(const LinearArgs& a, int tile_begin, int tile_end) {
  const int groups = a.w.groups();
  const ActGroup* acts = reinterpret_cast<const ActGroup*>(a.q.data);
  for (int row = tile_begin * kRowTile; row < a.w.rows && row < tile_end * kRowTile; row++) {
    const Tile* tiles = tile_row<Tile>(a.w, row / kRowTile);
    const int lane = row % kRowTile;
    for (int t0 = 0; t0 < a.tokens; t0 += kBatch) {
      const int n = a.tokens - t0 < kBatch ? a.tokens - t0 : kBatch;
      float acc[kBatch] = {};
      for (int g = 0; g < groups; g++) {
        Levels levels;
        for (int k = 0; k < kGroup; k++) levels[k] = int8_t(level_of(tiles[g], lane, k));
        for (int t = 0; t < n; t++) acc[t] = add_group(tiles[g], lane, levels, acts[int64_t(t0 + t) * groups + g], acc[t]);
      }
      for (int t = 0; t < n; t++) {
        for (int g = 0; g < groups; g++) {
          const ActGroup& x = acts[int64_t(t0 + t) * groups + g];
          if (x.tower >= 0) acc[t] = std::fma(weight_of(tiles[g], lane, x.tower), x.tower_x, acc[t]);
        }
        finish(a, t0 + t, row, acc[t]);
      }
    }
  }
}

template <class Tile>
void linear_f(const LinearArgs& a, int tile_begin, int tile_end) {
  for (int row = tile_begin * kRowTile; row < a.w.rows && row < tile_end * kRowTile; row++) {
    const Tile* tiles = tile_row<Tile>(a.w, row / kRowTile);
    for (int t0 = 0; t0 < a.tokens; t0 += kBatch) {
      const int n = a.tokens - t0 < kBatch ? a.tokens - t0 : kBatch;
      float acc[kBatch] = {};
      for (int k = 0; k < a.w.groups() * kGroup; k++) {
        const float w = weight_of(tiles[k / kGroup], row % kRowTile, k % kGroup);
        for (int t = 0; t < n; t++) acc[t] = std::fma(w, a.x[t0 + t][k], acc[t]);
      }
      for (int t = 0; t < n; t++) finish(a, t0 + t, row, acc[t]);
    }
  }
}

}  // namespace

void linear_q_q4(const LinearArgs& a, int tile_begin, int tile_end) { linear_q<TileQ4>(a, tile_begin, tile_end); }
void linear_q_q4s(const LinearArgs& a, int tile_begin, int tile_end) { linear_q<TileQ4s>(a, tile_begin, tile_end); }
void linear_q_q5(const LinearArgs& a, int tile_begin, int tile_end) { linear_q<TileQ5>(a, tile_begin, tile_end); }
void linear_q_q8(const LinearArgs& a, int tile_begin, int tile_end) { linear_q<TileQ8>(a, tile_begin, tile_end); }
void linear_q_q8h(const LinearArgs& a, int tile_begin, int tile_end) { linear_q<TileQ8h>(a, tile_begin, tile_end); }

void linear_f_q4(const LinearArgs& a, int tile_begin, int tile_end) { linear_f<TileQ4>(a, tile_begin, tile_end); }
void linear_f_q4s(const LinearArgs& a, int tile_begin, int tile_end) { linear_f<TileQ4s>(a, tile_begin, tile_end); }
void linear_f_q5(const LinearArgs& a, int tile_begin, int tile_end) { linear_f<TileQ5>(a, tile_begin, tile_end); }
void linear_f_q8(const LinearArgs& a, int tile_begin, int tile_end) { linear_f<TileQ8>(a, tile_begin, tile_end); }
void linear_f_q8h(const LinearArgs& a, int tile_begin, int tile_end) { linear_f<TileQ8h>(a, tile_begin, tile_end); }
void linear_f_bf16(const LinearArgs& a, int tile_begin, int tile_end) { linear_f<TileBf16>(a, tile_begin, tile_end); }
void linear_f_f16(const LinearArgs& a, int tile_begin, int tile_end) { linear_f<TileF16>(a, tile_begin, tile_end); }
void linear_f_f32(const LinearArgs& a, int tile_begin, int tile_end) { linear_f<TileF32>(a, tile_begin, tile_end); }

}  // namespace camshaft::ref
