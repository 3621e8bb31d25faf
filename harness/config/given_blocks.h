// A block table that a case is given, as a trace of a server has it, in place of one that the harness draws.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace attnbench {

/// Blocks of the sequences of a paged case. Several places of the table may hold one block, as sequences with
/// a common prefix do. Such places have the same keys and values: those of the block's owner.
class GivenBlocks {
 public:
  using Ids = std::vector<std::vector<int32_t>>;
  /// A row of a block: the sequence and the position whose key it holds.
  struct Row {
    int32_t seq, pos;
  };

  /// ids[b]: blocks of sequence b, which has k_lens[b] keys. Throws Error if a sequence has not
  /// ceil(k / block_size) blocks, or if an id is negative.
  GivenBlocks(Ids ids, std::vector<int32_t> k_lens, int32_t block_size);

  const Ids& ids() const { return ids_; }
  int32_t num_blocks() const { return num_blocks_; }     ///< the largest id + 1
  const std::string& digest() const { return digest_; }  ///< 8 hexadecimal digits of the table
  /// The key whose value key `pos` of sequence `seq` has: the one with most rows among those in that block.
  Row owner(int32_t seq, int32_t pos) const;
  int64_t rows() const { return rows_; }      ///< rows of the pool that hold a key
  int64_t shared() const { return shared_; }  ///< places in the table that hold another place's block

 private:
  struct Owner {
    int32_t seq, index, rows;
  };
  using Owners = std::unordered_map<int32_t, Owner>;
  Owners owners() const;

  Ids ids_;
  std::vector<int32_t> k_lens_;
  int32_t block_size_;
  int32_t num_blocks_ = 0;
  std::string digest_;
  // Made at the first call of owner(): a sweep may hold thousands of tables, and a worker runs one of them.
  mutable std::once_flag owners_once_;
  mutable Owners owners_;
  int64_t rows_ = 0, shared_ = 0;
};

}  // namespace attnbench
