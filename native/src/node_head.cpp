// The head, in slices of rows and pieces of the vocabulary. A piece's logits stay in a core's cache: a row that wants the likeliest token
// and nothing else reads its maximum off there, and only the logits of other rows are written out, to be judged when all pieces are done.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "step.h"

namespace camshaft {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Takes in what a piece x[n] that begins with token `first` has to offer, as Kernels::argmax over the whole row would.
void offer(const Kernels& k, const float* x, int n, int first, HeadRoom::Best& best) {
  const int at = k.argmax(x, n);
  if (at < 0) {
    if (!std::all_of(x, x + n, [](float v) { return v == kNever; })) best.spoilt = true;
    return;
  }
  best.take({x[at], first + at, false});
}

// One slice: rows [first, first + n) of those that are taken.
class Slice {
 public:
  Slice(const HeadNode& node, Step& s, int first, int n) : node_(node), s_(s), w_(s.weight(node.weight)), first_(first), n_(n) {
    const Buffer& src = s.buffer(node.src);
    x_ = {src.rows[first], src.rows.stride};
    if (is_integer(s.net, w_.form)) acts_ = s.acts.get(s.net, s.pool, x_, src.width, n, -1).front().acts;
    for (int i = 0; i < n; ++i) only_best_[i] = !s.kept && Sampler::wants_only_best(taken(i), s.batch, slot(i));
    for (HeadRoom::Worker& worker : s.head.workers) std::fill_n(worker.best, n, HeadRoom::Best{});
  }

  void multiply() {
    const int tiles = w_.tiles();
    // As many pieces for each thread: with one more than the others a thread would be alone at the end.
    const int most = std::clamp(kHeadPieceFloats / n_ / kRowTile - 1, 1, tiles_per_share(s_, tiles, n_)), threads = s_.pool.size();
    const int piece = ceil_div(tiles, ceil_div(ceil_div(tiles, most), threads) * threads);
    auto body = [&](int begin, int end, int worker) {
      for (int i = begin; i < end; ++i) this->piece(i * piece, std::min(tiles, (i + 1) * piece), s_.head.workers[size_t(worker)]);
    };
    expect_weights(s_, n_, node_.next);
    s_.pool.run(ceil_div(tiles, piece), 1, body);
  }

  void judge() {
    auto body = [&](int begin, int end, int worker) {
      for (int i = begin; i < end; ++i) {
        if (only_best_[i]) continue;
        float* x = s_.logits[i];
        if (s_.kept) std::memcpy(s_.kept + size_t(first_ + i) * size_t(w_.rows), x, size_t(w_.rows) * sizeof(float));
        s_.sampler.judge(taken(i), s_.batch, slot(i), x, worker, s_.out[size_t(taken(i).row)]);
      }
    };
    if (std::find(only_best_, only_best_ + n_, false) != only_best_ + n_) s_.pool.run(n_, 1, body);
    for (int i = 0; i < n_; ++i) {
      if (!only_best_[i]) continue;
      HeadRoom::Best best;
      for (const HeadRoom::Worker& worker : s_.head.workers) best.take(worker.best[i]);
      s_.out[size_t(taken(i).row)].ids[size_t(taken(i).sample)] = best.spoilt ? -1 : best.id;
    }
  }

 private:
  const Taken& taken(int i) const { return s_.batch.taken()[size_t(first_ + i)]; }
  const Slot& slot(int i) const { return s_.slots[size_t(s_.batch.rows()[size_t(taken(i).row)].slot)]; }

  void piece(int tile_begin, int tile_end, HeadRoom::Worker& room) const {
    const int first = tile_begin * kRowTile, width = std::min(w_.rows, tile_end * kRowTile) - first;
    // An odd number of lines apart, or all rows would fall into the same few sets of a cache.
    const Rows y{room.piece, ((tile_end - tile_begin) | 1) * kRowTile};
    const uint8_t* data = w_.data + size_t(tile_begin) * size_t(w_.groups()) * tile_bytes(w_.form);
    const LinearArgs args{{w_.form, width, w_.cols, data}, acts_, x_, n_, nullptr, false, y};
    const Kernels& k = *s_.net.kernels;
    run_kernel(k, args, 0, tile_end - tile_begin);
    for (int i = 0; i < n_; ++i) {
      if (node_.softcap > 0.0f) k.softcap(y[i], width, node_.softcap);
      if (only_best_[i]) offer(k, y[i], width, first, room.best[i]);
      else std::memcpy(s_.logits[i] + first, y[i], size_t(width) * sizeof(float));
    }
  }

  const HeadNode& node_;
  Step& s_;
  const Packed& w_;
  int first_, n_;
  Rows x_{};
  Acts acts_{};  // of int8 compute
  bool only_best_[kHeadSlice] = {};
};

}  // namespace

void execute(const HeadNode& node, Step& s) {
  s.times.lap(Work::head);
  for (int first = 0; first < s.tokens; first += kHeadSlice) {
    Slice slice(node, s, first, std::min(kHeadSlice, s.tokens - first));
    slice.multiply();
    s.times.lap(Work::head);
    slice.judge();
    s.times.lap(Work::sample);
  }
}

}  // namespace camshaft
