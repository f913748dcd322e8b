// Scalar twin of kv_write.
#include "../kernels_decl.h"

namespace camshaft::ref {
namespace {

void put(uint8_t* at, KvType type, size_t index, float value) {
  if (type == KvType::f32)
    reinterpret_cast<float*>(at)[index] = value;
  else
    reinterpret_cast<uint16_t*>(at)[index] = f32_to_bf16(value);
}

}  // namespace

void kv_write(const KvWriteArgs& a, int pos, const float* k, const float* v) {
  const KvLayer& kv = a.kv;
  const size_t block = static_cast<size_t>(a.table[pos / kv.block_size]) * kv.block_bytes;
  const size_t token = static_cast<size_t>(pos % kv.block_size), dim = static_cast<size_t>(kv.head_dim);
  for (size_t h = 0; h < static_cast<size_t>(kv.n_kv_heads); h++) {
    const size_t first = h * static_cast<size_t>(kv.block_size);  // tokens before this head's part of the block
    for (size_t d = 0; d < dim; d++) {
      put(kv.k + block, kv.type, (first + token / kSubBlock * kSubBlock) * dim + d * kSubBlock + token % kSubBlock, k[h * dim + d]);
      put(kv.v + block, kv.type, (first + token) * dim + d, v[h * dim + d]);
    }
  }
}

}  // namespace camshaft::ref
