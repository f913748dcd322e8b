// Attention: each instruction set gives ref's bits, ref is right, and a query's bits do not depend on its neighbours.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "check.h"
#include "kernel_cases.h"
#include "random.h"

namespace {

using namespace camshaft;
using namespace camshaft::test;

using Floats = std::vector<float>;

// A sequence of start + n_new tokens in a shuffled pool, with the queries of its last n_new. What no token wrote holds NaN, and block
// table entries that no query may look at hold an id far outside the pool.
struct Scene {
  AttnCase c;
  std::vector<int32_t> table;
  std::vector<uint8_t> pool;
  Floats keys, values;  // [positions, n_kv_heads * head_dim] as stored
  Floats queries;       // [n_new, n_heads * head_dim]
  AttnArgs args;

  Scene(const AttnCase& shape, uint64_t seed, float scale = 2.0f, float value_scale = 2.0f);
  int positions() const { return c.start + c.n_new; }
  size_t width() const { return static_cast<size_t>(c.n_heads) * c.head_dim; }
  size_t kv_width() const { return static_cast<size_t>(c.n_kv_heads) * c.head_dim; }

  // Queries [begin, end) in calls of `chunk` tokens each.
  Floats run(const Kernels& kernels, int begin, int end, int chunk) {
    Floats out(width() * (end - begin)), scratch(kernels.attn_scratch_floats(args));
    const AttnRow row{table.data(), 0, c.n_new, c.start};
    const Rows q{queries.data(), static_cast<int64_t>(width())}, to{out.data() - width() * begin, static_cast<int64_t>(width())};
    for (int t = begin; t < end; t += chunk)
      for (int h = 0; h < c.n_kv_heads; h++) kernels.attention(args, row, {h, t, std::min(end, t + chunk)}, q, to, scratch.data());
    return out;
  }
  Floats run(const Kernels& kernels) { return run(kernels, 0, c.n_new, c.n_new); }
};

// One head's vector as the cache gives it back.
void append_stored(const float* x, int n, KvType type, Floats& to) {
  float most = 0;
  for (int i = 0; i < n; i++) most = std::max(most, std::fabs(x[i]));
  float step = bf16_to_f32(f32_to_bf16(most / 127));
  if (step < most / 127) step = bf16_to_f32(static_cast<uint16_t>(f32_to_bf16(most / 127) + 1));
  for (int i = 0; i < n; i++) {
    if (type == kF32) to.push_back(x[i]);
    if (type == kBf16) to.push_back(bf16_to_f32(f32_to_bf16(x[i])));
    if (type == kInt8) to.push_back(step > 0 ? std::nearbyint(x[i] / step) * step : 0.0f);
  }
}

Scene::Scene(const AttnCase& shape, uint64_t seed, float scale, float value_scale) : c(shape) {
  Random random(seed);
  const int n_blocks = ceil_div(positions(), c.block_size);
  const size_t bytes = block_bytes(c);
  pool.assign(2 * n_blocks * bytes, 0xff);  // 0xff...: NaN, and for int8 a scale of NaN
  for (int i = 0; i < n_blocks; i++) table.push_back((i * 7 + 3) % n_blocks);
  if (n_blocks % 7 == 0) std::iota(table.rbegin(), table.rend(), 0);  // where the steps of 7 are no permutation
  const KvLayer kv{pool.data(), pool.data() + n_blocks * bytes, bytes, c.block_size, c.n_kv_heads, c.head_dim, c.type};
  args = {kv, c.n_heads, c.window, 1.0f / std::sqrt(static_cast<float>(c.head_dim)), c.softcap};
  queries = random.floats(width() * c.n_new, scale);
  for (int pos = 0; pos < positions(); pos++) {
    const Floats k = random.floats(kv_width(), scale), v = random.floats(kv_width(), value_scale);
    kernels_ref().kv_write({args.kv, table.data()}, pos, k.data(), v.data());
    for (int h = 0; h < c.n_kv_heads; h++) {
      append_stored(k.data() + h * c.head_dim, c.head_dim, c.type, keys);
      append_stored(v.data() + h * c.head_dim, c.head_dim, c.type, values);
    }
  }
  const int first = c.window > 0 ? std::max(0, c.start - c.window + 1) : 0;
  for (int i = 0; i < first / c.block_size; i++) table[i] = -1'000'000'000;
}

// Query t, head h in double, the textbook way.
std::vector<double> exact(const Scene& scene, int t, int h) {
  const AttnCase& c = scene.c;
  const int pos = c.start + t, first = c.window > 0 ? std::max(0, pos - c.window + 1) : 0, dim = c.head_dim;
  const size_t kv_head = static_cast<size_t>(h / (c.n_heads / c.n_kv_heads)) * dim;
  const float* q = scene.queries.data() + scene.width() * t + static_cast<size_t>(h) * dim;
  std::vector<double> weights, out(dim);
  for (int j = first; j <= pos; j++) {
    double s = 0;
    for (int d = 0; d < dim; d++) s += static_cast<double>(q[d]) * scene.keys[scene.kv_width() * j + kv_head + d];
    s *= scene.args.scale;
    weights.push_back(c.softcap > 0 ? c.softcap * std::tanh(s / c.softcap) : s);
  }
  const double top = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& w : weights) sum += w = std::exp(w - top);
  for (int j = first; j <= pos; j++)
    for (int d = 0; d < dim; d++) out[d] += weights[j - first] / sum * scene.values[scene.kv_width() * j + kv_head + d];
  return out;
}

bool same(const Kernels& kernels, const AttnCase& c, const Floats& got, const Floats& want) {
  if (got.size() == want.size() && std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0) return true;
  const auto equal = [](float x, float y) { return std::memcmp(&x, &y, sizeof x) == 0; };
  const auto [a, b] = std::mismatch(got.begin(), got.end(), want.begin(), equal);
  std::fprintf(stderr, "%s, heads %d/%d x %d, block %d, window %d, %d + %d: element %td is %a, not %a\n", kernels.name, c.n_heads,
               c.n_kv_heads, c.head_dim, c.block_size, c.window, c.start, c.n_new, a - got.begin(), *a, *b);
  return false;
}

std::vector<const Kernels*> tables() {
  std::vector<const Kernels*> all = {&kernels_ref(), kernels_avx2(), kernels_avx512()};
  std::erase(all, nullptr);  // not on this machine
  return all;
}

// Queries and weights of values have 16 bits where the cache has int8.
void ref_attention_is_within_1e5_of_double_and_within_2e4_for_int8() {
  for (const AttnCase& c : kAttnCases) {
    Scene scene(c, 11);
    const Floats out = scene.run(kernels_ref());
    double worst = 0;
    for (int t = 0; t < c.n_new; t++)
      for (int h = 0; h < c.n_heads; h++) {
        const std::vector<double> want = exact(scene, t, h);
        for (int d = 0; d < c.head_dim; d++) worst = std::max(worst, std::fabs(out[scene.width() * t + h * c.head_dim + d] - want[d]));
      }
    CHECK(worst < (c.type == kInt8 ? 2e-4 : 1e-5));  // values are about 1
  }
}

void every_case_gives_refs_bits_and_unwritten_memory_does_not_leak() {
  for (const AttnCase& c : kAttnCases) {
    Scene scene(c, 12);
    const Floats want = scene.run(kernels_ref());
    CHECK(std::none_of(want.begin(), want.end(), [](float x) { return std::isnan(x); }));
    for (const Kernels* kernels : tables()) CHECK(same(*kernels, c, scene.run(*kernels), want));
  }
}

struct Scales {
  float scores, values;
};

void scores_and_values_that_underflow_give_refs_bits() {
  for (const AttnCase& c : kAttnCases)
    for (const Scales& s : {Scales{1e-22f, 1e-22f}, Scales{60.0f, 2.0f}, Scales{3.0f, 4e-45f}}) {  // the last: zeros of either sign
      Scene scene(c, 13, s.scores, s.values);
      const Floats want = scene.run(kernels_ref());
      for (const Kernels* kernels : tables()) CHECK(same(*kernels, c, scene.run(*kernels), want));
    }
}

void a_query_has_the_same_bits_in_every_chunking_and_alone() {
  for (const AttnCase& c : kAttnCases)
    for (const Kernels* kernels : tables()) {
      if (kernels == &kernels_ref()) continue;  // one query after the other already
      Scene scene(c, 14);
      const Floats want = scene.run(*kernels);
      for (int chunk : {1, 2, 5, 7, 64}) CHECK(same(*kernels, c, scene.run(*kernels, 0, c.n_new, chunk), want));
      const int middle = c.n_new / 2;
      const Floats part(want.begin() + static_cast<ptrdiff_t>(scene.width()) * middle, want.end());
      CHECK(same(*kernels, c, scene.run(*kernels, middle, c.n_new, c.n_new), part));
    }
}

// Parts of spans that were computed in any order and any number at once, then merged; the first `n_prefix` of them one after the other, each
// merged with those before it.
Floats in_parts(Scene& scene, const Kernels& kernels, int begin, int end, int spans_at_once, int n_prefix) {
  const AttnCase& c = scene.c;
  const AttnRow row{scene.table.data(), 0, c.n_new, c.start};
  const Rows q{scene.queries.data(), static_cast<int64_t>(scene.width())};
  const int first = (c.window > 0 ? std::max(0, c.start + begin - c.window + 1) : 0) / kSpan, last = (c.start + end - 1) / kSpan + 1;
  const size_t part = kernels.attn_part_floats(scene.args, end - begin);
  CHECK(part <= static_cast<size_t>(end - begin) * kernels.attn_part_floats(scene.args, 1));
  Floats out(scene.width() * (end - begin)), scratch(kernels.attn_scratch_floats(scene.args));
  const Rows to{out.data() - scene.width() * begin, static_cast<int64_t>(scene.width())};
  for (int h = 0; h < c.n_kv_heads; h++) {
    Floats parts(part * (last - first), std::nanf(""));
    const AttnQueries which{h, begin, end};
    const int alone = std::min(last, first + n_prefix);
    const auto at = [&](int span) { return parts.data() + part * static_cast<size_t>(span - first); };
    for (int to_span = last, from; to_span > alone; to_span = from) {
      from = std::max(alone, to_span - spans_at_once);
      kernels.attention_parts(scene.args, row, which, from, to_span, q, at(from), scratch.data());
    }
    for (int from = first, to_span; from < alone; from = to_span) {
      to_span = std::min(alone, from + spans_at_once);
      kernels.attention_prefix(scene.args, row, which, from, to_span, q, from > first ? at(from - 1) : nullptr, at(to_span - 1), scratch.data());
    }
    const int merged = std::max(first, alone - 1);
    kernels.attention_merge(scene.args, which, at(merged), last - merged, to);
  }
  return out;
}

void parts_of_spans_merge_to_the_same_bits() {
  for (const AttnCase& c : kAttnCases)
    for (const Kernels* kernels : tables()) {
      Scene scene(c, 16);
      const int begin = std::max(0, c.n_new - 20);
      const Floats want = scene.run(kernels_ref(), begin, c.n_new, c.n_new);
      for (int at_once : {1, 2, 100})
        for (int n_prefix : {0, 1, 3, 100}) CHECK(same(*kernels, c, in_parts(scene, *kernels, begin, c.n_new, at_once, n_prefix), want));
    }
}

// A row that starts in the middle of the batch, and rows of q and out that lie further apart than they are long.
void a_row_is_found_by_its_first_token_and_strides_are_kept() {
  const AttnCase c{4, 2, 24, 16, kBf16, 0, 0, 30, 9};
  Scene scene(c, 15);
  const Floats want = scene.run(kernels_ref());
  const size_t stride = scene.width() + 5, before = 3;
  Floats q(stride * (before + c.n_new)), out(q.size(), 7.0f);
  for (int t = 0; t < c.n_new; t++) std::copy_n(scene.queries.data() + scene.width() * t, scene.width(), q.data() + stride * (before + t));
  for (const Kernels* kernels : tables()) {
    Floats scratch(kernels->attn_scratch_floats(scene.args));
    const AttnRow row{scene.table.data(), static_cast<int>(before), c.n_new, c.start};
    const Rows from{q.data(), static_cast<int64_t>(stride)}, to{out.data(), static_cast<int64_t>(stride)};
    for (int h = 0; h < c.n_kv_heads; h++) kernels->attention(scene.args, row, {h, static_cast<int>(before), static_cast<int>(before) + c.n_new}, from, to, scratch.data());
    Floats got;
    for (size_t i = 0; i < out.size(); i++) {
      if (i >= stride * before && i % stride < scene.width())
        got.push_back(out[i]);
      else
        CHECK(out[i] == 7.0f);
    }
    CHECK(same(*kernels, c, got, want));
  }
}

}  // namespace

int main() {
  for (const Kernels* kernels : tables()) std::printf("-- %s\n", kernels->name);
  RUN(ref_attention_is_within_1e5_of_double_and_within_2e4_for_int8);
  RUN(every_case_gives_refs_bits_and_unwritten_memory_does_not_leak);
  RUN(scores_and_values_that_underflow_give_refs_bits);
  RUN(a_query_has_the_same_bits_in_every_chunking_and_alone);
  RUN(parts_of_spans_merge_to_the_same_bits);
  RUN(a_row_is_found_by_its_first_token_and_strides_are_kept);
  return result();
}
