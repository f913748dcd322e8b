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

// Where the tile that begins with token t lies.
inline size_t act_tile_offset(int t, int groups) { return size_t(t) * size_t(groups) * kActBytes; }

}  // namespace camshaft::avx512
