#include "harness/cases/key_lists.h"

#include <algorithm>
#include <unordered_map>

#include "kernels/contract/philox.h"

namespace attnbench {
namespace {

// Differs from the other streams (draws.cpp, mask_bits.cpp, config/lengths.cpp, tensors/plan.cpp).
constexpr uint32_t kListStream = 0x6c697374;  // "list"
constexpr int32_t kOfQuery = 0xfff;           // no KV head has this number

/// Random numbers of one list.
class ListDraws {
 public:
  ListDraws(const ListOwner& owner, int32_t kv_head) : owner_(owner), kv_head_(kv_head) {}

  int64_t below(int64_t range) {
    return static_cast<int64_t>((uint64_t{next()} * static_cast<uint64_t>(range)) >> 32);
  }

 private:
  uint32_t next() {
    if (count_ % 4 == 0) {
      four_ = philox4x32(kListStream, static_cast<uint32_t>(owner_.seq), static_cast<uint32_t>(owner_.i),
                         static_cast<uint32_t>(kv_head_) << 20 | count_ / 4, owner_.seed);
    }
    return four_.x[count_++ % 4];
  }

  ListOwner owner_;
  int32_t kv_head_;
  uint32_t count_ = 0;
  Philox4 four_{};
};

/// `count` different numbers of [0, range), in random order: the first steps of a Fisher-Yates shuffle.
std::vector<int32_t> different(ListDraws& draws, int32_t count, int32_t range) {
  std::unordered_map<int32_t, int32_t> moved;
  const auto at = [&](int32_t i) {
    const auto found = moved.find(i);
    return found == moved.end() ? i : found->second;
  };
  std::vector<int32_t> out;
  for (int32_t i = 0; i < count; ++i) {
    const auto j = static_cast<int32_t>(i + draws.below(range - i));
    out.push_back(at(j));
    moved[j] = at(i);
  }
  return out;
}

}  // namespace

int32_t key_list_length(const CaseParams& p, const ListOwner& owner) {
  switch (p.topk_length) {
    case TopkLength::kFull:
      return p.topk;
    case TopkLength::kDrawn:
      return static_cast<int32_t>(ListDraws(owner, kOfQuery).below(int64_t{p.topk} + 1));
    case TopkLength::kZero:
      return 0;
  }
  return 0;
}

std::vector<int32_t> key_list_of(const CaseParams& p, const ListOwner& owner, int32_t kv_head,
                                 const KeyRange& visible) {
  const int32_t length = key_list_length(p, owner);
  std::vector<int32_t> list(static_cast<std::size_t>(length), -1);
  ListDraws draws(owner, kv_head);
  if (draws.below(16) == 0) return list;
  const auto holes = static_cast<int32_t>(draws.below(length / 4 + 1));
  const auto keys = static_cast<int32_t>(std::min<int64_t>(visible.size(), length - holes));
  const std::vector<int32_t> chosen = different(draws, keys, static_cast<int32_t>(visible.size()));
  const std::vector<int32_t> places = different(draws, keys, length);
  for (std::size_t n = 0; n < chosen.size(); ++n) {
    list[static_cast<std::size_t>(places[n])] = static_cast<int32_t>(visible.begin) + chosen[n];
  }
  return list;
}

}  // namespace attnbench
