#include "harness/tensors/aged_order.h"

#include <algorithm>
#include <random>

#include "harness/serving/kv_cache.h"

namespace attnbench {
namespace {

constexpr int64_t kTurnovers = 8;  // how often the pool is filled before

/// A cache whose tokens are blocks, and the requests in it.
class Churn {
 public:
  Churn(const std::vector<int64_t>& sizes, int32_t pool, uint64_t seed)
      : sizes_(sizes), cache_({.num_blocks = pool, .block_size = 1}), rng_(seed) {}

  /// Lets requests come and go until `blocks` blocks have been taken.
  void run(int64_t blocks) {
    while (taken_ < blocks) {
      const int64_t size = sizes_[draw(sizes_.size())];
      old_.push_back({allocate(size / 2), size - size / 2});
      // As many blocks are taken by decodes as by prompts.
      for (int64_t i = 0; i < size && !old_.empty(); ++i) grow(draw(old_.size()));
      ++taken_;  // ends also if all sizes are 0
    }
  }

  /// The case's own sequences, in whose favour the old ones end.
  std::vector<int32_t> tables() {
    std::vector<SeqId> own;
    int64_t longest = 0;
    for (const int64_t size : sizes_) {
      own.push_back(allocate(size / 2));
      longest = std::max(longest, size);
    }
    for (int64_t round = 0; round < longest; ++round) {
      for (std::size_t b = 0; b < own.size(); ++b) {
        if (sizes_[b] / 2 + round < sizes_[b]) append(own[b]);
      }
    }
    std::vector<int32_t> order;
    for (const SeqId seq : own) {
      const auto table = cache_.block_table(seq);
      order.insert(order.end(), table.begin(), table.end());
    }
    return order;
  }

 private:
  struct Request {
    SeqId seq;
    int64_t left;
  };

  std::size_t draw(std::size_t n) { return static_cast<std::size_t>(rng_() % n); }

  void end(std::size_t i) {
    cache_.free(old_[i].seq);
    old_[i] = old_.back();
    old_.pop_back();
  }

  SeqId allocate(int64_t blocks) {
    while (cache_.available_blocks() < blocks) end(draw(old_.size()));
    taken_ += blocks;
    return cache_.allocate(static_cast<int32_t>(blocks)).seq;
  }

  void append(SeqId seq) {
    // An old request may hold no block yet.
    while (cache_.available_blocks() == 0) end(draw(old_.size()));
    cache_.append(seq);
    ++taken_;
  }

  void grow(std::size_t i) {
    if (cache_.available_blocks() == 0 || old_[i].left == 0) return end(i);
    cache_.append(old_[i].seq);
    --old_[i].left;
    ++taken_;
  }

  const std::vector<int64_t>& sizes_;
  KvCache cache_;
  std::mt19937_64 rng_;
  std::vector<Request> old_;
  int64_t taken_ = 0;
};

}  // namespace

std::vector<int32_t> aged_order(const std::vector<int64_t>& blocks, int32_t pool, uint64_t seed) {
  Churn churn(blocks, pool, seed);
  if (!blocks.empty()) churn.run(kTurnovers * pool);
  return churn.tables();
}

}  // namespace attnbench
