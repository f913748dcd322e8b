// Float weights to 8 and 4 bits, at load.
#include <algorithm>
#include <cmath>
#include <cstring>
#include "forms/blocks.h"

namespace camshaft {
namespace {

constexpr float kMaxHalf = 65504.0f;

float as_half(float f) { return f16_to_f32(f32_to_f16(std::clamp(f, -kMaxHalf, kMaxHalf))); }

bool all_finite(const float* x) {
  return std::all_of(x, x + kGroup, [](float v) { return std::isfinite(v); });
}

using F4 = float __attribute__((vector_size(16)));  // what every 64-bit machine has

F4 all(float f) { return F4{f, f, f, f}; }
float total(F4 v) { return (v[0] + v[1]) + (v[2] + v[3]); }

// The nearest of the levels 0..15. Adding and taking away 1.5 * 2^23 rounds to nearest even.
F4 levels(F4 x, float lowest, float inverse) {
  F4 v = (x - all(lowest)) * all(inverse);
  v = v > all(0) ? v : all(0);
  v = v < all(15) ? v : all(15);
  return (v + all(0x1.8p+23f)) - all(0x1.8p+23f);
}

// A group and its sums.
struct Group {
  F4 x[kGroup / 4];
  float sum, squares;
};

Group group_of(const float* x) {
  Group out{};
  std::memcpy(out.x, x, sizeof out.x);
  F4 sum{}, squares{};
  for (F4 v : out.x) {
    sum += v;
    squares += v * v;
  }
  out.sum = total(sum);
  out.squares = total(squares);
  return out;
}

struct Fit {
  float d, m, error;
};

// The d and m that fit levels u to x best, for the levels that a grid from `lowest` with `inverse` levels a unit gives.
Fit fit(const Group& g, float lowest, float inverse) {
  F4 sums{}, squares{}, products{};
  for (F4 x : g.x) {
    const F4 u = levels(x, lowest, inverse);
    sums += u;
    squares += u * u;
    products += u * x;
  }
  const float su = total(sums), suu = total(squares), sxu = total(products), n = kGroup, spread = n * suu - su * su;
  Fit out{1.0f / inverse, lowest, 0};
  if (spread > 0) {
    out.d = (n * sxu - su * g.sum) / spread;
    out.m = (g.sum - out.d * su) / n;
  }
  // The sum of (d * u + m - x)^2, multiplied out.
  out.error = g.squares + out.d * out.d * suu + n * out.m * out.m + 2 * (out.d * out.m * su - out.d * sxu - out.m * g.sum);
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
    const Group group = group_of(x);
    best = fit(group, *least, 15.0f / range);
    for (int step = 0; step < 7; step++) {  // from a grid that clips both ends to one wider than the range
      const float width = range * (0.80f + 0.03f * float(step)), from = *least + 0.5f * (range - width);
      Fit candidate = fit(group, from, 15.0f / width);
      if (candidate.d > 0) candidate = better(candidate, fit(group, candidate.m, 1.0f / candidate.d));  // levels once more, for what was fitted
      best = better(best, candidate);
    }
  }
  const float d = as_half(best.d), m = as_half(best.m);
  out.d[0] = out.d[1] = f32_to_f16(d);
  out.m = f32_to_f16(m);
  if (d > 0)
    for (int k = 0; k < kGroup; k++) out.q[k] = uint8_t(levels(all(x[k]), m, 1.0f / d)[0]);
  return out;
}

}  // namespace camshaft
