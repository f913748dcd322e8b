// Activations to int8, token by token: the definition.
#include <cmath>
#include <cstring>
#include "kernels_decl.h"
#include "ref/acts.h"

namespace camshaft::ref {
namespace {

// |x| as the bits of a float order like integers, with NaN above infinity: so a NaN reaches d and from there every output, never hides.
float largest(const float* x, int n) {
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

void quantize_group(const float* x, int n, ActGroup& out) {
  const float most = largest(x, n);
  const float inverse = most == 0 ? 0 : 127.0f / most;
  out.d = most / 127.0f;
  int sum = 0;
  for (int i = 0; i < kGroup; i++) {
    float v = i < n ? x[i] * inverse : 0;
    v = v < 127.0f ? v : 127.0f;  // written so that a NaN gives 127, as minps does
    v = v > -127.0f ? v : -127.0f;
    out.q[i] = int8_t(std::lrintf(v));
    sum += out.q[i];
  }
  out.sum = out.d * float(sum);
}

}  // namespace

size_t acts_bytes(int tokens, int cols) { return size_t(tokens) * size_t(ceil_div(cols, kGroup)) * sizeof(ActGroup); }

void quantize(Rows x, int cols, int t_begin, int t_end, int, uint8_t* acts) {
  const int groups = ceil_div(cols, kGroup);
  ActGroup* out = reinterpret_cast<ActGroup*>(acts) + int64_t(t_begin) * groups;
  for (int t = t_begin; t < t_end; t++)
    for (int g = 0; g < groups; g++, out++) quantize_group(x[t] + g * kGroup, cols - g * kGroup < kGroup ? cols - g * kGroup : kGroup, *out);
}

void quantize_rest(Rows x, int cols, int t_begin, int t_end, Rows rest) {
  const int groups = ceil_div(cols, kGroup);
  for (int t = t_begin; t < t_end; t++)
    for (int g = 0; g < groups; g++) {
      const int first = g * kGroup, n = cols - first < kGroup ? cols - first : kGroup;
      ActGroup group;
      quantize_group(x[t] + first, n, group);
      int squares = 0;
      for (int8_t q : group.q) squares += q * q;
      const bool towers = squares < kOutlierBelow;
      for (int i = 0; i < kGroup; i++) rest[t][first + i] = towers && i < n ? std::fma(-group.d, float(group.q[i]), x[t][first + i]) : 0;
    }
}

}  // namespace camshaft::ref
