#include "harness/config/given_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "harness/digest.h"
#include "harness/error.h"

namespace attnbench {

GivenBlocks::GivenBlocks(Ids ids, std::vector<int32_t> k_lens, int32_t block_size)
    : ids_(std::move(ids)), k_lens_(std::move(k_lens)), block_size_(block_size) {
  if (ids_.size() != k_lens_.size()) {
    throw Error(
        fmt::format("blocks of {} sequences are given, and the batch has {}", ids_.size(), k_lens_.size()));
  }
  Digest digest;
  for (std::size_t b = 0; b < ids_.size(); ++b) {
    const int64_t needed = (int64_t{k_lens_[b]} + block_size - 1) / block_size;
    if (static_cast<int64_t>(ids_[b].size()) != needed) {
      throw Error(fmt::format("sequence {} has {} blocks, and its {} keys need {} of {} tokens", b,
                              ids_[b].size(), k_lens_[b], needed, block_size));
    }
    digest.add_bytes(-1);
    for (std::size_t i = 0; i < ids_[b].size(); ++i) {
      const int32_t id = ids_[b][i];
      if (id < 0 || id == std::numeric_limits<int32_t>::max()) {
        throw Error(fmt::format("block {} of sequence {} is {}; an id from 0 on is required", i, b, id));
      }
      digest.add_bytes(id);
      num_blocks_ = std::max(num_blocks_, id + 1);
      ++shared_;
    }
  }
  digest_ = fmt::format("{:08x}", digest.value32());
  const Owners all = owners();
  for (const auto& [id, o] : all) rows_ += o.rows;
  shared_ -= std::ssize(all);
}

GivenBlocks::Owners GivenBlocks::owners() const {
  Owners all;
  for (std::size_t b = 0; b < ids_.size(); ++b) {
    for (std::size_t i = 0; i < ids_[b].size(); ++i) {
      const auto index = static_cast<int32_t>(i);
      const Owner here{static_cast<int32_t>(b), index,
                       std::min(block_size_, k_lens_[b] - index * block_size_)};
      const auto [at, first] = all.try_emplace(ids_[b][i], here);
      if (!first && at->second.rows < here.rows) at->second = here;
    }
  }
  return all;
}

GivenBlocks::Row GivenBlocks::owner(int32_t seq, int32_t pos) const {
  std::call_once(owners_once_, [this] { owners_ = owners(); });
  const int32_t id = ids_[static_cast<std::size_t>(seq)][static_cast<std::size_t>(pos / block_size_)];
  const Owner& o = owners_.at(id);
  return {o.seq, o.index * block_size_ + pos % block_size_};
}

}  // namespace attnbench
