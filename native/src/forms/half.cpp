// Half-precision conversions without the instruction set's help: they serve packing and lookups, not inner loops.
#include <cstring>
#include "camshaft/formats.h"

namespace camshaft {
namespace {

uint32_t bits_of(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  return u;
}

float float_of(uint32_t u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

// Drops `shift` low bits of `value`, rounding to nearest, ties to even.
uint32_t round_off(uint32_t value, int shift) {
  const uint32_t half = 1u << (shift - 1);
  return (value + half - 1 + ((value >> shift) & 1)) >> shift;
}

}  // namespace

float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, magnitude = h & 0x7fff;
  if (magnitude >= 0x7c00) {  // a signalling NaN becomes quiet, as vcvtph2ps has it
    const uint32_t quiet = magnitude > 0x7c00 ? 0x400000 : 0;
    return float_of(sign | 0x7f800000 | quiet | (magnitude & 0x3ff) << 13);
  }
  if (magnitude >= 0x400) return float_of(sign | ((magnitude << 13) + ((127 - 15) << 23)));
  return float_of(sign | bits_of(float(int(magnitude)) * 0x1p-24f));  // subnormal: a small integer times 2^-24, exactly
}

uint16_t f32_to_f16(float f) {
  const uint32_t u = bits_of(f), magnitude = u & 0x7fffffff;
  const uint16_t sign = uint16_t(u >> 16 & 0x8000);
  if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);  // 65520 and up round to infinity
  if (magnitude >= 0x38800000) return uint16_t(sign | round_off(magnitude - ((127 - 15) << 23), 13));
  if (magnitude < 0x33000000) return sign;  // under half of the smallest subnormal
  const int exponent = int(magnitude >> 23);
  return uint16_t(sign | round_off((magnitude & 0x7fffff) | 0x800000, 126 - exponent));
}

uint16_t f32_to_bf16(float f) {
  const uint32_t u = bits_of(f);
  if ((u & 0x7fffffff) > 0x7f800000) return uint16_t(u >> 16 | 0x40);
  return uint16_t(round_off(u & 0x7fffffff, 16) | (u >> 16 & 0x8000));
}

}  // namespace camshaft
