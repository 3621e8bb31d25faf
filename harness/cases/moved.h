// What a kv_move reads and writes, for cost.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "harness/cases/paths.h"

namespace attnbench {

/// How many numbers lie in at least one of the ranges [first, second).
inline int64_t union_size(std::vector<std::pair<int64_t, int64_t>> ranges) {
  std::sort(ranges.begin(), ranges.end());
  int64_t count = 0;
  int64_t end = 0;
  for (const auto& [first, last] : ranges) {
    count += std::max<int64_t>(0, last - std::max(first, end));
    end = std::max(end, last);
  }
  return count;
}

inline int64_t blocks_of(int64_t tokens, int64_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

/// The blocks or rows that a kv_move reads, each once, and those that it writes.
struct Moved {
  int64_t read = 0, written = 0;
};

inline Moved moved_blocks(const CaseParams& p) {
  Moved m;
  std::unordered_map<int32_t, bool> given;
  const int64_t shared = p.shared_tokens() / p.block_size;
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const int64_t blocks = blocks_of(p.seqs[b].k, p.block_size);
    m.written += move_copies(p, p.seqs[b].k);
    m.read += b == 0 ? blocks : blocks - shared;
    for (int64_t i = 0; p.blocks && i < blocks; ++i)
      given[p.blocks->ids()[b][static_cast<std::size_t>(i)]] = true;
  }
  if (p.blocks) m.read = std::ssize(given);
  return m;
}

inline Moved gathered_rows(const CaseParams& p) {
  Moved m;
  std::unordered_map<int32_t, std::vector<std::pair<int64_t, int64_t>>> of_block;  // rows of given blocks
  std::vector<std::pair<int64_t, int64_t>> of_prefix;
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const int64_t first = p.start_of(b), last = p.seqs[b].k, shared = p.shared_tokens();
    m.written += last - first;
    if (shared > 0) of_prefix.emplace_back(std::min(first, shared), shared);
    m.read += last - std::max(first, shared);
    for (int64_t i = first / p.block_size; p.blocks && i * p.block_size < last; ++i) {
      of_block[p.blocks->ids()[b][static_cast<std::size_t>(i)]].emplace_back(
          std::max<int64_t>(0, first - i * p.block_size),
          std::min<int64_t>(p.block_size, last - i * p.block_size));
    }
  }
  if (p.blocks) m.read = 0;
  for (auto& [block, rows] : of_block) m.read += union_size(std::move(rows));
  m.read += union_size(std::move(of_prefix));
  return m;
}

}  // namespace attnbench
