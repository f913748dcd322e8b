// Vectors as integers of one step, for an int8 KV cache: the scalar half, which every instruction set shares. The contract is in ops.h.
#pragma once
#include <cstdint>
#include <limits>

namespace camshaft {

constexpr float kFixedTiny = 0x1p-100f;     // vectors below it are zero, so that no inverse is infinite
constexpr float kWordLevels = 32767.0f;     // queries and weights of values
constexpr float kByteLevels = 127.0f;       // K and V

// Static, not inline: see mathf.h.
static inline float fixed_inverse(float most, float n) {
  return most >= kFixedTiny && most <= std::numeric_limits<float>::max() ? n / most : 0.0f;
}
static inline float fixed_step(float most, float n) { return (most - most) + most / n; }

// The step of K and V: bf16, rounded up.
static inline uint16_t byte_step(float most) {
  const float step = fixed_step(most, kByteLevels);
  if (step != step) return 0x7fc0;
  uint32_t bits;
  __builtin_memcpy(&bits, &step, 4);
  return static_cast<uint16_t>((bits + 0xffff) >> 16);
}
static inline float byte_inverse(float most, float step) { return fixed_inverse(most, 1.0f) > 0 ? 1.0f / step : 0.0f; }

}  // namespace camshaft
