// A whole step in one call: a network of nodes over an activation arena, a paged KV pool and the sampling state of its slots.
//
// A Builder collects weights, buffers and nodes; build() freezes them. Program::run takes a ragged batch (rows of tokens of many
// sequences), checks all of it before it touches anything, and gives the sampled ids. Bad input throws std::invalid_argument with one
// line that names the cause. One thread calls; the pool's threads compute.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "camshaft/formats.h"
#include "camshaft/mapped.h"
#include "camshaft/ops.h"

namespace camshaft {

// How one slot draws its tokens. Ranges are checked above; here only what would break memory is.
struct SlotParams {
  float temperature = 1.0f;  // 0: greedy
  float top_p = 1.0f;
  int top_k = 0;  // 0: off
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<std::pair<int32_t, float>> logit_bias;
  uint64_t seed = 0;
  uint32_t choice = 0;
  int logprobs = -1;         // -1: not asked
  int prompt_logprobs = -1;
};

struct RowSpec {
  int32_t slot, start, n_new, n_sample, score;
};
struct CopySpec {
  int32_t src, dst;
};
// Allowed tokens of a slot: bit i of word w is token 32w + i; ceil(vocab_size / 32) words.
struct MaskSpec {
  int32_t slot;
  std::span<const uint32_t> words;
};

// Nothing here is owned; all of it must outlive the call of run.
struct Batch {
  std::span<const int32_t> ids;      // all rows' tokens, one after the other
  std::span<const RowSpec> rows;
  std::span<const int32_t> patches;  // flat: slot, group, index, n, then n block ids; repeated
  std::span<const CopySpec> copies;
  std::span<const MaskSpec> masks;
};

struct TokenScore {
  int32_t id;
  float logprob;                                // of the raw distribution
  std::vector<std::pair<int32_t, float>> top;   // likeliest first
};
struct RowOutput {
  std::vector<int32_t> ids;  // n_sample; -1 where the logits were not finite
  std::vector<TokenScore> logprobs, scores;
};

// One matrix of a linear node: outputs go to buffer `dst` from column `col` on. `bias` is a vector id or -1.
struct PartSpec {
  int weight, bias, dst, col;
};

struct ProgramOptions {
  std::string isa;      // "": CAMSHAFT_ISA, else the best
  int threads = 0;      // 0: usable_cores()
  std::string compute;  // int8 or f32
  int max_tokens = 0, max_slots = 0, vocab_size = 0;
  bool pin_threads = false;  // see ThreadPool
};

struct MatrixSpec {
  uint32_t type = 0;  // FileType
  int rows = 0, cols = 0;
  std::span<const uint8_t> data;         // whole file rows
  std::span<const int32_t> row_order;    // file row of each output row, or empty
  std::string form;                      // "", or q8 / q4 to quantise a float matrix
};

struct KvSpec {
  int block_size, n_blocks;
  std::string dtype;  // bf16, int8 or f32
  int n_layers_per_block, n_groups, n_kv_heads, head_dim;
};

// Heads side by side in a buffer, from column `col` on.
struct HeadsSpec {
  int buf, col, n_heads, head_dim;
};
struct AttentionSpec {
  int dst, q, q_col, kv, k_col, v_col;
  int group, layer, n_heads, window;
  float scale, softcap;
};
struct GateSpec {
  int dst, src, gate_col, up_col, n;
};

class Program;

class Builder {
 public:
  explicit Builder(const ProgramOptions& options);
  ~Builder();
  int weight(const MatrixSpec& m);
  // A matrix that was packed before and lies at `offset` in a file, which lives as long as the program.
  int mapped_weight(std::shared_ptr<const MappedFile> file, uint64_t offset, Form form, int rows, int cols);
  size_t weight_bytes() const;
  int vector(std::span<const float> data);
  int rope_table(std::span<const double> inv_freq, int max_positions);
  int buffer(int width);
  void kv_cache(const KvSpec& kv);

  void embed(int dst, int weight, float scale);
  void rms_norm(int dst, int src, int weight, float eps);
  void head_norm(const HeadsSpec& heads, int weight, float eps);
  void linear(int src, std::span<const PartSpec> parts, bool accumulate);
  void rope(const HeadsSpec& heads, int table);
  void attention(const AttentionSpec& a);
  void silu_mul(const GateSpec& g);
  void gelu_mul(const GateSpec& g);
  void add(int dst, int a, int b);
  void take_rows(int dst, int src);  // of several buffers, one right after the other
  void head(int src, int weight, float softcap);
  std::unique_ptr<Program> build();  // the builder is spent

 private:
  struct Parts;
  Parts& parts() const;
  std::unique_ptr<Parts> parts_;
};

class Program {
 public:
  ~Program();
  // Binds a slot anew: all that it knew before is forgotten, its block tables included.
  void open(int slot, SlotParams params, std::span<const int32_t> prompt_ids, std::span<const int32_t> output_ids);
  void release(int slot);  // idempotent
  std::vector<RowOutput> run(const Batch& batch);
  void keep_logits(bool on);
  std::span<const float> last_logits() const;  // [taken rows of the last run, vocab_size], before penalties, bias and mask
  int vocab_size() const;
  std::span<const uint8_t> packed(int weight) const;  // what Builder::weight made
  void touch();
  std::vector<std::pair<std::string, double>> node_times();  // seconds a kind of node, since the last call

 private:
  friend class Builder;
  struct Parts;
  explicit Program(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace camshaft
