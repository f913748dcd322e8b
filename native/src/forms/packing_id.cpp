// What the packer makes of a fixed matrix of every type, as one number.
#include <vector>

#include "camshaft/checksum.h"
#include "camshaft/formats.h"
#include "forms/blocks.h"

namespace camshaft {
namespace {

constexpr int kRows = 18, kCols = 256;  // more than a tile of rows; one block of the largest kind

// Pseudo-random bytes in which no 16 or 32 bits are a float that is infinite or no number, whatever their type.
std::vector<uint8_t> sample(size_t bytes, uint32_t seed) {
  std::vector<uint8_t> out(bytes);
  uint32_t x = seed * 2 + 1;
  for (size_t i = 0; i < bytes; ++i) {
    x = x * 1664525 + 1013904223;
    out[i] = uint8_t(x >> 24 & (i % 2 ? 0xBF : 0xFF));
  }
  return out;
}

uint64_t packed_sample(Form form, FileType type) {
  const std::vector<uint8_t> file = sample(file_row_bytes(type, kCols) * kRows, uint32_t(type));
  std::vector<uint8_t> out(packed_bytes(form, kRows, kCols));
  pack_tiles(form, type, file.data(), kRows, kCols, nullptr, 0, ceil_div(kRows, kRowTile), out.data());
  return checksum(out.data(), out.size());
}

}  // namespace

uint64_t packing_id() {
  std::vector<uint64_t> all;
  for (uint32_t number = 0; number < 64; ++number)
    if (known_file_type(number)) all.push_back(packed_sample(form_of(FileType(number)), FileType(number)));
  for (FileType type : {FileType::F32, FileType::F16, FileType::BF16})
    for (Form form : {Form::q8, Form::q4}) all.push_back(packed_sample(form, type));
  return checksum(all.data(), all.size() * sizeof(uint64_t));
}

}  // namespace camshaft
