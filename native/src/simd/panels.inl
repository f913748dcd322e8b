// A packed tile as float32 [32 inputs][16 rows], each weight as unpack_row gives it: what the float products read.
#pragma once
#include "../forms/layout.h"

namespace camshaft::CAMSHAFT_ISA {

using Panel = float[kGroup][kRowTile];

inline void decode(const TileQ4& t, Panel& out) {
  const V16 d = load_f16(t.d), m = load_f16(t.m);
  for (int i = 0; i < 4; i++) {
    I16 words = load_words(t.u[i]);
    for (int j = 0; j < 4; j++, words = shift_right<8>(words)) {
      store(out[4 * i + j], fma(d, to_floats(masked(words, 15)), m));
      store(out[16 + 4 * i + j], fma(d, to_floats(masked(shift_right<4>(words), 15)), m));
    }
  }
}

inline void decode(const TileQ4s& t, Panel& out) {
  const V16 d = load_f16(t.d), offset = set1(8.0f);
  for (int i = 0; i < 4; i++) {
    I16 words = load_words(t.u[i]);
    for (int j = 0; j < 4; j++, words = shift_right<8>(words)) {
      store(out[4 * i + j], mul(d, sub(to_floats(masked(words, 15)), offset)));
      store(out[16 + 4 * i + j], mul(d, sub(to_floats(masked(shift_right<4>(words), 15)), offset)));
    }
  }
}

inline void decode(const TileQ5& t, Panel& out) {
  const V16 d = load_f16(t.d), m = load_f16(t.m);
  I16 high = load_words(t.high);  // after i shifts by one, bit 8j is the fifth bit of quad i, and bit 8j + 4 that of quad i + 4
  for (int i = 0; i < 4; i++, high = shift_right<1>(high)) {
    I16 words = load_words(t.u[i]), bits = high;
    for (int j = 0; j < 4; j++, words = shift_right<8>(words), bits = shift_right<8>(bits)) {
      const I16 low_level = either(masked(words, 15), shift_left<4>(masked(bits, 1)));
      const I16 high_level = either(masked(shift_right<4>(words), 15), masked(bits, 16));
      store(out[4 * i + j], fma(d, to_floats(low_level), m));
      store(out[16 + 4 * i + j], fma(d, to_floats(high_level), m));
    }
  }
}

inline void decode_signed(const int8_t (*s)[kRowTile][4], V16 d, int begin, int end, Panel& out) {
  for (int i = begin; i < end; i++) {
    I16 words = load_words(s[i]);
    for (int j = 0; j < 4; j++, words = shift_right<8>(words)) store(out[4 * i + j], mul(d, to_floats(signed_byte(words))));
  }
}
inline void decode(const TileQ8& t, Panel& out) { decode_signed(t.s, load_f16(t.d), 0, kQuads, out); }
inline void decode(const TileQ8h& t, Panel& out) {
  decode_signed(t.s, load_f16(t.d[0]), 0, kQuads / 2, out);
  decode_signed(t.s, load_f16(t.d[1]), kQuads / 2, kQuads, out);
}

// One input's weights of a tile that holds floats.
inline V16 weights_of_input(const TileBf16& t, int k) { return load_bf16(t.w[k]); }
inline V16 weights_of_input(const TileF16& t, int k) { return load_f16(t.w[k]); }
inline V16 weights_of_input(const TileF32& t, int k) { return load(t.w[k]); }

template <class Tile> inline void decode(const Tile& t, Panel& out) {
  for (int k = 0; k < kGroup; k++) store(out[k], weights_of_input(t, k));
}

// The panel of a tile: `scratch`, or the tile itself where it is one.
template <class Tile> inline const Panel& panel_of(const Tile& t, Panel& scratch) {
  decode(t, scratch);
  return scratch;
}
inline const Panel& panel_of(const TileF32& t, Panel&) { return t.w; }

}  // namespace camshaft::CAMSHAFT_ISA
