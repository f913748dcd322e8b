// Collects a network. Everything is checked here, once, so that a step checks its batch alone.
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "camshaft/cpu.h"
#include "camshaft/pool.h"
#include "program_parts.h"

namespace camshaft {
namespace {

void require(bool holds, const std::string& otherwise) {
  if (!holds) throw std::invalid_argument(otherwise);
}

Form form_for(const std::string& name, FileType type) {
  if (name.empty()) return form_of(type);
  const bool is_float = type == FileType::F32 || type == FileType::F16 || type == FileType::BF16;
  require(is_float, "form '" + name + "' quantises a float matrix, and this one is quantised already");
  if (name == "q8") return Form::q8;
  if (name == "q4") return Form::q4;
  throw std::invalid_argument("form '" + name + "' is unknown: q8, q4 or nothing");
}

// Gives each attention what is done to its heads right before it, so that a token's are turned and written in one go.
void join_heads(std::vector<Node>& nodes) {
  std::vector<Node> joined;
  for (Node& node : nodes) {
    if (auto* attention = std::get_if<AttentionNode>(&node))
      for (; !joined.empty(); joined.pop_back()) {
        if (const auto* norm = std::get_if<HeadNormNode>(&joined.back())) attention->before.insert(attention->before.begin(), *norm);
        else if (const auto* rope = std::get_if<RopeNode>(&joined.back())) attention->before.insert(attention->before.begin(), *rope);
        else break;
      }
    joined.push_back(std::move(node));
  }
  nodes = std::move(joined);
}

// Tells each node that reads weights which come after its own; after the head those of the next step's first layer.
void link_weights(std::vector<Node>& nodes) {
  std::vector<int> next;
  for (int round = 0; round < 2; ++round)
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      if (auto* linear = std::get_if<LinearNode>(&*node)) {
        linear->next = next;
        next.clear();
        for (const PartSpec& part : linear->parts) next.push_back(part.weight);
      } else if (auto* head = std::get_if<HeadNode>(&*node)) {
        head->next = next;
        next = {head->weight};
      }
    }
}

// Tells each norm and gate whether the product behind it wants its result as int8.
void mark_quantised(Network& net) {
  for (size_t i = 0; i + 1 < net.nodes.size(); ++i) {
    const auto* linear = std::get_if<LinearNode>(&net.nodes[i + 1]);
    if (!linear) continue;
    const auto integer = [&](const PartSpec& p) { return is_integer(net, net.weights[size_t(p.weight)].form); };
    const bool wanted = std::any_of(linear->parts.begin(), linear->parts.end(), integer);
    if (auto* norm = std::get_if<NormNode>(&net.nodes[i])) norm->quantise = wanted && norm->dst == linear->src;
    else if (auto* gate = std::get_if<GateNode>(&net.nodes[i]))
      gate->quantise = wanted && gate->spec.dst == linear->src && gate->spec.n == net.buffers[size_t(linear->src)].width;
  }
}

// Rows of buffer `src` are about to be taken: where attention made it just now, the other rows are not worth their attention.
void spare_attention(std::vector<Node>& nodes, int src) {
  auto last = nodes.rbegin();
  while (last != nodes.rend() && std::holds_alternative<TakeNode>(*last)) ++last;
  if (last == nodes.rend()) return;
  if (auto* attention = std::get_if<AttentionNode>(&*last)) attention->taken_alone = attention->spec.dst == src;
}

}  // namespace

struct Builder::Parts {
  std::unique_ptr<Network> net = std::make_unique<Network>();
  std::unique_ptr<ThreadPool> pool;
  KvPool kv;
  size_t weight_bytes = 0;
  bool taken = false, headed = false;

  const Buffer& buffer(int id) const {
    require(id >= 0 && id < int(net->buffers.size()), "buffer " + std::to_string(id) + " does not exist");
    return net->buffers[size_t(id)];
  }
  const Packed& weight(int id) const {
    require(id >= 0 && id < int(net->weights.size()), "weight " + std::to_string(id) + " does not exist");
    return net->weights[size_t(id)];
  }
  void vector(int id, int n) const {
    require(id >= 0 && id < int(net->vectors.size()), "vector " + std::to_string(id) + " does not exist");
    const int have = net->vectors[size_t(id)].n;
    require(have == n, "vector " + std::to_string(id) + " has " + std::to_string(have) + " elements, " + std::to_string(n) + " are needed");
  }
  void columns(int id, int64_t col, int64_t n) const {
    const int width = buffer(id).width;
    require(col >= 0 && n >= 1 && col + n <= width, "columns " + std::to_string(col) + " to " + std::to_string(col + n) + " do not fit buffer " +
                                                        std::to_string(id) + " of width " + std::to_string(width));
  }
  void heads(const HeadsSpec& h) const {
    require(h.n_heads >= 1 && h.head_dim >= 1, "heads and head size must be at least 1");
    columns(h.buf, h.col, int64_t(h.n_heads) * h.head_dim);
  }
  void node(Node node) {
    require(!headed, "the head is the last node");
    net->nodes.push_back(std::move(node));
  }
};

Builder::Builder(const ProgramOptions& o) : parts_(std::make_unique<Parts>()) {
  require(o.compute == "int8" || o.compute == "f32", "compute is '" + o.compute + "': int8 or f32");
  require(o.max_tokens >= 1 && o.max_slots >= 1 && o.vocab_size >= 1, "max_tokens, max_slots and vocab_size must be at least 1");
  require(o.threads >= 0 && o.threads <= 1024, "threads is " + std::to_string(o.threads) + ": 0 to 1024");
  Network& net = *parts_->net;
  net.kernels = &select_kernels(o.isa);
  net.limits = {o.max_tokens, o.max_slots, o.vocab_size};
  net.int8 = o.compute == "int8";
  net.max_positions = 0;
  parts_->pool = std::make_unique<ThreadPool>(o.threads ? o.threads : usable_cores(), o.pin_threads);
}

Builder::~Builder() = default;

Builder::Parts& Builder::parts() const {
  require(parts_ != nullptr, "the builder is spent: build() was called");
  return *parts_;
}

int Builder::weight(const MatrixSpec& m) {
  Network& net = *parts().net;
  require(known_file_type(m.type), "tensor type " + std::to_string(m.type) + " is not one that can be read");
  const FileType type = FileType(m.type);
  require(m.rows >= 1 && m.cols >= 1, "a weight needs at least one row and one column");
  const size_t row_bytes = file_row_bytes(type, m.cols);
  require(row_bytes > 0, std::to_string(m.cols) + " columns are not whole blocks of tensor type " + std::to_string(m.type));
  const size_t file_rows = m.data.size() / row_bytes;
  require(file_rows * row_bytes == m.data.size() && file_rows >= 1,
          "the matrix has " + std::to_string(m.data.size()) + " bytes, which are not whole rows of " + std::to_string(row_bytes));
  require(m.row_order.empty() ? file_rows == size_t(m.rows) : m.row_order.size() == size_t(m.rows),
          "the matrix has " + std::to_string(m.row_order.empty() ? file_rows : m.row_order.size()) + " rows, " + std::to_string(m.rows) + " were announced");
  for (int32_t r : m.row_order) require(r >= 0 && size_t(r) < file_rows, "row order names row " + std::to_string(r) + " of " + std::to_string(file_rows));

  const Form form = form_for(m.form, type);
  const size_t bytes = packed_bytes(form, m.rows, m.cols);
  uint8_t* out = net.arena.bytes(bytes);
  const int32_t* order = m.row_order.empty() ? nullptr : m.row_order.data();
  auto pack = [&](int begin, int end, int) { pack_tiles(form, type, m.data.data(), m.rows, m.cols, order, begin, end, out); };
  parts().pool->run(ceil_div(m.rows, kRowTile), 4, pack);
  net.weights.push_back({form, m.rows, m.cols, out});
  parts().weight_bytes += bytes;
  return int(net.weights.size()) - 1;
}

int Builder::mapped_weight(std::shared_ptr<const MappedFile> file, uint64_t offset, Form form, int rows, int cols) {
  Network& net = *parts().net;
  require(rows >= 1 && cols >= 1, "a weight needs at least one row and one column");
  const size_t bytes = packed_bytes(form, rows, cols);
  require(offset % kAlign == 0 && offset <= file->size() && bytes <= file->size() - offset,
          "a packed matrix of " + std::to_string(bytes) + " bytes at " + std::to_string(offset) + " does not lie in the file, or is not aligned");
  net.weights.push_back({form, rows, cols, file->data() + offset});
  if (net.files.empty() || net.files.back() != file) net.files.push_back(std::move(file));
  parts().weight_bytes += bytes;
  return int(net.weights.size()) - 1;
}

size_t Builder::weight_bytes() const { return parts().weight_bytes; }

int Builder::vector(std::span<const float> data) {
  require(!data.empty(), "a vector needs at least one element");
  float* copy = parts().net->arena.floats(round_up(data.size(), kLanes));
  std::memcpy(copy, data.data(), data.size_bytes());
  parts().net->vectors.push_back({copy, int(data.size())});
  return int(parts().net->vectors.size()) - 1;
}

int Builder::rope_table(std::span<const double> inv_freq, int max_positions) {
  require(!inv_freq.empty() && max_positions >= 1, "a rope table needs frequencies and positions");
  Network& net = *parts().net;
  const size_t half = inv_freq.size();
  float* cos = net.arena.floats(half * size_t(max_positions));
  float* sin = net.arena.floats(half * size_t(max_positions));
  auto fill = [&](int begin, int end, int) {
    for (int p = begin; p < end; ++p)
      for (size_t i = 0; i < half; ++i) {
        cos[size_t(p) * half + i] = float(std::cos(p * inv_freq[i]));
        sin[size_t(p) * half + i] = float(std::sin(p * inv_freq[i]));
      }
  };
  parts().pool->run(max_positions, 64, fill);
  net.ropes.push_back({cos, sin, max_positions, int(half)});
  net.max_positions = net.max_positions ? std::min(net.max_positions, max_positions) : max_positions;
  return int(net.ropes.size()) - 1;
}

int Builder::buffer(int width) {
  require(width >= 1 && width <= 1 << 24, "a buffer's width is " + std::to_string(width) + ": 1 to 2^24");
  Network& net = *parts().net;
  size_t stride = round_up(size_t(width), kGroup);
  if (stride % 1024 == 0) stride += kGroup;  // rows a multiple of a page apart would all fall into the same few cache lines
  net.buffers.push_back({{net.arena.floats(stride * size_t(net.limits.max_tokens)), int64_t(stride)}, width});
  return int(net.buffers.size()) - 1;
}

void Builder::kv_cache(const KvSpec& s) {
  require(parts().kv.shape().n_groups == 0, "the KV cache is declared already");
  parts().kv = KvPool({s.block_size, s.n_blocks, kv_type(s.dtype), s.n_layers_per_block, s.n_groups, s.n_kv_heads, s.head_dim});
  parts().net->group_windows.assign(size_t(s.n_groups), -1);
}

void Builder::embed(int dst, int weight, float scale) {
  const Packed& w = parts().weight(weight);
  require(w.cols == parts().buffer(dst).width, "embed: the weight has " + std::to_string(w.cols) + " columns, the buffer another width");
  require(w.rows >= parts().net->limits.vocab_size, "embed: the weight has fewer rows than the vocabulary");
  require(!parts().taken, "embed must come before take_rows");
  parts().node(EmbedNode{dst, weight, scale});
}

void Builder::rms_norm(int dst, int src, int weight, float eps) {
  require(parts().buffer(dst).width == parts().buffer(src).width, "rms_norm: the buffers differ in width");
  parts().vector(weight, parts().buffer(src).width);
  parts().node(NormNode{dst, src, weight, eps});
}

void Builder::head_norm(const HeadsSpec& heads, int weight, float eps) {
  parts().heads(heads);
  parts().vector(weight, heads.head_dim);
  parts().node(HeadNormNode{heads, weight, eps});
}

void Builder::linear(int src, std::span<const PartSpec> specs, bool accumulate) {
  require(!specs.empty() && specs.size() <= size_t(kMaxParts), "linear: " + std::to_string(specs.size()) + " parts, 1 to " + std::to_string(kMaxParts));
  for (const PartSpec& p : specs) {
    const Packed& w = parts().weight(p.weight);
    require(w.cols == parts().buffer(src).width, "linear: weight " + std::to_string(p.weight) + " has " + std::to_string(w.cols) +
                                                     " columns, its input is " + std::to_string(parts().buffer(src).width) + " wide");
    require(p.dst != src, "linear: a buffer cannot be its own input");
    parts().columns(p.dst, p.col, w.rows);
    if (p.bias != -1) parts().vector(p.bias, w.rows);
  }
  parts().node(LinearNode{src, {specs.begin(), specs.end()}, accumulate});
}

void Builder::rope(const HeadsSpec& heads, int table) {
  parts().heads(heads);
  require(table >= 0 && table < int(parts().net->ropes.size()), "rope table " + std::to_string(table) + " does not exist");
  require(2 * parts().net->ropes[size_t(table)].half <= heads.head_dim, "rope turns more elements than a head has");
  require(!parts().taken, "rope must come before take_rows");
  parts().node(RopeNode{heads, table});
}

void Builder::attention(const AttentionSpec& a) {
  const KvShape& kv = parts().kv.shape();
  require(kv.n_groups > 0, "declare the KV cache before attention");
  require(a.group >= 0 && a.group < kv.n_groups, "attention: group " + std::to_string(a.group) + " of " + std::to_string(kv.n_groups));
  require(a.layer >= 0 && a.layer < kv.n_layers_per_block, "attention: layer " + std::to_string(a.layer) + " of " + std::to_string(kv.n_layers_per_block));
  require(a.n_heads >= 1 && a.n_heads % kv.n_kv_heads == 0, "attention: " + std::to_string(a.n_heads) + " heads over " + std::to_string(kv.n_kv_heads) + " KV heads");
  require(a.window >= 0, "attention: the window is negative");
  require(a.dst != a.q && a.dst != a.kv, "attention: the result cannot overwrite its input");
  require(!parts().taken, "attention must come before take_rows");
  parts().columns(a.dst, 0, int64_t(a.n_heads) * kv.head_dim);
  parts().columns(a.q, a.q_col, int64_t(a.n_heads) * kv.head_dim);
  parts().columns(a.kv, a.k_col, int64_t(kv.n_kv_heads) * kv.head_dim);
  parts().columns(a.kv, a.v_col, int64_t(kv.n_kv_heads) * kv.head_dim);
  int& window = parts().net->group_windows[size_t(a.group)];
  window = window == 0 || a.window == 0 ? 0 : std::max(window, a.window);
  parts().node(AttentionNode{a});
}

void Builder::silu_mul(const GateSpec& g) {
  parts().columns(g.dst, 0, g.n);
  parts().columns(g.src, g.gate_col, g.n);
  parts().columns(g.src, g.up_col, g.n);
  parts().node(GateNode{g, false});
}

void Builder::gelu_mul(const GateSpec& g) {
  silu_mul(g);
  std::get<GateNode>(parts().net->nodes.back()).gelu = true;
}

void Builder::add(int dst, int a, int b) {
  const int width = parts().buffer(dst).width;
  require(parts().buffer(a).width == width && parts().buffer(b).width == width, "add: the buffers differ in width");
  parts().node(AddNode{dst, a, b});
}

void Builder::take_rows(int dst, int src) {
  const std::vector<Node>& nodes = parts().net->nodes;
  require(!parts().taken || std::holds_alternative<TakeNode>(nodes.back()), "take_rows may come in one place");
  for (const Node& node : nodes)
    if (const auto* take = std::get_if<TakeNode>(&node)) require(take->dst != src && take->dst != dst, "take_rows: that buffer holds taken rows already");
  require(dst != src && parts().buffer(dst).width == parts().buffer(src).width, "take_rows: two buffers of one width are needed");
  spare_attention(parts().net->nodes, src);
  parts().node(TakeNode{dst, src});
  parts().taken = true;
}

void Builder::head(int src, int weight, float softcap) {
  const Packed& w = parts().weight(weight);
  require(parts().taken, "head must come after take_rows");
  require(w.cols == parts().buffer(src).width, "head: the weight has " + std::to_string(w.cols) + " columns, its input another width");
  require(w.rows == parts().net->limits.vocab_size, "head: the weight has " + std::to_string(w.rows) + " rows, the vocabulary " +
                                                        std::to_string(parts().net->limits.vocab_size));
  parts().node(HeadNode{src, weight, softcap});
  parts().headed = true;
}

std::unique_ptr<Program> Builder::build() {
  require(parts().headed, "a program ends with a head");
  for (size_t g = 0; g < parts().net->group_windows.size(); ++g)
    require(parts().net->group_windows[g] >= 0, "no attention uses KV group " + std::to_string(g));
  join_heads(parts().net->nodes);
  link_weights(parts().net->nodes);
  mark_quantised(*parts().net);
  auto program = std::make_unique<Program::Parts>(std::move(parts().net), std::move(parts().pool), std::move(parts().kv));
  parts_.reset();
  return std::unique_ptr<Program>(new Program(std::move(program)));
}

}  // namespace camshaft
