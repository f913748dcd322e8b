// The towers of quantised activations (ops.h): for each tile of kActTile tokens a list of them, by token, then by input. Include after vec256.h
// or vec512.h.
#pragma once
#include "camshaft/ops.h"

namespace camshaft::CAMSHAFT_ISA {

struct Tower {
  float x;
  int32_t group;
  uint8_t quad, byte, token;  // its place in the group (quads of inputs, as packed tiles have them), and its token's in the tile
};

struct TowerList {
  const Tower *first, *last;
  const Tower* begin() const { return first; }
  const Tower* end() const { return last; }
};

// Where they lie: [tile] of where each token's part of the list ends, [tile] of a list with room for one tower a group.
struct TowerLayout {
  int tokens, groups;

  size_t ends_bytes() const { return size_t(ceil_div(tokens, kActTile) * kActTile) * sizeof(int32_t); }
  size_t bytes() const { return ends_bytes() + size_t(tokens) * size_t(groups) * sizeof(Tower); }
  template <class Byte> auto* ends(Byte* data, int t) const { return cast<int32_t>(data) + t / kActTile * kActTile; }
  template <class Byte> auto* list(Byte* data, int t) const {
    return cast<Tower>(data + ends_bytes()) + int64_t(t / kActTile * kActTile) * groups;
  }
  TowerList of_token(const uint8_t* data, int t) const {
    const int32_t* end = ends(data, t) + t % kActTile;
    return {list(data, t) + (t % kActTile ? end[-1] : 0), list(data, t) + *end};
  }
  TowerList of_tile(const uint8_t* data, int t) const { return {list(data, t), list(data, t) + ends(data, t)[kActTile - 1]}; }

 private:
  template <class T> static T* cast(uint8_t* p) { return reinterpret_cast<T*>(p); }
  template <class T> static const T* cast(const uint8_t* p) { return reinterpret_cast<const T*>(p); }
};

}  // namespace camshaft::CAMSHAFT_ISA
