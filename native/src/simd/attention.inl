// attention over V16.
//
// A "query" here is one head of one token; those that share a kv head (tokens x grouped heads) share its loads. They are worked through
// in tiles of up to 16, a tile in micro-tiles of up to 6. For each span of 64 tokens that a tile sees:
//   1. scores:  [micro-tile queries] x [16 tokens a sub-block], the sum over d in registers      lane = token
//   2. softmax: per query p, m, l; then the running (M, L) of all queries of the tile at once     lane = token, then lane = query
//   3. values:  [micro-tile queries] x [16 d], the sum over j in registers, merged into O         lane = d
// What a query sees is exact where it matters: invisible scores become -inf before the maximum, invisible p are 0, and V is not read
// past the last position that a query of the micro-tile sees. A term of 0 * v can only change the sign of a zero, which the last
// operation of the contract (fma(O, 1 / L, 0)) takes away; so a query's bits do not depend on its neighbours in the tile.
#include "../kernels_decl.h"
#include "vec.h"

namespace camshaft::CAMSHAFT_ISA {
namespace {

constexpr int kMicro = 6;       // queries of a micro-tile
constexpr int kTile = 2 * kMicro;
// A last tile may grow to the lanes of a V16, so that K and V of up to 16 grouped heads are read once in decode.
constexpr int kMaxTile = 16;
constexpr int kSubBlocks = kSpan / kSubBlock;
constexpr float kUnseen = -3.402823466e38f;  // the maximum of nothing; finite, so that kUnseen - kUnseen is 0

struct KvF32 {
  using T = float;
  static V16 load(const float* p) { return CAMSHAFT_ISA::load(p); }
  static V16 load_n(const float* p, int n) { return CAMSHAFT_ISA::load_n(p, n); }
  static V16 natural(V16 v) { return v; }
};
struct KvBf16 {
  using T = uint16_t;
  static V16 load(const uint16_t* p) { return load_split(p); }
  static V16 load_n(const uint16_t* p, int n) {
    uint16_t words[kLanes] = {};
    for (int i = 0; i < n; i++) words[i] = p[i];
    return load_split(words);
  }
  static V16 natural(V16 v) { return CAMSHAFT_ISA::natural(v); }
};

template <class T> constexpr int kLineVectors = kAlign / (kLanes * sizeof(T));  // vectors in a cache line

struct Range {
  int begin, end;
  bool empty() const { return begin >= end; }
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

// Queries [first, first + n) of a tile. q: [head_dim][n], so that one step of d reads neighbours.
struct Micro {
  int first, n;
  float* q;
  Range sees;  // positions that any of them sees
};

// Up to 16 queries with their state. Arrays in scratch: s [kMaxTile][kSpan], o [kMaxTile][dim_lanes] (in the element order of KvX::load).
struct Tile {
  int n, n_micros, dim, dim_lanes;
  float *s, *o;
  Range sees;
  Range query_sees[kMaxTile];
  Micro micro[kMaxTile];
  alignas(64) float m[kMaxTile], l[kMaxTile];                  // of this span
  alignas(64) float max[kMaxTile], sum[kMaxTile];              // running
  alignas(64) float keep[kMaxTile], take[kMaxTile];            // factors of this merge
};

// The sub-blocks of one span: K [head_dim][16], V [16][head_dim]. Only those that the tile sees have pointers. `ahead` is K of the next
// span's sub-blocks, or of this one's where that has none. While the scores read K, V is fetched, and while V is read, K ahead: the blocks
// are scattered over memory, and the hardware's own prefetching ends at each page.
template <class T> struct SpanView {
  const T* k[kSubBlocks];
  const T* v[kSubBlocks];
  const T* ahead[kSubBlocks];
};

template <class T> SpanView<T> view_span(const KvLayer& kv, const int32_t* table, int kv_head, int base, Range seen) {
  SpanView<T> view{};
  const ptrdiff_t head = static_cast<ptrdiff_t>(kv_head) * kv.block_size * kv.head_dim;
  for (int b = seen.begin / kSubBlock; b * kSubBlock < seen.end; b++) {
    const int pos = base + b * kSubBlock;
    const size_t block = static_cast<size_t>(table[pos / kv.block_size]) * kv.block_bytes;
    const ptrdiff_t at = head + static_cast<ptrdiff_t>(pos % kv.block_size) * kv.head_dim;
    view.k[b] = reinterpret_cast<const T*>(kv.k + block) + at;
    view.v[b] = reinterpret_cast<const T*>(kv.v + block) + at;
    view.ahead[b] = view.k[b];
  }
  return view;
}

// s[r][b * 16 + lane] = (q_r . k) * scale for N queries and B sub-blocks.
template <class Kv, int N, int B, class T = typename Kv::T>
void score(const float* q, const T* const* k, const T* const* v, int dim, float scale, float* s) {
  V16 sum[N][B];
  for (int r = 0; r < N; r++)
    for (int b = 0; b < B; b++) sum[r][b] = zero();
  for (int d = 0; d < dim; d++, q += N) {
    V16 kd[B];
    for (int b = 0; b < B; b++) kd[b] = Kv::load(k[b] + d * kSubBlock), __builtin_prefetch(v[b] + d * kSubBlock);
    for (int r = 0; r < N; r++) {
      const V16 qd = set1(q[r]);
      for (int b = 0; b < B; b++) sum[r][b] = fma(qd, kd[b], sum[r][b]);
    }
  }
  for (int r = 0; r < N; r++)
    for (int b = 0; b < B; b++) store(s + r * kSpan + b * kSubBlock, mul(Kv::natural(sum[r][b]), set1(scale)));
}

// As many sub-blocks at once as there are registers for, so that one query alone does not wait for its own sums.
template <int N> constexpr int kWide = kAccumulators / N >= 4 ? 4 : kAccumulators / N >= 2 ? 2 : 1;

template <class Kv, int N, class T = typename Kv::T>
void score_span(const Micro& micro, const SpanView<T>& span, Range seen, int dim, float scale, float* s) {
  const int end = ceil_div(seen.end, kSubBlock);
  int b = seen.begin / kSubBlock;
  for (; b + kWide<N> <= end; b += kWide<N>) score<Kv, N, kWide<N>>(micro.q, span.k + b, span.v + b, dim, scale, s + b * kSubBlock);
  for (; b < end; b++) score<Kv, N, 1>(micro.q, span.k + b, span.v + b, dim, scale, s + b * kSubBlock);
}

// Scores to probabilities in place, over some sub-blocks of one query's row, of whose positions it sees `seen`. Sets m and l.
inline void soften(float* s, Range blocks, Range seen, float cap, float& m, float& l) {
  const auto each = [&](auto change) {
    for (float* at = s + blocks.begin * kSubBlock; at < s + blocks.end * kSubBlock; at += kSubBlock) change(at);
  };
  m = kUnseen, l = 0.0f;
  if (seen.empty()) return each([](float* at) { store(at, zero()); });
  if (cap > 0) each([&](float* at) { store(at, mul(set1(cap), tanh(div(load(at), set1(cap))))); });
  if (seen.begin > blocks.begin * kSubBlock || seen.end < blocks.end * kSubBlock)
    each([&](float* at) {
      const int first = static_cast<int>(at - s);
      store(at, keep_lanes(load(at), seen.begin - first, seen.end - first, set1(-__builtin_inff())));
    });
  V16 top = set1(kUnseen), total = zero();
  each([&](float* at) { top = max(top, load(at)); });
  m = hmax(top);
  each([&](float* at) {
    const V16 p = exp_small(sub(load(at), set1(m)));
    store(at, p);
    total = add(total, p);
  });
  l = hsum(total);
}

// One lane a query. A query that sees nothing of the span has m = kUnseen, l = 0: keep is 1, and what is taken is 0.
inline void merge_sums(Tile& tile) {
  const V16 old = load(tile.max), m = load(tile.m), top = max(old, m);
  const V16 keep = exp_small(sub(old, top)), take = exp_small(sub(m, top));
  store(tile.max, top);
  store(tile.keep, keep);
  store(tile.take, take);
  store(tile.sum, fma(load(tile.sum), keep, mul(load(tile.l), take)));
}

// O[r][c * 16 + lane] merged with the sum of p_rj * v_j over `seen`, for N queries and C vectors of d from d0 on, or the tail's one.
template <class Kv, int N, int C, bool kTail, class T = typename Kv::T>
void mix(const Tile& tile, int first, const SpanView<T>& span, Range seen, int d0) {
  const int dim = tile.dim, lanes = dim - d0;
  const float* p = tile.s + first * kSpan;
  V16 sum[N][C];
  for (int r = 0; r < N; r++)
    for (int c = 0; c < C; c++) sum[r][c] = zero();
  for (int b = seen.begin / kSubBlock; b * kSubBlock < seen.end; b++) {
    const Range in = clip(seen, b * kSubBlock, kSubBlock);
    const T *v = span.v[b] + d0 + in.begin * dim, *ahead = span.ahead[b] + d0 + in.begin * dim;
    for (int j = b * kSubBlock + in.begin; j < b * kSubBlock + in.end; j++, v += dim, ahead += dim) {
      for (int c = 0; c < C; c += kLineVectors<T>) __builtin_prefetch(ahead + c * kLanes);
      V16 vd[C];
      for (int c = 0; c < C; c++) vd[c] = kTail ? Kv::load_n(v, lanes) : Kv::load(v + c * kLanes);
      for (int r = 0; r < N; r++) {
        const V16 pj = set1(p[r * kSpan + j]);
        for (int c = 0; c < C; c++) sum[r][c] = fma(pj, vd[c], sum[r][c]);
      }
    }
  }
  for (int r = 0; r < N; r++)
    for (int c = 0; c < C; c++) {
      float* o = tile.o + (first + r) * tile.dim_lanes + d0 + c * kLanes;
      store(o, fma(load(o), set1(tile.keep[first + r]), mul(sum[r][c], set1(tile.take[first + r]))));
    }
}

template <class Kv, int N> void mix_span(const Tile& tile, int first, const SpanView<typename Kv::T>& span, Range seen) {
  constexpr int step = kWide<N> * kLanes;
  int d = 0;
  for (; d + step <= tile.dim; d += step) mix<Kv, N, kWide<N>, false>(tile, first, span, seen, d);
  for (; d + kLanes <= tile.dim; d += kLanes) mix<Kv, N, 1, false>(tile, first, span, seen, d);
  if (d < tile.dim) mix<Kv, N, 1, true>(tile, first, span, seen, d);
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

template <class Kv> void attend_span(const AttnArgs& a, Tile& tile, const SpanView<typename Kv::T>& span, int base) {
  for (int i = 0; i < tile.n_micros; i++) {
    const Micro& micro = tile.micro[i];
    const Range seen = clip(micro.sees, base, kSpan);
    if (!seen.empty())
      with_count(micro.n, [&]<int N>() { score_span<Kv, N>(micro, span, seen, tile.dim, a.scale, tile.s + micro.first * kSpan); });
    for (int r = micro.first; r < micro.first + micro.n; r++)
      soften(tile.s + r * kSpan, {seen.begin / kSubBlock, ceil_div(seen.end, kSubBlock)}, clip(tile.query_sees[r], base, kSpan), a.softcap,
             tile.m[r], tile.l[r]);
  }
  merge_sums(tile);
  for (int i = 0; i < tile.n_micros; i++) {
    const Micro& micro = tile.micro[i];
    const Range seen = clip(micro.sees, base, kSpan);
    if (!seen.empty()) with_count(micro.n, [&]<int N>() { mix_span<Kv, N>(tile, micro.first, span, seen); });
  }
}

// Which queries a call is about: query i is head i % per_kv of the group, of token t_begin + i / per_kv.
struct Queries {
  const AttnArgs& a;
  const AttnRow& row;
  int kv_head, t_begin;
  Rows q, out;

  int per_kv() const { return a.n_heads / a.kv.n_kv_heads; }
  float* at(Rows rows, int i) const {
    const int head = kv_head * per_kv() + i % per_kv();
    return rows[t_begin + i / per_kv()] + static_cast<ptrdiff_t>(head) * a.kv.head_dim;
  }
  Range sees(int i) const {
    const int pos = row.start + (t_begin + i / per_kv() - row.first);
    return {a.window > 0 && pos - a.window + 1 > 0 ? pos - a.window + 1 : 0, pos + 1};
  }
};

// Cuts n queries from `begin` on into even micro-tiles, copies q and clears the state.
inline void open_tile(Tile& tile, const Queries& queries, int begin, int n, float* q) {
  tile.n = n, tile.n_micros = ceil_div(n, kMicro), tile.sees = {0, 0};
  for (int i = 0; i < kMaxTile; i++) tile.max[i] = tile.m[i] = kUnseen, tile.sum[i] = tile.l[i] = 0.0f;
  for (int i = 0; i < n * tile.dim_lanes; i++) tile.o[i] = 0.0f;
  for (int i = 0; i < tile.n_micros; i++) {
    const int first = n * i / tile.n_micros, count = n * (i + 1) / tile.n_micros - first;
    Micro& micro = tile.micro[i] = {first, count, q, {0, 0}};
    for (int r = 0; r < count; r++) {
      const float* from = queries.at(queries.q, begin + first + r);
      for (int d = 0; d < tile.dim; d++) q[d * count + r] = from[d];
      tile.query_sees[first + r] = queries.sees(begin + first + r);
      micro.sees = join(micro.sees, tile.query_sees[first + r]);
    }
    tile.sees = join(tile.sees, micro.sees);
    q += count * tile.dim;
  }
}

template <class Kv> void close_tile(const Tile& tile, const Queries& queries, int begin) {
  alignas(64) float inv[kMaxTile];
  store(inv, div(set1(1.0f), load(tile.sum)));
  for (int r = 0; r < tile.n; r++) {
    float* out = queries.at(queries.out, begin + r);
    for_lanes(tile.dim, [&](int d, int lanes) {
      const V16 o = fma(load(tile.o + r * tile.dim_lanes + d), set1(inv[r]), zero());
      store_up_to(out + d, Kv::natural(o), lanes);
    });
  }
}

template <class Kv> void attend(const Queries& queries, int n, float* scratch) {
  const KvLayer& kv = queries.a.kv;
  Tile tile;
  tile.dim = kv.head_dim, tile.dim_lanes = ceil_div(kv.head_dim, kLanes) * kLanes;
  tile.s = scratch, tile.o = tile.s + kMaxTile * kSpan;
  for (int begin = 0; begin < n;) {
    const int count = n - begin <= kMaxTile ? n - begin : kTile;
    open_tile(tile, queries, begin, count, tile.o + kMaxTile * tile.dim_lanes);
    const auto view = [&](int at) {
      return view_span<typename Kv::T>(kv, queries.row.table, queries.kv_head, at, clip(tile.sees, at, kSpan));
    };
    int base = tile.sees.begin / kSpan * kSpan;
    for (auto span = view(base); base < tile.sees.end; base += kSpan) {
      const auto next = view(base + kSpan);
      for (int b = 0; b < kSubBlocks; b++)
        if (next.k[b]) span.ahead[b] = next.k[b];
      attend_span<Kv>(queries.a, tile, span, base);
      span = next;
    }
    close_tile<Kv>(tile, queries, begin);
    begin += count;
  }
}

}  // namespace

size_t attn_scratch_floats(const AttnArgs& a) {
  const size_t lanes = static_cast<size_t>(ceil_div(a.kv.head_dim, kLanes) * kLanes);
  return kMaxTile * (kSpan + lanes + static_cast<size_t>(a.kv.head_dim)) + kAlign / sizeof(float);
}

void attention(const AttnArgs& a, const AttnRow& row, int kv_head, int t_begin, int t_end, Rows q, Rows out, float* scratch) {
  const Queries queries{a, row, kv_head, t_begin, q, out};
  float* aligned = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch) + kAlign - 1) / kAlign * kAlign);
  const int n = (t_end - t_begin) * queries.per_kv();
  if (a.kv.type == KvType::f32)
    attend<KvF32>(queries, n, aligned);
  else
    attend<KvBf16>(queries, n, aligned);
}

}  // namespace camshaft::CAMSHAFT_ISA
