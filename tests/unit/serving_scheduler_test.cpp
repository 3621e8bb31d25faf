// The scheduler's steps, followed request by request and slot by slot.
#include "harness/serving/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "harness/error.h"

namespace attnbench {
namespace {

using testing::HasSubstr;

/// Requests of a seed: short and long ones, most with one of five known prefixes.
struct RandomRequests {
  uint64_t seed;
  int64_t count;
  int32_t block_size;
  double per_s = 200;
  std::mt19937_64 rng{seed};
  PoissonArrivals arrivals{per_s, seed + 1};
  int64_t made = 0;

  int32_t draw(int32_t lo, int32_t hi) {
    return lo + static_cast<int32_t>(rng() % static_cast<uint64_t>(hi - lo + 1));
  }
  bool operator()(Request& r) {
    if (made++ == count) return false;
    r.arrival_ns = arrivals.next_ns();
    r.prompt_tokens = draw(0, 9) == 0 ? draw(60, 120) : draw(1, 40);
    r.output_tokens = draw(1, 40);
    const auto family = static_cast<uint64_t>(draw(0, 5));
    for (int32_t i = 0; family > 0 && i < std::min(r.prompt_tokens / block_size, draw(0, 9)); ++i)
      r.prefix_hashes.push_back(family << 32 | static_cast<uint64_t>(i));
    return true;
  }
};

/// What a request should have gone through so far.
struct Progress {
  Request request;
  bool seen = false;
  int32_t length = 0, most = 0, generated = 0;
  int64_t computed = 0, recomputed = 0, rejected = 0, found = 0;  // tokens
  int64_t last_step = -1;
};

class Follower {
 public:
  Follower(const KvCacheOptions& cache, const SchedulerOptions& options, const RandomRequests& requests)
      : cache_(cache),
        options_(options),
        slots_(static_cast<std::size_t>(cache.num_blocks * cache.block_size), 0),
        requests_(requests),
        scheduler_(cache, options, [this](Request& r) {
          if (!requests_(r)) return false;
          progress_.push_back({.request = r});
          return true;
        }) {}

  void run() {
    int64_t end_ns = 0;
    while (const Step* step = scheduler_.next()) {
      ASSERT_EQ(step->index, steps_);
      ASSERT_GE(step->start_ns, end_ns);
      end_ns = step->start_ns + step->duration_ns;
      ASSERT_EQ(step->duration_ns, options_.step_ns + step->query_tokens * options_.token_ps / 1000);
      ASSERT_NO_FATAL_FAILURE(check_limits(*step));
      for (const ScheduledSequence& s : step->sequences) ASSERT_NO_FATAL_FAILURE(follow(s, *step));
      for (const ScheduledSequence& s : step->sequences) ASSERT_NO_FATAL_FAILURE(write(s));
      for (const ScheduledSequence& s : step->sequences) ASSERT_NO_FATAL_FAILURE(read(s));
      add_step(digest_, *step);
      ++steps_;
    }
    check_end();
  }

  const SchedulerTotals& totals() const { return scheduler_.totals(); }
  uint64_t digest() const { return digest_.value(); }

 private:
  void check_limits(const Step& step) {
    int32_t tokens = 0, recomputed = 0;
    std::set<int64_t> requests;
    bool decode = options_.decode_first;
    for (const ScheduledSequence& s : step.sequences) {
      tokens += s.query_tokens;
      requests.insert(s.request);
      const Progress& p = progress_[static_cast<std::size_t>(s.request)];
      recomputed += std::clamp(p.most - s.context_tokens, 0, s.query_tokens);
      // A sequence that was swapped in decodes where it is admitted.
      if (options_.preemption == Preemption::kRecompute) {
        EXPECT_TRUE(s.decode == decode || s.decode != options_.decode_first);
        decode = s.decode;
      }
    }
    EXPECT_EQ(tokens, step.query_tokens);
    EXPECT_EQ(recomputed, step.recomputed_tokens);
    ASSERT_GT(tokens, 0) << "an empty step";
    EXPECT_LE(tokens, options_.token_budget);
    EXPECT_EQ(requests.size(), step.sequences.size()) << "a request twice";
    EXPECT_LE(step.running, options_.max_sequences);
    const bool budget_left = tokens < options_.token_budget;
    if (budget_left && options_.chunked_prefill) {
      EXPECT_EQ(step.running, static_cast<int32_t>(step.sequences.size())) << "a sequence without tokens";
    }
    if (options_.preemption == Preemption::kRecompute) {
      EXPECT_EQ(step.swapped_out_blocks + step.swapped_in_blocks, 0);
    } else {
      EXPECT_EQ(step.recomputed_tokens, 0);
    }
  }

  void follow(const ScheduledSequence& s, const Step& step) {
    ASSERT_LT(s.request, static_cast<int64_t>(progress_.size()));
    Progress& p = progress_[static_cast<std::size_t>(s.request)];
    const Request& r = p.request;
    ASSERT_LE(r.arrival_ns, step.start_ns);
    if (!p.seen) {
      ASSERT_EQ(s.request, first_unseen_++) << "first come, first served";
      p.seen = true;
    }
    if (s.context_tokens != p.length || p.last_step < 0) {  // admitted, with what was found
      ASSERT_TRUE(p.last_step < 0 || options_.preemption == Preemption::kRecompute);
      ASSERT_FALSE(s.decode);
      ASSERT_EQ(s.context_tokens % cache_.block_size, 0);
      ASSERT_LE(s.context_tokens, static_cast<int32_t>(r.prefix_hashes.size()) * cache_.block_size);
      p.found += std::max(0, s.context_tokens - p.most);
      p.length = s.context_tokens;
    }
    if (p.last_step + 1 != step.index && options_.preemption == Preemption::kSwap)
      copied_back_.insert(s.request);
    p.last_step = step.index;
    p.computed += s.query_tokens;
    p.recomputed += std::clamp(p.most - p.length, 0, s.query_tokens);
    ASSERT_LT(p.generated, r.output_tokens) << "it is done";
    if (s.decode) {
      ASSERT_EQ(p.length, r.prompt_tokens + p.generated - 1);
      ASSERT_EQ(s.query_tokens, 1 + s.draft_tokens);
      ASSERT_LE(s.draft_tokens, options_.draft_tokens);
      ASSERT_LE(s.accepted_tokens, s.draft_tokens);
      p.rejected += s.draft_tokens - s.accepted_tokens;
      p.length += 1 + s.accepted_tokens;
      p.generated += 1 + s.accepted_tokens;
    } else {
      p.length += s.query_tokens;
      ASSERT_LE(p.length, r.prompt_tokens + p.generated);
      const bool whole = p.length == r.prompt_tokens + p.generated;
      if (!options_.chunked_prefill && r.prompt_tokens + p.generated <= options_.token_budget) {
        ASSERT_TRUE(whole);
      }
      p.generated += whole ? 1 : 0;
    }
    ASSERT_LE(p.generated, r.output_tokens);
    p.most = std::max(p.most, p.length);
  }

  uint64_t token(int64_t request, int32_t pos) const {
    const Request& r = progress_[static_cast<std::size_t>(request)].request;
    const auto block = static_cast<std::size_t>(pos / cache_.block_size);
    if (block < r.prefix_hashes.size())
      return r.prefix_hashes[block] << 8 | static_cast<uint64_t>(pos % cache_.block_size);
    return uint64_t{1} << 62 | static_cast<uint64_t>(request) << 16 | static_cast<uint64_t>(pos);
  }
  uint64_t& slot(const ScheduledSequence& s, int32_t pos) {
    const int32_t block = s.block_table[static_cast<std::size_t>(pos / cache_.block_size)];
    return slots_[static_cast<std::size_t>(block * cache_.block_size + pos % cache_.block_size)];
  }

  /// Drafts that are rejected leave something else behind.
  void write(const ScheduledSequence& s) {
    const int32_t len_k = s.context_tokens + s.query_tokens;
    ASSERT_EQ(static_cast<int32_t>(s.block_table.size()),
              (len_k + cache_.block_size - 1) / cache_.block_size);
    const int32_t from = copied_back_.erase(s.request) > 0 ? 0 : s.context_tokens;
    for (int32_t pos = from; pos < len_k; ++pos) slot(s, pos) = token(s.request, pos);
  }

  void read(const ScheduledSequence& s) {
    const int32_t len_k = s.context_tokens + s.query_tokens;
    for (int32_t pos = 0; pos < len_k; ++pos)
      ASSERT_EQ(slot(s, pos), token(s.request, pos)) << "request " << s.request << ", token " << pos;
    for (int32_t i = 0; i < s.draft_tokens - s.accepted_tokens; ++i) slot(s, len_k - 1 - i) = 0;
  }

  void check_end() {
    ASSERT_EQ(static_cast<int64_t>(progress_.size()), requests_.count);
    int64_t recomputed = 0, found = 0;
    for (const Progress& p : progress_) {
      ASSERT_EQ(p.generated, p.request.output_tokens);
      const int32_t once = p.request.prompt_tokens + p.request.output_tokens - 1;
      ASSERT_EQ(p.computed - p.recomputed - p.rejected + p.found, once);
      recomputed += p.recomputed;
      found += p.found;
    }
    EXPECT_EQ(totals().finished, requests_.count);
    EXPECT_EQ(totals().steps, steps_);
    EXPECT_EQ(totals().recomputed_tokens, recomputed);
    EXPECT_GE(totals().prefix_hit_tokens, found);  // hits after a preemption are not new
    EXPECT_EQ(scheduler_.cache().sequences(), 0);
    EXPECT_EQ(scheduler_.cache().available_blocks(), cache_.num_blocks);
    EXPECT_EQ(scheduler_.cache().unfilled_tokens(), 0);
  }

  KvCacheOptions cache_;
  SchedulerOptions options_;
  std::vector<uint64_t> slots_;
  std::vector<Progress> progress_;  // by request
  std::set<int64_t> copied_back_;
  int64_t first_unseen_ = 0, steps_ = 0;
  Digest digest_;
  RandomRequests requests_;
  Scheduler scheduler_;
};

class RandomTraffic : public testing::TestWithParam<int> {};

KvCacheOptions small_cache(int bits) {
  return {.num_blocks = 48, .block_size = 4, .free_order = static_cast<FreeOrder>(bits % 3)};
}

SchedulerOptions options_of(int bits) {
  return {.token_budget = bits & 1 ? 128 : 24,
          .max_sequences = bits & 2 ? 12 : 5,
          .chunked_prefill = !(bits & 1) || (bits & 4) != 0,  // a prompt may be longer than 24
          .decode_first = (bits & 8) != 0,
          .preemption = bits & 16 ? Preemption::kSwap : Preemption::kRecompute,
          .watermark_percent = bits & 4 ? 10 : 0,
          .draft_tokens = bits & 32 ? 3 : 0,
          .acceptance = 0.6,
          .seed = 5,
          .step_ns = 1'000'000,
          .token_ps = 20'000'000,
          .max_waiting = 16};
}

TEST_P(RandomTraffic, KeepsItsPromises) {
  const int bits = GetParam();
  Follower follower(small_cache(bits), options_of(bits), {static_cast<uint64_t>(bits), 400, 4});
  ASSERT_NO_FATAL_FAILURE(follower.run());
  if (bits & 2) {
    EXPECT_GT(follower.totals().preempted, 10);
  }
  EXPECT_GT(follower.totals().prefix_hit_tokens, 100);
  if (bits & 32) {
    EXPECT_GT(follower.totals().accepted_tokens, 1000);
    EXPECT_LT(follower.totals().accepted_tokens, follower.totals().draft_tokens);
  }
  if ((bits & 18) == 18) {
    EXPECT_GT(follower.totals().swapped_in_blocks, 10);
  }
}

INSTANTIATE_TEST_SUITE_P(Scheduler, RandomTraffic, testing::Range(0, 64));

uint64_t digest_of(int bits, uint64_t seed, int32_t max_waiting = 16, uint64_t acceptance_seed = 5) {
  SchedulerOptions options = options_of(bits);
  options.max_waiting = max_waiting;
  options.seed = acceptance_seed;
  Follower follower(small_cache(bits), options, {seed, 300, 4});
  follower.run();
  return follower.digest();
}

TEST(Scheduler, ASeedGivesTheSameStepsOnEveryMachine) {
  EXPECT_EQ(digest_of(42, 1), digest_of(42, 1));
  EXPECT_EQ(digest_of(42, 1), 17867600045861516990u) << "these steps changed: so do the cases made of them";
  EXPECT_NE(digest_of(42, 1), digest_of(42, 2));
  EXPECT_NE(digest_of(42, 1), digest_of(42, 1, 16, 6));
}

TEST(Scheduler, ReadingAheadChangesNoStep) { EXPECT_EQ(digest_of(10, 1, 1), digest_of(10, 1, 10000)); }

NextRequest list_of(std::vector<Request> requests) {
  return [requests = std::move(requests), i = std::size_t{0}](Request& r) mutable {
    if (i == requests.size()) return false;
    r = requests[i++];
    return true;
  };
}

TEST(Scheduler, APromptIsDividedAndThenDecoded) {
  Scheduler s({.num_blocks = 16, .block_size = 4}, {.token_budget = 8, .step_ns = 500, .token_ps = 2000},
              list_of({{.arrival_ns = 1000, .prompt_tokens = 13, .output_tokens = 3}}));
  const auto next = [&] { return s.next()->sequences.at(0); };
  EXPECT_EQ(s.next()->start_ns, 1000);
  EXPECT_EQ(s.now_ns(), 1000);
  const ScheduledSequence rest = next();
  EXPECT_EQ(s.now_ns(), 1516) << "500 ns and 8 tokens of 2 ns";
  EXPECT_EQ(rest.query_tokens, 5);
  EXPECT_EQ(rest.context_tokens, 8);
  EXPECT_FALSE(rest.decode);
  EXPECT_EQ(rest.block_table.size(), 4u);
  const ScheduledSequence decode = next();
  EXPECT_EQ(decode.query_tokens, 1);
  EXPECT_EQ(decode.context_tokens, 13);
  EXPECT_TRUE(decode.decode);
  EXPECT_EQ(next().context_tokens, 14);
  EXPECT_EQ(s.next(), nullptr);
  EXPECT_EQ(s.next(), nullptr);
}

TEST(Scheduler, TheYoungestIsPreemptedAndComesBackFirst) {
  // Each of the first two takes two of four blocks, and needs a third for its ninth token.
  Scheduler s({.num_blocks = 4, .block_size = 4}, {.max_sequences = 2},
              list_of({{.prompt_tokens = 4, .output_tokens = 6},
                       {.prompt_tokens = 4, .output_tokens = 6},
                       {.prompt_tokens = 1, .output_tokens = 1}}));
  std::vector<std::vector<int64_t>> steps;
  int32_t preempted = 0;
  while (const Step* step = s.next()) {
    steps.emplace_back();
    for (const ScheduledSequence& q : step->sequences) steps.back().push_back(q.request);
    preempted += step->preempted;
  }
  EXPECT_EQ(steps.front(), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(steps[steps.size() - 2], (std::vector<int64_t>{0}))
      << "a block for request 2 is free, and it waits";
  EXPECT_EQ(steps.back(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(preempted, 1);
  EXPECT_EQ(s.totals().recomputed_tokens, 8);
}

std::string error_of(const Request& first, const Request& second, const SchedulerOptions& options = {}) {
  try {
    Scheduler s({.num_blocks = 4, .block_size = 16}, options, list_of({first, second}));
    while (s.next() != nullptr) continue;
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Scheduler, MistakesOfRequestsNameTheirIndex) {
  const Request ok = {.arrival_ns = 10, .prompt_tokens = 33, .output_tokens = 32};
  EXPECT_EQ(error_of(ok, ok), "");
  EXPECT_EQ(error_of(ok, {.arrival_ns = 10, .prompt_tokens = 34, .output_tokens = 32}),
            "request 1 needs 5 blocks of 16 tokens for 34 prompt and 32 output tokens, and the cache has 4; "
            "raise cache_tokens or leave the request out");
  EXPECT_THAT(error_of(ok, {.arrival_ns = 9, .prompt_tokens = 1, .output_tokens = 1}),
              HasSubstr("request 1 arrives at 9 ns, before request 0 at 10 ns"));
  EXPECT_THAT(error_of({.arrival_ns = -1, .prompt_tokens = 1, .output_tokens = 1}, ok),
              HasSubstr("request 0"));
  EXPECT_THAT(error_of(ok, {.arrival_ns = 10, .prompt_tokens = 1}),
              HasSubstr("request 1 has 1 prompt and 0"));
  EXPECT_THAT(error_of(ok, ok, {.token_budget = 32, .chunked_prefill = false}),
              HasSubstr("raise token_budget"));
  EXPECT_THAT(error_of(ok, ok, {.token_budget = 0}), HasSubstr("token_budget is 0"));
  EXPECT_THAT(error_of(ok, ok, {.watermark_percent = 101}), HasSubstr("watermark_percent is 101"));
  EXPECT_THAT(error_of(ok, ok, {.acceptance = 1.5}), HasSubstr("acceptance is 1.5"));
}

TEST(Arrivals, GapsAreExponential) {
  PoissonArrivals arrivals(1000, 3);
  constexpr int kN = 200'000;
  double sum = 0, squares = 0;
  int longer = 0;
  int64_t last = 0;
  for (int i = 0; i < kN; ++i) {
    const int64_t t = arrivals.next_ns();
    const double gap = static_cast<double>(t - last) * 1e-6;  // in mean gaps
    last = t;
    sum += gap;
    squares += gap * gap;
    longer += gap > 2;
  }
  EXPECT_NEAR(sum / kN, 1, 0.01);
  EXPECT_NEAR(squares / kN, 2, 0.05);
  EXPECT_NEAR(static_cast<double>(longer) / kN, 0.1353, 0.003);
  EXPECT_THROW(PoissonArrivals(0, 1), Error);
}

}  // namespace
}  // namespace attnbench
