// exp and tanh in float32: the polynomial that every instruction set evaluates, step for step, so that all give the same bits.
//
//   t = fma(x, log2e, 1.5 * 2^23); n = t - 1.5 * 2^23       n is x * log2e rounded to nearest even, and t's low bits hold it as an integer
//   r = fma(-n, ln2_hi, x); r = fma(-n, ln2_lo, r)          |r| <= ln2 / 2; n * ln2_hi is exact
//   p = 1 + r + r^2 * (c2 + c3 r + c4 r^2 + c5 r^3 + c6 r^4) by Horner with fma; minimax on |r| <= ln2 / 2, relative error 4.2e-9 with
//       these float32 coefficients
//   result = p with n added to its exponent field
//
// x above 88.7 counts as 88.7 (the result stays finite), x below -87.3 gives 0 (the result is never subnormal), NaN gives NaN.
#pragma once
#include <cmath>
#include <cstdint>

namespace camshaft {

constexpr float kExpMax = 88.7f;
constexpr float kExpMin = -87.3f;
constexpr float kLog2e = 0x1.715476p+0f;
constexpr float kRoundMagic = 0x1.8p+23f;    // adding it leaves the nearest integer in the low mantissa bits
constexpr float kLn2Hi = 0x1.62e4p-1f;       // 15 significant bits, so that n * kLn2Hi is exact for |n| <= 128
constexpr float kLn2Lo = 0x1.7f7d1cp-20f;
constexpr float kExpC2 = 0x1.fffffcp-2f;
constexpr float kExpC3 = 0x1.555490p-3f;
constexpr float kExpC4 = 0x1.5558f8p-5f;
constexpr float kExpC5 = 0x1.123b02p-7f;
constexpr float kExpC6 = 0x1.6a2256p-10f;
constexpr float kGeluInner = 0.7978845608f;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

// Static, not inline: each translation unit has its own instruction set, and a shared inline body could be the wrong one's.
static inline float exp_f32(float x) {
  if (x < kExpMin) return 0.0f;
  if (x > kExpMax) x = kExpMax;
  if (x != x) return x;
  const float t = std::fma(x, kLog2e, kRoundMagic);
  const float n = t - kRoundMagic;
  const float r = std::fma(-n, kLn2Lo, std::fma(-n, kLn2Hi, x));
  float p = std::fma(kExpC6, r, kExpC5);
  p = std::fma(p, r, kExpC4);
  p = std::fma(p, r, kExpC3);
  p = std::fma(p, r, kExpC2);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  uint32_t bits, shift;
  __builtin_memcpy(&bits, &p, 4);
  __builtin_memcpy(&shift, &t, 4);
  bits += shift << 23;
  __builtin_memcpy(&p, &bits, 4);
  return p;
}

static inline float tanh_f32(float x) { return 1.0f - 2.0f / (exp_f32(2.0f * x) + 1.0f); }

}  // namespace camshaft
