#include <stdexcept>

#include "float_mode.h"
#include "program_parts.h"

namespace camshaft {
namespace {

BatchRules rules_of(const Network& net, const KvPool& kv, int threads) {
  // Without a rope table nothing bounds a position but the blocks there are.
  const int positions = net.max_positions ? net.max_positions : kv.shape().n_groups ? kv.shape().n_blocks * kv.shape().block_size : 1 << 30;
  return {net.limits.max_tokens, net.limits.vocab_size, positions, kv.shape(), net.group_windows, threads};
}

int widest_input(const Network& net) {
  int widest = 1;
  for (const Packed& w : net.weights) widest = std::max(widest, w.cols);
  return widest;
}

AttnArgs args_of(const AttentionSpec& s, const KvPool& kv) { return {kv.layer(s.layer), s.n_heads, s.window, s.scale, s.softcap}; }

SplitRoom split_room(Network& net, const KvPool& kv) {
  size_t most = 0;
  for (const Node& node : net.nodes)
    if (const auto* a = std::get_if<AttentionNode>(&node))
      most = std::max(most, net.kernels->attn_part_floats(args_of(a->spec, kv), 1) * size_t(kv.shape().n_kv_heads));
  const size_t splits = size_t(std::min(kMostSplits, net.limits.max_tokens));
  return {net.arena.floats(most * size_t(kSplitRoom)), std::vector<SplitRoom::Chain>(splits * size_t(kv.shape().n_kv_heads))};
}

std::vector<float*> attention_scratch(Network& net, const KvPool& kv, int threads) {
  size_t most = 0;
  for (const Node& node : net.nodes)
    if (const auto* a = std::get_if<AttentionNode>(&node)) most = std::max(most, net.kernels->attn_scratch_floats(args_of(a->spec, kv)));
  std::vector<float*> all;
  for (int i = 0; i < threads; ++i) all.push_back(net.arena.floats(most));
  return all;
}

HeadRoom head_room(Network& net, int threads) {
  HeadRoom room;
  for (int i = 0; i < threads; ++i) room.workers.push_back({net.arena.floats(kHeadPieceFloats), {}});
  return room;
}

Rows logit_slice(Network& net) {
  const int64_t stride = int64_t(round_up(size_t(net.limits.vocab_size), kLanes)) + kLanes;
  return {net.arena.floats(size_t(std::min(kHeadSlice, net.limits.max_tokens)) * size_t(stride)), stride};
}

}  // namespace

Program::Parts::Parts(std::unique_ptr<Network> network, std::unique_ptr<ThreadPool> threads, KvPool kv_pool)
    : net(std::move(network)),
      pool(std::move(threads)),
      kv(std::move(kv_pool)),
      slots(size_t(net->limits.max_slots)),
      batch(rules_of(*net, kv, pool->size()), net->limits.max_slots),
      acts(*net, widest_input(*net)),
      sampler(*net->kernels, net->limits.vocab_size, pool->size(), net->arena),
      scratch(attention_scratch(*net, kv, pool->size())),
      splits(split_room(*net, kv)),
      head(head_room(*net, pool->size())),
      logits(logit_slice(*net)) {}

Program::Program(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Program::~Program() = default;

void Program::open(int slot, SlotParams params, std::span<const int32_t> prompt, std::span<const int32_t> output) {
  Parts& p = *parts_;
  const int vocab = p.net->limits.vocab_size;
  if (slot < 0 || slot >= int(p.slots.size())) throw std::invalid_argument("slot " + std::to_string(slot) + " is outside 0.." + std::to_string(p.slots.size() - 1));
  const auto check = [vocab](int32_t id, const char* what) {
    if (id < 0 || id >= vocab) throw std::invalid_argument(std::string(what) + " " + std::to_string(id) + " is outside 0.." + std::to_string(vocab - 1));
  };
  for (int32_t id : prompt) check(id, "prompt id");
  for (int32_t id : output) check(id, "output id");
  for (const auto& [id, bias] : params.logit_bias) check(id, "logit_bias for token");
  if (!(params.temperature >= 0)) throw std::invalid_argument("temperature is negative or not a number");
  const bool counted = is_penalised(params);
  p.slots[size_t(slot)] = {true, std::move(params), History(prompt, output, counted), BlockTables(size_t(p.kv.shape().n_groups))};
}

void Program::release(int slot) {
  if (slot >= 0 && slot < int(parts_->slots.size())) parts_->slots[size_t(slot)] = Slot{};
}

std::vector<RowOutput> Program::run(const Batch& batch) {
  Parts& p = *parts_;
  const FloatMode mode;
  const ThreadPool::Step step_lasts(*p.pool);
  p.times.start();
  p.batch.prepare(batch, p.slots);
  std::vector<RowOutput> out;
  Sampler::size_outputs(p.batch, p.slots, p.net->limits.vocab_size, out);
  p.kept.assign(p.keeping ? p.batch.taken().size() * size_t(p.net->limits.vocab_size) : 0, 0.0f);
  for (const CopySpec& c : batch.copies) p.kv.copy(c.src, c.dst);
  p.acts.forget();
  p.times.lap(Work::prepare);
  float* kept = p.keeping ? p.kept.data() : nullptr;
  Step step{*p.net, *p.pool, p.kv, p.slots, p.batch, p.acts, p.sampler, p.times, p.scratch, p.splits, out, p.head, p.logits, kept,
            p.batch.tokens()};
  for (const Node& node : p.net->nodes) {
    if (step.tokens == 0) break;  // nothing is sampled or scored: what comes after take_rows has no rows
    std::visit([&](const auto& n) { execute(n, step); }, node);
  }
  return out;
}

void Program::keep_logits(bool on) { parts_->keeping = on; }
std::span<const float> Program::last_logits() const { return parts_->kept; }
int Program::vocab_size() const { return parts_->net->limits.vocab_size; }
std::span<const uint8_t> Program::packed(int weight) const {
  const std::vector<Packed>& all = parts_->net->weights;
  if (weight < 0 || weight >= int(all.size())) throw std::invalid_argument("weight " + std::to_string(weight) + " does not exist");
  const Packed& w = all[size_t(weight)];
  return {w.data, packed_bytes(w.form, w.rows, w.cols)};
}
void Program::touch() { parts_->kv.touch(*parts_->pool); }
std::vector<std::pair<std::string, double>> Program::node_times() { return parts_->times.take(); }

}  // namespace camshaft
