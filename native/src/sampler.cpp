#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "philox.h"

namespace camshaft {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Fills `top` with the largest of x[n], as log-probabilities, largest first, ties by id.
void rank(const float* x, int n, float lse, std::vector<std::pair<int32_t, float>>& top) {
  if (top.empty()) return;
  const auto before = [](const std::pair<int32_t, float>& a, const std::pair<int32_t, float>& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  };
  const int k = int(top.size());
  for (int i = 0; i < k; ++i) top[size_t(i)] = {i, x[i]};
  std::make_heap(top.begin(), top.end(), before);  // the worst kept one in front
  for (int i = k; i < n; ++i) {
    if (!(x[i] > top.front().second)) continue;  // an equal one has the higher id
    std::pop_heap(top.begin(), top.end(), before);
    top.back() = {i, x[i]};
    std::push_heap(top.begin(), top.end(), before);
  }
  std::sort(top.begin(), top.end(), before);
  for (auto& [id, value] : top) value -= lse;
}

void allow_only(const uint32_t* mask, float* x, int n) {
  for (int w = 0; w < ceil_div(n, 32); ++w) {
    if (mask[w] == ~0u) continue;
    const int end = std::min(n, 32 * w + 32);
    for (int i = 32 * w; i < end; ++i)
      if (!(mask[w] >> (i % 32) & 1)) x[i] = kNever;
  }
}

}  // namespace

bool is_penalised(const SlotParams& p) {
  return p.repetition_penalty != 1.0f || p.presence_penalty != 0.0f || p.frequency_penalty != 0.0f;
}

Sampler::Sampler(const Kernels& kernels, int vocab_size, int threads, Arena& arena) : kernels_(kernels), n_(vocab_size) {
  workers_.reserve(size_t(threads));
  for (int i = 0; i < threads; ++i) workers_.push_back({arena.floats(size_t(vocab_size)), Drawer(kernels, vocab_size, arena)});
}

void Sampler::size_outputs(const StepBatch& batch, const std::vector<Slot>& slots, int vocab_size, std::vector<RowOutput>& out) {
  out.assign(batch.rows().size(), {});
  const auto blank = [&](int top) { return TokenScore{-1, std::numeric_limits<float>::quiet_NaN(), std::vector<std::pair<int32_t, float>>(size_t(std::clamp(top, 0, vocab_size)))}; };
  for (const Taken& t : batch.taken()) {
    const SlotParams& p = slots[size_t(batch.rows()[size_t(t.row)].slot)].params;
    RowOutput& row = out[size_t(t.row)];
    if (t.target >= 0) row.scores.push_back(blank(p.prompt_logprobs));
    if (t.sample >= 0) row.ids.push_back(-1);
    if (t.sample >= 0 && p.logprobs >= 0) row.logprobs.push_back(blank(p.logprobs));
  }
}

bool Sampler::wants_only_best(const Taken& t, const StepBatch& batch, const Slot& slot) {
  const SlotParams& p = slot.params;
  return t.target < 0 && t.sample >= 0 && p.temperature == 0.0f && p.logprobs < 0 && p.logit_bias.empty() && !is_penalised(p) && !batch.mask(t.row);
}

void Sampler::judge(const Taken& t, const StepBatch& batch, const Slot& slot, const float* logits, int worker, RowOutput& out) {
  const bool scored = t.target >= 0, sampled = t.sample >= 0, reported = sampled && slot.params.logprobs >= 0;
  const int best = kernels_.argmax(logits, n_);
  if (best < 0) {
    // Not finite: the row's outputs stay -1, and its lists of rivals are empty.
    if (scored) out.scores[size_t(t.position - batch.rows()[size_t(t.row)].start)].top.clear();
    if (reported) out.logprobs[size_t(t.sample)].top.clear();
    return;
  }
  const float lse = scored || reported ? kernels_.log_sum_exp(logits, n_) : 0.0f;
  if (scored) report(t.target, logits, lse, out.scores[size_t(t.position - batch.rows()[size_t(t.row)].start)]);
  if (!sampled) return;
  const int id = sample(t, batch, slot, logits, best, workers_[size_t(worker)]);
  out.ids[size_t(t.sample)] = id;
  if (reported && id >= 0) report(id, logits, lse, out.logprobs[size_t(t.sample)]);
}

void Sampler::report(int id, const float* logits, float lse, TokenScore& out) const {
  out.id = id;
  out.logprob = logits[id] - lse;
  rank(logits, n_, lse, out.top);
}

int Sampler::sample(const Taken& t, const StepBatch& batch, const Slot& slot, const float* logits, int best, Worker& w) {
  const SlotParams& p = slot.params;
  const uint32_t* mask = batch.mask(t.row);
  const float* x = logits;
  if (!p.logit_bias.empty() || is_penalised(p) || mask) {
    std::copy(logits, logits + n_, w.x);
    for (const auto& [id, bias] : p.logit_bias) w.x[id] += bias;
    if (is_penalised(p)) penalise(t, batch, slot, w.x);
    if (mask) allow_only(mask, w.x, n_);
    x = w.x;
    best = kernels_.argmax(x, n_);
    if (best < 0) return -1;
  }
  if (p.temperature == 0.0f) return best;
  const double u = uniform(p.seed, p.choice, uint32_t(t.position + 1));
  return w.drawer.draw(x, best, {p.temperature, p.top_p, p.min_p, p.top_k}, u);
}

// The history reaches to the end of the row; the tokens behind `t` (drafts, where several positions are sampled) do not count for it.
void Sampler::penalise(const Taken& t, const StepBatch& batch, const Slot& slot, float* x) const {
  const SlotParams& p = slot.params;
  const History& history = slot.history;
  const RowSpec& row = batch.rows()[size_t(t.row)];
  const int first_behind = std::max(t.position + 1, history.n_prompt()), end = row.start + row.n_new;
  for (const auto& [id, count] : history.counts()) {
    int output = count.output;
    for (int i = first_behind; i < end; ++i) output -= history[i] == id;
    if (count.prompt == 0 && output == 0) continue;
    float& v = x[id];
    if (p.repetition_penalty != 1.0f) v = v > 0.0f ? v / p.repetition_penalty : v * p.repetition_penalty;
    if (output > 0) v -= p.presence_penalty + p.frequency_penalty * float(output);
  }
}

}  // namespace camshaft
