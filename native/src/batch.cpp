#include "batch.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace camshaft {
namespace {

template <class... Words> [[noreturn]] void refuse(const Words&... words) {
  std::string text;
  const auto append = [&](const auto& w) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(w)>>) text += std::to_string(w);
    else text += w;
  };
  (append(words), ...);
  throw std::invalid_argument(text);
}

constexpr size_t kPatchHead = 4;  // slot, group, index, n

// Calls visit(slot, group, index, block ids) for each patch of the flat list.
template <class Visit> void each_patch(std::span<const int32_t> flat, Visit visit) {
  for (size_t at = 0; at < flat.size();) {
    if (flat.size() - at < kPatchHead || flat[at + 3] < 0 || flat.size() - at - kPatchHead < size_t(flat[at + 3]))
      refuse("table patches end in the middle of one, at word ", at);
    const size_t n = size_t(flat[at + 3]);
    visit(flat[at], flat[at + 1], flat[at + 2], flat.subspan(at + kPatchHead, n));
    at += kPatchHead + n;
  }
}

}  // namespace

StepBatch::StepBatch(const BatchRules& rules, int max_slots) : rules_(rules), row_of_slot_(size_t(max_slots), -1) {
  written_.resize(size_t(rules.kv.n_blocks), 0);
  positions_.reserve(size_t(rules.max_tokens));
  row_of_.reserve(size_t(rules.max_tokens));
  taken_.reserve(size_t(rules.max_tokens));
}

void StepBatch::prepare(const Batch& batch, std::vector<Slot>& slots) {
  ++step_;
  std::fill(row_of_slot_.begin(), row_of_slot_.end(), -1);
  ids_ = batch.ids;
  rows_ = batch.rows;
  check_rows(batch, slots);
  check_masks(batch);
  check_copies(batch);
  check_patches(batch, slots);
  try {
    patch(batch, slots);
    check_tables(slots);
  } catch (...) {
    unpatch(slots);
    throw;
  }
  lay_out();
  taken_.clear();
  for (int r = 0; r < int(rows_.size()); ++r) {
    Slot& slot = slots[size_t(rows_[size_t(r)].slot)];
    slot.history.record(rows_[size_t(r)].start, ids_.subspan(size_t(firsts_[size_t(r)]), size_t(rows_[size_t(r)].n_new)));
    take(r, slot);
  }
  lay_out_taken();
}

void StepBatch::check_rows(const Batch& batch, const std::vector<Slot>& slots) {
  if (batch.ids.size() > size_t(rules_.max_tokens)) refuse("the step has ", batch.ids.size(), " tokens, the program takes ", rules_.max_tokens);
  size_t total = 0;
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const RowSpec& row = batch.rows[r];
    if (row.slot < 0 || row.slot >= int(slots.size())) refuse("row ", r, ": slot ", row.slot, " is outside 0..", slots.size() - 1);
    const Slot& slot = slots[size_t(row.slot)];
    if (!slot.open) refuse("row ", r, ": slot ", row.slot, " is not open");
    if (row_of_slot_[size_t(row.slot)] >= 0) refuse("row ", r, ": slot ", row.slot, " is in the batch twice");
    row_of_slot_[size_t(row.slot)] = int(r);
    if (row.n_new < 1) refuse("row ", r, ": n_new is ", row.n_new, ", at least 1 is needed");
    if (row.start < 0 || row.start > slot.history.size())
      refuse("row ", r, ": starts at position ", row.start, ", but slot ", row.slot, " knows ", slot.history.size(), " tokens");
    if (row.n_new > rules_.max_positions - row.start)
      refuse("row ", r, ": position ", int64_t(row.start) + row.n_new - 1, " is past the last one, ", rules_.max_positions - 1);
    if (row.n_sample < 0 || row.n_sample > row.n_new) refuse("row ", r, ": n_sample is ", row.n_sample, " of ", row.n_new, " new tokens");
    if (row.score != 0 && row.score != 1) refuse("row ", r, ": score is ", row.score, ", 0 or 1 is meant");
    total += size_t(row.n_new);
  }
  if (total != batch.ids.size()) refuse("the rows hold ", total, " tokens, but there are ", batch.ids.size(), " ids");
  for (size_t i = 0; i < batch.ids.size(); ++i)
    if (batch.ids[i] < 0 || batch.ids[i] >= rules_.vocab_size) refuse("token id ", batch.ids[i], " is outside 0..", rules_.vocab_size - 1);
}

void StepBatch::check_masks(const Batch& batch) {
  masks_.assign(batch.rows.size(), nullptr);
  const size_t words = size_t(ceil_div(rules_.vocab_size, 32));
  for (const MaskSpec& m : batch.masks) {
    if (m.slot < 0 || m.slot >= int(row_of_slot_.size()) || row_of_slot_[size_t(m.slot)] < 0) refuse("a mask is for slot ", m.slot, ", which has no row");
    if (m.words.size() != words) refuse("the mask of slot ", m.slot, " has ", m.words.size(), " words, ", words, " are needed");
    masks_[size_t(row_of_slot_[size_t(m.slot)])] = m.words.data();
  }
}

void StepBatch::check_copies(const Batch& batch) const {
  for (const CopySpec& c : batch.copies)
    if (c.src < 1 || c.dst < 1 || c.src >= rules_.kv.n_blocks || c.dst >= rules_.kv.n_blocks)
      refuse("block copy ", c.src, " -> ", c.dst, " is outside 1..", rules_.kv.n_blocks - 1);
}

void StepBatch::check_patches(const Batch& batch, const std::vector<Slot>& slots) const {
  const int64_t longest = rules_.kv.n_groups ? ceil_div(rules_.max_positions, rules_.kv.block_size) : 0;
  each_patch(batch.patches, [&](int32_t slot, int32_t group, int32_t index, std::span<const int32_t> blocks) {
    if (slot < 0 || slot >= int(slots.size()) || !slots[size_t(slot)].open) refuse("a table patch is for slot ", slot, ", which is not open");
    if (group < 0 || group >= rules_.kv.n_groups) refuse("a table patch is for group ", group, " of ", rules_.kv.n_groups);
    if (index < 0 || int64_t(index) + int64_t(blocks.size()) > longest)
      refuse("a table patch ends at entry ", int64_t(index) + int64_t(blocks.size()), ", a sequence has at most ", longest);
    for (int32_t b : blocks)
      if (b < 0 || b >= rules_.kv.n_blocks) refuse("block ", b, " is outside 0..", rules_.kv.n_blocks - 1);
  });
}

void StepBatch::patch(const Batch& batch, std::vector<Slot>& slots) {
  undo_.clear();
  each_patch(batch.patches, [&](int32_t slot, int32_t group, int32_t index, std::span<const int32_t> blocks) {
    std::vector<int32_t>& table = slots[size_t(slot)].tables[size_t(group)];
    for (size_t i = 0; i < blocks.size(); ++i) {
      const size_t at = size_t(index) + i;
      undo_.push_back({slot, group, at, table.size(), at < table.size() ? table[at] : 0});
      if (at >= table.size()) table.resize(at + 1, 0);
      table[at] = blocks[i];
    }
  });
}

void StepBatch::unpatch(std::vector<Slot>& slots) {
  for (; !undo_.empty(); undo_.pop_back()) {
    const Undo& u = undo_.back();
    std::vector<int32_t>& table = slots[size_t(u.slot)].tables[size_t(u.group)];
    if (u.index < table.size()) table[u.index] = u.old_id;
    table.resize(std::min(table.size(), u.old_size));
  }
}

void StepBatch::check_tables(const std::vector<Slot>& slots) {
  for (const RowSpec& row : rows_)
    for (int g = 0; g < rules_.kv.n_groups; ++g)
      if (rules_.group_windows[size_t(g)] >= 0) check_group(row, g, slots[size_t(row.slot)].tables[size_t(g)]);
}

// Every position that is written or seen must have a block, and no two rows may write the same one.
void StepBatch::check_group(const RowSpec& row, int group, const std::vector<int32_t>& table) {
  const int window = rules_.group_windows[size_t(group)], size = rules_.kv.block_size;
  const int oldest = window ? std::max(0, row.start - window + 1) : 0;
  const int first_written = row.start / size, last = (row.start + row.n_new - 1) / size;
  for (int i = oldest / size; i <= last; ++i) {
    const int32_t block = i < int(table.size()) ? table[size_t(i)] : 0;
    if (block == 0)
      refuse("slot ", row.slot, ": positions from ", i * size, " on have no block in group ", group, ", but the row at ", row.start, " needs them");
    if (i < first_written) continue;
    if (written_[size_t(block)] == step_) refuse("slot ", row.slot, ": block ", block, " is written by another row of the same step");
    written_[size_t(block)] = step_;
  }
}

void StepBatch::lay_out() {
  firsts_.clear(), positions_.clear(), row_of_.clear(), of_all_.clear();
  for (int r = 0; r < int(rows_.size()); ++r) {
    const RowSpec& row = rows_[size_t(r)];
    const int first = int(positions_.size());
    firsts_.push_back(first);
    for (int i = 0; i < row.n_new; ++i) positions_.push_back(row.start + i), row_of_.push_back(r);
    add_run(of_all_, r, first, first + row.n_new);
  }
  close(of_all_);
}

// Tokens [begin, end) of the batch, all of one row.
void StepBatch::add_run(AttnWork& work, int row, int begin, int end) const {
  for (int t = begin; t < end; t += kQueryTile) work.items.push_back({row, t, std::min(end, t + kQueryTile)});
  work.pairs += 0.5 * (end - begin) * (positions_[size_t(begin)] + positions_[size_t(end - 1)] + 1);
}

void StepBatch::close(AttnWork& work) const {
  // The longest last, where the last thread begins; among equals by token, so that a thread mostly finds those whose rows it made.
  std::stable_sort(work.items.begin(), work.items.end(), [&](const AttnItem& a, const AttnItem& b) { return cost(a) < cost(b); });
  split_longest(work);
}

// In (query token, visible token).
double StepBatch::cost(const AttnItem& item) const { return double(item.t_end - item.t_begin) * (positions_[size_t(item.t_end - 1)] + 1); }

void StepBatch::split_longest(AttnWork& work) const {
  if (rules_.threads == 1) return;
  double all = 0;
  for (const AttnItem& i : work.items) all += cost(i);
  const double part = all * std::max(1, rules_.kv.n_kv_heads) / (rules_.threads * kPartsPerThread);  // an item is done once for each kv head
  int64_t room = 0;
  for (size_t i = 0; i < work.items.size(); i += size_t(work.items[i].n_parts)) {
    AttnItem item = work.items[i];
    const int tokens = item.t_end - item.t_begin, spans = positions_[size_t(item.t_end - 1)] / kSpan + 1;
    item.n_parts = std::min(int(cost(item) / part + 0.999), spans / kSplitSpans);
    if (item.n_parts < 2 || tokens > kSplitTokens || room + int64_t(tokens) * spans > kSplitRoom) continue;
    item.split = int(work.splits.size());
    work.splits.push_back({item, room, spans});
    room += int64_t(tokens) * spans;
    work.items.insert(work.items.begin() + ptrdiff_t(i), size_t(item.n_parts - 1), item);
    for (; item.part < item.n_parts; ++item.part) work.items[i + size_t(item.part)] = item;
  }
}

void StepBatch::lay_out_taken() {
  of_taken_.clear();
  if (taken_.size() == ids_.size()) return;  // decode: those of all
  for (size_t i = 0, end; i < taken_.size(); i = end) {
    const Taken& first = taken_[i];
    for (end = i + 1; end < taken_.size() && taken_[end].row == first.row && taken_[end].token == taken_[end - 1].token + 1;) ++end;
    add_run(of_taken_, first.row, first.token, taken_[end - 1].token + 1);
  }
  close(of_taken_);
}

void StepBatch::take(int r, const Slot& slot) {
  const RowSpec& row = rows_[size_t(r)];
  const int first_sample = row.n_new - row.n_sample;
  const int n_scores = row.score ? std::clamp(slot.history.n_prompt() - 1 - row.start, 0, int(row.n_new)) : 0;
  for (int i = 0; i < row.n_new; ++i) {
    const bool scored = i < n_scores, sampled = i >= first_sample;
    if (!scored && !sampled) continue;
    const int position = row.start + i;
    taken_.push_back({r, firsts_[size_t(r)] + i, position, scored ? slot.history[position + 1] : -1, sampled ? i - first_sample : -1});
  }
}

}  // namespace camshaft
