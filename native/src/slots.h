// What a slot knows: its tokens, how it samples, and where its KV lies. Changed between steps only; threads read it.
#pragma once
#include <span>
#include <unordered_map>
#include <vector>

#include "camshaft/program.h"

namespace camshaft {

// The ids of one sequence by position, with the counts that penalties need. A row that starts earlier than what is recorded truncates
// the record, which is how preemption, rollback and a change of drafts stay right.
class History {
 public:
  History() = default;
  History(std::span<const int32_t> prompt, std::span<const int32_t> output, bool counted);
  int n_prompt() const { return n_prompt_; }
  int size() const { return int(ids_.size()); }
  int32_t operator[](int position) const { return ids_[size_t(position)]; }
  // The ids of positions start, start + 1, ...: start is at most size(). Prompt positions are known already and stay.
  void record(int start, std::span<const int32_t> ids);

  struct Count {
    int prompt = 0, output = 0;
  };
  const std::unordered_map<int32_t, Count>& counts() const { return counts_; }

 private:
  void push(int32_t id);
  void pop();
  std::vector<int32_t> ids_;
  int n_prompt_ = 0;
  bool counted_ = false;  // without penalties nobody reads the counts
  std::unordered_map<int32_t, Count> counts_;
};

// Block ids per group: entry i holds positions [i * block_size, (i + 1) * block_size). 0 means gone, or never there.
using BlockTables = std::vector<std::vector<int32_t>>;

struct Slot {
  bool open = false;
  SlotParams params;
  History history;
  BlockTables tables;
};

}  // namespace camshaft
