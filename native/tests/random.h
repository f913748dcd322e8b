// Reproducible numbers for tests: splitmix64.
#pragma once
#include <cstdint>
#include <vector>

namespace camshaft::test {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  float uniform(float low, float high) { return low + (high - low) * static_cast<float>(bits() >> 40) * 0x1p-24f; }
  // n values in (-scale, scale), exactly that many: a read past the end is seen by ASan.
  std::vector<float> floats(size_t n, float scale = 1.0f) {
    std::vector<float> values(n);
    for (float& x : values) x = uniform(-scale, scale);
    return values;
  }

 private:
  uint64_t state_;
};

}  // namespace camshaft::test
