// Matrix products: the input is quantised once in blocks of tokens, then one loop runs over all tiles of all parts for each block.
#include "step.h"

namespace camshaft {
namespace {

constexpr size_t kExpectedBytes = 256 << 10;  // of each thread: half of a second-level cache of 512 KiB
constexpr int kBlockBytes = 192 << 10;        // quantised input of a token block: well inside a second-level cache of 512 KiB, weights beside it

// From how many places of its chunk a kernel reads at once.
constexpr int places_of(int tokens) { return tokens == 1 ? 4 : tokens == 2 ? 2 : 1; }

// Quantised rows of so many bytes are brought near before a thread's first tile: fewer come on the way, and more would drive each other out.
constexpr size_t kLeastBrought = 16 << 10, kMostBrought = 96 << 10;

// Tiles and bytes of several matrices together.
struct Size {
  int tiles = 0;
  size_t bytes = 0;
  void add(const Packed& w) { tiles += w.tiles(), bytes += packed_bytes(w.form, w.rows, w.cols); }
};

// How many tiles make a chunk: enough to be worth handing out, in bytes of weights times tokens.
int tiles_per_chunk(const Step& s, const Size& size, int tokens) {
  constexpr double kWorthIt = 24'000;
  const double tile_work = double(size.bytes) / size.tiles * (tokens / 4.0 + 1);
  return std::max(int(kWorthIt / tile_work) + 1, tiles_per_share(s, size.tiles, tokens));
}

// Where a thread begins that multiplies `n` tiles from tile `begin` on, counted over all of these weights.
Reading first_reading(const Step& s, std::span<const int> ids, int begin, int n, int places) {
  for (int id : ids) {
    const Packed& w = s.weight(id);
    if (begin < w.tiles()) {
      const int apart = std::min(n, w.tiles() - begin) / places;
      const size_t row = packed_bytes(w.form, kRowTile, w.cols), each = std::min(kExpectedBytes / size_t(places), row * size_t(apart));
      return {w.data + row * size_t(begin), each, row * size_t(apart), places};
    }
    begin -= w.tiles();
  }
  return {};
}

// The quantised rows if they are worth bringing near, else nothing.
std::span<const uint8_t> worth_bringing(const Step& s, const Acts& rows) {
  const size_t bytes = s.net.kernels->acts_bytes(rows.tokens, rows.cols);
  const bool worth = s.pool.size() > 1 && bytes >= kLeastBrought && bytes <= kMostBrought;
  return {rows.data, worth ? bytes : 0};
}

// Brings what several threads wrote, and all will read, into this core's caches. A tile asks for a few lines at a time and waits for each, 20
// to 60 ns from core to core; when all are asked for at once, many are on the way together, and a line takes 3 to 10. Twice, since a line that
// another core asks for leaves its writer: the second pass fetches back what went away during the first.
void bring(std::span<const uint8_t> written) {
  for (int pass = 0; pass < 2; ++pass)
    for (size_t i = 0; i < written.size(); i += kAlign) static_cast<void>(*static_cast<const volatile uint8_t*>(&written[i]));
}

}  // namespace

bool is_integer(const Network& net, Form form) { return net.int8 && net.kernels->linear_q[size_t(form)]; }

// Each worker expects its own share. Were all to fetch the same, one would run ahead of the others.
void expect_weights(Step& s, int tokens, std::span<const int> ids) {
  Size size;
  for (int id : ids) size.add(s.weight(id));
  const int grain = size.tiles ? tiles_per_chunk(s, size, tokens) : 1, chunks = ceil_div(size.tiles, grain);
  for (int worker = 0; worker < s.pool.size(); ++worker) {
    const auto [first, n] = s.pool.first_of(chunks, worker);
    s.pool.expect(worker, n ? first_reading(s, ids, first * grain, n * grain, places_of(tokens)) : Reading{});
  }
}

int tiles_per_share(const Step& s, int tiles, int tokens) {
  // Where a kernel reads from a few places of its chunk at once, one chunk a thread is best: the longer each is, the less often memory is
  // found unprepared. Elsewhere they are small, so that cores of unlike speed end together.
  const int shares = places_of(tokens) > 1 ? 1 : 96;
  return std::max(1, ceil_div(tiles, shares * s.pool.size()));
}

void run_kernel(const Kernels& k, const LinearArgs& a, int begin, int end) { (a.q.data ? k.linear_q : k.linear_f)[size_t(a.w.form)](a, begin, end); }

int ActCache::most_block_tokens(int cols) {
  const int tokens = kBlockBytes / std::max(1, cols) / kActTile * kActTile;
  return std::clamp(tokens, 4 * kActTile, 1024);
}

int ActCache::block_tokens(int cols, int tokens) {
  const int blocks = ceil_div(tokens, most_block_tokens(cols));
  return ceil_div(ceil_div(tokens, blocks), kActTile) * kActTile;
}

ActCache::ActCache(Network& net, int max_cols) {
  size_t most = 0;
  for (const Buffer& b : net.buffers) {
    const int block = most_block_tokens(b.width), blocks = ceil_div(net.limits.max_tokens, block);
    if (b.width <= max_cols) most = std::max(most, size_t(blocks) * round_up(net.kernels->acts_bytes(block, b.width), kAlign));
  }
  data_ = net.arena.bytes(most);
}

std::span<const ActCache::Block> ActCache::get(const Network& net, ThreadPool& pool, Rows x, int cols, int tokens, int source) {
  if (source >= 0 && source == source_ && cols == cols_ && tokens == tokens_) return blocks_;
  const int units = open(net, cols, tokens, source);
  auto body = [&](int begin, int end, int) {
    for (int unit = begin; unit < end; ++unit) quantise(net, x, unit);
  };
  if (tokens * cols < 4'000) body(0, units, 0);
  else pool.run(units, std::max(1, units / (4 * pool.size())), body);
  return blocks_;
}

int ActCache::open(const Network& net, int cols, int tokens, int source) {
  const int block = block_tokens(cols, tokens);
  const size_t bytes = round_up(net.kernels->acts_bytes(block, cols), kAlign);
  blocks_.clear();
  for (int first = 0; first < tokens; first += block) {
    const size_t at = blocks_.size() * bytes;
    const int n = std::min(block, tokens - first);
    blocks_.push_back({{data_ + at, n, cols}, first});
  }
  source_ = source, cols_ = cols, tokens_ = tokens;
  return ceil_div(tokens, kActUnit);
}

void ActCache::quantise(const Network& net, Rows x, int unit) const {
  // A block's size is a multiple of kActTile, so a unit lies in one block.
  const Block& b = blocks_[size_t(unit * kActUnit / block_tokens(cols_, tokens_))];
  const int t = unit * kActUnit - b.first, end = std::min(t + kActUnit, b.acts.tokens);
  net.kernels->quantize({x[b.first], x.stride}, cols_, t, end, b.acts.tokens, const_cast<uint8_t*>(b.acts.data));
}

void multiply(Step& s, int src, Rows x, int cols, int tokens, std::span<const LinearJob> jobs, bool accumulate, std::span<const int> next) {
  if (tokens == 0) return;
  bool any_integer = false;
  Size size;
  for (const LinearJob& job : jobs) any_integer |= is_integer(s.net, job.w->form), size.add(*job.w);
  std::span<const ActCache::Block> quantised;
  if (any_integer) quantised = s.acts.get(s.net, s.pool, x, cols, tokens, src);
  s.times.lap(Work::quantize);

  const int block = ActCache::block_tokens(cols, tokens), n_blocks = ceil_div(tokens, block);
  const auto run_tiles = [&](int b, int begin, int end) {
    const int first = b * block, n = std::min(block, tokens - first);
    int base = 0;
    for (const LinearJob& job : jobs) {
      const int t0 = std::max(begin, base) - base, t1 = std::min(end, base + job.w->tiles()) - base;
      base += job.w->tiles();
      if (t0 >= t1) continue;
      LinearArgs args{*job.w, {}, {x[first], x.stride}, n, job.bias, accumulate, {job.y[first], job.y.stride}};
      if (is_integer(s.net, job.w->form)) args.q = quantised[size_t(b)].acts;
      run_kernel(*s.net.kernels, args, t0, t1);
    }
  };
  const int grain = tiles_per_chunk(s, size, std::min(tokens, block)), chunks = ceil_div(size.tiles, grain);
  const auto brought = any_integer ? worth_bringing(s, quantised.front().acts) : std::span<const uint8_t>();
  auto body = [&](int begin, int end, int worker) {
    if (!brought.empty() && begin == s.pool.first_of(n_blocks * chunks, worker).first) bring(brought);
    for (int i = begin; i < end;) {
      const int b = i / chunks, next = std::min(end, (b + 1) * chunks), t = i % chunks * grain;
      run_tiles(b, t, std::min(size.tiles, t + (next - i) * grain));
      i = next;
    }
  };
  expect_weights(s, tokens, next);
  run_forwards(s.pool, n_blocks * chunks, body);  // weights are asked for ahead of their use: the next piece begins with what this one asked for
}

void execute(const LinearNode& node, Step& s) {
  const Buffer& src = s.buffer(node.src);
  LinearJob jobs[kMaxParts];
  for (size_t i = 0; i < node.parts.size(); ++i) {
    const PartSpec& p = node.parts[i];
    const Buffer& dst = s.buffer(p.dst);
    jobs[i] = {&s.weight(p.weight), p.bias >= 0 ? s.vector(p.bias) : nullptr, {dst.rows.data + p.col, dst.rows.stride}};
  }
  multiply(s, node.src, src.rows, src.width, s.tokens, {jobs, node.parts.size()}, node.accumulate, node.next);
  for (const PartSpec& p : node.parts) s.acts.forget(p.dst);
  s.times.lap(Work::linear);
}

}  // namespace camshaft
