// Quantised activations for AVX2. Four int8 are one broadcast; kernels for 8-bit weights broadcast two int16 instead.
#pragma once
#include "camshaft/ops.h"

namespace camshaft::avx2 {

struct ActGroup {
  int8_t q[kGroup];
  float d, sum;
  int32_t minus8;  // -8 times the sum of q: what the unsigned levels of q4s have to give back for their offset
};
static_assert(sizeof(ActGroup) == 44);

// The same q as int16, inputs 0, 2, 4, ... and 1, 3, 5, ...: how shifts alone split packed bytes.
struct ActWide {
  int16_t even[kGroup / 2], odd[kGroup / 2];
};

// Where everything lies: [token][group] of the first plane, wide and narrow, and of the second; then [tile of kActTile tokens][group] of a
// byte whose bit i says whether token i of the tile has something in the second plane. The second plane is written only there.
struct ActLayout {
  int tokens, groups;

  size_t cells() const { return size_t(tokens) * size_t(groups); }
  size_t bits_at() const { return cells() * (sizeof(ActWide) + 2 * sizeof(ActGroup)); }
  size_t bytes() const { return bits_at() + size_t(ceil_div(tokens, kActTile)) * size_t(groups); }

  template <class Byte> auto* wide(Byte* data) const { return cast<ActWide>(data); }
  template <class Byte> auto* first(Byte* data) const { return cast<ActGroup>(data + cells() * sizeof(ActWide)); }
  template <class Byte> auto* second(Byte* data) const { return first(data) + cells(); }
  template <class Byte> Byte* bits(Byte* data, int token) const { return data + bits_at() + size_t(token / kActTile) * size_t(groups); }

 private:
  template <class T> static T* cast(uint8_t* p) { return reinterpret_cast<T*>(p); }
  template <class T> static const T* cast(const uint8_t* p) { return reinterpret_cast<const T*>(p); }
};

}  // namespace camshaft::avx2
