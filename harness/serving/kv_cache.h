// The KV cache manager of a server: which blocks of a paged KV cache each sequence holds. It keeps no keys and
// no values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/serving/free_list.h"
#include "harness/serving/prefix_index.h"

namespace attnbench {

/// A sequence of a KvCache. Ids of freed sequences are given again.
using SeqId = int32_t;

struct KvCacheOptions {
  int32_t num_blocks = 0;   ///< at least 1; together at most 2^31 - 1 tokens
  int32_t block_size = 16;  ///< tokens, at least 1
  FreeOrder free_order = FreeOrder::kLifo;
  bool prefix_sharing = true;   ///< off: hashes are ignored
  int64_t bytes_per_token = 0;  ///< K and V of a token in all layers and KV heads
};

/// kNoBlock: too few blocks are free or can be evicted. The cache is as it was before the call.
enum class CacheStatus : int32_t { kOk, kNoBlock };

struct Allocation {
  CacheStatus status = CacheStatus::kOk;
  SeqId seq = -1;
  int32_t shared_tokens = 0;  ///< leading tokens in blocks found by hash: their keys need not be computed
};

/// Before tokens are written, block `copied_from` must be copied to `copied_to`; -1: none.
struct Growth {
  CacheStatus status = CacheStatus::kOk;
  int32_t copied_from = -1, copied_to = -1;
};

/// What a prompt would find by its hashes.
struct PrefixMatch {
  int32_t blocks = 0;  ///< leading blocks that are found
  int32_t idle = 0;    ///< those among them without an owner, which available_blocks() counts
};

/// Counted since the cache was made.
struct KvCacheCounters {
  int64_t hits = 0;       ///< blocks shared because their hash was found
  int64_t evictions = 0;  ///< findable blocks taken for other contents
  int64_t copies = 0;     ///< partial blocks copied on write
};

/// Blocks, their owners and their order. Errors in words are thrown only by the constructor; a call with an id
/// that is not a live sequence's is a mistake of the program (std::logic_error, or undefined if out of range).
///
/// Block hashes are those of whole prefixes, as vLLM's: a block's hash depends on all tokens up to its end. So
/// the hashes of one prompt differ, and hashes[i] belongs to the tokens from i * block_size on.
class KvCache {
 public:
  /// Throws Error if an option is out of its range.
  explicit KvCache(const KvCacheOptions& options);

  /// A sequence with `tokens` >= 0 tokens. The longest known prefix of `hashes` is shared, though never all
  /// tokens, because the last one must be computed for the next one to be known: at most
  /// (tokens - 1) / block_size blocks. New full blocks with a hash become findable at once.
  Allocation allocate(int32_t tokens, std::span<const uint64_t> hashes = {});
  /// What allocate(tokens, hashes) would share now.
  PrefixMatch match(int32_t tokens, std::span<const uint64_t> hashes) {
    watch(tokens, hashes);
    return match_watched();
  }
  /// In the place of match() and allocate() for a prompt that waits: match_watched() does not search the prompt
  /// anew, but follows the changes of the cache. `hashes` must stay until the prompt is allocated, or the next call
  /// with hashes of another one.
  void watch(int32_t tokens, std::span<const uint64_t> hashes);
  PrefixMatch match_watched();
  /// As allocate(tokens, hashes), and the end of the watch. `tokens`: those of watch(), or fewer, if they are still
  /// more than match_watched() finds.
  Allocation allocate_watched(int32_t tokens, std::span<const uint64_t> hashes);

  /// One more token.
  Growth append(SeqId seq) {
    Sequence& s = sequences_[static_cast<std::size_t>(seq)];
    if (s.room == 0) {
      const Growth growth = make_room(s, 1);
      if (growth.status != CacheStatus::kOk) return growth;
      take_slot(s);
      return growth;
    }
    take_slot(s);
    return {};
  }
  /// `tokens` >= 0 more tokens, or none. Blocks that they fill become findable by hashes[i], i being the index
  /// of the block in the sequence.
  Growth append(SeqId seq, int32_t tokens, std::span<const uint64_t> hashes = {});
  /// Slots for `tokens` more tokens, as for draft tokens that may be rejected. The length stays.
  Growth reserve(SeqId seq, int32_t tokens);

  /// Another sequence with the same tokens in the same blocks. Reserved slots stay with `seq`. Whichever of
  /// both writes first into a partial block that they share gets a copy of it.
  SeqId fork(SeqId seq);
  /// Blocks are released last to first, so that the head of a prefix is evicted after its tail.
  void free(SeqId seq);

  /// Blocks in the order of their tokens, reserved ones last. Valid until the sequence changes.
  std::span<const int32_t> block_table(SeqId seq) const { return at(seq).blocks; }
  int32_t length(SeqId seq) const { return at(seq).length; }  ///< tokens
  int32_t references(int32_t block) const { return references_[static_cast<std::size_t>(block)]; }
  int32_t sequences() const { return static_cast<int32_t>(sequences_.size() - free_ids_.size()); }

  int32_t num_blocks() const { return options_.num_blocks; }
  int32_t block_size() const { return options_.block_size; }
  int32_t free_blocks() const { return free_.size(); }     ///< without owner and contents
  int32_t cached_blocks() const { return index_.idle(); }  ///< without owner, found by hash until evicted
  int32_t available_blocks() const { return free_blocks() + cached_blocks(); }
  int64_t unfilled_tokens() const { return unfilled_; }  ///< slots of owned blocks that hold no token
  int64_t unfilled_bytes() const { return unfilled_ * options_.bytes_per_token; }
  const KvCacheCounters& counters() const { return counters_; }
  /// Blocks that `tokens` tokens take.
  int32_t blocks_for(int64_t tokens) const {
    return static_cast<int32_t>((tokens + options_.block_size - 1) / options_.block_size);
  }

 private:
  struct Sequence {
    std::vector<int32_t> blocks;
    int32_t length = 0;
    int32_t room = 0;  // slots that may be written at once: 0 if the block at the end may be shared
    bool live = false;
  };

  void take_slot(Sequence& s) {
    --s.room;
    ++s.length;
    --unfilled_;
  }
  const Sequence& at(SeqId seq) const;
  SeqId new_sequence();
  Growth make_room(Sequence& s, int32_t tokens);
  int32_t take_block();
  void publish(const Sequence& s, int32_t first, std::span<const uint64_t> hashes);

  KvCacheOptions options_;
  FreeList free_;
  PrefixIndex index_;
  std::vector<int32_t> references_;  // by block
  std::vector<Sequence> sequences_;  // by id; dead ones keep their memory for the next
  std::vector<SeqId> free_ids_;
  int64_t unfilled_ = 0;
  KvCacheCounters counters_;
};

}  // namespace attnbench
