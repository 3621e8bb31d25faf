// The memory in which the ranks of a team meet.
#pragma once

#include <vector>

#include "harness/device/ranks.h"
#include "harness/tensors/guarded_buffer.h"

namespace attnbench {

class RankWords {
 public:
  explicit RankWords(const RankTeam& team) {
    for (Device* device : team.devices) {
      words_.emplace_back(*device, "meeting words", static_cast<int64_t>(sizeof(MeetingWords)));
      device->set_bytes(words_.back().data(), 0, words_.back().bytes());
    }
  }
  /// A meeting of all ranks, as `rank` comes to it.
  Meeting of(std::size_t rank) const {
    Meeting m{};
    m.rank = static_cast<int32_t>(rank);
    m.ranks = static_cast<int32_t>(words_.size());
    for (std::size_t r = 0; r < words_.size(); ++r) m.words[r] = words_[r].as<MeetingWords>();
    return m;
  }
  const GuardedBuffer& buffer(std::size_t rank) const { return words_[rank]; }

 private:
  std::vector<GuardedBuffer> words_;
};

}  // namespace attnbench
