// Quantised activations for AVX-512: tiles of up to eight tokens, which the last tile may have fewer of; a tile is a list of groups, each
// interleaved over its n tokens. Every number is one embedded broadcast from its place.
#pragma once
#include "../simd/towers.h"

namespace camshaft::avx512 {

template <int N> struct ActGroups {
  int8_t q[N][kGroup];
  float d[N], sum[N];
  int32_t minus[2][N];  // minus the sums of q over inputs 0..15 and 16..31: what unsigned weights have to give back for their offset
};
constexpr size_t kActBytes = sizeof(ActGroups<1>);
static_assert(sizeof(ActGroups<kActTile>) == kActTile * kActBytes && kActBytes == 48);

// Where everything lies: the tiles, then the towers.
struct ActLayout {
  int tokens, groups;

  // The tile that begins with token t.
  size_t tile(int t) const { return size_t(t) * size_t(groups) * kActBytes; }
  size_t towers_at() const { return tile(tokens); }
  size_t bytes() const { return towers_at() + towers().bytes(); }
  TowerLayout towers() const { return {tokens, groups}; }
  TowerList towers_of_token(const uint8_t* data, int t) const { return towers().of_token(data + towers_at(), t); }
};

}  // namespace camshaft::avx512
