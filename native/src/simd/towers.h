// The towers of quantised activations (ops.h): for each unit of kActUnit tokens a list of them, by token, then by input. Include after vec256.h
// or vec512.h.
#pragma once
#include "camshaft/ops.h"

namespace camshaft::CAMSHAFT_ISA {

struct Tower {
  float x;
  int32_t group;
  uint8_t quad, byte, token;  // its place in the group (quads of inputs, as packed tiles have them), and its token's in the unit
};

struct TowerList {
  const Tower *first, *last;
  const Tower* begin() const { return first; }
  const Tower* end() const { return last; }
};

// Where they lie: [unit] of where each token's part of the list ends, [unit] of a list with room for one tower a group.
struct TowerLayout {
  int tokens, groups;

  size_t ends_bytes() const { return size_t(ceil_div(tokens, kActUnit) * kActUnit) * sizeof(int32_t); }
  size_t bytes() const { return ends_bytes() + size_t(tokens) * size_t(groups) * sizeof(Tower); }
  template <class Byte> auto* ends(Byte* data, int t) const { return cast<int32_t>(data) + t / kActUnit * kActUnit; }
  template <class Byte> auto* list(Byte* data, int t) const {
    return cast<Tower>(data + ends_bytes()) + int64_t(t / kActUnit * kActUnit) * groups;
  }
  TowerList of_token(const uint8_t* data, int t) const {
    const int32_t* end = ends(data, t) + t % kActUnit;
    return {list(data, t) + (t % kActUnit ? end[-1] : 0), list(data, t) + *end};
  }
  TowerList of_unit(const uint8_t* data, int t) const { return {list(data, t), list(data, t) + ends(data, t)[kActUnit - 1]}; }

 private:
  template <class T> static T* cast(uint8_t* p) { return reinterpret_cast<T*>(p); }
  template <class T> static const T* cast(const uint8_t* p) { return reinterpret_cast<const T*>(p); }
};

}  // namespace camshaft::CAMSHAFT_ISA
