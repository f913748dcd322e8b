// Quantised activations for AVX-512: tiles of up to eight tokens, which the last tile may have fewer of; a tile is a list of groups, each
// interleaved over its n tokens. Every number is one embedded broadcast from its place.
#pragma once
#include "camshaft/ops.h"

namespace camshaft::avx512 {

template <int N> struct ActGroups {
  int8_t q[N][kGroup];
  float d[N], sum[N];
  int32_t minus[2][N];  // minus the sums of q over inputs 0..15 and 16..31: what unsigned weights have to give back for their offset
};
constexpr size_t kActBytes = sizeof(ActGroups<1>);
static_assert(sizeof(ActGroups<kActTile>) == kActTile * kActBytes && kActBytes == 48);

// Where everything lies: the first plane, the second plane of the same shape, and [tile][group] of a byte whose bit i says whether token i
// of the tile has something in the second plane, which is written only there.
struct ActLayout {
  int tokens, groups;

  size_t plane_bytes() const { return size_t(tokens) * size_t(groups) * kActBytes; }
  size_t bytes() const { return 2 * plane_bytes() + size_t(ceil_div(tokens, kActTile)) * size_t(groups); }
  // The tile that begins with token t.
  size_t first(int t) const { return size_t(t) * size_t(groups) * kActBytes; }
  size_t second(int t) const { return plane_bytes() + first(t); }
  size_t bits(int t) const { return 2 * plane_bytes() + size_t(t / kActTile) * size_t(groups); }
};

}  // namespace camshaft::avx512
