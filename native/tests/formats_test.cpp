// Packed forms hold what the file holds, by the word of the gguf package (tests/golden/make_formats.py), and what is quantised at load is near.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>

#include "../src/forms/blocks.h"
#include "cases.h"
#include "check.h"
#include "linear_inputs.h"

namespace {

using namespace camshaft;
using namespace camshaft::test;

struct Golden {
  FileType type;
  int cols;
  std::vector<uint8_t> row;
  std::vector<float> weights;
};

std::vector<Golden> goldens() {
  std::ifstream file(std::filesystem::path(__FILE__).parent_path() / "../../tests/golden/data/formats.bin", std::ios::binary);
  std::vector<Golden> out;
  uint32_t head[4];
  while (file.read(reinterpret_cast<char*>(head), sizeof head)) {
    Golden g{FileType(head[0]), int(head[1]), std::vector<uint8_t>(head[2]), std::vector<float>(head[1])};
    file.read(reinterpret_cast<char*>(g.row.data()), std::streamsize(g.row.size()));
    file.read(reinterpret_cast<char*>(g.weights.data()), std::streamsize(g.weights.size() * sizeof(float)));
    out.push_back(g);
  }
  return out;
}

Matrix pack(Form form, FileType type, const uint8_t* file, int rows, int cols, const int32_t* order = nullptr, int pieces = 1) {
  Matrix m{aligned_bytes(packed_bytes(form, rows, cols)), {form, rows, cols, nullptr}};
  m.w.data = m.bytes.get();
  for (int p = 0; p < pieces; p++)
    pack_tiles(form, type, file, rows, cols, order, m.w.tiles() * p / pieces, m.w.tiles() * (p + 1) / pieces, m.bytes.get());
  return m;
}

std::vector<float> row_of(const Packed& w, int row) {
  std::vector<float> out(size_t(w.cols));
  unpack_row(w, row, out.data());
  return out;
}

bool is_k(FileType t) { return t == FileType::Q2_K || t == FileType::Q3_K || t == FileType::Q4_K || t == FileType::Q5_K || t == FileType::Q6_K; }

void every_file_type_is_known_and_has_a_golden_row() {
  const auto all = goldens();
  CHECK(all.size() == 14);
  for (const Golden& g : all) {
    CHECK(known_file_type(uint32_t(g.type)));
    CHECK(file_row_bytes(g.type, g.cols) == g.row.size());
  }
  for (uint32_t type : {4u, 5u, 9u, 15u, 16u, 24u, 31u, 0xffffffffu}) CHECK(!known_file_type(type));
}

void types_with_their_own_form_are_exact() {
  for (const Golden& g : goldens()) {
    if (is_k(g.type)) continue;
    const Matrix m = pack(form_of(g.type), g.type, g.row.data(), 1, g.cols);
    CHECK(row_of(m.w, 0) == g.weights);
  }
}

// The product of a block's scale and a sub-block's is rounded to half precision: 2^-11 of it. d * u and m may be three times the largest weight.
void k_types_are_exact_but_for_their_rounded_scales() {
  for (const Golden& g : goldens()) {
    if (!is_k(g.type)) continue;
    const auto got = row_of(pack(form_of(g.type), g.type, g.row.data(), 1, g.cols).w, 0);
    const double share = g.type == FileType::Q2_K ? 1.0 / 254 + 0x1p-11 : 3 * 0x1p-11;
    for (int at = 0; at < g.cols; at += 16) {
      double largest = 0, error = 0;
      for (int i = at; i < at + 16; i++) {
        largest = std::max(largest, std::fabs(double(g.weights[size_t(i)])));
        error = std::max(error, std::fabs(double(got[size_t(i)]) - double(g.weights[size_t(i)])));
      }
      CHECK(error <= share * largest + 1e-7);
    }
  }
}

void only_what_changes_width_is_called_widened() {
  for (const Golden& g : goldens()) CHECK(is_widened(g.type) == (g.type == FileType::Q2_K || g.type == FileType::Q3_K || g.type == FileType::IQ4_NL));
}

void rows_that_do_not_fill_whole_blocks_have_no_size() {
  CHECK(file_row_bytes(FileType::Q4_0, 48) == 0);
  CHECK(file_row_bytes(FileType::Q4_K, 288) == 0);
  CHECK(file_row_bytes(FileType::Q8_0, 0) == 0);
  CHECK(file_row_bytes(FileType::Q8_0, -32) == 0);
  CHECK(file_row_bytes(FileType(7777), 32) == 0);
  CHECK(file_row_bytes(FileType::F16, 33) == 66);
}

// Rows of one file in any order, packed in pieces: each output row is the file row named, and the padding's rows are no row's.
void row_order_and_pieces_do_not_change_a_row() {
  Random random(1);
  for (FileType type : {FileType::Q4_0, FileType::Q4_1, FileType::Q5_1, FileType::Q8_0, FileType::Q6_K, FileType::F32, FileType::F16}) {
    const int rows = 43, cols = 256;
    const size_t row_bytes = file_row_bytes(type, cols);
    std::vector<uint8_t> file(row_bytes * rows);
    fill_bytes(file.data(), file.size(), random);
    for (uint8_t& b : file) b &= 0x3f;  // no infinities and no NaN, which would not equal themselves
    std::vector<int32_t> order(rows);
    std::iota(order.begin(), order.end(), 0);
    for (int i = rows - 1; i > 0; i--) std::swap(order[size_t(i)], order[random.bits() % uint64_t(i + 1)]);
    const Matrix straight = pack(form_of(type), type, file.data(), rows, cols), turned = pack(form_of(type), type, file.data(), rows, cols, order.data(), 3);
    for (int i = 0; i < rows; i++) {
      CHECK(row_of(turned.w, i) == row_of(straight.w, order[size_t(i)]));
      const Matrix alone = pack(form_of(type), type, file.data() + size_t(i) * row_bytes, 1, cols);
      CHECK(row_of(straight.w, i) == row_of(alone.w, 0));
    }
  }
}

void float_rows_of_any_length_are_kept_and_padded_with_zeros() {
  Random random(2);
  for (int cols : {1, 31, 33, 100}) {
    const auto x = random.floats(size_t(cols) * 17);
    const Matrix m = pack(Form::f32, FileType::F32, reinterpret_cast<const uint8_t*>(x.data()), 17, cols);
    for (int r = 0; r < 17; r++) CHECK(std::equal(x.begin() + r * cols, x.begin() + (r + 1) * cols, row_of(m.w, r).begin()));
    const auto& last = reinterpret_cast<const TileF32*>(m.w.data)[m.w.groups() - 1];
    for (int k = (cols - 1) % kGroup + 1; k < kGroup; k++) CHECK(last.w[k][0] == 0);
  }
}

void halves_convert_as_the_compiler_converts_them() {
#ifdef __FLT16_MANT_DIG__
  const auto half = [](float f) {
    const _Float16 h = static_cast<_Float16>(f);
    uint16_t bits;
    std::memcpy(&bits, &h, 2);
    return bits;
  };
  Random random(3);
  for (int i = 0; i < 200000; i++) {
    uint32_t bits = uint32_t(random.bits());
    if (i % 2) bits = (bits & 0x807fffff) | (100 + uint32_t(i) / 2 % 45) << 23;  // around the half's range, subnormals included
    if (i % 5 == 0) bits &= 0xfffff000;                                         // ties
    float f;
    std::memcpy(&f, &bits, 4);
    if (!std::isnan(f)) CHECK(f32_to_f16(f) == half(f));
  }
  for (uint32_t h = 0; h < 0x10000; h++) {
    const uint16_t bits = uint16_t(h);
    _Float16 value;
    std::memcpy(&value, &bits, 2);
    if ((h & 0x7fff) <= 0x7c00) CHECK(f16_to_f32(bits) == static_cast<float>(value));
  }
#endif
  for (uint32_t h = 0; h < 0x10000; h++) {
    const float f = f16_to_f32(uint16_t(h));
    CHECK((h & 0x7fff) > 0x7c00 ? std::isnan(f) && (f32_to_f16(f) & 0x7fff) > 0x7c00 : f32_to_f16(f) == h);
  }
  CHECK(f32_to_bf16(1.00390625f) == 0x3f80);  // a tie goes to even
  CHECK(f32_to_bf16(1.01171875f) == 0x3f82);
  CHECK(std::isnan(bf16_to_f32(f32_to_bf16(std::nanf("")))));
  CHECK(bf16_to_f32(f32_to_bf16(3.4e38f)) == INFINITY);
}

// Bell-shaped weights: the sum of twelve uniforms.
std::vector<float> bell(size_t n, Random& random) {
  std::vector<float> x(n);
  for (float& v : x) {
    v = 0;
    for (int i = 0; i < 12; i++) v += random.uniform(-0.5f, 0.5f) * 0.05f;
  }
  return x;
}

double rms_error(Form form, const std::vector<float>& x, int cols) {
  const int rows = int(x.size()) / cols;
  const Matrix m = pack(form, FileType::F32, reinterpret_cast<const uint8_t*>(x.data()), rows, cols);
  double squares = 0;
  for (int r = 0; r < rows; r++) {
    const auto got = row_of(m.w, r);
    for (int i = 0; i < cols; i++) squares += std::pow(double(got[size_t(i)]) - double(x[size_t(r * cols + i)]), 2);
  }
  return std::sqrt(squares / double(x.size()));
}

// The error of the plain grid from the least to the largest value.
double rms_error_of_plain_q4(const std::vector<float>& x) {
  double squares = 0;
  for (size_t at = 0; at < x.size(); at += kGroup) {
    const auto [least, most] = std::minmax_element(x.begin() + long(at), x.begin() + long(at) + kGroup);
    const double step = (double(*most) - double(*least)) / 15;
    for (size_t i = at; i < at + kGroup; i++) squares += std::pow(std::round((double(x[i]) - double(*least)) / step) * step + double(*least) - double(x[i]), 2);
  }
  return std::sqrt(squares / double(x.size()));
}

void quantising_at_load_keeps_its_stated_error() {
  Random random(4);
  const auto x = bell(64 * 512, random);
  const double plain = rms_error_of_plain_q4(x), q4 = rms_error(Form::q4, x, 512), q8 = rms_error(Form::q8, x, 512);
  std::printf("  rms of weights 0.05: q8 error %.6f, q4 error %.6f, a plain 4-bit grid's %.6f\n", q8, q4, plain);
  CHECK(q8 < 0.006 * 0.05);
  CHECK(q4 < 0.072 * 0.05);
  CHECK(q4 < 0.93 * plain);
}

void quantising_survives_constant_tiny_huge_and_infinite_groups() {
  for (float value : {0.0f, 0.5f, -0.5f, 1e-9f, -1e-9f, 60000.0f, -60000.0f, 1e30f, INFINITY, NAN})
    for (Form form : {Form::q4, Form::q8}) {
      std::vector<float> x(64, value);
      x[3] = 0;
      const auto got = row_of(pack(form, FileType::F32, reinterpret_cast<const uint8_t*>(x.data()), 1, 64).w, 0);
      for (size_t i = 0; i < 64; i++) {
        CHECK(std::isfinite(got[i]));
        if (std::fabs(value) < 65000) CHECK(std::fabs(got[i] - x[i]) <= 0.004f * std::fabs(value) + 1e-6f);
      }
    }
}

}  // namespace

int main() {
  RUN(every_file_type_is_known_and_has_a_golden_row);
  RUN(types_with_their_own_form_are_exact);
  RUN(k_types_are_exact_but_for_their_rounded_scales);
  RUN(only_what_changes_width_is_called_widened);
  RUN(rows_that_do_not_fill_whole_blocks_have_no_size);
  RUN(row_order_and_pieces_do_not_change_a_row);
  RUN(float_rows_of_any_length_are_kept_and_padded_with_zeros);
  RUN(halves_convert_as_the_compiler_converts_them);
  RUN(quantising_at_load_keeps_its_stated_error);
  RUN(quantising_survives_constant_tiny_huge_and_infinite_groups);
  return result();
}
