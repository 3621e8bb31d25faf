// Free parts of a range of addresses.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

namespace attnbench {

class FreeRanges {
 public:
  explicit FreeRanges(int64_t bytes = 0) {
    if (bytes > 0) free_[0] = bytes;
  }
  /// The begin of the first free range that is large enough; nullopt: none.
  std::optional<int64_t> take(int64_t bytes) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      const auto [begin, there] = *it;
      if (there < bytes) continue;
      free_.erase(it);
      if (there > bytes) free_[begin + bytes] = there - bytes;
      return begin;
    }
    return std::nullopt;
  }
  void give(int64_t begin, int64_t bytes) {
    auto it = free_.emplace(begin, bytes).first;
    if (const auto next = std::next(it); next != free_.end() && it->first + it->second == next->first) {
      it->second += next->second;
      free_.erase(next);
    }
    if (it == free_.begin()) return;
    if (const auto last = std::prev(it); last->first + last->second == it->first) {
      last->second += it->second;
      free_.erase(it);
    }
  }

 private:
  std::map<int64_t, int64_t> free_;  ///< offset -> bytes
};

}  // namespace attnbench
