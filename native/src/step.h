// What the nodes of one step work on. A node is executed by the overload of execute() for its type.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "batch.h"
#include "camshaft/pool.h"
#include "network.h"
#include "sampler.h"

namespace camshaft {

enum class Work { prepare, embed, norm, quantize, linear, rope, kv_write, attention, gate, add, take_rows, head, sample, count };

// Time per kind of work, charged from one lap to the next: a single reading of the clock a node.
class LapTimes {
 public:
  void start() { last_ = Clock::now(); }
  void lap(Work kind) {
    const auto now = Clock::now();
    spent_[size_t(kind)] += now - last_;
    last_ = now;
  }
  // The seconds of every kind that took any.
  std::vector<std::pair<std::string, double>> take() {
    static constexpr const char* kNames[] = {"prepare",   "embed", "norm", "quantize",  "linear", "rope",  "kv_write",
                                             "attention", "gate",  "add",  "take_rows", "head",   "sample"};
    static_assert(std::size(kNames) == kKinds);
    std::vector<std::pair<std::string, double>> all;
    for (size_t i = 0; i < kKinds; ++i)
      if (spent_[i] != Clock::duration(0)) all.emplace_back(kNames[i], std::chrono::duration<double>(spent_[i]).count());
    spent_ = {};
    return all;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kKinds = size_t(Work::count);
  Clock::time_point last_;
  std::array<Clock::duration, kKinds> spent_{};
};

// The quantised rows of one buffer, in blocks of tokens that fit a core's second-level cache. The next linear node that reads the same,
// unchanged buffer finds them here.
class ActCache {
 public:
  ActCache() = default;
  ActCache(Network& net, int max_cols);
  struct Block {
    Acts acts;
    int first;  // token
  };
  // Blocks of `tokens` rows of x; quantises unless buffer `source` is what it quantised last.
  std::span<const Block> get(const Network& net, ThreadPool& pool, Rows x, int cols, int tokens, int source);
  // The same piece by piece, for who makes the rows: opens the cache for `tokens` rows of buffer `source`, cut into a number of units, which
  // all have to be quantised then, by any threads. Unit i is the kActUnit tokens from i * kActUnit on.
  int open(const Network& net, int cols, int tokens, int source);
  void quantise(const Network& net, Rows x, int unit) const;
  void forget(int buffer) {
    if (buffer == source_) source_ = -1;
  }
  void forget() { source_ = -1; }
  static int block_tokens(int cols, int tokens);  // blocks are even, so that threads that begin at either end meet between two
  static int most_block_tokens(int cols);

 private:
  uint8_t* data_ = nullptr;
  int source_ = -1, cols_ = 0, tokens_ = 0;
  std::vector<Block> blocks_;
};

constexpr int kHeadPieceFloats = 32'768;  // of logits that a worker has at hand: 128 KiB, a part of its second-level cache

// What each worker needs for the head: room for a piece of logits, and the best that it has seen of each row.
struct HeadRoom {
  struct Best {
    float value = 0;
    int32_t id = -1;  // nothing yet
    bool spoilt = false;  // by a value that is not finite
    void take(const Best& other) {
      const bool better = other.id >= 0 && (id < 0 || other.value > value || (other.value == value && other.id < id));
      const bool either_spoilt = spoilt || other.spoilt;
      if (better) *this = other;
      spoilt = either_spoilt;
    }
  };
  struct Worker {
    float* piece;
    Best best[kHeadSlice];
  };
  std::vector<Worker> workers;
};

// Where threads leave their parts of split items of attention.
struct SplitRoom {
  // A split item of one kv head: how many of its spans, from the first on, are merged into one part, that of the last of them.
  struct alignas(kAlign) Chain {
    std::atomic<int> merged{0};
  };
  float* parts;               // kSplitRoom of each kv head's, for one token and span
  std::vector<Chain> chains;  // [split][kv head], 0 between two loops
};

struct Step {
  const Network& net;
  ThreadPool& pool;
  KvPool& kv;
  const std::vector<Slot>& slots;
  const StepBatch& batch;
  ActCache& acts;
  Sampler& sampler;
  LapTimes& times;
  std::vector<float*>& scratch;       // per worker, for attention
  SplitRoom& splits;
  std::vector<RowOutput>& out;
  HeadRoom& head;
  Rows logits;                        // [kHeadSlice, vocab_size]
  float* kept;                        // where all logits of the step are copied, or null
  int tokens;                         // rows that nodes see: all of the step's, after take_rows the taken ones

  // Several items a chunk, where they are many: each thread's share is cut finely enough to end together.
  int grain(int n) const { return std::max(1, n / (16 * pool.size())); }
  // Runs body(begin, end, worker) over n items. Work too small to be worth waking anybody for stays on this thread.
  template <class Body> void parallel(int n, double ops_each, Body body) {
    constexpr double kWorthSharing = 10'000;  // a few times as long as handing a loop over takes, 0.3 us
    if (double(n) * ops_each < kWorthSharing) {
      if (n > 0) body(0, n, 0);
      return;
    }
    pool.run(n, grain(n), body);
  }
  static constexpr double kQuantiseOps = 3;  // a value
  // Makes the rows of buffer `dst` by each(t), and quantises them on the way if that is wanted: a unit's rows while they lie in a core's first
  // cache, and one loop instead of two. Fewer rows than a unit for each thread are quantised in a loop of their own.
  template <class Each> void make_rows(int dst, double ops_each, bool quantise, Each each) {
    if (!quantise || tokens < kActUnit * pool.size()) {
      acts.forget(dst);
      return parallel(tokens, ops_each, [&](int begin, int end, int) {
        for (int t = begin; t < end; ++t) each(t);
      });
    }
    const Buffer& made = buffer(dst);
    parallel(acts.open(net, made.width, tokens, dst), kActUnit * (ops_each + kQuantiseOps * made.width), [&](int begin, int end, int) {
      for (int unit = begin; unit < end; ++unit) {
        for (int t = unit * kActUnit; t < std::min(tokens, (unit + 1) * kActUnit); ++t) each(t);
        acts.quantise(net, made.rows, unit);
      }
    });
  }
  const Buffer& buffer(int id) const { return net.buffers[size_t(id)]; }
  const Packed& weight(int id) const { return net.weights[size_t(id)]; }
  const float* vector(int id) const { return net.vectors[size_t(id)].data; }
};

void execute(const EmbedNode& node, Step& step);
void execute(const NormNode& node, Step& step);
void execute(const HeadNormNode& node, Step& step);
void execute(const LinearNode& node, Step& step);
void execute(const RopeNode& node, Step& step);
void execute(const AttentionNode& node, Step& step);
// The same for token t alone.
void apply(const HeadNormNode& node, const Step& step, int t);
void apply(const RopeNode& node, const Step& step, int t);
void execute(const GateNode& node, Step& step);
void execute(const AddNode& node, Step& step);
void execute(const TakeNode& node, Step& step);
void execute(const HeadNode& node, Step& step);

// One matrix product over blocks of quantised or plain rows; see node_linear.cpp. `y` is where part i's outputs begin.
struct LinearJob {
  const Packed* w;
  const float* bias;
  Rows y;
};
bool is_integer(const Network& net, Form form);
// Tells waiting threads what comes after a product of `tokens` rows: a product of all rows of these weights, or none where there is none.
void expect_weights(Step& step, int tokens, std::span<const int> ids);
// So many tiles at least make a chunk of a product that has `tiles` of them.
int tiles_per_share(const Step& step, int tiles, int tokens);
// Tiles [begin, end) by the integer kernel where the arguments have quantised rows, else by the float one.
void run_kernel(const Kernels& k, const LinearArgs& a, int begin, int end);
// `next` are the weights that will be read afterwards.
void multiply(Step& step, int src, Rows x, int cols, int tokens, std::span<const LinearJob> jobs, bool accumulate, std::span<const int> next);

}  // namespace camshaft
