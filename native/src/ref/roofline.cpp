#include "roofline.h"

#include <cstdint>

namespace camshaft {
namespace {

constexpr int kLength = 64;

int run(int rounds, int seed) {
  int8_t a[kLength], b[kLength];
  for (int i = 0; i < kLength; ++i) a[i] = int8_t(seed + i), b[i] = int8_t(i);
  int sum = 0;
  for (int r = 0; r < rounds; ++r) {
    for (int i = 0; i < kLength; ++i) sum += a[i] * b[i];
    a[r % kLength] = int8_t(sum);  // what the next round multiplies is not known to the compiler
  }
  return sum;
}

}  // namespace

DotLoop dot_loop_ref() { return {run, 2.0 * kLength}; }

}  // namespace camshaft
