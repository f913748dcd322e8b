// Quantised activations for AVX2. Four int8 are one broadcast.
#pragma once
#include "../simd/towers.h"

namespace camshaft::avx2 {

struct ActGroup {
  int8_t q[kGroup];
  float d, sum;
  int32_t minus8;  // -8 times the sum of q: what the unsigned levels of q4s have to give back for their offset
};
static_assert(sizeof(ActGroup) == 44);

// Where everything lies: [token][group]; then the towers.
struct ActLayout {
  int tokens, groups;

  size_t towers_at() const { return size_t(tokens) * size_t(groups) * sizeof(ActGroup); }
  size_t bytes() const { return towers_at() + towers().bytes(); }

  template <class Byte> auto* groups_of(Byte* data, int token) const { return cast<ActGroup>(data) + int64_t(token) * groups; }
  TowerLayout towers() const { return {tokens, groups}; }
  TowerList towers_of_token(const uint8_t* data, int t) const { return towers().of_token(data + towers_at(), t); }
  TowerList towers_of_unit(const uint8_t* data, int t) const { return towers().of_unit(data + towers_at(), t); }

 private:
  template <class T> static T* cast(uint8_t* p) { return reinterpret_cast<T*>(p); }
  template <class T> static const T* cast(const uint8_t* p) { return reinterpret_cast<const T*>(p); }
};

}  // namespace camshaft::avx2
