// The bytes of a packed tile: 16 output rows x 32 inputs, written by formats.cpp and read by every linear kernel.
//
// Integers lie in quads of inputs: [quad][row][4], so that 64 bytes hold four inputs of all 16 rows, and 32 bytes those of 8 rows. One
// activation word of four int8, broadcast, then meets every row at once. The low nibbles of `u[i]` are quad i (inputs 4i..4i+3) and the
// high nibbles quad i + 4, which is the order that GGUF's 4-bit blocks have too. Floats lie input by input, a lane to a row.
#pragma once
#include "camshaft/formats.h"

namespace camshaft {

constexpr int kQuads = kGroup / 4;

struct TileQ4 {
  uint8_t u[4][kRowTile][4];
  uint16_t d[kRowTile], m[kRowTile];
};
struct TileQ4s {
  uint8_t u[4][kRowTile][4];
  uint16_t d[kRowTile];
};
struct TileQ5 {
  uint8_t u[4][kRowTile][4];
  uint8_t high[kRowTile][4];  // bit i of high[row][j] is the fifth bit of input 4i + j
  uint16_t d[kRowTile], m[kRowTile];
};
struct TileQ8 {
  int8_t s[kQuads][kRowTile][4];
  uint16_t d[kRowTile];
};
struct TileQ8h {
  int8_t s[kQuads][kRowTile][4];
  uint16_t d[2][kRowTile];  // inputs 0..15 and 16..31
};
struct TileBf16 {
  uint16_t w[kGroup][kRowTile];
};
struct TileF16 {
  uint16_t w[kGroup][kRowTile];
};
struct TileF32 {
  float w[kGroup][kRowTile];
};
static_assert(sizeof(TileQ4) == 320 && sizeof(TileQ4s) == 288 && sizeof(TileQ5) == 384 && sizeof(TileQ8) == 544 && sizeof(TileQ8h) == 576);

// Functions here are static: each instruction set's folder needs its own copy, or the linker could hand ref one that was compiled for AVX.

// The integer of input k of a lane: unsigned for the forms with a minimum, signed for the others.
static inline int nibble_of(const uint8_t (*u)[kRowTile][4], int lane, int k) {
  const uint8_t byte = u[k / 4 % 4][lane][k % 4];
  return k < 16 ? byte & 15 : byte >> 4;
}
static inline int level_of(const TileQ4& t, int lane, int k) { return nibble_of(t.u, lane, k); }
static inline int level_of(const TileQ4s& t, int lane, int k) { return nibble_of(t.u, lane, k) - 8; }
static inline int level_of(const TileQ5& t, int lane, int k) { return nibble_of(t.u, lane, k) | (t.high[lane][k % 4] >> k / 4 & 1) << 4; }
static inline int level_of(const TileQ8& t, int lane, int k) { return t.s[k / 4][lane][k % 4]; }
static inline int level_of(const TileQ8h& t, int lane, int k) { return t.s[k / 4][lane][k % 4]; }

// d * u + m, rounded once. Both terms are multiples of 2^-24 and under 2^21, so their sum in double is exact and the cast rounds alone.
static inline float fused_weight(uint16_t d, int u, uint16_t m) { return float(double(f16_to_f32(d)) * u + double(f16_to_f32(m))); }

// The weight of input k of a lane, as unpack_row and the float kernels have it.
static inline float weight_of(const TileQ4& t, int lane, int k) { return fused_weight(t.d[lane], level_of(t, lane, k), t.m[lane]); }
static inline float weight_of(const TileQ4s& t, int lane, int k) { return f16_to_f32(t.d[lane]) * float(level_of(t, lane, k)); }
static inline float weight_of(const TileQ5& t, int lane, int k) { return fused_weight(t.d[lane], level_of(t, lane, k), t.m[lane]); }
static inline float weight_of(const TileQ8& t, int lane, int k) { return f16_to_f32(t.d[lane]) * float(level_of(t, lane, k)); }
static inline float weight_of(const TileQ8h& t, int lane, int k) { return f16_to_f32(t.d[k / 16][lane]) * float(level_of(t, lane, k)); }
static inline float weight_of(const TileBf16& t, int lane, int k) { return bf16_to_f32(t.w[k][lane]); }
static inline float weight_of(const TileF16& t, int lane, int k) { return f16_to_f32(t.w[k][lane]); }
static inline float weight_of(const TileF32& t, int lane, int k) { return t.w[k][lane]; }

template <class Tile>
static inline const Tile* tile_row(const Packed& w, int r) {
  return reinterpret_cast<const Tile*>(w.data) + size_t(r) * size_t(w.groups());
}

}  // namespace camshaft
