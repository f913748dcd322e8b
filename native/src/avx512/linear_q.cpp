// Matrix products of packed integer weights with int8 activations, by vpdpbusd: 16 rows x 4 inputs an instruction.
//
// A tile's weights become eight registers of unsigned bytes, which up to eight tokens then meet, each with two chains of four products (inputs
// 0..15 and 16..31) to hide latency. Signed weights are offset to unsigned; the chains start from minus the offset times the sum of the
// activations, so that the result is exact.
#include "../simd/tiles512.h"
// The width comes first.
#include "../forms/layout.h"
#include "../simd/columns.inl"
#include "../simd/finish.inl"
#include "acts.h"
#include "kernels_decl.h"

namespace camshaft::avx512 {
namespace {

constexpr int kStreams = 4;           // far places that one token's pass reads weights from at once
constexpr size_t kAheadBytes = 1024;  // how far ahead of their use it asks for them

inline __m512i low_nibbles(__m512i x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }

// The weights as unsigned bytes, by quad of inputs.
template <class Tile> inline void load_nibbles(const Tile& t, __m512i (&w)[kQuads]) {
  for (int i = 0; i < 4; i++) {
    const __m512i both = _mm512_loadu_si512(t.u[i]);
    w[i] = low_nibbles(both);
    w[i + 4] = low_nibbles(_mm512_srli_epi16(both, 4));
  }
}
inline void load_unsigned(const TileQ4& t, __m512i (&w)[kQuads]) { load_nibbles(t, w); }
inline void load_unsigned(const TileQ4s& t, __m512i (&w)[kQuads]) { load_nibbles(t, w); }

template <int I> inline __m512i fifth_bit(__m512i bits) {
  const __m512i moved = I < 4 ? _mm512_slli_epi16(bits, I < 4 ? 4 - I : 0) : _mm512_srli_epi16(bits, I < 4 ? 0 : I - 4);
  return _mm512_and_si512(moved, _mm512_set1_epi8(16));
}
template <int I = 0> inline void add_fifth_bits(__m512i bits, __m512i (&w)[kQuads]) {
  w[I] = _mm512_or_si512(w[I], fifth_bit<I>(bits));
  if constexpr (I + 1 < kQuads) add_fifth_bits<I + 1>(bits, w);
}
inline void load_unsigned(const TileQ5& t, __m512i (&w)[kQuads]) {
  load_nibbles(t, w);
  add_fifth_bits(_mm512_loadu_si512(t.high), w);
}

inline void load_offset(const int8_t (*s)[kRowTile][4], __m512i (&w)[kQuads]) {
  for (int i = 0; i < kQuads; i++) w[i] = _mm512_xor_si512(_mm512_loadu_si512(s[i]), _mm512_set1_epi8(-128));
}
inline void load_unsigned(const TileQ8& t, __m512i (&w)[kQuads]) { load_offset(t.s, w); }
inline void load_unsigned(const TileQ8h& t, __m512i (&w)[kQuads]) { load_offset(t.s, w); }

// The offset of the unsigned weights is 1 << kOffset<Tile>; 0 means none.
template <class Tile> constexpr int kOffset = 0;
template <> constexpr int kOffset<TileQ4s> = 3;
template <> constexpr int kOffset<TileQ8> = 7;
template <> constexpr int kOffset<TileQ8h> = 7;

// The integer sum of token k over one half of the inputs.
template <class Tile, int M> inline __m512i half_sum(const __m512i (&w)[kQuads], const ActGroups<M>& a, int k, int half) {
  __m512i sum = kOffset<Tile> ? _mm512_slli_epi32(_mm512_set1_epi32(a.minus[half][k]), kOffset<Tile>) : _mm512_setzero_si512();
#pragma GCC unroll 4
  for (int i = 4 * half; i < 4 * half + 4; i++) {
    int32_t word;
    __builtin_memcpy(&word, a.q[k] + 4 * i, 4);
    sum = _mm512_dpbusd_epi32(sum, w[i], _mm512_set1_epi32(word));
  }
  return sum;
}

inline V16 add_scaled(__m512i sum, V16 d, float act_d, V16 acc) { return fma({_mm512_cvtepi32_ps(sum)}, mul(d, set1(act_d)), acc); }

// A tile in registers.
template <class Tile> struct Weights {
  __m512i w[kQuads];
  V16 d, m;
  explicit Weights(const Tile& t) : d(load_f16(t.d)) {
    load_unsigned(t, w);
    if constexpr (requires { t.m; }) m = load_f16(t.m);
  }
  // One group of token k.
  template <int M> void add(const ActGroups<M>& a, int k, V16& acc) const {
    acc = add_scaled(_mm512_add_epi32(half_sum<Tile>(w, a, k, 0), half_sum<Tile>(w, a, k, 1)), d, a.d[k], acc);
    if constexpr (requires(Tile t) { t.m; }) acc = fma(m, set1(a.sum[k]), acc);
  }
};
template <> struct Weights<TileQ8h> {
  __m512i w[kQuads];
  V16 d[2];
  explicit Weights(const TileQ8h& t) : d{load_f16(t.d[0]), load_f16(t.d[1])} { load_unsigned(t, w); }
  template <int M> void add(const ActGroups<M>& a, int k, V16& acc) const {
    for (int half = 0; half < 2; half++) acc = add_scaled(half_sum<TileQ8h>(w, a, k, half), d[half], a.d[k], acc);
  }
};

template <int M, class Tile> void pass(const LinearArgs& a, const ActLayout& at, int t, int r) {
  const Tile* tile = tile_row<Tile>(a.w, r);
  const auto* acts = reinterpret_cast<const ActGroups<M>*>(a.q.data + at.tile(t));
  V16 acc[M];
  for (V16& v : acc) v = zero();
  for (int g = 0; g < at.groups; g++) {
    const Weights<Tile> weights(tile[g]);
#pragma GCC unroll 8
    for (int k = 0; k < M; k++) weights.add(acts[g], k, acc[k]);
  }
  for (int k = 0; k < M; k++) finish(a, t + k, r, add_towers(tile, at.towers_of_token(a.q.data, t + k), acc[k]));
}

// One token over R rows of tiles, `apart` rows from one another: R streams keep more of memory's latency in flight than one.
template <int R, class Tile> void pass_one(const LinearArgs& a, const ActLayout& at, int r, int apart) {
  const int64_t stride = int64_t(apart) * at.groups;
  const Tile *row = tile_row<Tile>(a.w, r), *tile = row;
  const auto* acts = reinterpret_cast<const ActGroups<1>*>(a.q.data + at.tile(0));
  V16 acc[R];
  for (V16& v : acc) v = zero();
  for (int g = 0; g < at.groups; g++, tile++)
#pragma GCC unroll 4
    for (int i = 0; i < R; i++) {
      const char* bytes = reinterpret_cast<const char*>(tile + i * stride);
      for (size_t line = 0; line < sizeof(Tile); line += 64) _mm_prefetch(bytes + kAheadBytes + line, _MM_HINT_T0);
      Weights<Tile>(tile[i * stride]).add(acts[g], 0, acc[i]);
    }
  const TowerList towers = at.towers_of_token(a.q.data, 0);
  for (int i = 0; i < R; i++) finish(a, 0, r + i * apart, add_towers(row + i * stride, towers, acc[i]));
}

template <class Tile> void one_token(const LinearArgs& a, const ActLayout& at, int tile_begin, int tile_end) {
  const int apart = (tile_end - tile_begin) / kStreams;
  for (int r = tile_begin; r < tile_begin + apart; r++) pass_one<kStreams, Tile>(a, at, r, apart);
  for (int r = tile_begin + kStreams * apart; r < tile_end; r++) pass_one<1, Tile>(a, at, r, 0);
}

using Pass = void (*)(const LinearArgs&, const ActLayout&, int, int);

template <class Tile> void linear_q(const LinearArgs& a, int tile_begin, int tile_end) {
  constexpr Pass kPasses[kActTile] = {pass<1, Tile>, pass<2, Tile>, pass<3, Tile>, pass<4, Tile>, pass<5, Tile>, pass<6, Tile>, pass<7, Tile>, pass<8, Tile>};
  const ActLayout at{a.q.tokens, a.w.groups()};
  if (a.tokens == 1) return one_token<Tile>(a, at, tile_begin, tile_end);
  for (int r = tile_begin; r < tile_end; r++)
    for (int t = 0; t < a.tokens; t += kActTile) kPasses[(a.tokens - t < kActTile ? a.tokens - t : kActTile) - 1](a, at, t, r);
}

}  // namespace

void linear_q_q4(const LinearArgs& a, int tile_begin, int tile_end) { linear_q<TileQ4>(a, tile_begin, tile_end); }
void linear_q_q4s(const LinearArgs& a, int tile_begin, int tile_end) { linear_q<TileQ4s>(a, tile_begin, tile_end); }
void linear_q_q5(const LinearArgs& a, int tile_begin, int tile_end) { linear_q<TileQ5>(a, tile_begin, tile_end); }
void linear_q_q8(const LinearArgs& a, int tile_begin, int tile_end) { linear_q<TileQ8>(a, tile_begin, tile_end); }
void linear_q_q8h(const LinearArgs& a, int tile_begin, int tile_end) { linear_q<TileQ8h>(a, tile_begin, tile_end); }

}  // namespace camshaft::avx512
