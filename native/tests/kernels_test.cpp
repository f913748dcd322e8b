// The small kernels: each instruction set gives ref's bits, and ref is right.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "../src/mathf.h"
#include "check.h"
#include "kernel_cases.h"
#include "random.h"

namespace {

using namespace camshaft;
using namespace camshaft::test;

using Floats = std::vector<float>;

const Kernels* under_test;  // the table that the cases compare with ref

// Equal bits, but any NaN equals any NaN: its payload is no result.
bool same(const Floats& a, const Floats& b) {
  for (size_t i = 0; i < a.size(); i++)
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0 && !(std::isnan(a[i]) && std::isnan(b[i]))) {
      std::fprintf(stderr, "%s: element %zu of %zu is %a, ref has %a\n", under_test->name, i, a.size(), b[i], a[i]);
      return false;
    }
  return a.size() == b.size();
}

const float kInf = std::numeric_limits<float>::infinity();
const Floats kSpecial = {0.0f,  -0.0f, 1e-42f, -1e-42f, 1e-30f, -1e-30f, 87.2f,  87.4f, -87.2f, -87.4f,
                         88.6f, 88.8f, -88.8f, 44.0f,   -44.5f, 1e30f,   -1e30f, kInf,  -kInf,  std::nanf("")};

Floats with_specials(Random& random, size_t n, float scale) {
  Floats x = random.floats(n, scale);
  for (size_t i = 0; i < n; i += 3) x[i] = kSpecial[(i / 3) % kSpecial.size()];
  return x;
}

void every_length_of_rms_norm_gives_refs_bits() {
  Random random(1);
  for (int n : kLengths)
    for (float scale : {1.0f, 1e-20f, 1e15f}) {
      const Floats x = random.floats(n, scale), w = random.floats(n, 2.0f);
      Floats a(n), b(n), in_place = x;
      kernels_ref().rms_norm(x.data(), w.data(), n, 1e-6f, a.data());
      under_test->rms_norm(x.data(), w.data(), n, 1e-6f, b.data());
      under_test->rms_norm(in_place.data(), w.data(), n, 1e-6f, in_place.data());
      CHECK(same(a, b));
      CHECK(same(a, in_place));
    }
}

void every_shape_of_rope_gives_refs_bits() {
  Random random(2);
  for (const RopeCase& c : kRopeCases) {
    Floats a = random.floats(static_cast<size_t>(c.n_heads) * c.head_dim), b = a;
    const Floats cos = random.floats(c.half), sin = random.floats(c.half);
    kernels_ref().rope(a.data(), c.n_heads, c.head_dim, cos.data(), sin.data(), c.half);
    under_test->rope(b.data(), c.n_heads, c.head_dim, cos.data(), sin.data(), c.half);
    CHECK(same(a, b));
  }
}

void gated_activations_give_refs_bits_also_at_the_ends_of_the_range() {
  Random random(3);
  for (int n : kLengths)
    for (auto kernel : {&Kernels::silu_mul, &Kernels::gelu_mul}) {
      const Floats gate = with_specials(random, n, 20.0f), up = random.floats(n, 3.0f);
      Floats a(n), b(n);
      (kernels_ref().*kernel)(gate.data(), up.data(), n, a.data());
      (under_test->*kernel)(gate.data(), up.data(), n, b.data());
      CHECK(same(a, b));
    }
}

void add_scale_and_softcap_give_refs_bits() {
  Random random(4);
  for (int n : kLengths) {
    const Floats x = with_specials(random, n, 100.0f), y = random.floats(n, 100.0f);
    Floats a = x, b = x;
    kernels_ref().add(a.data(), y.data(), n, a.data());
    under_test->add(b.data(), y.data(), n, b.data());
    CHECK(same(a, b));
    kernels_ref().scale(a.data(), n, 0.3f);
    under_test->scale(b.data(), n, 0.3f);
    CHECK(same(a, b));
    kernels_ref().softcap(a.data(), n, 30.0f);
    under_test->softcap(b.data(), n, 30.0f);
    CHECK(same(a, b));
  }
}

// Every exp_f32 bit pattern that 2^16 spread arguments reach, through silu with gate = -x: 1 / (1 + e^x) is monotone in the exp's bits.
void exp_of_the_vectors_gives_refs_bits_over_the_whole_range() {
  constexpr int n = 1 << 16;
  Floats gate(n), up(n, 1.0f), a(n), b(n);
  for (int i = 0; i < n; i++) gate[i] = -90.0f + 180.0f * static_cast<float>(i) / n;
  kernels_ref().silu_mul(gate.data(), up.data(), n, a.data());
  under_test->silu_mul(gate.data(), up.data(), n, b.data());
  CHECK(same(a, b));
}

void exp_is_within_two_units_in_the_last_place() {
  double worst = 0;
  for (int i = 0; i <= 4'000'000; i++) {
    const float x = kExpMin + (kExpMax - kExpMin) * static_cast<float>(i) / 4'000'000;
    const double want = std::exp(static_cast<double>(x));
    int exponent;
    std::frexp(want, &exponent);
    worst = std::fmax(worst, std::fabs(exp_f32(x) - want) / std::ldexp(1.0, exponent - 24));
  }
  CHECK(worst < 1.0);  // two is promised; the polynomial gives 0.9
  CHECK(exp_f32(0.0f) == 1.0f && exp_f32(-0.0f) == 1.0f);
  CHECK(exp_f32(-87.4f) == 0.0f && exp_f32(-kInf) == 0.0f);
  CHECK(std::isfinite(exp_f32(kInf)) && std::isnan(exp_f32(std::nanf(""))));
}

void tanh_is_within_3e7_and_saturates_exactly() {
  double worst = 0;
  for (int i = 0; i <= 1'000'000; i++) {
    const float x = -20.0f + 40.0f * static_cast<float>(i) / 1'000'000;
    worst = std::fmax(worst, std::fabs(tanh_f32(x) - std::tanh(static_cast<double>(x))));
  }
  CHECK(worst < 3e-7);
  CHECK(tanh_f32(0.0f) == 0.0f && tanh_f32(kInf) == 1.0f && tanh_f32(-kInf) == -1.0f && tanh_f32(1000.0f) == 1.0f);
}

void ref_norm_and_activations_are_right() {
  Random random(5);
  constexpr int n = 577;
  const Floats x = random.floats(n, 5.0f), w = random.floats(n);
  Floats norm(n), silu(n), gelu(n);
  kernels_ref().rms_norm(x.data(), w.data(), n, 1e-5f, norm.data());
  kernels_ref().silu_mul(x.data(), w.data(), n, silu.data());
  kernels_ref().gelu_mul(x.data(), w.data(), n, gelu.data());
  double squares = 0;
  for (float v : x) squares += static_cast<double>(v) * v;
  for (int i = 0; i < n; i++) {
    const double g = x[i], up = w[i];
    CHECK(std::fabs(norm[i] - g * up / std::sqrt(squares / n + 1e-5)) < 1e-5);
    CHECK(std::fabs(silu[i] - g / (1 + std::exp(-g)) * up) < 1e-5);
    CHECK(std::fabs(gelu[i] - 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * up) < 1e-5);
  }
}

// Writes positions out of order into a pool whose blocks are out of order; returns the pool's bytes, K then V.
std::vector<uint8_t> written(const Kernels& kernels, const AttnCase& c) {
  Random random(6);
  const std::vector<int32_t> table = {2, 0, 3};
  const size_t width = static_cast<size_t>(c.n_kv_heads) * c.head_dim, block = block_bytes(c);
  std::vector<uint8_t> bytes(2 * 4 * block);
  const KvLayer kv{bytes.data(), bytes.data() + 4 * block, block, c.block_size, c.n_kv_heads, c.head_dim, c.type};
  const KvWriteArgs args{kv, table.data()};
  for (int pos : {0, 3 * c.block_size - 1, c.block_size, 15, 2 * c.block_size + 7, c.block_size - 1}) {
    Floats k = random.floats(width, 3.0f), v = random.floats(width, 3.0f);
    if (pos != 15)
      for (size_t i = 0; i < kSpecial.size() && i < width; i++) k[width - 1 - i] = v[i] = kSpecial[i];
    kernels.kv_write(args, pos, k.data(), v.data());
  }
  return bytes;
}

void kv_write_gives_refs_bits_for_every_layout() {
  for (const AttnCase& c : kAttnCases) CHECK(written(kernels_ref(), c) == written(*under_test, c));
}

}  // namespace

int main() {
  RUN(exp_is_within_two_units_in_the_last_place);
  RUN(tanh_is_within_3e7_and_saturates_exactly);
  RUN(ref_norm_and_activations_are_right);
  for (const Kernels* table : {kernels_avx2(), kernels_avx512()}) {
    if (!table) continue;  // not on this machine
    under_test = table;
    std::printf("-- %s against ref\n", table->name);
    RUN(every_length_of_rms_norm_gives_refs_bits);
    RUN(every_shape_of_rope_gives_refs_bits);
    RUN(gated_activations_give_refs_bits_also_at_the_ends_of_the_range);
    RUN(add_scale_and_softcap_give_refs_bits);
    RUN(exp_of_the_vectors_gives_refs_bits_over_the_whole_range);
    RUN(kv_write_gives_refs_bits_for_every_layout);
  }
  return result();
}
