// The linear kernels: ref is right, and each instruction set gives ref's bits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "cases.h"
#include "check.h"
#include "linear_inputs.h"

namespace {

using namespace camshaft;
using namespace camshaft::test;

using Floats = std::vector<float>;
enum class Compute { int8, f32 };

bool has(const Kernels& k, Form form, Compute compute) { return (compute == Compute::int8 ? k.linear_q : k.linear_f)[size_t(form)] != nullptr; }

struct Options {
  bool bias = false, accumulate = false;
};

// y of all tokens, starting from `y`'s values, in `pieces` calls over ranges of tiles.
Floats multiply(const Kernels& k, Compute compute, const Packed& w, Inputs& x, Options options = {}, int pieces = 1) {
  Random random(7);
  const Floats bias = random.floats(size_t(w.rows));
  Floats y = random.floats(size_t(x.tokens) * size_t(w.rows));
  const auto acts = x.quantised(k);
  const LinearArgs args{.w = w, .q = {acts.get(), x.tokens, x.cols}, .x = x.rows(), .tokens = x.tokens, .bias = options.bias ? bias.data() : nullptr,
                        .accumulate = options.accumulate, .y = {y.data(), w.rows}};
  const auto kernel = (compute == Compute::int8 ? k.linear_q : k.linear_f)[size_t(w.form)];
  for (int p = 0; p < pieces; p++) kernel(args, w.tiles() * p / pieces, w.tiles() * (p + 1) / pieces);
  return y;
}

// Equal bits, but any NaN equals any NaN: its payload is no result.
bool same(const Floats& a, const Floats& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i++)
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0 && !(std::isnan(a[i]) && std::isnan(b[i]))) {
      std::fprintf(stderr, "element %zu of %zu is %a, ref has %a\n", i, a.size(), b[i], a[i]);
      return false;
    }
  return true;
}

void check_same(const Kernels& k, Compute compute, const Packed& w, Inputs& x, Options options = {}, int pieces = 1) {
  if (!has(k, w.form, compute)) return;
  if (same(multiply(kernels_ref(), compute, w, x, options), multiply(k, compute, w, x, options, pieces))) return;
  const std::string what = std::string(k.name) + (compute == Compute::int8 ? " int8 " : " f32 ") + kFormNames[int(w.form)] + " " + std::to_string(w.rows) + "x" +
                           std::to_string(w.cols) + ", " + std::to_string(x.tokens) + " tokens";
  fail(__FILE__, __LINE__, what.c_str());
}

void every_form_shape_and_token_count_gives_refs_bits(const Kernels& k) {
  Random random(1);
  for (Form form : kAllForms)
    for (const LinearShape& s : kLinearShapes) {
      const Matrix m = random_matrix(form, s.rows, s.cols, random);
      for (int tokens : kTokenCounts) {
        if (tokens > 13 && s.cols * s.rows > 20000) continue;  // ref is slow, and the small shapes have those counts
        Inputs x(tokens, s.cols, random);
        check_same(k, Compute::int8, m.w, x);
        check_same(k, Compute::f32, m.w, x);
      }
    }
}

void bias_residual_and_split_loops_give_refs_bits(const Kernels& k) {
  Random random(2);
  for (Form form : kAllForms)
    for (int tokens : {1, 3, 10}) {
      const Matrix m = random_matrix(form, 90, 96, random);
      Inputs x(tokens, 96, random);
      for (Compute compute : {Compute::int8, Compute::f32})
        for (bool bias : {false, true})
          for (bool accumulate : {false, true}) check_same(k, compute, m.w, x, {bias, accumulate}, 4);
    }
}

// One value towers over the others in every third group of every token but each fifth.
Inputs with_towers(int tokens, int cols, Random& random) {
  Inputs x(tokens, cols, random);
  for (int t = 0; t < tokens; t++)
    for (int g = t % 3; g * kGroup < cols && t % 5 != 4; g += 3) x.rows()[t][std::min(cols - 1, g * kGroup + 7)] = 50.0f;
  return x;
}

// More rows of tiles than stay in a second-level cache, and more tokens than share a panel; the tokens' towers differ.
void batches_of_tokens_over_chunks_of_rows_give_refs_bits(const Kernels& k) {
  Random random(13);
  for (Form form : {Form::q4, Form::q5, Form::q8, Form::q8h}) {
    const Matrix m = random_matrix(form, 16 * 9 + 5, 1536, random);
    for (int tokens : {25, 50}) {
      Inputs x = with_towers(tokens, 1536, random);
      check_same(k, Compute::int8, m.w, x);
    }
  }
}

// All levels and activations at the ends of their ranges: a 16-bit partial sum that overflows shows here.
void extreme_levels_do_not_overflow(const Kernels& k) {
  Random random(3);
  for (Form form : {Form::q4, Form::q4s, Form::q5, Form::q8, Form::q8h})
    for (uint8_t byte : {0x00, 0x7f, 0x80, 0x81, 0xff})
      for (int tokens : {1, 2, 3, 8}) {
        Matrix m = random_matrix(form, 16, 64, random);
        const size_t levels = form == Form::q4 || form == Form::q4s ? 256 : form == Form::q5 ? 320 : 512;
        for (int i = 0; i < 2; i++) std::memset(m.bytes.get() + size_t(i) * tile_bytes(form), byte, levels);
        Inputs x(tokens, 64, random);
        for (size_t i = 0; i < x.values.size(); i++) x.values[i] = i / 64 % 3 == 0 ? 1.0f : i / 64 % 3 == 1 ? -1.0f : i % 2 ? 1.0f : -1.0f;
        check_same(k, Compute::int8, m.w, x);
        check_same(k, Compute::f32, m.w, x);
      }
}

void a_tokens_bits_do_not_depend_on_its_batch(const Kernels& k) {
  Random random(4);
  for (Form form : kAllForms) {
    const Matrix m = random_matrix(form, 48, 160, random);
    Inputs all(37, 160, random);
    for (Compute compute : {Compute::int8, Compute::f32}) {
      if (!has(k, form, compute)) continue;
      const Floats batch = multiply(k, compute, m.w, all);
      for (int t = 0; t < all.tokens; t++) {
        Inputs one(1, 160, random);
        std::copy_n(all.values.begin() + t * all.stride, all.stride, one.values.begin());
        const Floats alone = multiply(k, compute, m.w, one);
        CHECK(std::memcmp(alone.data(), batch.data() + t * 48, 48 * sizeof(float)) == 0);
      }
    }
  }
}

void zeros_subnormals_infinities_and_nan_give_refs_bits(const Kernels& k) {
  Random random(5);
  const float specials[] = {0.0f, -0.0f, 1e-42f, -1e-45f, 1e-38f, 3e38f, -3e38f, INFINITY, -INFINITY, NAN, -NAN};
  for (Form form : kAllForms) {
    const Matrix m = random_matrix(form, 20, 64, random);
    for (float special : specials) {
      Inputs x(5, 64, random);
      for (int i = 0; i < 64; i++) x.values[size_t(2 * 64 + i)] = special;  // a whole row of it, and one among others
      x.values[size_t(3 * 64 + 40)] = special;
      check_same(k, Compute::int8, m.w, x);
      check_same(k, Compute::f32, m.w, x);
    }
  }
}

void a_nan_reaches_every_output_of_its_token_and_no_other(const Kernels& k) {
  Random random(6);
  for (Form form : kAllForms)
    for (Compute compute : {Compute::int8, Compute::f32}) {
      if (!has(k, form, compute)) continue;
      const Matrix m = random_matrix(form, 16, 64, random);
      Inputs x(3, 64, random);
      x.values[64 + 33] = NAN;
      const Floats y = multiply(k, compute, m.w, x);
      for (size_t i = 0; i < y.size(); i++) CHECK(std::isnan(y[i]) == (i / 16 == 1));
    }
}

void towers_give_refs_bits(const Kernels& k) {
  Random random(10);
  for (Form form : kAllForms) {
    if (!is_integer(form)) continue;
    for (int cols : {32, 33, 100, 576, 2080, 2241}) {  // the longest: more groups than are quantised in a stretch, and a few over
      const Matrix m = random_matrix(form, cols > 576 ? 17 : 90, cols, random);
      for (int tokens = 1; tokens <= 40; tokens += cols > 576 ? 12 : cols > 100 ? 3 : 1) {
        Inputs x = with_towers(tokens, cols, random);
        check_same(k, Compute::int8, m.w, x, {.bias = tokens % 2 == 0, .accumulate = tokens % 3 == 0}, 2);
      }
    }
  }
}

// Towers that are infinite, not a number, or so small that the rest's scale, or even the first inverse, leaves float's range.
void towers_at_the_ends_of_the_range_give_refs_bits(const Kernels& k) {
  Random random(12);
  for (Form form : kAllForms) {
    if (!is_integer(form)) continue;
    const Matrix m = random_matrix(form, 20, 70, random);
    for (float tower : {INFINITY, -INFINITY, NAN, 3e38f, 1e-37f, 1e-38f, 1e-42f, 1e-44f, 1e-45f})
      for (int tokens : {1, 2, 5, 9}) {
        Inputs x(tokens, 70, random);
        std::fill_n(x.rows()[tokens / 2], 70, std::isfinite(tower) ? tower / 100 : 0.0f);
        for (int at : {5, 40, 69}) x.rows()[tokens / 2][at] = tower;
        check_same(k, Compute::int8, m.w, x);
      }
  }
}

// ---- ref against arithmetic in double on unpacked rows

void refs_float_products_are_right() {
  Random random(8);
  for (Form form : kAllForms)
    for (const LinearShape& s : kLinearShapes) {
      const Matrix m = random_matrix(form, s.rows, s.cols, random);
      Inputs x(3, s.cols, random);
      const Floats y = multiply(kernels_ref(), Compute::f32, m.w, x);
      Floats w(size_t(s.cols));
      for (int row = 0; row < s.rows; row++) {
        unpack_row(m.w, row, w.data());
        for (int t = 0; t < 3; t++) {
          double sum = 0, size = 0;
          for (int i = 0; i < s.cols; i++) {
            const double term = double(w[size_t(i)]) * double(x.rows()[t][i]);
            sum += term, size += std::fabs(term);
          }
          CHECK(std::fabs(double(y[size_t(t * s.rows + row)]) - sum) <= 1e-6 * size);
        }
      }
    }
}

// An int8 activation is off by at most half of max / 127 of its group, so a product by at most that times the sum of |w|.
void refs_int8_products_are_as_near_as_rounding_allows() {
  Random random(9);
  for (Form form : kAllForms) {
    if (!is_integer(form)) continue;
    const int rows = 40, cols = 224;
    const Matrix m = random_matrix(form, rows, cols, random);
    Inputs x(2, cols, random);
    const Floats y = multiply(kernels_ref(), Compute::int8, m.w, x);
    Floats w(size_t(cols), 0.0f);
    for (int row = 0; row < rows; row++) {
      unpack_row(m.w, row, w.data());
      for (int t = 0; t < 2; t++) {
        double sum = 0, slack = 0;
        for (int i = 0; i < cols; i++) {
          sum += double(w[size_t(i)]) * double(x.rows()[t][i]);
          slack += std::fabs(double(w[size_t(i)])) * 2.0 / 254;  // |x| < 2
        }
        const double error = std::fabs(double(y[size_t(t * rows + row)]) - sum);
        CHECK(error <= slack + 1e-4);
        CHECK(error > 0);  // equal would mean that nothing was quantised
      }
    }
  }
}

// Beside a tower of 50 the others keep the steps of their own largest value, 2, and alone it is exact but for the sum's rounding.
void a_tower_takes_no_precision_from_its_group() {
  Random random(11);
  const int rows = 32, cols = 192;
  const Matrix m = random_matrix(Form::q8, rows, cols, random);
  Inputs x = with_towers(2, cols, random);
  for (int i = 0; i < cols; i++)
    if (x.rows()[1][i] != 50.0f) x.rows()[1][i] = 0.0f;
  const Floats y = multiply(kernels_ref(), Compute::int8, m.w, x);
  Floats w(size_t(cols), 0.0f);
  for (int row = 0; row < rows; row++) {
    unpack_row(m.w, row, w.data());
    for (int t = 0; t < 2; t++) {
      double sum = 0, slack = 0;
      for (int i = 0; i < cols; i++) sum += double(w[size_t(i)]) * double(x.rows()[t][i]), slack += std::fabs(double(w[size_t(i)])) * 2.0 / 254;
      CHECK(std::fabs(double(y[size_t(t * rows + row)]) - sum) <= (t ? 0 : slack) + 1e-5);
    }
  }
}

void test_all(const Kernels* k) {
  if (!k) return;
  std::printf("%s\n", k->name);
  every_form_shape_and_token_count_gives_refs_bits(*k);
  bias_residual_and_split_loops_give_refs_bits(*k);
  batches_of_tokens_over_chunks_of_rows_give_refs_bits(*k);
  extreme_levels_do_not_overflow(*k);
  a_tokens_bits_do_not_depend_on_its_batch(*k);
  zeros_subnormals_infinities_and_nan_give_refs_bits(*k);
  a_nan_reaches_every_output_of_its_token_and_no_other(*k);
  towers_give_refs_bits(*k);
  towers_at_the_ends_of_the_range_give_refs_bits(*k);
}

}  // namespace

int main() {
  RUN(refs_float_products_are_right);
  RUN(refs_int8_products_are_as_near_as_rounding_allows);
  RUN(a_tower_takes_no_precision_from_its_group);
  test_all(&kernels_ref());
  test_all(kernels_avx2());
  test_all(kernels_avx512());
  return result();
}
