#include "kv_pool.h"

#include <cstring>
#include <stdexcept>

namespace camshaft {

KvType kv_type(const std::string& name) {
  for (const auto& [type, known] : {std::pair{KvType::bf16, "bf16"}, {KvType::int8, "int8"}, {KvType::f32, "f32"}})
    if (name == known) return type;
  throw std::invalid_argument("KV type is '" + name + "': bf16, int8 or f32");
}

size_t kv_layer_bytes(KvType type, int block_size, int n_kv_heads, int head_dim) {
  return 2 * round_up(size_t(n_kv_heads) * size_t(block_size / kSubBlock) * kv_sub_block_bytes(type, head_dim), kAlign);
}

KvPool::KvPool(const KvShape& s) : shape_(s) {
  if (s.block_size < kSubBlock || s.block_size % kSubBlock)
    throw std::invalid_argument("block_size " + std::to_string(s.block_size) + " is not a multiple of " + std::to_string(kSubBlock));
  if (s.n_blocks < 2) throw std::invalid_argument("a KV pool needs at least 2 blocks, since block 0 is never handed out");
  if (s.n_layers_per_block < 1 || s.n_groups < 1 || s.n_kv_heads < 1 || s.head_dim < 1)
    throw std::invalid_argument("the KV cache's layers, groups, heads and head size must be at least 1");
  if (s.type == KvType::int8 && s.head_dim > kMaxInt8HeadDim)
    throw std::invalid_argument("an int8 KV cache takes heads of at most " + std::to_string(kMaxInt8HeadDim) + ", not " + std::to_string(s.head_dim));
  half_bytes_ = kv_layer_bytes(s.type, s.block_size, s.n_kv_heads, s.head_dim) / 2;
  pages_ = Pages(block_bytes() * size_t(s.n_blocks));
}

KvLayer KvPool::layer(int index) const {
  uint8_t* k = pages_.data() + 2 * half_bytes_ * size_t(index);
  return {k, k + half_bytes_, block_bytes(), shape_.block_size, shape_.n_kv_heads, shape_.head_dim, shape_.type};
}

void KvPool::copy(int src, int dst) {
  std::memcpy(pages_.data() + block_bytes() * size_t(dst), pages_.data() + block_bytes() * size_t(src), block_bytes());
}

void KvPool::touch(ThreadPool& threads) {
  constexpr size_t page = 4096;
  auto body = [&](int begin, int end, int) {
    for (int i = begin; i < end; ++i) {
      volatile uint8_t* p = pages_.data() + size_t(i) * page;
      *p = *p;  // a read alone would map the shared zero page
    }
  };
  threads.run(int((pages_.size() + page - 1) / page), 256, body);
}

}  // namespace camshaft
