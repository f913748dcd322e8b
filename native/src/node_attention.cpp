// Attention: first every K and V of the step goes into the pool, then every query reads from there, the step's own tokens included.
#include "step.h"

namespace camshaft {
namespace {

const int32_t* table_of(const Step& s, int row, int group) {
  return s.slots[size_t(s.batch.rows()[size_t(row)].slot)].tables[size_t(group)].data();
}

// Asks for the lines that a token's K and V will be written to. Each row of a decode step writes to a block of its own, and K's elements lie
// all over a sub-block: written one after the other they would be waited for one by one.
void fetch_lines(const KvLayer& layer, const int32_t* table, int pos) {
  const size_t bytes = layer.sub_block_bytes(), row = bytes / kSubBlock, lane = size_t(pos % kSubBlock);
  // In int8 two tokens share a row of V, and the scales stand at the sub-block's end.
  const bool paired = layer.type == KvType::int8;
  const size_t from = paired ? lane / 2 * 2 * (row - sizeof(uint16_t)) : lane * row, n = paired ? 2 * row : row;
  size_t at = size_t(table[pos / layer.block_size]) * layer.block_bytes + size_t(pos % layer.block_size / kSubBlock) * bytes;
  for (int h = 0; h < layer.n_kv_heads; ++h, at += layer.head_bytes()) {
    for (size_t i = 0; i < bytes; i += kAlign) __builtin_prefetch(layer.k + at + i, 1);
    for (size_t i = from; i < from + n + kAlign; i += kAlign) __builtin_prefetch(layer.v + at + i, 1);
    __builtin_prefetch(layer.v + at + bytes - 1, 1);
  }
}

void write_kv(const AttentionNode& node, const KvLayer& layer, Step& s) {
  const AttentionSpec& a = node.spec;
  const Buffer& kv = s.buffer(a.kv);
  const auto fetch = [&](int t) { fetch_lines(layer, table_of(s, s.batch.row_of(t), a.group), s.batch.position(t)); };
  constexpr double kCost = 4;  // operations an element; threads that share the lines of a few tokens only wait for each other
  double ops = kCost * layer.n_kv_heads * layer.head_dim;
  for (const HeadsNode& before : node.before) std::visit([&](const auto& n) { ops += n.heads.n_heads * n.heads.head_dim; }, before);
  s.parallel(s.tokens, ops, [&](int begin, int end, int) {
    fetch(begin);
    for (int t = begin; t < end; ++t) {
      // The next token of a row mostly lies beside this one.
      if (t + 1 < end && (s.batch.row_of(t + 1) != s.batch.row_of(t) || s.batch.position(t + 1) % kSubBlock == 0)) fetch(t + 1);
      for (const HeadsNode& before : node.before) std::visit([&](const auto& n) { apply(n, s, t); }, before);
      const KvWriteArgs args{layer, table_of(s, s.batch.row_of(t), a.group)};
      s.net.kernels->kv_write(args, s.batch.position(t), kv.rows[t] + a.k_col, kv.rows[t] + a.v_col);
    }
  });
  for (const HeadsNode& before : node.before) std::visit([&](const auto& n) { s.acts.forget(n.heads.buf); }, before);
}

// One attention node of one step.
struct Attention {
  const AttentionSpec& spec;
  const AttnArgs args;
  Step& s;
  const AttnWork& work;
  Rows q, out;

  AttnRow row(const AttnItem& item) const {
    const RowSpec& r = s.batch.rows()[size_t(item.row)];
    return {table_of(s, item.row, spec.group), s.batch.first(item.row), r.n_new, r.start};
  }
  // The spans that an item's queries see: [begin, end).
  std::pair<int, int> spans(const AttnItem& item) const {
    const int oldest = spec.window ? std::max(0, s.batch.position(item.t_begin) - spec.window + 1) : 0;
    return {oldest / kSpan, s.batch.position(item.t_end - 1) / kSpan + 1};
  }
  float* parts(const AttnSplit& split, int kv_head) const {
    const int64_t room = int64_t(split.item.t_end - split.item.t_begin) * split.spans;
    const int64_t at = split.first * args.kv.n_kv_heads + room * kv_head;
    return s.parts + at * int64_t(s.net.kernels->attn_part_floats(args, 1));
  }
  void attend(const AttnItem& item, int kv_head, int worker) const {
    const Kernels& k = *s.net.kernels;
    const AttnQueries which{kv_head, item.t_begin, item.t_end};
    if (item.split < 0) return k.attention(args, row(item), which, q, out, s.scratch[size_t(worker)]);
    const auto [first, end] = spans(item);
    const auto cut = [&, n = end - first](int part) { return first + n * part / item.n_parts; };
    const int begin = cut(item.part);
    float* to = parts(work.splits[size_t(item.split)], kv_head) + size_t(begin - first) * k.attn_part_floats(args, item.t_end - item.t_begin);
    if (begin < cut(item.part + 1)) k.attention_parts(args, row(item), which, begin, cut(item.part + 1), q, to, s.scratch[size_t(worker)]);
  }
  void merge(const AttnSplit& split, int kv_head, int worker) const {
    const auto [first, end] = spans(split.item);
    const AttnQueries which{kv_head, split.item.t_begin, split.item.t_end};
    s.net.kernels->attention_merge(args, which, parts(split, kv_head), end - first, out, s.scratch[size_t(worker)]);
  }
};

// Few items often do not come out even among threads: with three KV heads of one sequence one of two threads works twice as long as the other.
// Those that are left over are then cut by tokens, a piece for each thread. (Were all of them cut, each would read all of the cache.)
class Remainder {
 public:
  Remainder(const std::vector<AttnItem>& items, const std::vector<AttnSplit>& splits, int n, int threads) : whole_(n), threads_(threads) {
    constexpr int kEvenEnough = 4;  // items a thread
    const bool cuts = splits.empty() && n < kEvenEnough * threads && items.back().t_end - items.back().t_begin > 1;
    if (cuts) rest_ = n % threads, whole_ -= rest_;
  }
  int n() const { return whole_ + rest_ * threads_; }
  // Which item comes at place i of the loop, and which piece of it, or -1.
  std::pair<int, int> find(int i) const {
    if (rest_ == 0) return {i, -1};
    // Of each thread's share the whole ones first, which odd threads take from its end.
    const int size = n() / threads_, thread = i / size, place = thread % 2 ? size - 1 - i % size : i % size, wholes = whole_ / threads_;
    if (place < wholes) return {thread * wholes + place, -1};
    return {whole_ + place - wholes, thread};
  }
  AttnItem piece(AttnItem item, int cut) const {
    const int first = item.t_begin, n = item.t_end - item.t_begin;
    item.t_begin = first + n * cut / threads_, item.t_end = first + n * (cut + 1) / threads_;
    return item;
  }

 private:
  int whole_, rest_ = 0, threads_;
};

}  // namespace

void execute(const AttentionNode& node, Step& s) {
  const AttentionSpec& a = node.spec;
  const KvLayer layer = s.kv.layer(a.layer);
  write_kv(node, layer, s);
  s.times.lap(Work::kv_write);
  const Buffer &q = s.buffer(a.q), &dst = s.buffer(a.dst);
  const AttnWork& work = s.batch.attention(node.taken_alone);
  const auto& [items, splits, pairs] = work;
  if (items.empty()) return;  // nobody wants logits of this step
  const Attention attention{a, {layer, a.n_heads, a.window, a.scale, a.softcap}, s, work, {q.rows.data + a.q_col, q.rows.stride}, dst.rows};
  const int heads = layer.n_kv_heads;
  const Remainder rest(items, splits, int(items.size()) * heads, s.pool.size());
  auto body = [&](int begin, int end, int worker) {
    for (int i = begin; i < end; ++i) {
      const auto [at, cut] = rest.find(i);
      const AttnItem item = cut < 0 ? items[size_t(at / heads)] : rest.piece(items[size_t(at / heads)], cut);
      if (item.t_begin < item.t_end) attention.attend(item, at % heads, worker);
    }
  };
  const int n = rest.n();
  constexpr double kWorthSharing = 100'000;  // multiplications
  const double multiplications = pairs * a.n_heads * layer.head_dim * 2;
  if (multiplications < kWorthSharing) body(0, n, 0);
  else s.pool.run(n, s.grain(n), body);
  const double merging = splits.empty() ? 0 : 2.0 * splits[0].spans * a.n_heads / heads * layer.head_dim;
  s.parallel(int(splits.size()) * heads, merging, [&](int begin, int end, int worker) {
    for (int i = begin; i < end; ++i) attention.merge(splits[size_t(i / heads)], i % heads, worker);
  });
  s.acts.forget(a.dst);
  s.times.lap(Work::attention);
}

}  // namespace camshaft
