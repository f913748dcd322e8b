// The KV cache's memory: n_blocks blocks of equal bytes, each with n_layers_per_block layers of K and V.
#pragma once
#include <string>

#include "camshaft/ops.h"
#include "camshaft/pool.h"
#include "memory.h"

namespace camshaft {

struct KvShape {
  int block_size = 0, n_blocks = 0;
  KvType type = KvType::bf16;
  int n_layers_per_block = 0, n_groups = 0, n_kv_heads = 0, head_dim = 0;
};

KvType kv_type(const std::string& name);  // throws std::invalid_argument, naming what there is
// One layer of one block, K and V.
size_t kv_layer_bytes(KvType type, int block_size, int n_kv_heads, int head_dim);

class KvPool {
 public:
  KvPool() = default;
  explicit KvPool(const KvShape& shape);  // throws std::invalid_argument for a shape that no kernel can serve
  const KvShape& shape() const { return shape_; }
  size_t block_bytes() const { return 2 * half_bytes_ * size_t(shape_.n_layers_per_block); }
  KvLayer layer(int index_in_block) const;
  void copy(int src, int dst);
  void touch(ThreadPool& threads);  // faults every page in, changing no byte

 private:
  KvShape shape_;
  size_t half_bytes_ = 0;  // K, or V, of one layer of one block
  Pages pages_;
};

}  // namespace camshaft
