#include "harness/config/given_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "harness/digest.h"
#include "harness/error.h"

namespace attnbench {

GivenBlocks::GivenBlocks(Ids ids, const std::vector<int32_t>& k_lens, int32_t block_size)
    : ids_(std::move(ids)), block_size_(block_size) {
  if (ids_.size() != k_lens.size()) {
    throw Error(
        fmt::format("blocks of {} sequences are given, and the batch has {}", ids_.size(), k_lens.size()));
  }
  Digest digest;
  for (std::size_t b = 0; b < ids_.size(); ++b) {
    const int64_t needed = (int64_t{k_lens[b]} + block_size - 1) / block_size;
    if (static_cast<int64_t>(ids_[b].size()) != needed) {
      throw Error(fmt::format("sequence {} has {} blocks, and its {} keys need {} of {} tokens", b,
                              ids_[b].size(), k_lens[b], needed, block_size));
    }
    digest.add_bytes(-1);
    for (std::size_t i = 0; i < ids_[b].size(); ++i) {
      const int32_t id = ids_[b][i];
      if (id < 0 || id == std::numeric_limits<int32_t>::max()) {
        throw Error(fmt::format("block {} of sequence {} is {}; an id from 0 on is required", i, b, id));
      }
      digest.add_bytes(id);
      num_blocks_ = std::max(num_blocks_, id + 1);
      const auto index = static_cast<int32_t>(i);
      const int32_t in_block = std::min(block_size, k_lens[b] - index * block_size);
      const auto [at, first] = owners_.try_emplace(id, Owner{static_cast<int32_t>(b), index, in_block});
      shared_ += first ? 0 : 1;
      if (!first && at->second.rows < in_block) at->second = {static_cast<int32_t>(b), index, in_block};
    }
  }
  for (const auto& [id, o] : owners_) rows_ += o.rows;
  digest_ = fmt::format("{:08x}", digest.value32());
}

GivenBlocks::Row GivenBlocks::owner(int32_t seq, int32_t pos) const {
  const int32_t id = ids_[static_cast<std::size_t>(seq)][static_cast<std::size_t>(pos / block_size_)];
  const Owner& o = owners_.at(id);
  return {o.seq, o.index * block_size_ + pos % block_size_};
}

}  // namespace attnbench
