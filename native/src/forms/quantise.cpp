// Float weights to 8 and 4 bits, at load.
#include <algorithm>
#include <cmath>
#include "forms/blocks.h"

namespace camshaft {
namespace {

constexpr float kMaxHalf = 65504.0f;

float as_half(float f) { return f16_to_f32(f32_to_f16(std::clamp(f, -kMaxHalf, kMaxHalf))); }

bool all_finite(const float* x) {
  return std::all_of(x, x + kGroup, [](float v) { return std::isfinite(v); });
}

// Adding and taking away 1.5 * 2^23 rounds to nearest even without a call; `v` is within 2^22.
float round_even(float v) {
  constexpr float kMagic = 0x1.8p+23f;
  return (v + kMagic) - kMagic;
}

float level(float x, float lowest, float inverse) { return round_even(std::clamp((x - lowest) * inverse, 0.0f, 15.0f)); }

struct Fit {
  float d, m, error;
};

// The d and m that fit levels u to x best, for the levels that a grid from `lowest` with `inverse` levels a unit gives.
Fit fit(const float* x, float lowest, float inverse) {
  float u[kGroup], su = 0, suu = 0, sx = 0, sxu = 0;
  for (int k = 0; k < kGroup; k++) u[k] = level(x[k], lowest, inverse);
  for (int k = 0; k < kGroup; k++) {
    su += u[k];
    suu += u[k] * u[k];
    sx += x[k];
    sxu += x[k] * u[k];
  }
  const float n = kGroup, spread = n * suu - su * su;
  Fit out{1.0f / inverse, lowest, 0};
  if (spread > 0) {
    out.d = (n * sxu - su * sx) / spread;
    out.m = (sx - out.d * su) / n;
  }
  for (int k = 0; k < kGroup; k++) {
    const float e = out.d * u[k] + out.m - x[k];
    out.error += e * e;
  }
  return out;
}

Fit better(const Fit& a, const Fit& b) { return b.error < a.error ? b : a; }

}  // namespace

QuantGroup quantise_q8(const float* x) {
  QuantGroup out{};
  if (!all_finite(x)) return out;
  float largest = 0;
  for (int k = 0; k < kGroup; k++) largest = std::max(largest, std::fabs(x[k]));
  const float d = as_half(largest / 127.0f);
  if (d == 0) return out;
  out.d[0] = out.d[1] = f32_to_f16(d);
  for (int k = 0; k < kGroup; k++) out.q[k] = uint8_t(int8_t(std::lrintf(std::clamp(x[k] / d, -127.0f, 127.0f))));
  return out;
}

QuantGroup quantise_q4(const float* x) {
  QuantGroup out{};
  if (!all_finite(x)) return out;
  const auto [least, most] = std::minmax_element(x, x + kGroup);
  const float lowest = as_half(*least), range = *most - *least;
  Fit best{0, lowest, 0};
  if (range > 0x1p-20f) {  // under this the levels' distance is no longer a normal half; the minimum alone serves
    best = fit(x, *least, 15.0f / range);
    for (int step = 0; step < 12; step++) {  // from a grid that clips both ends to one wider than the range
      const float width = range * (0.80f + 0.02f * float(step)), from = *least + 0.5f * (range - width);
      Fit candidate = fit(x, from, 15.0f / width);
      if (candidate.d > 0) candidate = better(candidate, fit(x, candidate.m, 1.0f / candidate.d));  // levels once more, for what was fitted
      best = better(best, candidate);
    }
  }
  const float d = as_half(best.d), m = as_half(best.m);
  out.d[0] = out.d[1] = f32_to_f16(d);
  out.m = f32_to_f16(m);
  if (d > 0)
    for (int k = 0; k < kGroup; k++) out.q[k] = uint8_t(level(x[k], m, 1.0f / d));
  return out;
}

}  // namespace camshaft
