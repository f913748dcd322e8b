// The weights of one input for the 16 rows of a tile, as unpack_row gives them: what a tower meets. Include after tiles256.h or tiles512.h.
#pragma once
#include "../forms/layout.h"
#include "towers.h"

namespace camshaft::CAMSHAFT_ISA {

// The byte of an input in each row's word, with its nibble in the low bits.
inline I16 nibbles(const uint8_t (&u)[4][kRowTile][4], const Tower& at) { return shift_right(load_words(u[at.quad % 4]), 8 * at.byte + (at.quad & 4)); }

inline V16 column(const TileQ4& t, const Tower& at) { return fma(load_f16(t.d), to_floats(masked(nibbles(t.u, at), 15)), load_f16(t.m)); }
inline V16 column(const TileQ4s& t, const Tower& at) { return mul(load_f16(t.d), sub(to_floats(masked(nibbles(t.u, at), 15)), set1(8.0f))); }
inline V16 column(const TileQ5& t, const Tower& at) {
  const I16 fifth = shift_left<4>(masked(shift_right(load_words(t.high), 8 * at.byte + at.quad), 1));
  return fma(load_f16(t.d), to_floats(either(masked(nibbles(t.u, at), 15), fifth)), load_f16(t.m));
}
inline V16 signed_column(const int8_t (&s)[kQuads][kRowTile][4], const uint16_t (&d)[kRowTile], const Tower& at) {
  return mul(load_f16(d), to_floats(signed_byte(shift_right(load_words(s[at.quad]), 8 * at.byte))));
}
inline V16 column(const TileQ8& t, const Tower& at) { return signed_column(t.s, t.d, at); }
inline V16 column(const TileQ8h& t, const Tower& at) { return signed_column(t.s, t.d[at.quad / 4], at); }

// One token's towers over a row of tiles.
template <class Tile> inline V16 add_towers(const Tile* tiles, TowerList towers, V16 acc) {
  for (const Tower& tower : towers) acc = fma(column(tiles[tower.group], tower), set1(tower.x), acc);
  return acc;
}

}  // namespace camshaft::CAMSHAFT_ISA
