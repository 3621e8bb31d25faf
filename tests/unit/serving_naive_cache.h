// A KV cache manager written a second time, slowly and with the contents of every slot: the model that
// serving_kv_cache_test.cpp compares KvCache with. It shares no code with it but the options.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "harness/serving/kv_cache.h"

namespace attnbench {

/// Blocks are found by scanning, never by an index; whether one is owned is counted from all tables.
struct NaiveCache {
  struct Seq {
    std::vector<int32_t> table;
    int32_t length = 0;
  };

  explicit NaiveCache(const KvCacheOptions& o) : options(o), hash_of(static_cast<std::size_t>(o.num_blocks)) {
    for (int32_t b = 0; b < o.num_blocks; ++b) free_blocks.push_back(b);
  }

  int32_t owners(int32_t block) const {
    int32_t n = 0;
    for (const auto& [id, s] : seqs)
      n += static_cast<int32_t>(std::count(s.table.begin(), s.table.end(), block));
    return n;
  }
  int32_t available() const { return static_cast<int32_t>(free_blocks.size() + idle.size()); }
  int32_t find(uint64_t hash) const {
    for (std::size_t b = 0; b < hash_of.size(); ++b) {
      if (hash_of[b] == hash) return static_cast<int32_t>(b);
    }
    return -1;
  }
  int32_t blocks_of(int32_t tokens) const {
    int32_t n = 0;
    while (n * options.block_size < tokens) ++n;
    return n;
  }

  int32_t take() {
    int32_t block;
    if (free_blocks.empty()) {
      block = idle.front();  // idle longest
      idle.pop_front();
      hash_of[static_cast<std::size_t>(block)].reset();
      ++counters.evictions;
      return block;
    }
    auto at = free_blocks.begin();
    if (options.free_order == FreeOrder::kLifo && freed) at = free_blocks.end() - 1;
    if (options.free_order == FreeOrder::kLowest)
      at = std::min_element(free_blocks.begin(), free_blocks.end());
    block = *at;
    free_blocks.erase(at);
    return block;
  }

  /// The blocks that allocate() would share.
  std::vector<int32_t> match(int32_t tokens, std::span<const uint64_t> hashes) const {
    std::vector<int32_t> found;
    while (options.prefix_sharing && found.size() < hashes.size()) {
      const int32_t block = find(hashes[found.size()]);
      // At least one token is computed.
      if (block < 0 || static_cast<int32_t>(found.size() + 1) * options.block_size >= tokens) break;
      found.push_back(block);
    }
    return found;
  }
  int32_t idle_of(std::span<const int32_t> blocks) const {
    return static_cast<int32_t>(std::count_if(blocks.begin(), blocks.end(), [&](int32_t b) {
      return std::count(idle.begin(), idle.end(), b) > 0;
    }));
  }

  /// The shared tokens, or nothing if there is no room.
  std::optional<int32_t> allocate(SeqId id, int32_t tokens, std::span<const uint64_t> hashes) {
    const std::vector<int32_t> found = match(tokens, hashes);
    const int32_t can = available() - idle_of(found);
    const int32_t more = blocks_of(tokens) - static_cast<int32_t>(found.size());
    if (more > can) return std::nullopt;
    for (const int32_t b : found) idle.erase(std::remove(idle.begin(), idle.end(), b), idle.end());
    counters.hits += static_cast<int64_t>(found.size());
    Seq s{found, tokens};
    for (int32_t i = 0; i < more; ++i) s.table.push_back(take());
    seqs[id] = s;
    name_full_blocks(id, 0, hashes);
    return static_cast<int32_t>(found.size()) * options.block_size;
  }

  /// Makes the blocks findable that became full behind `old_length`.
  void name_full_blocks(SeqId id, int32_t old_length, std::span<const uint64_t> hashes) {
    const Seq& s = seqs.at(id);
    for (std::size_t i = 0; options.prefix_sharing && i < hashes.size(); ++i) {
      const int32_t end = static_cast<int32_t>(i + 1) * options.block_size;
      if (end > s.length) break;
      if (end <= old_length) continue;
      auto& name = hash_of[static_cast<std::size_t>(s.table[i])];
      if (!name && find(hashes[i]) < 0) name = hashes[i];
    }
  }

  /// Makes slots for `tokens` more tokens, of which `written` are appended. False: no room, nothing changed.
  bool grow(SeqId id, int32_t tokens, int32_t written) {
    Seq& s = seqs.at(id);
    const auto end = static_cast<std::size_t>(s.length / options.block_size);
    const bool copy = tokens > 0 && s.length % options.block_size != 0 && owners(s.table[end]) > 1;
    const int32_t more = std::max(0, blocks_of(s.length + tokens) - static_cast<int32_t>(s.table.size()));
    if (more + (copy ? 1 : 0) > available()) return false;
    if (copy) {
      s.table[end] = take();
      ++counters.copies;
    }
    for (int32_t i = 0; i < more; ++i) s.table.push_back(take());
    s.length += written;
    return true;
  }

  void fork(SeqId from, SeqId to) {
    Seq s = seqs.at(from);
    s.table.resize(static_cast<std::size_t>(blocks_of(s.length)));
    seqs[to] = s;
  }

  void free(SeqId id) {
    const Seq s = seqs.at(id);
    seqs.erase(id);
    for (auto b = s.table.rbegin(); b != s.table.rend(); ++b) {
      if (owners(*b) > 0) continue;
      if (hash_of[static_cast<std::size_t>(*b)]) {
        idle.push_back(*b);
      } else {
        give_back(*b);
      }
    }
  }

  /// A block that was never taken stands before all that were freed, in the order of ids.
  void give_back(int32_t block) {
    if (!freed && options.free_order == FreeOrder::kLifo)
      std::reverse(free_blocks.begin(), free_blocks.end());  // from now on the back is taken
    freed = true;
    free_blocks.push_back(block);
  }

  int64_t unfilled() const {
    std::map<int32_t, int32_t> filled;  // by owned block
    for (const auto& [id, s] : seqs) {
      for (std::size_t i = 0; i < s.table.size(); ++i) {
        const int32_t before = static_cast<int32_t>(i) * options.block_size;
        int32_t& most = filled[s.table[i]];
        most = std::max(most, std::min(options.block_size, s.length - before));
      }
    }
    int64_t n = 0;
    for (const auto& [block, tokens] : filled) n += options.block_size - tokens;
    return n;
  }

  KvCacheOptions options;
  std::map<SeqId, Seq> seqs;
  std::deque<int32_t> free_blocks;  // in the order in which they were freed
  bool freed = false;
  std::deque<int32_t> idle;  // findable blocks without an owner, idle longest first
  std::vector<std::optional<uint64_t>> hash_of;
  KvCacheCounters counters;
};

}  // namespace attnbench
