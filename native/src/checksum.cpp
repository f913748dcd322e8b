// Four sums of 64 bits side by side, so that the multiplications of one do not wait for another's: memory sets the pace.
#include "camshaft/checksum.h"

#include <bit>
#include <cstring>
#include <initializer_list>

namespace camshaft {
namespace {

constexpr uint64_t kP1 = 0x9E3779B185EBCA87, kP2 = 0xC2B2AE3D27D4EB4F, kP3 = 0x165667B19E3779F9, kP4 = 0x85EBCA77C2B2AE63,
                   kP5 = 0x27D4EB2F165667C5;

template <class T> T load(const uint8_t* p) {
  static_assert(std::endian::native == std::endian::little, "packed files are little-endian");
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

uint64_t mix(uint64_t sum, uint64_t lane) { return std::rotl(sum + lane * kP2, 31) * kP1; }
uint64_t merge(uint64_t sum, uint64_t lane) { return (sum ^ mix(0, lane)) * kP1 + kP4; }

uint64_t finish(uint64_t h, const uint8_t* p, size_t left) {
  for (; left >= 8; p += 8, left -= 8) h = std::rotl(h ^ mix(0, load<uint64_t>(p)), 27) * kP1 + kP4;
  if (left >= 4) {
    h = std::rotl(h ^ load<uint32_t>(p) * kP1, 23) * kP2 + kP3;
    p += 4, left -= 4;
  }
  for (; left > 0; ++p, --left) h = std::rotl(h ^ *p * kP5, 11) * kP1;
  h = (h ^ h >> 33) * kP2;
  h = (h ^ h >> 29) * kP3;
  return h ^ h >> 32;
}

}  // namespace

uint64_t checksum(const void* data, size_t bytes) {
  const uint8_t* p = static_cast<const uint8_t*>(data);
  if (bytes < 32) return finish(kP5 + bytes, p, bytes);
  uint64_t a = kP1 + kP2, b = kP2, c = 0, d = 0 - kP1;
  size_t left = bytes;
  for (; left >= 32; p += 32, left -= 32) {
    a = mix(a, load<uint64_t>(p));
    b = mix(b, load<uint64_t>(p + 8));
    c = mix(c, load<uint64_t>(p + 16));
    d = mix(d, load<uint64_t>(p + 24));
  }
  uint64_t h = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
  for (uint64_t lane : {a, b, c, d}) h = merge(h, lane);
  return finish(h + bytes, p, left);
}

}  // namespace camshaft
