// Philox4x32-10: counter-based random numbers. Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11, section 4.
#pragma once
#include <array>
#include <cstdint>

namespace camshaft {

static inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {uint32_t(b >> 32) ^ counter[1] ^ key[0], uint32_t(b), uint32_t(a >> 32) ^ counter[3] ^ key[1], uint32_t(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// Uniform in [0, 1) with 53 bits: a function of who draws (seed, choice) and where (the position of the token drawn), and of nothing else.
static inline double uniform(uint64_t seed, uint32_t choice, uint32_t position) {
  const auto r = philox4x32({position, choice, 0, 0}, {uint32_t(seed), uint32_t(seed >> 32)});
  return double((uint64_t(r[0]) << 32 | r[1]) >> 11) * 0x1p-53;
}

}  // namespace camshaft
