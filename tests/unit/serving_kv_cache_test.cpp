// KvCache against a naive model, on random operations.
//
// ATTNBENCH_LONG_TESTS=1 makes 10 million operations instead of one million.
#include "harness/serving/kv_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "harness/error.h"
#include "tests/unit/serving_naive_cache.h"

namespace attnbench {
namespace {

bool long_tests() {
  const char* set = std::getenv("ATTNBENCH_LONG_TESTS");
  return set != nullptr && *set == '1';
}

/// Does each operation on both, and keeps what every slot of the real one would hold.
class Pair {
 public:
  Pair(const KvCacheOptions& options, uint64_t seed)
      : options_(options),
        real_(options),
        naive_(options),
        slots_(static_cast<std::size_t>(options.num_blocks * options.block_size), 0),
        rng_(seed) {
    wait();
  }

  void step() {
    const int64_t what = draw(100);
    if (tokens_.empty() || what < 12) {
      allocate();
    } else if (what < 60) {
      append(pick(), 1, true);
    } else if (what < 70) {
      append(pick(), draw(3 * options_.block_size), false);
    } else if (what < 76) {
      reserve(pick(), draw(2 * options_.block_size));
    } else if (what < 84 && tokens_.size() < 24) {
      fork(pick());
    } else if (what < 98 || tokens_.size() < 4) {
      free(pick());
    } else {
      while (!tokens_.empty()) free(tokens_.begin()->first);
    }
  }

  void check_watched() {
    const std::vector<int32_t> expected = naive_.match(waiting_tokens_, waiting_);
    const PrefixMatch got = real_.match_watched();
    ASSERT_EQ(got.blocks, static_cast<int32_t>(expected.size()));
    ASSERT_EQ(got.idle, naive_.idle_of(expected));
    watched_evicted_ += got.blocks < watched_blocks_;
    watched_blocks_ = got.blocks;
  }

  /// Everything, where step() compares the sequence at hand.
  void check_all() {
    for (const auto& [id, tokens] : tokens_) check(id);
    for (int32_t b = 0; b < options_.num_blocks; ++b) ASSERT_EQ(real_.references(b), naive_.owners(b)) << b;
    ASSERT_EQ(real_.free_blocks(), static_cast<int32_t>(naive_.free_blocks.size()));
    ASSERT_EQ(real_.cached_blocks(), static_cast<int32_t>(naive_.idle.size()));
    ASSERT_EQ(real_.unfilled_tokens(), naive_.unfilled());
    ASSERT_EQ(real_.unfilled_bytes(), naive_.unfilled() * options_.bytes_per_token);
    ASSERT_EQ(real_.sequences(), static_cast<int32_t>(tokens_.size()));
    ASSERT_EQ(real_.counters().hits, naive_.counters.hits);
    ASSERT_EQ(real_.counters().evictions, naive_.counters.evictions);
    ASSERT_EQ(real_.counters().copies, naive_.counters.copies);
  }

  void free_all() {
    while (!tokens_.empty()) free(tokens_.begin()->first);
    ASSERT_EQ(real_.available_blocks(), options_.num_blocks);
    ASSERT_EQ(real_.unfilled_tokens(), 0);
  }

  const KvCacheCounters& counters() const { return real_.counters(); }
  int64_t refused() const { return refused_; }
  int64_t watched_evicted() const { return watched_evicted_; }

 private:
  int64_t draw(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  SeqId pick() { return std::next(tokens_.begin(), draw(static_cast<int64_t>(tokens_.size())))->first; }
  uint64_t& slot(int32_t block, int32_t offset) {
    return slots_[static_cast<std::size_t>(block * options_.block_size + offset)];
  }

  /// Documents share their first blocks in pairs. A hash is that of all blocks up to its own.
  std::vector<uint64_t> document() {
    const auto d = static_cast<uint64_t>(draw(6));
    std::vector<uint64_t> hashes(static_cast<std::size_t>(draw(5)));
    for (std::size_t i = 0; i < hashes.size(); ++i)
      hashes[i] = (1 + (i < 2 ? d / 2 : 100 + d)) * 0x9e3779b97f4a7c15ull + i * 64;
    return hashes;
  }

  /// A token of a known block is made of its hash, another is new.
  void write(SeqId id, int32_t count) {
    auto& tokens = tokens_[id];
    const auto& hashes = hashes_[id];
    for (int32_t i = 0; i < count; ++i) {
      const auto pos = static_cast<int32_t>(tokens.size());
      const auto index = static_cast<std::size_t>(pos / options_.block_size);
      const int32_t offset = pos % options_.block_size;
      const uint64_t token = index < hashes.size() ? hashes[index] + static_cast<uint64_t>(offset)
                                                   : (uint64_t{1} << 63) + ++fresh_;
      tokens.push_back(token);
      slot(real_.block_table(id)[index], offset) = token;
    }
  }

  /// Draws the prompt that is allocated next.
  void wait() {
    waiting_ = document();
    waiting_tokens_ = static_cast<int32_t>(draw(6 * options_.block_size));
    real_.watch(waiting_tokens_, waiting_);
    watched_blocks_ = 0;
  }

  void allocate() {
    const std::vector<uint64_t> hashes = waiting_;
    const int32_t length = waiting_tokens_;
    const bool watched = draw(2) == 0;
    const PrefixMatch match = watched ? real_.match_watched() : real_.match(length, hashes);
    const int32_t expected = match.blocks * options_.block_size;
    const Allocation got = watched ? real_.allocate_watched(length, hashes) : real_.allocate(length, hashes);
    wait();
    const SeqId id = got.status == CacheStatus::kOk ? got.seq : -1;
    const std::optional<int32_t> shared = naive_.allocate(id, length, hashes);
    ASSERT_EQ(shared.has_value(), got.status == CacheStatus::kOk);
    if (!shared) {
      ++refused_;
      return;
    }
    ASSERT_EQ(got.shared_tokens, *shared);
    ASSERT_EQ(got.shared_tokens, expected);
    ASSERT_EQ(tokens_.count(id), 0u);
    hashes_[id] = hashes;
    for (int32_t pos = 0; pos < *shared; ++pos)  // what must be there already
      tokens_[id].push_back(hashes[static_cast<std::size_t>(pos / options_.block_size)] +
                            static_cast<uint64_t>(pos % options_.block_size));
    write(id, length - *shared);
    tokens_.try_emplace(id);
    check(id);
  }

  void copy(const Growth& growth) {
    for (int32_t i = 0; growth.copied_from >= 0 && i < options_.block_size; ++i)
      slot(growth.copied_to, i) = slot(growth.copied_from, i);
  }

  void append(SeqId id, int64_t n, bool one) {
    const auto count = static_cast<int32_t>(n);
    const auto& hashes = hashes_[id];
    const Growth growth = one ? real_.append(id) : real_.append(id, count, hashes);
    const bool room = naive_.grow(id, count, count);
    ASSERT_EQ(room, growth.status == CacheStatus::kOk);
    if (room) {
      if (!one) naive_.name_full_blocks(id, static_cast<int32_t>(tokens_[id].size()), hashes);
      copy(growth);
      write(id, count);
    } else {
      ++refused_;
    }
    check(id);
  }

  void reserve(SeqId id, int64_t n) {
    const Growth growth = real_.reserve(id, static_cast<int32_t>(n));
    ASSERT_EQ(naive_.grow(id, static_cast<int32_t>(n), 0), growth.status == CacheStatus::kOk);
    copy(growth);
    check(id);
  }

  void fork(SeqId from) {
    const SeqId to = real_.fork(from);
    ASSERT_EQ(tokens_.count(to), 0u);
    naive_.fork(from, to);
    tokens_[to] = tokens_[from];
    hashes_[to].clear();  // its tokens diverge from the document
    check(to);
  }

  void free(SeqId id) {
    real_.free(id);
    naive_.free(id);
    tokens_.erase(id);
  }

  void check(SeqId id) {
    const auto& expected = naive_.seqs.at(id);
    const auto& tokens = tokens_.at(id);
    const std::span<const int32_t> table = real_.block_table(id);
    ASSERT_EQ(real_.length(id), expected.length);
    ASSERT_EQ(static_cast<std::size_t>(expected.length), tokens.size());
    ASSERT_TRUE(std::equal(table.begin(), table.end(), expected.table.begin(), expected.table.end()));
    for (std::size_t pos = 0; pos < tokens.size(); ++pos) {
      const auto p = static_cast<int32_t>(pos);
      const int32_t block = table[static_cast<std::size_t>(p / options_.block_size)];
      ASSERT_EQ(slot(block, p % options_.block_size), tokens[pos]) << "token " << p << " of sequence " << id;
    }
  }

  KvCacheOptions options_;
  KvCache real_;
  NaiveCache naive_;
  std::vector<uint64_t> slots_;
  std::map<SeqId, std::vector<uint64_t>> tokens_;  // what each sequence should hold
  std::map<SeqId, std::vector<uint64_t>> hashes_;
  std::mt19937_64 rng_;
  std::vector<uint64_t> waiting_;  // the prompt that is allocated next
  int32_t waiting_tokens_ = 0;
  int32_t watched_blocks_ = 0;  // that it shared at the last look
  uint64_t fresh_ = 0;
  int64_t refused_ = 0, watched_evicted_ = 0;
};

class RandomOperations : public testing::TestWithParam<int> {};

TEST_P(RandomOperations, AgreeWithTheModel) {
  const int config = GetParam();
  const int32_t sizes[] = {1, 3, 4, 16};
  const KvCacheOptions options = {.num_blocks = 20 + 3 * config,
                                  .block_size = sizes[config % 4],
                                  .free_order = static_cast<FreeOrder>(config % 3),
                                  .prefix_sharing = config % 5 != 4,
                                  .bytes_per_token = 320};
  Pair pair(options, 1000 + static_cast<uint64_t>(config));
  const int64_t operations = long_tests() ? 1'000'000 : 100'000;
  for (int64_t i = 0; i < operations; ++i) {
    pair.step();
    if (i % 3 == 0) pair.check_watched();
    if (i % 32 == 0) pair.check_all();
    if (HasFatalFailure()) FAIL() << "operation " << i << " of configuration " << config;
  }
  pair.free_all();
  // The test is worth something only if all of this happened.
  if (options.block_size > 1) {  // else no block is partial
    EXPECT_GT(pair.counters().copies, operations / 1000);
  }
  EXPECT_GT(pair.refused(), operations / 1000);
  if (options.prefix_sharing) {
    EXPECT_GT(pair.counters().hits, operations / 100);
    EXPECT_GT(pair.counters().evictions, operations / 100);
    EXPECT_GT(pair.watched_evicted(), operations / 10000);
  }
}

INSTANTIATE_TEST_SUITE_P(KvCache, RandomOperations, testing::Range(0, 10));

TEST(KvCache, TheFirstWriterIntoASharedBlockGetsACopy) {
  KvCache cache({.num_blocks = 8, .block_size = 4});
  const SeqId a = cache.allocate(6).seq;
  const SeqId b = cache.fork(a);
  EXPECT_EQ(cache.references(1), 2);
  const Growth first = cache.append(b);
  EXPECT_EQ(first.copied_from, 1);
  EXPECT_EQ(first.copied_to, 2);
  EXPECT_EQ(cache.append(a).copied_from, -1) << "a owns it alone now";
  EXPECT_EQ(cache.unfilled_tokens(), 2);
  cache.free(a);
  cache.free(b);
  EXPECT_EQ(cache.free_blocks(), 8);
}

TEST(KvCache, RefusesWithoutAChange) {
  KvCache cache({.num_blocks = 2, .block_size = 4});
  const SeqId a = cache.allocate(8).seq;
  EXPECT_EQ(cache.append(a).status, CacheStatus::kNoBlock);
  EXPECT_EQ(cache.append(a, 3).status, CacheStatus::kNoBlock);
  EXPECT_EQ(cache.allocate(1).status, CacheStatus::kNoBlock);
  EXPECT_EQ(cache.length(a), 8);
  EXPECT_EQ(cache.sequences(), 1);
}

TEST(KvCache, EvictsThePrefixThatIsIdleLongest) {
  KvCache cache({.num_blocks = 4, .block_size = 2});
  const std::vector<uint64_t> one = {11, 12}, two = {21, 22};
  cache.free(cache.allocate(4, one).seq);
  cache.free(cache.allocate(4, two).seq);
  EXPECT_EQ(cache.cached_blocks(), 4);
  EXPECT_EQ(cache.match(5, one).blocks, 2);
  cache.allocate(1);
  EXPECT_EQ(cache.match(5, one).blocks, 1) << "the tail goes before the head";
  EXPECT_EQ(cache.match(5, two).blocks, 2);
}

TEST(KvCache, MistakesAreReported) {
  EXPECT_THROW(KvCache({.num_blocks = 0}), Error);
  EXPECT_THROW(KvCache({.num_blocks = 1, .block_size = 0}), Error);
  EXPECT_THROW(KvCache({.num_blocks = 1 << 27, .block_size = 16}), Error);
  KvCache cache({.num_blocks = 4});
  const SeqId a = cache.allocate(3).seq;
  cache.free(a);
  EXPECT_THROW(cache.free(a), std::logic_error);
  EXPECT_THROW(cache.append(a), std::logic_error);
  EXPECT_THROW(cache.length(a), std::logic_error);
}

}  // namespace
}  // namespace attnbench
