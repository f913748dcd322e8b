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
  void attend(const AttnItem& item, int kv_head, int worker) const {
    s.net.kernels->attention(args, row(item), {kv_head, item.t_begin, item.t_end}, q, out, s.scratch[size_t(worker)]);
  }
};

// One KV head of a split item, whose parts follow each other. Spans that are computed in order are merged at once, in the cache of the core
// that computes them; those that somebody computes before the ones in front of them are there wait apart until all are done.
class Chain {
 public:
  Chain(const Attention& attention, const AttnSplit& split, int kv_head)
      : attention_(attention),
        kernels_(*attention.s.net.kernels),
        item_(split.item),
        which_{kv_head, item_.t_begin, item_.t_end},
        spans_(attention.spans(item_)),
        part_floats_(kernels_.attn_part_floats(attention.args, item_.t_end - item_.t_begin)) {
    SplitRoom& room = attention.s.splits;
    const int heads = attention.args.kv.n_kv_heads;
    const int64_t places = int64_t(item_.t_end - item_.t_begin) * split.spans;
    parts_ = room.parts + (split.first * heads + places * kv_head) * int64_t(kernels_.attn_part_floats(attention.args, 1));
    merged_ = &room.chains[size_t(item_.split * heads + kv_head)].merged;
  }
  void attend(int part_begin, int part_end, int worker) {
    const int begin = cut(part_begin), end = cut(part_end), first = spans_.first + begin, last = spans_.first + end;
    if (begin == end) return;
    const AttnArgs& args = attention_.args;
    const AttnRow row = attention_.row(item_);
    float* scratch = attention_.s.scratch[size_t(worker)];
    if (merged_->load(std::memory_order_acquire) != begin)
      return kernels_.attention_parts(args, row, which_, first, last, attention_.q, part(begin), scratch);
    const float* before = begin > 0 ? part(begin - 1) : nullptr;
    kernels_.attention_prefix(args, row, which_, first, last, attention_.q, before, part(end - 1), scratch);
    merged_->store(end, std::memory_order_release);
  }
  void finish() {
    const int merged = merged_->exchange(0, std::memory_order_relaxed);
    kernels_.attention_merge(attention_.args, which_, part(merged - 1), n_spans() - merged + 1, attention_.out);
  }

 private:
  int n_spans() const { return spans_.second - spans_.first; }
  int cut(int part) const { return n_spans() * part / item_.n_parts; }
  float* part(int span) const { return parts_ + size_t(span) * part_floats_; }

  const Attention& attention_;
  const Kernels& kernels_;
  const AttnItem& item_;
  const AttnQueries which_;
  const std::pair<int, int> spans_;
  const size_t part_floats_;
  float* parts_;
  std::atomic<int>* merged_;
};

void attend_split(const Attention& attention, const AttnWork& work, int heads) {
  const auto& items = work.items;
  // Of one item all parts of a head, then those of the next.
  run_forwards(attention.s.pool, int(items.size()) * heads, [&](int at, int end, int worker) {
    while (at < end) {
      const AttnItem& item = items[size_t(at / heads)];
      const int place = at - (at / heads - item.part) * heads, head = place / item.n_parts, part = place % item.n_parts;
      const int n = std::min(item.n_parts - part, end - at);
      if (item.split < 0) attention.attend(item, head, worker);
      else Chain(attention, work.splits[size_t(item.split)], head).attend(part, part + n, worker);
      at += n;
    }
  });
  // The same way round: a thread mostly finishes what it computed the end of.
  run_forwards(attention.s.pool, int(work.splits.size()) * heads, [&](int begin, int end, int) {
    for (int i = begin; i < end; ++i) Chain(attention, work.splits[size_t(i / heads)], i % heads).finish();
  });
}

// Few items often do not come out even among threads: with three KV heads of one sequence one of two threads works twice as long as the other.
// Those that are left over are then cut by tokens, a piece for each thread. (Were all of them cut, each would read all of the cache.)
class Remainder {
 public:
  Remainder(const std::vector<AttnItem>& items, int n, int threads) : whole_(n), threads_(threads) {
    constexpr int kEvenEnough = 4;  // items a thread
    const bool cuts = n < kEvenEnough * threads && items.back().t_end - items.back().t_begin > 1;
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

void attend_whole(const Attention& attention, const AttnWork& work, int heads) {
  Step& s = attention.s;
  const auto& items = work.items;
  const Remainder rest(items, int(items.size()) * heads, s.pool.size());
  auto body = [&](int begin, int end, int worker) {
    for (int i = begin; i < end; ++i) {
      const auto [at, cut] = rest.find(i);
      const AttnItem item = cut < 0 ? items[size_t(at / heads)] : rest.piece(items[size_t(at / heads)], cut);
      if (item.t_begin < item.t_end) attention.attend(item, at % heads, worker);
    }
  };
  const int n = rest.n();
  constexpr double kWorthSharing = 100'000;  // multiplications
  const double multiplications = work.pairs * attention.args.n_heads * attention.args.kv.head_dim * 2;
  if (multiplications < kWorthSharing) body(0, n, 0);
  else s.pool.run(n, s.grain(n), body);
}

}  // namespace

void execute(const AttentionNode& node, Step& s) {
  const AttentionSpec& a = node.spec;
  const KvLayer layer = s.kv.layer(a.layer);
  write_kv(node, layer, s);
  s.times.lap(Work::kv_write);
  const Buffer &q = s.buffer(a.q), &dst = s.buffer(a.dst);
  const AttnWork& work = s.batch.attention(node.taken_alone);
  if (work.items.empty()) return;  // nobody wants logits of this step
  const Attention attention{a, {layer, a.n_heads, a.window, a.scale, a.softcap}, s, {q.rows.data + a.q_col, q.rows.stride}, dst.rows};
  if (work.splits.empty()) attend_whole(attention, work, layer.n_kv_heads);
  else attend_split(attention, work, layer.n_kv_heads);
  s.acts.forget(a.dst);
  s.times.lap(Work::attention);
}

}  // namespace camshaft
