// A step's ragged batch, checked and laid out for the nodes. prepare() is all or nothing: it throws before anything has changed.
#pragma once
#include <vector>

#include "camshaft/program.h"
#include "kv_pool.h"
#include "slots.h"

namespace camshaft {

constexpr int kQueryTile = 16;  // query tokens of one work item of attention

// A row of the batch whose logits are wanted.
struct Taken {
  int row;
  int token;     // index in the batch
  int position;  // of that token in its sequence; its logits speak of position + 1
  int32_t target;  // the known next token to score, or -1
  int sample;      // which of the row's samples this is, or -1
};

struct AttnItem {
  int row, t_begin, t_end;  // batch token indices
  int split = -1;           // which of the split ones this is a part of; -1: whole
  int part = 0, n_parts = 1;  // one item after the other
};

// An item whose spans are shared out among threads, since it is too large a share of the step: a long sequence in a small batch.
struct AttnSplit {
  AttnItem item;
  int64_t first;  // where its parts begin in the room for them, counted in (token, span) pairs
  int spans;      // at most
};
constexpr int kSplitTokens = 4;    // query tokens of a split item, at most: decode, and drafts that are verified
constexpr int kSplitSpans = 4;     // spans of a part, at least
constexpr int kPartsPerThread = 8;
constexpr int64_t kSplitRoom = 2048;  // (token, span) pairs in a step: address space, of which pages are taken as they are used
constexpr int kMostSplits = int(kSplitRoom / (2 * kSplitSpans));  // of at least two parts each

// Attention over some of a step's tokens.
struct AttnWork {
  std::vector<AttnItem> items;  // longest last
  std::vector<AttnSplit> splits;
  double pairs = 0;  // (query, visible token), an upper bound

  void clear() { items.clear(), splits.clear(), pairs = 0; }
};

// What a batch is checked against.
struct BatchRules {
  int max_tokens, vocab_size, max_positions;
  KvShape kv;                      // n_groups is 0 where the network has no attention
  std::vector<int> group_windows;  // 0: sees everything; -1: no layer uses the group
  int threads;
};

class StepBatch {
 public:
  explicit StepBatch(const BatchRules& rules, int max_slots);
  // Checks the batch, then patches the block tables and records the ids in the slots' histories. Throws std::invalid_argument.
  void prepare(const Batch& batch, std::vector<Slot>& slots);

  int tokens() const { return int(ids_.size()); }
  std::span<const int32_t> ids() const { return ids_; }
  std::span<const RowSpec> rows() const { return rows_; }
  int position(int token) const { return positions_[size_t(token)]; }
  int row_of(int token) const { return row_of_[size_t(token)]; }
  int first(int row) const { return firsts_[size_t(row)]; }
  const std::vector<Taken>& taken() const { return taken_; }
  // Of all tokens, or of those alone whose logits are wanted.
  const AttnWork& attention(bool taken_alone) const { return taken_alone && taken_.size() < ids_.size() ? of_taken_ : of_all_; }
  const uint32_t* mask(int row) const { return masks_[size_t(row)]; }  // null: everything is allowed

 private:
  struct Undo {
    int32_t slot, group;
    size_t index, old_size;
    int32_t old_id;
  };
  void check_rows(const Batch& batch, const std::vector<Slot>& slots);
  void check_masks(const Batch& batch);
  void check_copies(const Batch& batch) const;
  void check_patches(const Batch& batch, const std::vector<Slot>& slots) const;
  void patch(const Batch& batch, std::vector<Slot>& slots);
  void unpatch(std::vector<Slot>& slots);
  void check_tables(const std::vector<Slot>& slots);
  void check_group(const RowSpec& row, int group, const std::vector<int32_t>& table);
  void lay_out();
  void add_run(AttnWork& work, int row, int begin, int end) const;
  void close(AttnWork& work) const;
  double cost(const AttnItem& item) const;
  void split_longest(AttnWork& work) const;
  void lay_out_taken();
  void take(int row, const Slot& slot);

  BatchRules rules_;
  std::span<const int32_t> ids_;
  std::span<const RowSpec> rows_;
  std::vector<int> row_of_slot_;  // -1: not in this batch
  std::vector<int> firsts_, positions_, row_of_;
  std::vector<const uint32_t*> masks_;
  std::vector<Taken> taken_;
  AttnWork of_all_, of_taken_;
  std::vector<Undo> undo_;
  std::vector<uint64_t> written_;  // per block: the step that writes it last
  uint64_t step_ = 0;
};

}  // namespace camshaft
