// The packed forms of a weight matrix [rows = outputs, cols = inputs], and how files become them.
//
// Common layout: tiles of 16 rows x 32 inputs, tile-major: tile (r, g) holds rows 16r..16r+15 and inputs 32g..32g+31 and lies at
// index r * n_groups + g. Rows are padded to 16 and inputs to 32 with zeros. A lane is an output row; no kernel sums across lanes.
//
//   form    w =            bytes of a tile                                              exact for
//   q4      d*u + m        256 nibbles, 16 f16 d, 16 f16 m               = 320           Q4_1 Q4_K(*)
//   q4s     d*(u - 8)      256 nibbles, 16 f16 d                         = 288           Q4_0
//   q5      d*u + m        256 nibbles, 64 high bits, 16 f16 d, 16 f16 m = 384           Q5_0 Q5_1 Q5_K(*)
//   q8      d*s            512 int8, 16 f16 d                            = 544           Q8_0, and IQ4_NL widened
//   q8h     d*s            512 int8, 2 x 16 f16 d (two halves of 16)     = 576           Q6_K(*), and Q2_K Q3_K(*) widened
//   bf16    w              512 x 2                                       = 1024          BF16
//   f16     w              512 x 2                                       = 1024          F16
//   f32     w              512 x 4                                       = 2048          F32
//   (*) but for the rounding of a block's scale products to f16.
//
// Byte order inside a tile is the linear kernels' business (formats.cpp and the kernels agree; see there).
#pragma once
#include <string_view>

#include "camshaft/view.h"

namespace camshaft {

enum class Form : uint8_t { q4, q4s, q5, q8, q8h, bf16, f16, f32 };
constexpr int kForms = 8;

// GGUF's tensor type numbers, those that we read.
enum class FileType : uint32_t {
  F32 = 0, F16 = 1, Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q2_K = 10, Q3_K = 11, Q4_K = 12, Q5_K = 13, Q6_K = 14, IQ4_NL = 20, BF16 = 30
};

// A packed matrix. `data` is 64-byte aligned, owned elsewhere.
struct Packed {
  Form form;
  int rows, cols;
  const uint8_t* data;
  int groups() const { return ceil_div(cols, kGroup); }
  int tiles() const { return ceil_div(rows, kRowTile); }
};

bool known_file_type(uint32_t type);
Form form_of(FileType type);                      // the form a file type is packed into
const char* form_name(Form form);
bool form_named(std::string_view name, Form& out);  // false for a name that no form has
bool is_widened(FileType type);                   // true for Q2_K Q3_K IQ4_NL: said at load
size_t file_row_bytes(FileType type, int cols);   // 0 if cols is not a multiple of the type's block
size_t tile_bytes(Form form);
size_t packed_bytes(Form form, int rows, int cols);

// Packs tile rows [tile_begin, tile_end) of a matrix from file rows. `row_order[i]` is the file row of output row i, or null for
// identity. `form` is form_of(type), or q8 / q4 to quantise an F32, F16 or BF16 matrix at load. Safe to call from many threads on disjoint tiles.
void pack_tiles(Form form, FileType type, const uint8_t* file, int rows, int cols, const int32_t* row_order, int tile_begin, int tile_end, uint8_t* out);

// Differs between builds that pack any matrix into other bytes, so that packed bytes kept on disk are never read by the wrong build.
// Today every instruction set reads the same bytes; if one ever packs its own, this takes its name.
uint64_t packing_id();

// Row `row` of a packed matrix as float32[cols]: the embedding lookup. Exactly d*u + m as one fma (or d*s as one multiplication).
void unpack_row(const Packed& w, int row, float* out);

float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);   // round to nearest even
inline float bf16_to_f32(uint16_t h) { uint32_t u = uint32_t(h) << 16; float f; __builtin_memcpy(&f, &u, 4); return f; }
uint16_t f32_to_bf16(float f);  // round to nearest even; NaN stays NaN

}  // namespace camshaft
