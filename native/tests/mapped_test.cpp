#include "camshaft/mapped.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "camshaft/checksum.h"
#include "camshaft/formats.h"
#include "camshaft/program.h"
#include "check.h"

using namespace camshaft;

namespace {

// A file without a name, with these bytes.
int file_of(const std::vector<uint8_t>& bytes) {
  std::FILE* file = std::tmpfile();
  CHECK(bytes.empty() || std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size());  // fwrite takes no null pointer
  std::fflush(file);
  return fileno(file);
}

std::vector<uint8_t> counted(size_t n) {
  std::vector<uint8_t> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = uint8_t(i * 7 + i / 256);
  return out;
}

void checksums_are_xxh64s() {
  CHECK(checksum("", 0) == 0xEF46DB3751D8E999);
  CHECK(checksum("a", 1) == 0xD24EC4F1A98C6E5B);
  CHECK(checksum("abc", 3) == 0x44BC2CF5AD770999);
  CHECK(checksum("Nobody inspects the spammish repetition", 39) == 0xFBCEA83C8A378BF1);
}

void every_bit_of_every_length_counts() {
  for (size_t n : {1, 3, 4, 7, 8, 31, 32, 33, 63, 64, 100}) {
    std::vector<uint8_t> bytes = counted(n);
    const uint64_t whole = checksum(bytes.data(), n);
    for (size_t bit = 0; bit < 8 * n; ++bit) {
      bytes[bit / 8] ^= uint8_t(1 << bit % 8);
      CHECK(checksum(bytes.data(), n) != whole);
      bytes[bit / 8] ^= uint8_t(1 << bit % 8);
    }
  }
}

void a_map_shows_the_file_and_finds_what_is_damaged() {
  const std::vector<uint8_t> bytes = counted(10'000);
  const MappedFile map(file_of(bytes));
  CHECK(map.size() == bytes.size());
  CHECK(std::memcmp(map.data(), bytes.data(), bytes.size()) == 0);
  const auto sum = [&](size_t at, size_t n) { return checksum(bytes.data() + at, n); };
  const std::vector<Stretch> good{{0, 100, sum(0, 100)}, {128, 9872, sum(128, 9872)}, {10'000, 0, sum(0, 0)}};
  for (int threads : {1, 3}) {
    CHECK(map.intact(good, threads));
    CHECK(map.intact({}, threads));
    CHECK(!map.intact(std::vector<Stretch>{good[0], {128, 9872, good[1].checksum + 1}}, threads));
  }
}

void a_stretch_outside_the_file_is_not_read() {
  const MappedFile map(file_of(counted(100)));
  for (const Stretch& s : {Stretch{0, 101, 0}, Stretch{101, 0, 0}, Stretch{~uint64_t{0}, 2, 0}, Stretch{50, ~uint64_t{0}, 0}})
    CHECK(!map.intact(std::vector<Stretch>{s}, 1));
}

void what_is_no_file_cannot_be_mapped() {
  int pipe_ends[2];
  CHECK(pipe(pipe_ends) == 0);
  for (int fd : {-1, pipe_ends[0], file_of({})}) {
    bool refused = false;
    try {
      MappedFile map(fd);
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    CHECK(refused);
  }
}

void a_mapped_weight_must_lie_in_its_file() {
  const size_t bytes = packed_bytes(Form::q8, 20, 64);
  const auto file = std::make_shared<const MappedFile>(file_of(counted(64 + bytes)));
  Builder builder({"ref", 1, "int8", 1, 1, 20});
  CHECK(builder.mapped_weight(file, 64, Form::q8, 20, 64) == 0);
  CHECK(builder.weight_bytes() == bytes);
  for (uint64_t offset : {uint64_t{8}, uint64_t{128}, uint64_t{1} << 40, ~uint64_t{63}}) {
    bool refused = false;
    try {
      builder.mapped_weight(file, offset, Form::q8, 20, 64);
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    CHECK(refused);
  }
}

void the_packing_id_is_the_same_each_time() { CHECK(packing_id() == packing_id() && packing_id() != 0); }

}  // namespace

int main() {
  RUN(checksums_are_xxh64s);
  RUN(every_bit_of_every_length_counts);
  RUN(a_map_shows_the_file_and_finds_what_is_damaged);
  RUN(a_stretch_outside_the_file_is_not_read);
  RUN(what_is_no_file_cannot_be_mapped);
  RUN(a_mapped_weight_must_lie_in_its_file);
  RUN(the_packing_id_is_the_same_each_time);
  return camshaft::test::result();
}
