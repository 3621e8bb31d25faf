#include "harness/serving/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "harness/error.h"

namespace attnbench {
namespace {

const KvCacheOptions& checked_cache(const KvCacheOptions& o) {
  if (o.num_blocks < 1)
    throw Error(fmt::format("a KV cache of {} blocks; at least 1 is required", o.num_blocks));
  if (o.block_size < 1)
    throw Error(fmt::format("a KV cache with blocks of {} tokens; at least 1 is required", o.block_size));
  if (int64_t{o.num_blocks} * o.block_size > std::numeric_limits<int32_t>::max()) {
    throw Error(fmt::format("a KV cache of {} blocks of {} tokens; at most 2^31 - 1 tokens are supported",
                            o.num_blocks, o.block_size));
  }
  if (o.bytes_per_token < 0)
    throw Error(fmt::format("a KV cache with {} bytes per token; 0 or more are required", o.bytes_per_token));
  return o;
}

}  // namespace

KvCache::KvCache(const KvCacheOptions& options)
    : options_(checked_cache(options)),
      free_(options.num_blocks, options.free_order),
      index_(options.num_blocks),
      references_(static_cast<std::size_t>(options.num_blocks), 0) {}

const KvCache::Sequence& KvCache::at(SeqId seq) const {
  const Sequence& s = sequences_.at(static_cast<std::size_t>(seq));
  if (!s.live) throw std::logic_error("a sequence of the KV cache that was freed");
  return s;
}

SeqId KvCache::new_sequence() {
  SeqId seq;
  if (free_ids_.empty()) {
    seq = static_cast<SeqId>(sequences_.size());
    sequences_.emplace_back();
  } else {
    seq = free_ids_.back();
    free_ids_.pop_back();
  }
  sequences_[static_cast<std::size_t>(seq)].live = true;
  return seq;
}

/// A block with one owner. One must be available.
int32_t KvCache::take_block() {
  int32_t block;
  if (free_.size() > 0) {
    block = free_.pop();
  } else {
    block = index_.evict();
    ++counters_.evictions;
  }
  references_[static_cast<std::size_t>(block)] = 1;
  unfilled_ += options_.block_size;
  return block;
}

void KvCache::watch(int32_t tokens, std::span<const uint64_t> hashes) {
  const int32_t most = options_.prefix_sharing && tokens > 0 ? (tokens - 1) / options_.block_size : 0;
  index_.watch(hashes.first(std::min(static_cast<std::size_t>(most), hashes.size())));
}

PrefixMatch KvCache::match_watched() {
  const auto found = static_cast<int32_t>(index_.watched().size());
  return {.blocks = found, .idle = index_.watched_idle()};
}

Allocation KvCache::allocate(int32_t tokens, std::span<const uint64_t> hashes) {
  watch(tokens, hashes);
  return allocate_watched(tokens, hashes);
}

Allocation KvCache::allocate_watched(int32_t tokens, std::span<const uint64_t> hashes) {
  const PrefixMatch found = match_watched();
  const int32_t needed = blocks_for(tokens) - found.blocks;
  if (needed > available_blocks() - found.idle) {
    index_.unwatch();
    return {.status = CacheStatus::kNoBlock};
  }
  const SeqId seq = new_sequence();
  Sequence& s = sequences_[static_cast<std::size_t>(seq)];
  const std::span<const int32_t> shared_blocks = index_.watched();
  s.blocks.assign(shared_blocks.begin(), shared_blocks.end());
  index_.unwatch();
  for (const int32_t block : s.blocks) {
    if (references_[static_cast<std::size_t>(block)]++ == 0) index_.set_used(block);
  }
  for (int32_t i = 0; i < needed; ++i) s.blocks.push_back(take_block());
  const int32_t shared = found.blocks * options_.block_size;
  s.length = tokens;
  s.room = static_cast<int32_t>(s.blocks.size()) * options_.block_size - tokens;
  unfilled_ -= tokens - shared;
  counters_.hits += found.blocks;
  publish(s, found.blocks, hashes);
  return {.seq = seq, .shared_tokens = shared};
}

/// Makes the full blocks from index `first` on findable. A block whose hash another block has stays private.
void KvCache::publish(const Sequence& s, int32_t first, std::span<const uint64_t> hashes) {
  if (!options_.prefix_sharing) return;
  const auto full = static_cast<std::size_t>(s.length / options_.block_size);
  for (auto i = static_cast<std::size_t>(first); i < std::min(full, hashes.size()); ++i) {
    if (!index_.has(s.blocks[i]) && index_.find(hashes[i]) < 0) index_.insert(s.blocks[i], hashes[i]);
  }
}

/// At least `tokens` >= 1 slots that `s` alone may write.
Growth KvCache::make_room(Sequence& s, int32_t tokens) {
  if (!s.live) throw std::logic_error("a sequence of the KV cache that was freed");
  const auto end = static_cast<std::size_t>(s.length / options_.block_size);
  const bool copy = s.length % options_.block_size != 0 && references(s.blocks[end]) > 1;
  const auto held = static_cast<int32_t>(s.blocks.size());
  const int32_t more = std::max(0, blocks_for(int64_t{s.length} + tokens) - held);
  if (more + copy > available_blocks()) return {.status = CacheStatus::kNoBlock};
  Growth growth;
  if (copy) {
    growth.copied_from = s.blocks[end];
    growth.copied_to = s.blocks[end] = take_block();
    --references_[static_cast<std::size_t>(growth.copied_from)];
    unfilled_ -= s.length % options_.block_size;
    ++counters_.copies;
  }
  for (int32_t i = 0; i < more; ++i) s.blocks.push_back(take_block());
  s.room = (held + more) * options_.block_size - s.length;
  return growth;
}

Growth KvCache::reserve(SeqId seq, int32_t tokens) {
  Sequence& s = sequences_[static_cast<std::size_t>(seq)];
  return tokens <= s.room ? Growth{} : make_room(s, tokens);
}

Growth KvCache::append(SeqId seq, int32_t tokens, std::span<const uint64_t> hashes) {
  const Growth growth = reserve(seq, tokens);
  if (growth.status != CacheStatus::kOk) return growth;
  Sequence& s = sequences_[static_cast<std::size_t>(seq)];
  const int32_t first = s.length / options_.block_size;
  s.room -= tokens;
  s.length += tokens;
  unfilled_ -= tokens;
  if (!hashes.empty()) publish(s, first, hashes);
  return growth;
}

SeqId KvCache::fork(SeqId seq) {
  at(seq);
  const SeqId child = new_sequence();
  Sequence& from = sequences_[static_cast<std::size_t>(seq)];
  Sequence& to = sequences_[static_cast<std::size_t>(child)];
  to.blocks.assign(from.blocks.begin(), from.blocks.begin() + blocks_for(from.length));
  to.length = from.length;
  for (const int32_t block : to.blocks) ++references_[static_cast<std::size_t>(block)];
  if (from.length % options_.block_size != 0) from.room = 0;
  return child;
}

void KvCache::free(SeqId seq) {
  at(seq);
  Sequence& s = sequences_[static_cast<std::size_t>(seq)];
  for (auto i = static_cast<int32_t>(s.blocks.size()); i-- > 0;) {
    const int32_t block = s.blocks[static_cast<std::size_t>(i)];
    if (--references_[static_cast<std::size_t>(block)] > 0) continue;
    const int32_t size = options_.block_size;
    unfilled_ -= size - std::clamp(s.length - i * size, 0, size);
    if (index_.has(block)) {
      index_.set_idle(block);
    } else {
      free_.push(block);
    }
  }
  s.blocks.clear();
  s.length = s.room = 0;
  s.live = false;
  free_ids_.push_back(seq);
}

}  // namespace attnbench
