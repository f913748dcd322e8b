// GGUF's quantised blocks, read 32 inputs at a time.
#pragma once
#include "camshaft/formats.h"

namespace camshaft {

// 32 weights of one row: w_k = d[k / 16] * q_k + m, with q unsigned 4 or 5 bits (then d[0] == d[1]), or signed 8 bits (then m is 0).
struct QuantGroup {
  uint16_t d[2];  // f16
  uint16_t m;     // f16
  uint8_t q[kGroup];
};

// Bytes and weights of one block of a file type; weights 1 for the float types.
struct BlockSize {
  int bytes, weights;
};
BlockSize block_size(FileType type);

// Reads group `g` (inputs 32g..32g+31) of a row. `type` is a quantised one. Q4_0 gives q in 0..15 with an implied offset of 8.
QuantGroup read_group(FileType type, const uint8_t* row, int g);

// Reads group `g` of a row of F32, F16 or BF16 as float32; inputs from `cols` on are zero.
void read_floats(FileType type, const uint8_t* row, int g, int cols, float* out);

// 32 floats to signed 8 bits (symmetric; error at most half of max / 127) or to 4 bits with scale and minimum: of 8 ranges, each fitted by
// least squares, the one with the least squared error. On bell-shaped weights the error is 7.1 % of their deviation (a plain grid from the
// least to the largest has 7.8 %), and 0.53 % for 8 bits. Values that are not finite give a group of zeros.
QuantGroup quantise_q8(const float* x);
QuantGroup quantise_q4(const float* x);

}  // namespace camshaft
