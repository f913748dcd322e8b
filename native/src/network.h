// What a Builder collects and a Program never changes: weights, tables, buffers and nodes. Nodes refer to the rest by index.
#pragma once
#include <memory>
#include <variant>
#include <vector>

#include "camshaft/program.h"
#include "kv_pool.h"
#include "memory.h"

namespace camshaft {

constexpr int kHeadSlice = 32;  // rows of logits at once
constexpr int kMaxParts = 8;    // matrices of one linear node

struct Vector {
  const float* data;
  int n;
};
// cos and sin of position * inv_freq[i]: [positions, half] each.
struct RopeTable {
  const float *cos, *sin;
  int positions, half;
};
// float32 [max_tokens, width] in rows of `stride`, a multiple of 32. The columns past width stay zero: kernels read whole groups.
struct Buffer {
  Rows rows;
  int width;
};

// quantise: the next node multiplies the result by integer weights.
struct EmbedNode { int dst, weight; float scale; };
struct NormNode { int dst, src, weight; float eps; bool quantise = false; };
struct HeadNormNode { HeadsSpec heads; int weight; float eps; };
struct LinearNode { int src; std::vector<PartSpec> parts; bool accumulate; std::vector<int> next = {}; };  // next: the weights that a step reads after these
struct RopeNode { HeadsSpec heads; int table; };
using HeadsNode = std::variant<HeadNormNode, RopeNode>;
// before: what happens to each token's queries and keys on the way to the cache. taken_alone: nothing behind it reads other rows.
struct AttentionNode { AttentionSpec spec; std::vector<HeadsNode> before = {}; bool taken_alone = false; };
struct GateNode { GateSpec spec; bool gelu; bool quantise = false; };
struct AddNode { int dst, a, b; };
struct TakeNode { int dst, src; };
struct HeadNode { int src, weight; float softcap; std::vector<int> next = {}; };
using Node = std::variant<EmbedNode, NormNode, HeadNormNode, LinearNode, RopeNode, AttentionNode, GateNode, AddNode, TakeNode, HeadNode>;

struct Limits {
  int max_tokens, max_slots, vocab_size;
};

struct Network {
  const Kernels* kernels;
  Limits limits;
  bool int8;  // quantise activations for the forms that have an integer kernel
  Arena arena;
  std::vector<std::shared_ptr<const MappedFile>> files;  // in which some of the weights lie
  std::vector<Packed> weights;
  std::vector<Vector> vectors;
  std::vector<RopeTable> ropes;
  std::vector<Buffer> buffers;
  std::vector<Node> nodes;
  std::vector<int> group_windows;  // per KV group: how far its layers see; 0: all the way, -1: no layer uses it
  int max_positions;               // what every rope table holds
};

}  // namespace camshaft
