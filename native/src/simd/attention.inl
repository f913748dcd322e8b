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

// Cuts n queries from `begin` on into even micro-tiles and clears the state.
template <class Kv> void open_tile(Tile& tile, const Queries& queries, int begin, int n) {
  tile.n = n, tile.n_micros = ceil_div(n, kMicro), tile.sees = {0, 0};
  for (int i = 0; i < kMaxTile; i++) tile.max[i] = tile.m[i] = kUnseen, tile.sum[i] = tile.l[i] = 0.0f;
  for (int i = 0; i < n * tile.dim_lanes; i++) tile.o[i] = 0.0f;
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
    for (int r = micro.first; r < micro.first + micro.n; r++)
      soften(tile.s + r * kScoreStride, blocks_of(seen), clip(tile.query_sees[r], base, kSpan), a.softcap, tile.m[r], tile.l[r]);
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

template <class Kv> void attend(const Queries& queries, int n, float* scratch) {
  const KvLayer& kv = queries.a.kv;
  Tile tile;
  tile.dim = kv.head_dim, tile.dim_lanes = ceil_div(kv.head_dim, kLanes) * kLanes;
  tile.q_stride = tile.dim_lanes + kSkew;
  tile.s = scratch, tile.o = tile.s + kMaxTile * kScoreStride, tile.q = tile.o + kMaxTile * tile.dim_lanes;
  for (int begin = 0; begin < n;) {
    const int count = n - begin <= kMaxTile ? n - begin : kTile;
    open_tile<Kv>(tile, queries, begin, count);
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
  return kMaxTile * (kScoreStride + lanes + (lanes + kSkew)) + kAlign / sizeof(float);
}

void attention(const AttnArgs& a, const AttnRow& row, int kv_head, int t_begin, int t_end, Rows q, Rows out, float* scratch) {
  const Queries queries{a, row, kv_head, t_begin, q, out};
  float* aligned = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch) + kAlign - 1) / kAlign * kAlign);
  const int n = (t_end - t_begin) * queries.per_kv();
  if (a.kv.type == KvType::f32)
    attend<FloatKv<F32>>(queries, n, aligned);
  else if (a.kv.type == KvType::bf16)
    attend<FloatKv<Bf16>>(queries, n, aligned);
  else
    attend<Int8Kv>(queries, n, aligned);
}

}  // namespace camshaft::CAMSHAFT_ISA
