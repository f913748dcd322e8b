// Plain views of memory that somebody else owns. No header under include/ knows Python.
#pragma once
#include <cstddef>
#include <cstdint>

namespace camshaft {

constexpr int kLanes = 16;       // every kernel's arithmetic is defined on vectors of 16 float32 lanes, whatever the machine has
constexpr int kGroup = 32;       // activations are quantised in groups of 32 along the input
constexpr int kTowerBelow = 20'645;  // 32 * 127^2 / 5^2: a group whose int8 squares sum to less has a largest value over 5 times its RMS
constexpr int kRowTile = 16;     // a packed weight tile has 16 output rows: one lane each
constexpr int kSubBlock = 16;    // tokens in a K sub-block: one lane each
constexpr int kSpan = 64;        // tokens in an attention span; spans start at absolute multiples of it
constexpr size_t kAlign = 64;

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }
inline size_t round_up(size_t a, size_t b) { return (a + b - 1) / b * b; }

// Rows of float32, `stride` floats apart.
struct Rows {
  float* data;
  int64_t stride;
  float* operator[](int64_t row) const { return data + row * stride; }
};

}  // namespace camshaft
