// Continuous batching: which tokens of which requests a server computes in each step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "harness/serving/arrivals.h"
#include "harness/serving/kv_cache.h"
#include "harness/serving/step.h"

namespace attnbench {

/// What happens to the tokens of a preempted sequence: they are computed again, or copied to the host and back.
enum class Preemption { kRecompute, kSwap };

struct SchedulerOptions {
  int32_t token_budget = 8192;  ///< query tokens of a step, at least 1
  int32_t max_sequences = 256;  ///< that hold blocks at a time, at least 1
  /// Off: a prompt is computed in one step. Only a recomputation longer than the budget is divided.
  bool chunked_prefill = true;
  /// The budget goes to decoding sequences, then to prefills and new ones. Off: decoding sequences are last.
  bool decode_first = true;
  Preemption preemption = Preemption::kRecompute;
  /// The part of the cache, 0 to 100 %, that must stay available when a request is admitted beside others.
  int32_t watermark_percent = 1;
  int32_t draft_tokens = 0;  ///< speculative decoding: drafts that a decode step checks
  double acceptance = 0.0;   ///< probability that a draft is right if those before it are
  uint64_t seed = 0;         ///< of the acceptance
  /// A step takes step_ns + query tokens * token_ps / 1000 nanoseconds.
  int64_t step_ns = 0, token_ps = 0;
  int32_t max_waiting = 1024;  ///< requests read ahead, at least 1: it bounds memory and changes no step
};

/// Sums over all steps so far.
struct SchedulerTotals {
  int64_t steps = 0, finished = 0;  ///< finished: requests
  int64_t output_tokens = 0;        ///< generated, in the steps that are over
  int64_t query_tokens = 0, recomputed_tokens = 0, prefix_hit_tokens = 0;
  int64_t draft_tokens = 0, accepted_tokens = 0;
  int64_t preempted = 0, swapped_out_blocks = 0, swapped_in_blocks = 0;
};

/// First come, first served. If no block is free, the youngest sequence without tokens in this step loses its
/// blocks, and this step admits none from then on. A preempted sequence comes back before those that never ran.
class Scheduler {
 public:
  /// Reads the first request. Throws Error if an option is out of its range, and as next() does.
  Scheduler(const KvCacheOptions& cache, const SchedulerOptions& options, NextRequest next_request);

  /// The next step, or null when all requests are done. Valid until the next call. Throws Error, with the index
  /// of the request, if it has no tokens, goes back in time, or needs more than the cache or the budget allow.
  /// Requests are read ahead, so the error may come before the steps of those before it. It is the end.
  const Step* next();

  const KvCache& cache() const { return cache_; }
  const SchedulerTotals& totals() const { return totals_; }
  int64_t now_ns() const { return now_ns_; }

 private:
  using JobId = int32_t;
  static constexpr JobId kNoJob = -1;
  /// A request that has arrived. It waits or runs.
  struct Job {
    int64_t index = 0;
    Request request;
    SeqId seq = -1;
    int32_t length = 0;     // tokens in the cache; of one swapped out: on the host
    int32_t computed = 0;   // the longest that length has been
    int32_t generated = 0;  // output tokens known
    int32_t in_step = 0;    // query tokens in this step
    int32_t accepted = 0;   // drafts accepted in this step
    bool prefilling = true;
    bool running = false;
    bool swapped = false;
    int32_t known() const { return request.prompt_tokens + generated; }
  };

  Job& job(JobId id) { return jobs_[static_cast<std::size_t>(id)]; }
  void read_request();
  void check_request(const Request& request) const;
  void read_arrived();
  void finish_step();
  void schedule_running(bool decodes);
  void schedule(JobId id);
  void launch(JobId id, int32_t tokens);
  int32_t wanted_tokens(const Job& j) const;
  void preempt(JobId id);
  JobId youngest_unscheduled() const;
  void admit();
  bool admit_one(JobId id);
  /// Where a job stands in a queue by age.
  template <class Queue>
  auto place(const Queue& queue, JobId id) const {
    return std::ranges::upper_bound(queue, id, [&](JobId a, JobId b) {
      return jobs_[static_cast<std::size_t>(a)].index < jobs_[static_cast<std::size_t>(b)].index;
    });
  }
  void close_step();

  SchedulerOptions options_;
  KvCache cache_;
  NextRequest next_request_;
  std::mt19937_64 rng_;
  Request ahead_;  // the request that arrives next
  bool has_ahead_ = true;
  int64_t requests_read_ = 0;
  int64_t now_ns_ = 0;
  std::vector<Job> jobs_;
  std::vector<JobId> free_jobs_;
  std::vector<JobId> running_;    // oldest first
  std::deque<JobId> waiting_;     // oldest first
  JobId watched_ = kNoJob;        // the one that waits whose prefix the cache watches
  std::vector<JobId> turn_;       // scratch of schedule_running
  std::vector<JobId> scheduled_;  // the jobs of step_.sequences
  int32_t budget_ = 0;            // tokens left in this step
  Step step_;
  SchedulerTotals totals_;
};

}  // namespace attnbench
