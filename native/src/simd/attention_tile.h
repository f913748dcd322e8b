// The state of attention's queries over V16, and what does not depend on how K and V are stored. Include after pairs256.h or pairs512.h.
#pragma once
#include "../kernels_decl.h"
#include "vec.h"

namespace camshaft::CAMSHAFT_ISA {
namespace {

constexpr int kMicro = 6;       // queries of a micro-tile
constexpr int kTile = 2 * kMicro;
// A last tile may grow to the lanes of a V16, so that K and V of up to 16 grouped heads are read once in decode.
constexpr int kMaxTile = 16;
constexpr int kSubBlocks = kSpan / kSubBlock;
// Rows of queries and of scores lie apart by a little more than lines of the cache, since the inner loops read one element of each row at a
// time, and elements of different lines at one place in them come one after the other.
constexpr int kSkew = 8;
constexpr int kScoreStride = kSpan + kSkew;
constexpr float kUnseen = -3.402823466e38f;  // the maximum of nothing; finite, so that kUnseen - kUnseen is 0

struct Range {
  int begin, end;
  bool empty() const { return begin >= end; }
  bool operator==(const Range&) const = default;
};
inline Range clip(Range r, int base, int size) {
  r.begin = r.begin < base ? 0 : r.begin - base;
  r.end = r.end > base + size ? size : r.end - base;
  return r;
}
inline Range join(Range a, Range b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  return {a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end};
}

// Which queries a call is about: query i is head i % per_kv of the group, of token t_begin + i / per_kv.
struct Queries {
  const AttnArgs& a;
  const AttnRow& row;
  const AttnQueries& which;
  Rows q, out;

  int n() const { return (which.t_end - which.t_begin) * per_kv(); }
  int per_kv() const { return a.n_heads / a.kv.n_kv_heads; }
  float* at(Rows rows, int i) const {
    const int head = which.kv_head * per_kv() + i % per_kv();
    return rows[which.t_begin + i / per_kv()] + static_cast<ptrdiff_t>(head) * a.kv.head_dim;
  }
  Range sees(int i) const {
    const int pos = row.start + (which.t_begin + i / per_kv() - row.first);
    return {a.window > 0 && pos - a.window + 1 > 0 ? pos - a.window + 1 : 0, pos + 1};
  }
};

inline Range blocks_of(Range seen) { return {seen.begin / kSubBlock, ceil_div(seen.end, kSubBlock)}; }

// Queries [first, first + n) of a tile.
struct Micro {
  int first, n;
  Range sees;  // positions that any of them sees
};

// Up to 16 queries with their state. Arrays in scratch: q [kMaxTile][q_stride], s [kMaxTile][kScoreStride], o [kMaxTile][dim_lanes] (in the
// element order of the KV type's loads); int8 has integers in place of q, and in place of s when its scores have become weights.
struct Tile {
  int n, n_micros, dim, dim_lanes, q_stride;
  bool fresh;  // no span is in max, sum and o yet, whatever they hold
  float *q, *s, *o;
  Range sees;
  Range query_sees[kMaxTile];
  Micro micro[kMaxTile];
  alignas(64) float m[kMaxTile], l[kMaxTile];                  // of this span
  alignas(64) float max[kMaxTile], sum[kMaxTile];              // running
  alignas(64) float q_step[kMaxTile], w_step[kMaxTile];        // int8: of q and of weights
  alignas(64) float keep[kMaxTile], take[kMaxTile];            // factors of this merge
};

// The sub-blocks of one span: those that the tile sees, the first of them in place of others. While the scores read K, K of the `next` span
// is fetched, and while V is read, V of that.
template <class T> struct SpanView {
  const T* k[kSubBlocks];
  const T* v[kSubBlocks];
  const SpanView* next;
};

// The sub-blocks of one head of a sequence, one after the other.
class SubBlocks {
 public:
  SubBlocks(const KvLayer& kv, const int32_t* table, int kv_head, int pos)
      : kv_(kv), bytes_(kv.sub_block_bytes()), head_(static_cast<size_t>(kv_head) * kv.head_bytes()), next_id_(table + pos / kv.block_size) {
    const int before = pos % kv.block_size / kSubBlock;
    enter_block();
    at_ += static_cast<size_t>(before) * bytes_, left_ -= before;
  }
  // Where the next one begins, from kv.k and kv.v on.
  size_t next() {
    if (left_ == 0) enter_block();
    left_--, at_ += bytes_;
    return at_ - bytes_;
  }

 private:
  void enter_block() { at_ = static_cast<size_t>(*next_id_++) * kv_.block_bytes + head_, left_ = kv_.block_size / kSubBlock; }

  const KvLayer& kv_;
  const size_t bytes_, head_;
  const int32_t* next_id_;
  size_t at_;
  int left_;
};

template <class T> SpanView<T> view_span(const KvLayer& kv, SubBlocks& sub_blocks, Range seen) {
  SpanView<T> view;
  const Range blocks = blocks_of(seen);
  const auto set = [&](int i, size_t at) {
    view.k[i] = reinterpret_cast<const T*>(kv.k + at);
    view.v[i] = reinterpret_cast<const T*>(kv.v + at);
  };
  const size_t first = blocks.empty() ? 0 : sub_blocks.next();
  for (int i = 0; i < kSubBlocks; i++) set(i, i > blocks.begin && i < blocks.end ? sub_blocks.next() : first);
  view.next = nullptr;
  return view;
}

// As many vectors at once as there are registers for, so that one query alone does not wait for its own sums.
template <int N> constexpr int kWide = kAccumulators / N >= 4 ? 4 : kAccumulators / N >= 2 ? 2 : 1;

// Fetches ahead of a loop: part `part` of `parts` of a span's K or V, in runs that take turns. Memory gives more to two streams than to one,
// and the hardware's own prefetching ends at each page. kBytes is what the loop reads at each step for N queries; many of them have enough
// to do meanwhile, and no instruction to spare for a second run.
template <int kBytes, int N> class Fetch {
 public:
  template <class T> Fetch(const T* const* sub_blocks, size_t sub_block_bytes, int part, int parts) {
    const unsigned bytes = static_cast<unsigned>(sub_block_bytes), half = kSubBlocks / kRuns * bytes;
    unsigned from = static_cast<unsigned>(part) * (half / static_cast<unsigned>(parts));
    for (int i = 0; i < kRuns; i++, from += half) {
      const unsigned block = (from >= bytes) + (from >= 2 * bytes) + (from >= 3 * bytes);
      runs_[i] = reinterpret_cast<const char*>(sub_blocks[block]) + (from - block * bytes);
    }
  }
  void step() {
    for (const char* run : runs_)
      for (int at = 0; at < kRunBytes; at += kAlign) __builtin_prefetch(run + done_ + at);
    done_ += kRunBytes;
  }

 private:
  static_assert(kSubBlocks == 4);
  static constexpr int kRuns = N > 4 ? 1 : 2, kRunBytes = kBytes / kRuns;
  const char* runs_[kRuns];
  ptrdiff_t done_ = 0;
};

// K or V of the first span, which no loop before it could fetch.
template <class T> void fetch_all(const T* const* sub_blocks, size_t sub_block_bytes) {
  Fetch<2 * kAlign, 2> ahead(sub_blocks, sub_block_bytes, 0, 1);
  for (size_t done = 0; done < kSubBlocks / 2 * sub_block_bytes; done += kAlign) ahead.step();
}

// What index i leads to is loaded again behind this: the sums of a micro-tile fill the registers, and a broadcast that the compiler kept
// for the next vector would push one of them out to memory and back at every step. (An index, since a pointer might lead to the sums.)
inline void load_again(ptrdiff_t& i) { asm("" : "+r"(i)); }

// A softmax in two steps, each over all queries of a micro-tile in turn, so that no query waits for the maximum or the sum of another.
// Both over some sub-blocks of one query's row of scores, of whose positions it sees `seen`.
template <class Change> inline void each_block(float* s, Range blocks, Change change) {
  for (float* at = s + blocks.begin * kSubBlock; at < s + blocks.end * kSubBlock; at += kSubBlock) change(at);
}

// Caps scores, takes away those that the query does not see, and gives the largest of the others.
inline float top_score(float* s, Range blocks, Range seen, float cap) {
  if (seen.empty()) {
    each_block(s, blocks, [](float* at) { store(at, zero()); });
    return kUnseen;
  }
  if (cap > 0) each_block(s, blocks, [&](float* at) { store(at, mul(set1(cap), tanh(div(load(at), set1(cap))))); });
  if (seen.begin > blocks.begin * kSubBlock || seen.end < blocks.end * kSubBlock)
    each_block(s, blocks, [&](float* at) {
      const int first = static_cast<int>(at - s);
      store(at, keep_lanes(load(at), seen.begin - first, seen.end - first, set1(-__builtin_inff())));
    });
  V16 top = set1(kUnseen);
  each_block(s, blocks, [&](float* at) { top = max(top, load(at)); });
  return hmax(top);
}

// Scores to probabilities, of which put(at, p) keeps what it needs in their place; their sum.
template <class Put> inline float soften(float* s, Range blocks, Range seen, float top, Put put) {
  if (seen.empty()) return 0.0f;
  V16 total = zero();
  each_block(s, blocks, [&](float* at) {
    const V16 p = exp_small(sub(load(at), set1(top)));
    put(at, p);
    total = add(total, p);
  });
  return hsum(total);
}

// One lane a query. A query that sees nothing of the span has m = kUnseen, l = 0: keep is 1, and what is taken is 0.
inline void merge_sums(Tile& tile) {
  if (tile.fresh) {
    for (int i = 0; i < tile.n * tile.dim_lanes; i += kLanes) store(tile.o + i, zero());
    store(tile.max, load(tile.m));
    store(tile.sum, load(tile.l));
    store(tile.keep, set1(1.0f));
    store(tile.take, set1(1.0f));
    return;
  }
  const V16 old = load(tile.max), m = load(tile.m), top = max(old, m);
  const V16 keep = exp_small(sub(old, top)), take = exp_small(sub(m, top));
  store(tile.max, top);
  store(tile.keep, keep);
  store(tile.take, take);
  store(tile.sum, fma(load(tile.sum), keep, mul(load(tile.l), take)));
}

// 16 lanes of o of query r, with those of this span. (Without a branch: one in a loop around it puts sums of the loop into memory.)
inline void merge_lanes(const Tile& tile, int r, float* o, V16 here) {
  store(o, fma(load(o), set1(tile.keep[r]), mul(here, set1(tile.take[r]))));
}

template <class F> inline void with_count(int n, F f) {
  switch (n) {
    case 1: return f.template operator()<1>();
    case 2: return f.template operator()<2>();
    case 3: return f.template operator()<3>();
    case 4: return f.template operator()<4>();
    case 5: return f.template operator()<5>();
    default: return f.template operator()<6>();
  }
}

}  // namespace
}  // namespace camshaft::CAMSHAFT_ISA
