// Activations to int8, token by token: the definition.
#include <cmath>
#include <cstring>
#include <utility>
#include "kernels_decl.h"
#include "ref/acts.h"

namespace camshaft::ref {
namespace {

// |x| as the bits of a float order like integers, with NaN above infinity: so a NaN reaches d and from there every output, never hides.
float largest(const float (&x)[kGroup]) {
  uint32_t most = 0;
  for (const float& v : x) {
    uint32_t bits;
    std::memcpy(&bits, &v, 4);
    bits &= 0x7fffffff;
    if (bits > most) most = bits;
  }
  float out;
  std::memcpy(&out, &most, 4);
  return out;
}

ActGroup quantize_group(const float (&x)[kGroup]) {
  const float most = largest(x);
  const float inverse = most == 0 ? 0 : 127.0f / most;
  ActGroup out;
  out.tower = -1, out.tower_x = 0.0f;
  out.d = most / 127.0f;
  int sum = 0;
  for (int i = 0; i < kGroup; i++) {
    float v = x[i] * inverse;
    v = v < 127.0f ? v : 127.0f;  // written so that a NaN gives 127, as minps does
    v = v > -127.0f ? v : -127.0f;
    out.q[i] = int8_t(std::lrintf(v));
    sum += out.q[i];
  }
  out.sum = out.d * float(sum);
  return out;
}

ActGroup quantize_without_tower(float (&x)[kGroup]) {
  const ActGroup all = quantize_group(x);
  int squares = 0;
  for (int8_t q : all.q) squares += q * q;
  if (all.d == 0 || squares >= kTowerBelow) return all;
  int tower = 0;
  for (int i = 1; i < kGroup; i++)
    if (std::fabs(x[i]) > std::fabs(x[tower])) tower = i;
  const float tower_x = std::exchange(x[tower], 0.0f);
  ActGroup rest = quantize_group(x);
  rest.tower = tower, rest.tower_x = tower_x;
  return rest;
}

}  // namespace

size_t acts_bytes(int tokens, int cols) { return size_t(tokens) * size_t(ceil_div(cols, kGroup)) * sizeof(ActGroup); }

void quantize(Rows x, int cols, int t_begin, int t_end, int, uint8_t* acts) {
  const int groups = ceil_div(cols, kGroup);
  ActGroup* out = reinterpret_cast<ActGroup*>(acts) + int64_t(t_begin) * groups;
  for (int t = t_begin; t < t_end; t++)
    for (int first = 0; first < cols; first += kGroup) {
      float padded[kGroup] = {};
      std::memcpy(padded, x[t] + first, size_t(cols - first < kGroup ? cols - first : kGroup) * sizeof(float));
      *out++ = quantize_without_tower(padded);
    }
}

}  // namespace camshaft::ref
