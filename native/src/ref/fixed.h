// A vector as integers of one step, element by element: the twin of what int8 KV does.
#pragma once
#include <cmath>
#include <cstring>

#include "../fixed.h"

namespace camshaft::ref {

// max|x| by the bits, so that NaN and infinity win.
static inline float largest(const float* x, int n) {
  uint32_t most = 0;
  for (int i = 0; i < n; i++) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    bits &= 0x7fffffff;
    if (bits > most) most = bits;
  }
  float out;
  std::memcpy(&out, &most, 4);
  return out;
}

static inline int to_level(float x, float inverse, float n) {
  const float scaled = x * inverse;
  return static_cast<int>(std::lrintf(scaled < n ? scaled : n));  // n for NaN
}

}  // namespace camshaft::ref
