#include "forms/blocks.h"
#include <cstring>

namespace camshaft {
namespace {

uint16_t load16(const uint8_t* p) { return uint16_t(p[0] | p[1] << 8); }
uint32_t load32(const uint8_t* p) { return uint32_t(load16(p)) | uint32_t(load16(p + 2)) << 16; }

// A product of scales as f16, kept finite: a scale that overflows would turn zero weights into NaN.
uint16_t half_scale(float f) {
  const uint16_t h = f32_to_f16(f);
  return (h & 0x7fff) == 0x7c00 ? uint16_t(h - 1) : h;
}

void spread_nibbles(const uint8_t* nibbles, uint8_t* q) {
  for (int k = 0; k < 16; k++) {
    q[k] = nibbles[k] & 15;
    q[16 + k] = nibbles[k] >> 4;
  }
}

void add_fifth_bits(uint32_t high, uint8_t* q) {
  for (int k = 0; k < kGroup; k += 8) {  // eight bits to eight bytes: bit i survives in byte i, then whatever survived becomes a one
    const uint64_t kept = (high >> k & 0xff) * 0x0101010101010101u & 0x8040201008040201u;
    uint64_t levels;
    std::memcpy(&levels, q + k, 8);
    levels |= ((kept + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u) << 4;
    std::memcpy(q + k, &levels, 8);
  }
}

QuantGroup read_small(FileType type, const uint8_t* b) {
  QuantGroup out{};
  out.d[0] = out.d[1] = load16(b);
  switch (type) {
    case FileType::Q4_0: spread_nibbles(b + 2, out.q); break;
    case FileType::Q4_1:
      out.m = load16(b + 2);
      spread_nibbles(b + 4, out.q);
      break;
    case FileType::Q5_0:
      out.m = half_scale(-16.0f * f16_to_f32(out.d[0]));
      spread_nibbles(b + 6, out.q);
      add_fifth_bits(load32(b + 2), out.q);
      break;
    case FileType::Q5_1:
      out.m = load16(b + 2);
      spread_nibbles(b + 8, out.q);
      add_fifth_bits(load32(b + 4), out.q);
      break;
    case FileType::IQ4_NL: {
      static constexpr int8_t kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
      spread_nibbles(b + 2, out.q);
      for (uint8_t& q : out.q) q = uint8_t(kLevels[q]);
      break;
    }
    default: std::memcpy(out.q, b + 2, kGroup); break;  // Q8_0
  }
  return out;
}

// The 6-bit scale and minimum of sub-block j of Q4_K and Q5_K, out of their 12 packed bytes.
void packed_scale(const uint8_t* s, int j, int& scale, int& minimum) {
  if (j < 4) {
    scale = s[j] & 63;
    minimum = s[j + 4] & 63;
  } else {
    scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    minimum = s[j + 4] >> 4 | (s[j] >> 6) << 4;
  }
}

// Q4_K: d, dmin, 12 scale bytes, 128 nibble bytes. Q5_K: the same with 32 bytes of fifth bits before the nibbles.
QuantGroup read_k45(bool five, const uint8_t* b, int j) {
  QuantGroup out{};
  int scale, minimum;
  packed_scale(b + 4, j, scale, minimum);
  out.d[0] = out.d[1] = half_scale(f16_to_f32(load16(b)) * float(scale));
  out.m = half_scale(-f16_to_f32(load16(b + 2)) * float(minimum));
  const uint8_t* nibbles = b + (five ? 48 : 16) + 32 * (j / 2);
  for (int k = 0; k < kGroup; k++) out.q[k] = j % 2 ? nibbles[k] >> 4 : nibbles[k] & 15;
  if (five)
    for (int k = 0; k < kGroup; k++) out.q[k] = uint8_t(out.q[k] | (b[16 + k] >> j & 1) << 4);
  return out;
}

// Q6_K: 128 bytes of low nibbles, 64 of high pairs, 16 int8 scales, d.
QuantGroup read_k6(const uint8_t* b, int j) {
  QuantGroup out{};
  const uint8_t* low = b + 64 * (j / 4) + 32 * (j % 2);
  const uint8_t* high = b + 128 + 32 * (j / 4);
  const float d = f16_to_f32(load16(b + 208));
  for (int h = 0; h < 2; h++) out.d[h] = half_scale(d * float(int8_t(b[192 + 2 * j + h])));
  for (int k = 0; k < kGroup; k++) {
    const int nibble = j % 4 < 2 ? low[k] & 15 : low[k] >> 4;
    out.q[k] = uint8_t((nibble | (high[k] >> 2 * (j % 4) & 3) << 4) - 32);
  }
  return out;
}

// Q3_K: 32 bytes of high bits, 64 of low pairs, 12 of packed 6-bit scales, d.
QuantGroup read_k3(const uint8_t* b, int j) {
  QuantGroup out{};
  const float d = f16_to_f32(load16(b + 108));
  const uint8_t* scales = b + 96;
  for (int h = 0; h < 2; h++) {
    const int i = 2 * j + h;
    const int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
    const int scale = (low | (scales[8 + i % 4] >> 2 * (i / 4) & 3) << 4) - 32;
    out.d[h] = half_scale(d * float(scale));
  }
  for (int k = 0; k < kGroup; k++) {
    const int low = b[32 + 32 * (j / 4) + k] >> 2 * (j % 4) & 3;
    out.q[k] = uint8_t(low - (b[k] >> j & 1 ? 0 : 4));
  }
  return out;
}

// Q2_K: 16 bytes of 4-bit scales and minima, 64 of pairs, d, dmin. d * u - m has four levels per half; they are rounded to
// 8 bits of the largest, so the error is at most 1/254 of the half's largest weight.
QuantGroup read_k2(const uint8_t* b, int j) {
  QuantGroup out{};
  const float d = f16_to_f32(load16(b + 80)), dmin = f16_to_f32(load16(b + 82));
  for (int h = 0; h < 2; h++) {
    const uint8_t s = b[2 * j + h];
    const float scale = d * float(s & 15), minimum = dmin * float(s >> 4);
    float w[16], largest = 0;
    for (int k = 0; k < 16; k++) {
      w[k] = scale * float(b[16 + 32 * (j / 4) + 16 * h + k] >> 2 * (j % 4) & 3) - minimum;
      const float size = w[k] < 0 ? -w[k] : w[k];
      if (size > largest) largest = size;
    }
    out.d[h] = half_scale(largest / 127.0f);
    const float step = f16_to_f32(out.d[h]);
    if (!(step > 0)) continue;
    for (int k = 0; k < 16; k++) {
      const float s8 = w[k] / step;
      out.q[16 * h + k] = uint8_t(s8 >= 127 ? 127 : s8 <= -127 ? -127 : int(s8 + (s8 < 0 ? -0.5f : 0.5f)));
    }
  }
  return out;
}

}  // namespace

BlockSize block_size(FileType type) {
  switch (type) {
    case FileType::F32: return {4, 1};
    case FileType::F16:
    case FileType::BF16: return {2, 1};
    case FileType::Q4_0:
    case FileType::IQ4_NL: return {18, 32};
    case FileType::Q4_1: return {20, 32};
    case FileType::Q5_0: return {22, 32};
    case FileType::Q5_1: return {24, 32};
    case FileType::Q8_0: return {34, 32};
    case FileType::Q2_K: return {84, 256};
    case FileType::Q3_K: return {110, 256};
    case FileType::Q4_K: return {144, 256};
    case FileType::Q5_K: return {176, 256};
    case FileType::Q6_K: return {210, 256};
  }
  return {0, 1};
}

QuantGroup read_group(FileType type, const uint8_t* row, int g) {
  const BlockSize size = block_size(type);
  if (size.weights == kGroup) return read_small(type, row + size_t(g) * size_t(size.bytes));
  const uint8_t* block = row + size_t(g / 8) * size_t(size.bytes);
  switch (type) {
    case FileType::Q2_K: return read_k2(block, g % 8);
    case FileType::Q3_K: return read_k3(block, g % 8);
    case FileType::Q6_K: return read_k6(block, g % 8);
    default: return read_k45(type == FileType::Q5_K, block, g % 8);
  }
}

void read_floats(FileType type, const uint8_t* row, int g, int cols, float* out) {
  const int n = cols - g * kGroup < kGroup ? cols - g * kGroup : kGroup;
  const uint8_t* p = row + size_t(g) * kGroup * size_t(block_size(type).bytes);
  for (int k = 0; k < n; k++) {
    if (type == FileType::F32) std::memcpy(out + k, p + 4 * k, 4);
    if (type == FileType::F16) out[k] = f16_to_f32(load16(p + 2 * k));
    if (type == FileType::BF16) out[k] = bf16_to_f32(load16(p + 2 * k));
  }
  for (int k = n; k < kGroup; k++) out[k] = 0;
}

}  // namespace camshaft
