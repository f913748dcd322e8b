#include "slots.h"

namespace camshaft {

History::History(std::span<const int32_t> prompt, std::span<const int32_t> output, bool counted)
    : ids_(prompt.begin(), prompt.end()), n_prompt_(int(prompt.size())), counted_(counted) {
  if (counted_)
    for (int32_t id : prompt) ++counts_[id].prompt;
  for (int32_t id : output) push(id);
}

void History::push(int32_t id) {
  ids_.push_back(id);
  if (counted_) ++counts_[id].output;
}

void History::pop() {
  if (counted_) {
    auto it = counts_.find(ids_.back());
    if (--it->second.output == 0 && it->second.prompt == 0) counts_.erase(it);
  }
  ids_.pop_back();
}

void History::record(int start, std::span<const int32_t> ids) {
  const int end = start + int(ids.size());
  // Decoding repeats nothing, so look first: mostly the row only appends.
  while (size() > std::max(end, n_prompt_)) pop();
  for (int position = std::max(start, n_prompt_); position < size(); ++position)
    if (ids_[size_t(position)] != ids[size_t(position - start)]) {
      while (size() > position) pop();
      break;
    }
  for (int position = size(); position < end; ++position) push(ids[size_t(position - start)]);
}

}  // namespace camshaft
