// A random two-layer network with every float form, biases, norms of heads, gates of both kinds and two KV groups: the same logits on each
// instruction set, for any number of threads, however the batch is cut. Made to run under sanitizers.
#include "camshaft/program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>

#include "check.h"
#include "isas.h"

using namespace camshaft;

namespace {

constexpr int kVocab = 101, kWidth = 48, kHeads = 4, kKvHeads = 2, kHeadDim = 24, kFf = 70, kTokens = 96, kBlock = 16, kLongest = 704;
constexpr int kQ = kHeads * kHeadDim, kKv = kKvHeads * kHeadDim;

struct Maker {
  Builder& b;
  std::mt19937 rng{17};

  std::vector<float> floats(size_t n, float spread, float mean = 0) {
    std::normal_distribution<float> normal(mean, spread);
    std::vector<float> x(n);
    for (float& v : x) v = normal(rng);
    return x;
  }
  int vector(int n, float mean) { return b.vector(floats(size_t(n), 0.1f, mean)); }
  int matrix(FileType type, int rows, int cols, const std::string& form = "") {
    const std::vector<float> x = floats(size_t(rows) * size_t(cols), 0.15f);
    std::vector<uint8_t> bytes(x.size() * (type == FileType::F32 ? 4 : 2));
    if (type == FileType::F32) std::memcpy(bytes.data(), x.data(), bytes.size());
    else
      for (size_t i = 0; i < x.size(); ++i) {
        const uint16_t h = type == FileType::F16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
        std::memcpy(bytes.data() + 2 * i, &h, 2);
      }
    return b.weight({uint32_t(type), rows, cols, bytes, {}, form});
  }
};

std::unique_ptr<Program> make_program(const std::string& isa, int threads, const std::string& compute, const std::string& kv) {
  Builder b({isa, threads, compute, kTokens, 8, kVocab});
  Maker m{b};
  b.kv_cache({kBlock, 1 + 2 * kLongest / kBlock, kv, 1, 2, kKvHeads, kHeadDim});
  std::vector<double> inv_freq(kHeadDim / 2);
  for (size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] = std::pow(1000.0, -double(i) / double(inv_freq.size()));
  const int table = b.rope_table(inv_freq, kLongest);
  const int x = b.buffer(kWidth), h = b.buffer(kWidth), attended = b.buffer(kQ), qkv = b.buffer(kQ + 2 * kKv), pair = b.buffer(2 * kFf), gated = b.buffer(kFf),
            taken = b.buffer(kWidth), taken_attended = b.buffer(kQ), out = b.buffer(kWidth);
  const int embed = m.matrix(FileType::F16, kVocab, kWidth);
  b.embed(x, embed, 2.0f);
  constexpr FileType types[] = {FileType::F32, FileType::BF16};
  constexpr const char* forms[] = {"q4", "q8"};
  for (int layer = 0; layer < 2; ++layer) {
    const FileType type = types[layer];
    b.rms_norm(h, x, m.vector(kWidth, 1), 1e-6f);
    const PartSpec parts[] = {{m.matrix(type, kQ, kWidth, forms[layer]), m.vector(kQ, 0), qkv, 0},
                              {m.matrix(FileType::F16, kKv, kWidth), -1, qkv, kQ},
                              {m.matrix(type, kKv, kWidth), m.vector(kKv, 0), qkv, kQ + kKv}};
    b.linear(h, parts, false);
    b.head_norm({qkv, 0, kHeads, kHeadDim}, m.vector(kHeadDim, 1), 1e-6f);
    b.head_norm({qkv, kQ, kKvHeads, kHeadDim}, m.vector(kHeadDim, 1), 1e-6f);
    b.rope({qkv, 0, kHeads + kKvHeads, kHeadDim}, table);
    b.attention({attended, qkv, 0, qkv, kQ, kQ + kKv, layer, 0, kHeads, layer ? 20 : 0, 0.2f, layer ? 0.0f : 30.0f});
    if (layer == 1) b.take_rows(taken_attended, attended), b.take_rows(taken, x);
    const int rest = layer == 1 ? taken : x;
    const PartSpec back[] = {{m.matrix(type, kWidth, kQ, forms[1 - layer]), -1, out, 0}};
    b.linear(layer == 1 ? taken_attended : attended, back, false);
    b.add(rest, rest, out);
    b.rms_norm(h, rest, m.vector(kWidth, 1), 1e-6f);
    const PartSpec up[] = {{m.matrix(type, kFf, kWidth, "q8"), -1, pair, 0}, {m.matrix(type, kFf, kWidth), -1, pair, kFf}};
    b.linear(h, up, false);
    layer ? b.gelu_mul({gated, pair, 0, kFf, kFf}) : b.silu_mul({gated, pair, 0, kFf, kFf});
    const PartSpec down[] = {{m.matrix(type, kWidth, kFf, layer ? "q8" : ""), -1, rest, 0}};
    b.linear(gated, down, true);
  }
  b.rms_norm(taken, taken, m.vector(kWidth, 1), 1e-6f);
  b.head(taken, embed, 20.0f);
  auto program = b.build();
  program->keep_logits(true);
  return program;
}

std::vector<int32_t> prompt(int slot) {
  std::vector<int32_t> ids(kTokens);
  for (int i = 0; i < kTokens; ++i) ids[size_t(i)] = (7 * i + 13 * slot + i * i) % kVocab;
  return ids;
}

// All logits of slot 0's prompt of `length` tokens, cut into `chunk`s, with `mates` other slots of one token a step beside it. Unless `all_rows`
// only the last token's are asked for.
std::vector<float> logits(Program& p, int length, int chunk, int mates, bool all_rows = true) {
  std::vector<int32_t> patches;
  for (int slot = 0; slot <= mates; ++slot) {
    SlotParams params;
    params.temperature = slot % 2 ? 1.0f : 0.0f;
    params.logprobs = slot % 3;
    params.prompt_logprobs = 1;
    params.presence_penalty = 0.5f;
    const auto ids = prompt(slot);
    p.open(slot, params, ids, {});
    for (int group = 0; group < 2; ++group) {
      patches.insert(patches.end(), {slot, group, 0, kTokens / kBlock});
      for (int i = 0; i < kTokens / kBlock; ++i) patches.push_back(1 + (slot * 2 + group) * (kTokens / kBlock) + (i + slot) % (kTokens / kBlock));
    }
  }
  std::vector<float> all;
  for (int done = 0, step = 0; done < length; done += chunk, ++step) {
    const int n = std::min(chunk, length - done);
    std::vector<int32_t> ids;
    std::vector<RowSpec> rows;
    for (int slot = mates; slot >= 0; --slot) {
      const auto whole = prompt(slot);
      const int start = slot ? step : done, count = slot ? 1 : n;
      const int wanted = slot ? 1 : all_rows ? count : done + n == length ? 1 : 0;
      rows.push_back({slot, start, count, wanted, slot || !all_rows ? 0 : 1});
      ids.insert(ids.end(), whole.begin() + start, whole.begin() + start + count);
    }
    const auto out = p.run({ids, rows, step ? std::span<const int32_t>() : patches, {}, {}});
    const int wanted = int(rows.back().n_sample);
    CHECK(int(out.size()) == mates + 1 && int(out.back().ids.size()) == wanted);
    const auto kept = p.last_logits();
    CHECK(kept.size() == size_t(mates + wanted) * kVocab);
    all.insert(all.end(), kept.end() - wanted * kVocab, kept.end());
  }
  return all;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) { return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0; }

void logits_are_the_same_bits_on_every_instruction_set_and_schedule() {
  for (const auto& [compute, kv] : {std::pair{"int8", "bf16"}, {"int8", "int8"}, {"f32", "f32"}}) {
    const auto expected = logits(*make_program("ref", 1, compute, kv), 60, 60, 0);
    for (float v : expected) CHECK(std::isfinite(v) && std::abs(v) <= 20.0f);
    for (const Kernels* k : test::all_kernels())
      for (int threads : {1, 2, 3, 4}) {
        const auto program = make_program(k->name, threads, compute, kv);
        for (int chunk : {60, 1, 7, 33})
          for (int mates : {0, 5}) CHECK(same(logits(*program, 60, chunk, mates), expected));
      }
  }
}

// The logits of the last 12 tokens of a row that is long enough to be shared by threads, `chunk` of them a step.
std::vector<float> long_logits(Program& p, int chunk) {
  std::vector<int32_t> ids(kLongest), patches;
  for (int i = 0; i < kLongest; ++i) ids[size_t(i)] = (11 * i + i * i) % kVocab;
  for (int group = 0; group < 2; ++group) {
    patches.insert(patches.end(), {0, group, 0, kLongest / kBlock});
    for (int i = 0; i < kLongest / kBlock; ++i) patches.push_back(1 + 2 * i + group);
  }
  p.open(0, {}, ids, {});
  const int last = kLongest - 12;
  std::vector<float> all;
  for (int done = 0, n; done < kLongest; done += n) {
    n = done < last ? std::min(kTokens, last - done) : std::min(chunk, kLongest - done);
    const RowSpec row{0, done, n, done < last ? 1 : n, 0};
    p.run({{ids.data() + done, size_t(n)}, {&row, 1}, done ? std::span<const int32_t>() : patches, {}, {}});
    if (done < last) continue;
    const auto kept = p.last_logits();
    all.insert(all.end(), kept.begin(), kept.end());
  }
  return all;
}

void a_long_row_that_threads_share_has_the_same_bits() {
  for (const char* kv : {"bf16", "int8", "f32"}) {
    const auto expected = long_logits(*make_program("ref", 1, "int8", kv), 12);
    for (float v : expected) CHECK(std::isfinite(v));
    for (const Kernels* k : test::all_kernels())
      for (int threads : {2, 3, 4}) {
        const auto program = make_program(k->name, threads, "int8", kv);
        for (int chunk : {1, 3}) CHECK(same(long_logits(*program, chunk), expected));
      }
  }
}

void rows_that_nobody_takes_change_nothing() {
  const auto program = make_program("", 2, "int8", "bf16");
  const auto all = logits(*program, 60, 60, 0);
  const std::vector<float> expected(all.end() - kVocab, all.end());
  for (int chunk : {60, 1, 7, 33})
    for (int mates : {0, 5}) CHECK(same(logits(*program, 60, chunk, mates, false), expected));
}

void bad_batches_throw_and_the_program_lives_on() {
  const auto program = make_program("", 2, "int8", "int8");
  const auto expected = logits(*program, 20, 20, 0);
  const RowSpec unknown{3, 0, 1, 0, 0};
  const int32_t id = 1, huge = kVocab;
  for (int i = 0; i < 2; ++i) {
    bool refused = false;
    try {
      i ? program->run({{&huge, 1}, {&unknown, 1}, {}, {}, {}}) : program->run({{&id, 1}, {&unknown, 1}, {}, {}, {}});
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    CHECK(refused);
  }
  CHECK(same(logits(*program, 20, 20, 0), expected));
}

void blocks_are_copied_whole_and_the_pool_can_be_touched() {
  const auto program = make_program("", 2, "f32", "int8");
  program->touch();
  const auto expected = logits(*program, 40, 40, 0);
  // Slot 0's blocks in group 0 are 1..6: block 3 (positions 32..47) moves to 70, and the table follows.
  const CopySpec copy{3, 70};
  const int32_t patch[] = {0, 0, 2, 1, 70}, id = prompt(0)[39];
  const RowSpec row{0, 39, 1, 1, 0};
  program->run({{&id, 1}, {&row, 1}, patch, {&copy, 1}, {}});
  const auto kept = program->last_logits();
  CHECK(std::memcmp(kept.data(), expected.data() + 39 * kVocab, kVocab * sizeof(float)) == 0);
}

}  // namespace

int main() {
  RUN(logits_are_the_same_bits_on_every_instruction_set_and_schedule);
  RUN(a_long_row_that_threads_share_has_the_same_bits);
  RUN(rows_that_nobody_takes_change_nothing);
  RUN(bad_batches_throw_and_the_program_lives_on);
  RUN(blocks_are_copied_whole_and_the_pool_can_be_touched);
  return camshaft::test::result();
}
