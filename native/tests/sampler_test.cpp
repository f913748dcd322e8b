#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.h"
#include "draw.h"
#include "isas.h"
#include "philox.h"

using namespace camshaft;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_row(std::mt19937& rng, int n, float spread) {
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& v : x) v = normal(rng);
  return x;
}

// Known answers of the authors' Random123 library, version 1.
void philox_gives_the_published_answers() {
  using A = std::array<uint32_t, 4>;
  CHECK((philox4x32({0, 0, 0, 0}, {0, 0}) == A{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  CHECK((philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) == A{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  CHECK((philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) == A{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

void uniform_is_in_range_and_depends_on_seed_choice_and_position() {
  double sum = 0;
  constexpr int n = 10'000;
  for (uint32_t i = 0; i < n; ++i) {
    const double u = uniform(42, 0, i);
    CHECK(u >= 0 && u < 1);
    sum += u;
  }
  CHECK(std::abs(sum / n - 0.5) < 0.01);  // three standard deviations of the mean
  CHECK(uniform(42, 0, 7) != uniform(43, 0, 7));
  CHECK(uniform(42, 0, 7) != uniform(42 + (uint64_t{1} << 32), 0, 7));
  CHECK(uniform(42, 0, 7) != uniform(42, 1, 7));
  CHECK(uniform(42, 0, 7) != uniform(42, 0, 8));
}

void argmax_takes_the_lowest_of_equals_and_refuses_what_is_not_finite() {
  std::mt19937 rng(1);
  for (const Kernels* k : test::all_kernels())
    for (int n : {1, 2, 15, 16, 17, 97, 1023, 1024, 1025, 5000}) {
      std::vector<float> x = random_row(rng, n, 1.0f);
      const int first = n / 3, last = n - 1;
      x[size_t(first)] = x[size_t(last)] = 100.0f;
      CHECK(k->argmax(x.data(), n) == first);
      x[size_t(n / 2)] = -kInf;
      CHECK(k->argmax(x.data(), n) == (first == n / 2 && first != last ? last : first == n / 2 ? -1 : first));
      for (float bad : {kNan, -kNan, kInf})
        for (int at : {0, n / 2, n - 1}) {
          std::vector<float> y = x;
          y[size_t(at)] = bad;
          CHECK(k->argmax(y.data(), n) == -1);
        }
      std::fill(x.begin(), x.end(), -kInf);
      CHECK(k->argmax(x.data(), n) == -1);
      x[size_t(last)] = -FLT_MAX;
      CHECK(k->argmax(x.data(), n) == last);
    }
}

void every_instruction_set_gives_the_bits_of_ref() {
  std::mt19937 rng(2);
  const Kernels& ref = kernels_ref();
  for (const Kernels* k : test::all_kernels())
    for (int n : {1, 7, 16, 33, 1000, 4099})
      for (float spread : {0.1f, 3.0f, 40.0f}) {
        std::vector<float> x = random_row(rng, n, spread);
        if (n > 7) x[3] = -kInf;
        const float a = ref.log_sum_exp(x.data(), n), b = k->log_sum_exp(x.data(), n);
        CHECK(std::memcmp(&a, &b, sizeof a) == 0);
        std::vector<float> p(x.size() + 16, -1.0f), q(x.size() + 16, -1.0f);
        const float most = *std::max_element(x.begin(), x.end());
        const double s = ref.exp_weights(x.data(), n, most, 1.3f, p.data()), t = k->exp_weights(x.data(), n, most, 1.3f, q.data());
        CHECK(std::memcmp(&s, &t, sizeof s) == 0);
        CHECK(p == q);  // and nothing past the end was written
        CHECK(ref.argmax(x.data(), n) == k->argmax(x.data(), n));
      }
}

void log_sum_exp_is_near_what_double_gives() {
  std::mt19937 rng(3);
  for (int n : {1, 100, 50'000}) {
    const std::vector<float> x = random_row(rng, n, 3.0f);
    double sum = 0;
    for (float v : x) sum += std::exp(double(v));
    CHECK(std::abs(kernels_ref().log_sum_exp(x.data(), n) - std::log(sum)) < 1e-5);
  }
}

// The definition in draw.h, word for word, over a sorted vocabulary.
int draw_by_sorting(const Kernels& k, const std::vector<float>& x, const DrawParams& d, double u) {
  const int n = int(x.size());
  std::vector<float> p(x.size());
  k.exp_weights(x.data(), n, *std::max_element(x.begin(), x.end()), 1.0f / d.temperature, p.data());
  std::vector<int> order(x.size());
  for (int i = 0; i < n; ++i) order[size_t(i)] = i;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return x[size_t(a)] > x[size_t(b)]; });
  if (d.top_k > 0) order.resize(std::min(order.size(), size_t(d.top_k)));
  const auto mass = [&] {
    double sum = 0;
    for (int i : order) sum += double(p[size_t(i)]);
    return sum;
  };
  if (d.top_p < 1) {
    const double wanted = d.top_p * mass();
    double sum = 0;
    size_t kept = 0;
    while (kept < order.size() && sum < wanted) sum += double(p[size_t(order[kept++])]);
    order.resize(kept);
  }
  if (d.min_p > 0) {
    size_t kept = 0;
    while (kept < order.size() && p[size_t(order[kept])] >= d.min_p) ++kept;
    order.resize(kept);
  }
  const double point = u * mass();
  double sum = 0;
  for (int i : order)
    if ((sum += double(p[size_t(i)])) > point) return i;
  return order.back();
}

void a_draw_is_what_sorting_the_vocabulary_would_give() {
  std::mt19937 rng(4);
  std::uniform_real_distribution<double> uniform01(0.0, 1.0);
  for (const Kernels* k : test::all_kernels())
    for (int n : {1, 5, 97, 3000}) {
      Arena arena;
      Drawer drawer(*k, n, arena);
      for (int round = 0; round < 400; ++round) {
        std::vector<float> x = random_row(rng, n, round % 3 ? 2.5f : 12.0f);
        if (round % 4 == 0)
          for (float& v : x) v = std::round(v);  // many equal logits
        if (round % 5 == 0 && n > 1)
          for (size_t i = 0; i + 1 < x.size(); i += 2) x[i] = -kInf;
        constexpr float temperatures[] = {0.2f, 1.0f, 2.0f}, top_ps[] = {1.0f, 0.9f, 0.3f, 1e-6f}, min_ps[] = {0.0f, 0.05f, 1.0f};
        constexpr int top_ks[] = {0, 1, 40, 1 << 20};
        const DrawParams d{temperatures[round % 3], top_ps[rng() % 4], min_ps[rng() % 3], top_ks[rng() % 4]};
        const double u = round % 7 == 0 ? 0.0 : round % 7 == 1 ? 1.0 - 0x1p-53 : uniform01(rng);
        const int best = k->argmax(x.data(), n);
        CHECK(drawer.draw(x.data(), best, d, u) == draw_by_sorting(*k, x, d, u));
      }
    }
}

void draws_follow_the_distribution() {
  // Pearson's statistic over 12 outcomes has 11 degrees of freedom; 31.3 is its 99.9 % point. The seeds are fixed, so this is no gamble.
  constexpr int n = 12, draws = 20'000;
  std::vector<float> x(n);
  for (int i = 0; i < n; ++i) x[size_t(i)] = 0.3f * float(i % 7);
  for (float temperature : {0.7f, 1.0f, 1.5f})
    for (uint64_t seed : {1ull, 0xdeadbeefcafeull}) {
      Arena arena;
      const Kernels& k = kernels_ref();
      Drawer drawer(k, n, arena);
      const int best = k.argmax(x.data(), n);
      std::vector<int> hits(n, 0);
      for (uint32_t position = 0; position < draws; ++position) ++hits[size_t(drawer.draw(x.data(), best, {temperature, 1.0f, 0.0f, 0}, uniform(seed, 3, position)))];
      double total = 0, statistic = 0;
      for (float v : x) total += std::exp(double(v) / temperature);
      for (int i = 0; i < n; ++i) {
        const double expected = draws * std::exp(double(x[size_t(i)]) / temperature) / total;
        statistic += (hits[size_t(i)] - expected) * (hits[size_t(i)] - expected) / expected;
      }
      CHECK(statistic < 31.3);
    }
}

void a_very_small_temperature_is_greedy() {
  Arena arena;
  const Kernels& k = kernels_ref();
  const std::vector<float> x = {1.0f, 1.001f, 0.5f};
  Drawer drawer(k, 3, arena);
  for (double u : {0.0, 0.5, 1.0 - 0x1p-53}) CHECK(drawer.draw(x.data(), 1, {1e-30f, 1.0f, 0.0f, 0}, u) == 1);
}

}  // namespace

int main() {
  RUN(philox_gives_the_published_answers);
  RUN(uniform_is_in_range_and_depends_on_seed_choice_and_position);
  RUN(argmax_takes_the_lowest_of_equals_and_refuses_what_is_not_finite);
  RUN(every_instruction_set_gives_the_bits_of_ref);
  RUN(log_sum_exp_is_near_what_double_gives);
  RUN(a_draw_is_what_sorting_the_vocabulary_would_give);
  RUN(draws_follow_the_distribution);
  RUN(a_very_small_temperature_is_greedy);
  return camshaft::test::result();
}
