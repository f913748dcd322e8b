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
#include "attention_float.h"
#include "attention_int8.h"

namespace camshaft::CAMSHAFT_ISA {
namespace {

inline void set_dim(Tile& tile, int dim) { tile.dim = dim, tile.dim_lanes = ceil_div(dim, kLanes) * kLanes; }

// The arrays of a tile, in scratch.
inline void place(Tile& tile, int dim, float* scratch) {
  set_dim(tile, dim);
  tile.q_stride = tile.dim_lanes + kSkew;
  tile.s = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch) + kAlign - 1) / kAlign * kAlign);
  tile.o = tile.s + kMaxTile * kScoreStride, tile.q = tile.o + kMaxTile * tile.dim_lanes;
}

// Takes n queries from `begin` on, cut into even micro-tiles.
template <class Kv> void open_tile(Tile& tile, const Queries& queries, int begin, int n) {
  tile.n = n, tile.n_micros = ceil_div(n, kMicro), tile.sees = {0, 0}, tile.fresh = true;
  for (int i = n; i < kMaxTile; i++) tile.m[i] = kUnseen, tile.l[i] = 0.0f;
  for (int i = 0; i < tile.n_micros; i++) {
    const int first = n * i / tile.n_micros, count = n * (i + 1) / tile.n_micros - first;
    Micro& micro = tile.micro[i] = {first, count, {0, 0}};
    for (int r = first; r < first + count; r++) {
      tile.query_sees[r] = queries.sees(begin + r);
      micro.sees = join(micro.sees, tile.query_sees[r]);
      Kv::open(tile, r, queries.at(queries.q, begin + r));
    }
    tile.sees = join(tile.sees, micro.sees);
  }
}

template <class Kv> void attend_span(const AttnArgs& a, Tile& tile, const SpanView<typename Kv::T>& span, int base) {
  typename Kv::Weights weights(span, tile.dim);
  for (int i = 0; i < tile.n_micros; i++) {
    const Micro& micro = tile.micro[i];
    const Range seen = clip(micro.sees, base, kSpan);
    if (!seen.empty()) Kv::score(a, tile, micro, span, seen);
    const auto each_query = [&](auto change) {
      for (int r = micro.first; r < micro.first + micro.n; r++) change(r, tile.s + r * kScoreStride, clip(tile.query_sees[r], base, kSpan));
    };
    each_query([&](int r, float* s, Range visible) { tile.m[r] = top_score(s, blocks_of(seen), visible, a.softcap); });
    each_query([&](int r, float* s, Range visible) { tile.l[r] = weights.soften(tile, r, s, blocks_of(seen), visible); });
  }
  merge_sums(tile);
  for (int i = 0; i < tile.n_micros; i++) {
    const Micro& micro = tile.micro[i];
    const Range seen = clip(micro.sees, base, kSpan);
    if (!seen.empty()) Kv::mix(tile, micro, span, seen);
  }
  tile.fresh = false;
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

// Calls each(tile, begin) for the tiles of all queries.
template <class Kv, class Each> void for_tiles(const Queries& queries, float* scratch, Each each) {
  Tile tile;
  for (int begin = 0, n = queries.n(); begin < n; begin += tile.n) {
    place(tile, queries.a.kv.head_dim, scratch);
    open_tile<Kv>(tile, queries, begin, n - begin <= kMaxTile ? n - begin : kTile);
    each(tile, begin);
  }
}

// Spans [begin, end) in order, enter(i) before each and leave(i) behind it.
template <class Kv, class Enter, class Leave>
void attend_spans(const Queries& queries, Tile& tile, Range spans, Enter enter, Leave leave) {
  const KvLayer& kv = queries.a.kv;
  const int first = tile.sees.begin > spans.begin * kSpan ? tile.sees.begin : spans.begin * kSpan;
  SubBlocks sub_blocks(kv, queries.row.table, queries.which.kv_head, first);
  const auto view = [&](int i) { return view_span<typename Kv::T>(kv, sub_blocks, clip(tile.sees, i * kSpan, kSpan)); };
  auto span = view(spans.begin);
  if (tile.n_micros == 1) fetch_all(span.k, kv.sub_block_bytes()), fetch_all(span.v, kv.sub_block_bytes());
  for (int i = spans.begin; i < spans.end; i++) {
    const auto next = i + 1 < spans.end ? view(i + 1) : SpanView<typename Kv::T>{};
    span.next = i + 1 < spans.end ? &next : &span;
    enter(i);
    attend_span<Kv>(queries.a, tile, span, i * kSpan);
    leave(i);
    span = next;
  }
}

template <class Kv> void attend(const Queries& queries, float* scratch) {
  for_tiles<Kv>(queries, scratch, [&](Tile& tile, int begin) {
    attend_spans<Kv>(queries, tile, {tile.sees.begin / kSpan, ceil_div(tile.sees.end, kSpan)}, [](int) {}, [](int) {});
    close_tile<Kv>(tile, queries, begin);
  });
}

// Spans merged: m and l of all n queries, then o [n][dim_lanes].
struct Part {
  float *m, *l, *o;
  static size_t floats(const AttnArgs& a, int n) {
    return round_up(static_cast<size_t>(n) * static_cast<size_t>(ceil_div(a.kv.head_dim, kLanes) * kLanes + 2), kLanes);
  }
  Part(const Queries& queries, float* parts, int i) {
    const int n = queries.n();
    float* at = parts + static_cast<size_t>(i) * floats(queries.a, n);
    o = at, m = at + n * (ceil_div(queries.a.kv.head_dim, kLanes) * kLanes), l = m + n;
  }
  // Queries [begin, begin + tile.n) of this part as the tile's state, o in place; and the rest of the state back.
  void enter(Tile& tile, int begin) const {
    tile.o = o + begin * tile.dim_lanes;
    store(tile.max, load_up_to(m + begin, tile.n));
    store(tile.sum, load_up_to(l + begin, tile.n));
  }
  void leave(const Tile& tile, int begin) const {
    store_up_to(m + begin, load(tile.max), tile.n);
    store_up_to(l + begin, load(tile.sum), tile.n);
  }
};

template <class Kv> void attend_parts(const Queries& queries, Range spans, float* parts, float* scratch) {
  for_tiles<Kv>(queries, scratch, [&](Tile& tile, int begin) {
    const auto enter = [&](int i) {
      tile.o = Part(queries, parts, i - spans.begin).o + begin * tile.dim_lanes;
      tile.fresh = true;
    };
    attend_spans<Kv>(queries, tile, spans, enter, [&](int i) { Part(queries, parts, i - spans.begin).leave(tile, begin); });
  });
}

template <class Kv> void attend_prefix(const Queries& queries, Range spans, const float* before, float* part, float* scratch) {
  if (before && before != part) __builtin_memcpy(part, before, Part::floats(queries.a, queries.n()) * sizeof(float));
  const Part all(queries, part, 0);
  for_tiles<Kv>(queries, scratch, [&](Tile& tile, int begin) {
    all.enter(tile, begin);
    tile.fresh = !before;
    attend_spans<Kv>(queries, tile, spans, [](int) {}, [](int) {});
    all.leave(tile, begin);
  });
}

// Of one merge, one lane a query.
struct Factors {
  alignas(64) float keep[kMaxTile], take[kMaxTile];
};

// C vectors of o of one query, from `o` on, with those of n parts, `apart` floats from each other.
template <int C> void merge_vectors(float* o, const float* parts, size_t apart, const Factors* factors, int n, int r) {
  V16 sum[C];
  for (int c = 0; c < C; c++) sum[c] = load(o + c * kLanes);
  for (int i = 0; i < n; i++, parts += apart) {
    const V16 keep = set1(factors[i].keep[r]), take = set1(factors[i].take[r]);
    for (int c = 0; c < C; c++) sum[c] = fma(sum[c], keep, mul(load(parts + c * kLanes), take));
  }
  for (int c = 0; c < C; c++) store(o + c * kLanes, sum[c]);
}

// Of several parts first all m and l, then all o, whose sums stay in registers meanwhile.
template <class Kv> void merge_parts(const Queries& queries, float* parts, int n_parts) {
  constexpr int kAtOnce = 16, kVectors = 4;
  Factors factors[kAtOnce];
  Tile tile;
  set_dim(tile, queries.a.kv.head_dim);
  const size_t apart = Part::floats(queries.a, queries.n());
  for (int begin = 0, n = queries.n(); begin < n; begin += tile.n) {
    tile.n = n - begin < kMaxTile ? n - begin : kMaxTile;
    Part(queries, parts, 0).enter(tile, begin);
    tile.fresh = false;
    for (int first = 1, count; first < n_parts; first += count) {
      count = n_parts - first < kAtOnce ? n_parts - first : kAtOnce;
      for (int i = 0; i < count; i++) {
        const Part part(queries, parts, first + i);
        store(tile.m, load_up_to(part.m + begin, tile.n));
        store(tile.l, load_up_to(part.l + begin, tile.n));
        merge_sums(tile);
        store(factors[i].keep, load(tile.keep));
        store(factors[i].take, load(tile.take));
      }
      const float* from = Part(queries, parts, first).o + begin * tile.dim_lanes;
      for (int r = 0; r < tile.n; r++) {
        int d = r * tile.dim_lanes;
        const int end = d + tile.dim_lanes;
        for (; d + kVectors * kLanes <= end; d += kVectors * kLanes) merge_vectors<kVectors>(tile.o + d, from + d, apart, factors, count, r);
        for (; d < end; d += kLanes) merge_vectors<1>(tile.o + d, from + d, apart, factors, count, r);
      }
    }
    close_tile<Kv>(tile, queries, begin);
  }
}

// Calls f with the type that reads the cache's elements.
template <class F> void with_kv(KvType type, F f) {
  if (type == KvType::f32) return f.template operator()<FloatKv<F32>>();
  if (type == KvType::bf16) return f.template operator()<FloatKv<Bf16>>();
  return f.template operator()<Int8Kv>();
}

}  // namespace

size_t attn_scratch_floats(const AttnArgs& a) {
  const size_t lanes = static_cast<size_t>(ceil_div(a.kv.head_dim, kLanes) * kLanes);
  return kMaxTile * (kScoreStride + lanes + (lanes + kSkew)) + kAlign / sizeof(float);
}

size_t attn_part_floats(const AttnArgs& a, int tokens) { return Part::floats(a, tokens * (a.n_heads / a.kv.n_kv_heads)); }

void attention(const AttnArgs& a, const AttnRow& row, const AttnQueries& which, Rows q, Rows out, float* scratch) {
  with_kv(a.kv.type, [&]<class Kv>() { attend<Kv>({a, row, which, q, out}, scratch); });
}

void attention_parts(const AttnArgs& a, const AttnRow& row, const AttnQueries& which, int span_begin, int span_end, Rows q, float* parts,
                     float* scratch) {
  with_kv(a.kv.type, [&]<class Kv>() { attend_parts<Kv>({a, row, which, q, {}}, {span_begin, span_end}, parts, scratch); });
}

void attention_prefix(const AttnArgs& a, const AttnRow& row, const AttnQueries& which, int span_begin, int span_end, Rows q,
                      const float* before, float* part, float* scratch) {
  with_kv(a.kv.type, [&]<class Kv>() { attend_prefix<Kv>({a, row, which, q, {}}, {span_begin, span_end}, before, part, scratch); });
}

void attention_merge(const AttnArgs& a, const AttnQueries& which, float* parts, int n_parts, Rows out) {
  with_kv(a.kv.type, [&]<class Kv>() { merge_parts<Kv>({a, {}, which, {}, out}, parts, n_parts); });
}

}  // namespace camshaft::CAMSHAFT_ISA
