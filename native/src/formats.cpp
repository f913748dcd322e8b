// Packing a file's matrix into tiles, and reading single rows back.
#include "camshaft/formats.h"
#include <cstring>
#include "forms/blocks.h"
#include "forms/layout.h"

namespace camshaft {
namespace {

void put_nibbles(const QuantGroup& g, int row, uint8_t (*u)[kRowTile][4]) {
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) u[i][row][j] = uint8_t((g.q[4 * i + j] & 15) | g.q[16 + 4 * i + j] << 4);
}

void put_bytes(const QuantGroup& g, int row, int8_t (*s)[kRowTile][4]) {
  for (int i = 0; i < kQuads; i++) std::memcpy(s[i][row], g.q + 4 * i, 4);
}

void put_group(const QuantGroup& g, int row, TileQ4& t) {
  put_nibbles(g, row, t.u);
  t.d[row] = g.d[0];
  t.m[row] = g.m;
}

void put_group(const QuantGroup& g, int row, TileQ4s& t) {
  put_nibbles(g, row, t.u);
  t.d[row] = g.d[0];
}

void put_group(const QuantGroup& g, int row, TileQ5& t) {
  put_nibbles(g, row, t.u);
  uint32_t high = 0;
  for (int i = 0; i < kQuads; i++) {
    uint32_t quad;
    std::memcpy(&quad, g.q + 4 * i, 4);
    high |= (quad >> 4 & 0x01010101) << i;
  }
  std::memcpy(t.high[row], &high, 4);
  t.d[row] = g.d[0];
  t.m[row] = g.m;
}

void put_group(const QuantGroup& g, int row, TileQ8& t) {
  put_bytes(g, row, t.s);
  t.d[row] = g.d[0];
}

void put_group(const QuantGroup& g, int row, TileQ8h& t) {
  put_bytes(g, row, t.s);
  t.d[0][row] = g.d[0];
  t.d[1][row] = g.d[1];
}

struct Source {
  FileType type;
  const uint8_t* file;
  int rows, cols;
  const int32_t* order;
  size_t row_bytes;
  const uint8_t* row(int r) const { return file + size_t(order ? order[r] : r) * row_bytes; }
};

bool is_float(FileType type) { return block_size(type).weights == 1; }

QuantGroup quantised(const Source& s, bool to_q4, int row, int g) {
  if (!is_float(s.type)) return read_group(s.type, s.row(row), g);
  float x[kGroup];
  read_floats(s.type, s.row(row), g, s.cols, x);
  return to_q4 ? quantise_q4(x) : quantise_q8(x);
}

template <class Tile>
void pack_quantised(const Source& s, bool to_q4, int tile_begin, int tile_end, uint8_t* out) {
  const int groups = ceil_div(s.cols, kGroup);
  Tile* tile = reinterpret_cast<Tile*>(out) + size_t(tile_begin) * size_t(groups);
  for (int r = tile_begin; r < tile_end; r++)
    for (int g = 0; g < groups; g++, tile++)
      for (int lane = 0; lane < kRowTile; lane++) {
        const int row = r * kRowTile + lane;
        put_group(row < s.rows ? quantised(s, to_q4, row, g) : QuantGroup{}, lane, *tile);
      }
}

// Bits are copied as they are: a float form holds what the file held.
template <class Tile, class Bits>
void pack_floats(const Source& s, int tile_begin, int tile_end, uint8_t* out) {
  const int groups = ceil_div(s.cols, kGroup);
  Tile* tile = reinterpret_cast<Tile*>(out) + size_t(tile_begin) * size_t(groups);
  for (int r = tile_begin; r < tile_end; r++)
    for (int g = 0; g < groups; g++, tile++) {
      std::memset(static_cast<void*>(tile), 0, sizeof(Tile));
      const int n = s.cols - g * kGroup < kGroup ? s.cols - g * kGroup : kGroup;
      for (int lane = 0; lane < kRowTile && r * kRowTile + lane < s.rows; lane++) {
        const uint8_t* p = s.row(r * kRowTile + lane) + size_t(g) * kGroup * sizeof(Bits);
        for (int k = 0; k < n; k++) std::memcpy(&tile->w[k][lane], p + size_t(k) * sizeof(Bits), sizeof(Bits));
      }
    }
}

template <class Tile>
void unpack(const Packed& w, int row, float* out) {
  const Tile* tile = tile_row<Tile>(w, row / kRowTile);
  for (int k = 0; k < w.cols; k++) out[k] = weight_of(tile[k / kGroup], row % kRowTile, k % kGroup);
}

}  // namespace

bool known_file_type(uint32_t type) { return block_size(FileType(type)).bytes != 0; }

Form form_of(FileType type) {
  switch (type) {
    case FileType::F32: return Form::f32;
    case FileType::F16: return Form::f16;
    case FileType::BF16: return Form::bf16;
    case FileType::Q4_0: return Form::q4s;
    case FileType::Q4_1:
    case FileType::Q4_K: return Form::q4;
    case FileType::Q5_0:
    case FileType::Q5_1:
    case FileType::Q5_K: return Form::q5;
    case FileType::Q8_0:
    case FileType::IQ4_NL: return Form::q8;
    case FileType::Q2_K:
    case FileType::Q3_K:
    case FileType::Q6_K: return Form::q8h;
  }
  return Form::f32;
}

namespace {
constexpr const char* kNames[kForms] = {"q4", "q4s", "q5", "q8", "q8h", "bf16", "f16", "f32"};
}

const char* form_name(Form form) { return kNames[size_t(form)]; }

bool form_named(std::string_view name, Form& out) {
  for (int i = 0; i < kForms; i++)
    if (name == kNames[i]) {
      out = Form(i);
      return true;
    }
  return false;
}

bool is_widened(FileType type) { return type == FileType::Q2_K || type == FileType::Q3_K || type == FileType::IQ4_NL; }

size_t file_row_bytes(FileType type, int cols) {
  const BlockSize size = block_size(type);
  return cols > 0 && cols % size.weights == 0 ? size_t(cols / size.weights) * size_t(size.bytes) : 0;
}

size_t tile_bytes(Form form) {
  switch (form) {
    case Form::q4: return sizeof(TileQ4);
    case Form::q4s: return sizeof(TileQ4s);
    case Form::q5: return sizeof(TileQ5);
    case Form::q8: return sizeof(TileQ8);
    case Form::q8h: return sizeof(TileQ8h);
    case Form::bf16:
    case Form::f16: return sizeof(TileF16);
    case Form::f32: return sizeof(TileF32);
  }
  return 0;
}

size_t packed_bytes(Form form, int rows, int cols) {
  return size_t(ceil_div(rows, kRowTile)) * size_t(ceil_div(cols, kGroup)) * tile_bytes(form);
}

void pack_tiles(Form form, FileType type, const uint8_t* file, int rows, int cols, const int32_t* row_order, int tile_begin, int tile_end,
                uint8_t* out) {
  const Source s{type, file, rows, cols, row_order, file_row_bytes(type, cols)};
  switch (form) {
    case Form::q4: return pack_quantised<TileQ4>(s, true, tile_begin, tile_end, out);
    case Form::q4s: return pack_quantised<TileQ4s>(s, false, tile_begin, tile_end, out);
    case Form::q5: return pack_quantised<TileQ5>(s, false, tile_begin, tile_end, out);
    case Form::q8: return pack_quantised<TileQ8>(s, false, tile_begin, tile_end, out);
    case Form::q8h: return pack_quantised<TileQ8h>(s, false, tile_begin, tile_end, out);
    case Form::bf16:
    case Form::f16: return pack_floats<TileF16, uint16_t>(s, tile_begin, tile_end, out);
    case Form::f32: return pack_floats<TileF32, uint32_t>(s, tile_begin, tile_end, out);
  }
}

void unpack_row(const Packed& w, int row, float* out) {
  switch (w.form) {
    case Form::q4: return unpack<TileQ4>(w, row, out);
    case Form::q4s: return unpack<TileQ4s>(w, row, out);
    case Form::q5: return unpack<TileQ5>(w, row, out);
    case Form::q8: return unpack<TileQ8>(w, row, out);
    case Form::q8h: return unpack<TileQ8h>(w, row, out);
    case Form::bf16: return unpack<TileBf16>(w, row, out);
    case Form::f16: return unpack<TileF16>(w, row, out);
    case Form::f32: return unpack<TileF32>(w, row, out);
  }
}

}  // namespace camshaft
