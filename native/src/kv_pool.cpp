#include "kv_pool.h"

#include <cstring>
#include <stdexcept>

namespace camshaft {

KvPool::KvPool(const KvShape& s) : shape_(s) {
  if (s.block_size < kSubBlock || s.block_size % kSubBlock)
    throw std::invalid_argument("block_size " + std::to_string(s.block_size) + " is not a multiple of " + std::to_string(kSubBlock));
  if (s.n_blocks < 2) throw std::invalid_argument("a KV pool needs at least 2 blocks, since block 0 is never handed out");
  if (s.n_layers_per_block < 1 || s.n_groups < 1 || s.n_kv_heads < 1 || s.head_dim < 1)
    throw std::invalid_argument("the KV cache's layers, groups, heads and head size must be at least 1");
  const size_t element = s.type == KvType::f32 ? 4 : 2;
  half_bytes_ = round_up(size_t(s.n_kv_heads) * size_t(s.block_size) * size_t(s.head_dim) * element, kAlign);
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
