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

// The arrays of a tile, in scratch.
inline void place(Tile& tile, int dim, float* scratch) {
  tile.dim = dim, tile.dim_lanes = ceil_div(dim, kLanes) * kLanes, tile.q_stride = tile.dim_lanes + kSkew;
  tile.s = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch) + kAlign - 1) / kAlign * kAlign);
  tile.o = tile.s + kMaxTile * kScoreStride, tile.q = tile.o + kMaxTile * tile.dim_lanes;
}

// Nothing seen yet.
inline void clear(Tile& tile) {
  for (int i = 0; i < kMaxTile; i++) tile.max[i] = tile.m[i] = kUnseen, tile.sum[i] = tile.l[i] = 0.0f;
  for (int i = 0; i < tile.n * tile.dim_lanes; i++) tile.o[i] = 0.0f;
}

// Takes n queries from `begin` on, cut into even micro-tiles.
template <class Kv> void open_tile(Tile& tile, const Queries& queries, int begin, int n) {
  tile.n = n, tile.n_micros = ceil_div(n, kMicro), tile.sees = {0, 0};
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
  for (int i = 0; i < tile.n_micros; i++) {
    const Micro& micro = tile.micro[i];
    const Range seen = clip(micro.sees, base, kSpan);
    if (!seen.empty()) Kv::score(a, tile, micro, span, seen);
    const auto each_query = [&](auto change) {
      for (int r = micro.first; r < micro.first + micro.n; r++) change(r, tile.s + r * kScoreStride, clip(tile.query_sees[r], base, kSpan));
    };
    each_query([&](int r, float* s, Range visible) { tile.m[r] = top_score(s, blocks_of(seen), visible, a.softcap); });
    each_query([&](int r, float* s, Range visible) { tile.l[r] = soften(s, blocks_of(seen), visible, tile.m[r]); });
  }
  merge_sums(tile);
  Kv::weigh(tile, span, base);
  for (int i = 0; i < tile.n_micros; i++) {
    const Micro& micro = tile.micro[i];
    const Range seen = clip(micro.sees, base, kSpan);
    if (!seen.empty()) Kv::mix(tile, micro, span, seen);
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
  const auto view = [&](int i) {
    return view_span<typename Kv::T>(queries.a.kv, queries.row.table, queries.which.kv_head, i * kSpan, clip(tile.sees, i * kSpan, kSpan));
  };
  auto span = view(spans.begin);
  if (tile.n_micros == 1) fetch_all(span.k, queries.a.kv.sub_block_bytes());
  for (int i = spans.begin; i < spans.end; i++) {
    const auto next = i + 1 < spans.end ? view(i + 1) : SpanView<typename Kv::T>{};
    span.ahead = i + 1 < spans.end ? next.k : span.k;
    enter(i);
    attend_span<Kv>(queries.a, tile, span, i * kSpan);
    leave(i);
    span = next;
  }
}

template <class Kv> void attend(const Queries& queries, float* scratch) {
  for_tiles<Kv>(queries, scratch, [&](Tile& tile, int begin) {
    clear(tile);
    attend_spans<Kv>(queries, tile, {tile.sees.begin / kSpan, ceil_div(tile.sees.end, kSpan)}, [](int) {}, [](int) {});
    close_tile<Kv>(tile, queries, begin);
  });
}

// One span alone: m and l of all n queries, then o [n][dim_lanes].
struct Part {
  float *m, *l, *o;
  static size_t floats(const AttnArgs& a, int n) {
    return round_up(static_cast<size_t>(n) * static_cast<size_t>(ceil_div(a.kv.head_dim, kLanes) * kLanes + 2), kLanes);
  }
  Part(const Queries& queries, const float* parts, int i) {
    const int n = queries.n();
    float* at = const_cast<float*>(parts) + static_cast<size_t>(i) * floats(queries.a, n);
    o = at, m = at + n * (ceil_div(queries.a.kv.head_dim, kLanes) * kLanes), l = m + n;
  }
};

template <class Kv> void attend_parts(const Queries& queries, Range spans, float* parts, float* scratch) {
  for_tiles<Kv>(queries, scratch, [&](Tile& tile, int begin) {
    const auto enter = [&](int i) {
      tile.o = Part(queries, parts, i - spans.begin).o + begin * tile.dim_lanes;
      clear(tile);
    };
    const auto leave = [&](int i) {
      const Part part(queries, parts, i - spans.begin);
      store_up_to(part.m + begin, load(tile.max), tile.n);
      store_up_to(part.l + begin, load(tile.sum), tile.n);
    };
    attend_spans<Kv>(queries, tile, spans, enter, leave);
  });
}

template <class Kv> void merge_parts(const Queries& queries, const float* parts, int n_parts, float* scratch) {
  Tile tile;
  place(tile, queries.a.kv.head_dim, scratch);
  for (int begin = 0, n = queries.n(); begin < n; begin += tile.n) {
    tile.n = n - begin < kMaxTile ? n - begin : kMaxTile;
    clear(tile);
    for (int i = 0; i < n_parts; i++) {
      const Part part(queries, parts, i);
      store(tile.m, load_up_to(part.m + begin, tile.n));
      store(tile.l, load_up_to(part.l + begin, tile.n));
      merge_sums(tile);
      const float* from = part.o + begin * tile.dim_lanes;
      for (int r = 0; r < tile.n; r++) {
        const V16 keep = set1(tile.keep[r]), take = set1(tile.take[r]);
        for (int d = r * tile.dim_lanes; d < (r + 1) * tile.dim_lanes; d += kLanes)
          store(tile.o + d, fma(load(tile.o + d), keep, mul(load(from + d), take)));
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

void attention_merge(const AttnArgs& a, const AttnQueries& which, const float* parts, int n_parts, Rows out, float* scratch) {
  with_kv(a.kv.type, [&]<class Kv>() { merge_parts<Kv>({a, {}, which, {}, out}, parts, n_parts, scratch); });
}

}  // namespace camshaft::CAMSHAFT_ISA
