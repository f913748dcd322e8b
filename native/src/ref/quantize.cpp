// Activations to int8, token by token: the definition.
#include <cmath>
#include <cstring>
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

ActPlanes quantize_planes(const float (&x)[kGroup]) {
  ActPlanes out{quantize_group(x), {}};
  int squares = 0;
  for (int8_t q : out.first.q) squares += q * q;
  if (squares >= kOutlierBelow) return out;
  float rest[kGroup];
  for (int i = 0; i < kGroup; i++) rest[i] = std::fma(-out.first.d, float(out.first.q[i]), x[i]);
  out.second = quantize_group(rest);
  return out;
}

}  // namespace

size_t acts_bytes(int tokens, int cols) { return size_t(tokens) * size_t(ceil_div(cols, kGroup)) * sizeof(ActPlanes); }

void quantize(Rows x, int cols, int t_begin, int t_end, int, uint8_t* acts) {
  const int groups = ceil_div(cols, kGroup);
  ActPlanes* out = reinterpret_cast<ActPlanes*>(acts) + int64_t(t_begin) * groups;
  for (int t = t_begin; t < t_end; t++)
    for (int first = 0; first < cols; first += kGroup) {
      float padded[kGroup] = {};
      std::memcpy(padded, x[t] + first, size_t(cols - first < kGroup ? cols - first : kGroup) * sizeof(float));
      *out++ = quantize_planes(padded);
    }
}

}  // namespace camshaft::ref
