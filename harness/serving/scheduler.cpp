#include "harness/serving/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/error.h"

namespace attnbench {
namespace {

const SchedulerOptions& checked_scheduler(const SchedulerOptions& o) {
  const auto at_least = [](const char* name, int64_t value, int64_t least) {
    if (value < least) throw Error(fmt::format("{} is {}; at least {} is required", name, value, least));
  };
  at_least("token_budget", o.token_budget, 1);
  at_least("max_sequences", o.max_sequences, 1);
  at_least("max_waiting", o.max_waiting, 1);
  at_least("draft_tokens", o.draft_tokens, 0);
  at_least("step_ns", o.step_ns, 0);
  at_least("token_ps", o.token_ps, 0);
  if (o.watermark_percent < 0 || o.watermark_percent > 100)
    throw Error(fmt::format("watermark_percent is {}; 0 to 100 is required", o.watermark_percent));
  if (!(o.acceptance >= 0 && o.acceptance <= 1))
    throw Error(fmt::format("acceptance is {}; a probability from 0 to 1 is required", o.acceptance));
  return o;
}

/// The last output token is not written into the cache.
int64_t most_tokens(const Request& r) { return int64_t{r.prompt_tokens} + r.output_tokens - 1; }

}  // namespace

Scheduler::Scheduler(const KvCacheOptions& cache, const SchedulerOptions& options, NextRequest next_request)
    : options_(checked_scheduler(options)),
      cache_(cache),
      next_request_(std::move(next_request)),
      rng_(options.seed) {
  read_request();
}

void Scheduler::read_request() {
  const int64_t before = ahead_.arrival_ns;
  ahead_.prefix_hashes.clear();
  has_ahead_ = next_request_(ahead_);
  if (!has_ahead_) return;
  check_request(ahead_);
  if (ahead_.arrival_ns < before) {
    throw Error(fmt::format("request {} arrives at {} ns, before request {} at {} ns; sort them by arrival",
                            requests_read_, ahead_.arrival_ns, requests_read_ - 1, before));
  }
  // Blocks behind the prompt hold generated tokens, which no other request has.
  const auto prompt_blocks = static_cast<std::size_t>(ahead_.prompt_tokens / cache_.block_size());
  if (ahead_.prefix_hashes.size() > prompt_blocks) ahead_.prefix_hashes.resize(prompt_blocks);
  ++requests_read_;
}

void Scheduler::check_request(const Request& r) const {
  if (r.prompt_tokens < 1 || r.output_tokens < 1) {
    throw Error(fmt::format("request {} has {} prompt and {} output tokens; at least 1 of each is required",
                            requests_read_, r.prompt_tokens, r.output_tokens));
  }
  if (r.arrival_ns < 0)
    throw Error(
        fmt::format("request {} arrives at {} ns; 0 or later is required", requests_read_, r.arrival_ns));
  const int64_t size = cache_.block_size();
  const int64_t blocks = (most_tokens(r) + size - 1) / size;
  if (blocks > cache_.num_blocks()) {
    throw Error(
        fmt::format("request {} needs {} blocks of {} tokens for {} prompt and {} output tokens, and the "
                    "cache has {}; raise cache_tokens or leave the request out",
                    requests_read_, blocks, size, r.prompt_tokens, r.output_tokens, cache_.num_blocks()));
  }
  if (!options_.chunked_prefill && r.prompt_tokens > options_.token_budget) {
    throw Error(
        fmt::format("request {} has {} prompt tokens, and a step has a budget of {}; raise token_budget "
                    "or turn chunked_prefill on",
                    requests_read_, r.prompt_tokens, options_.token_budget));
  }
}

/// Moves requests that have arrived to the queue. The queue has an end so that an overload does not fill memory.
void Scheduler::read_arrived() {
  while (has_ahead_ && ahead_.arrival_ns <= now_ns_ &&
         static_cast<int32_t>(waiting_.size()) < options_.max_waiting) {
    if (free_jobs_.empty()) {
      free_jobs_.push_back(static_cast<JobId>(jobs_.size()));
      jobs_.emplace_back();
    }
    const JobId id = free_jobs_.back();
    free_jobs_.pop_back();
    Job fresh;
    fresh.index = requests_read_ - 1;
    fresh.request = std::move(ahead_);
    std::swap(ahead_.prefix_hashes, job(id).request.prefix_hashes);  // memory of a request that is done
    job(id) = std::move(fresh);
    waiting_.push_back(id);
    read_request();
  }
}

const Step* Scheduler::next() {
  finish_step();
  read_arrived();
  if (running_.empty() && waiting_.empty()) {
    if (!has_ahead_) return nullptr;
    now_ns_ = ahead_.arrival_ns;
    read_arrived();
  }
  budget_ = options_.token_budget;
  if (options_.decode_first) schedule_running(true);
  schedule_running(false);
  admit();
  if (!options_.decode_first) schedule_running(true);
  close_step();
  return &step_;
}

/// Applies the outcome of the last step. It is not applied earlier, because the step's block tables must stay.
void Scheduler::finish_step() {
  bool any_done = false;
  for (const JobId id : scheduled_) {
    Job& j = job(id);
    const int32_t generated = j.generated;
    if (j.prefilling) {
      j.length += j.in_step;
      if (j.length == j.known()) {
        j.prefilling = false;
        ++j.generated;
      }
    } else {
      cache_.append(j.seq, 1 + j.accepted);
      j.length += 1 + j.accepted;
      j.generated += 1 + j.accepted;
    }
    totals_.output_tokens += j.generated - generated;
    j.computed = std::max(j.computed, j.length);
    j.in_step = j.accepted = 0;
    if (j.generated < j.request.output_tokens) continue;
    cache_.free(j.seq);
    j.running = false;
    any_done = true;
    free_jobs_.push_back(id);
    ++totals_.finished;
  }
  if (any_done) std::erase_if(running_, [&](JobId id) { return !job(id).running; });
  scheduled_.clear();
  now_ns_ += step_.duration_ns;
  step_.sequences.clear();
  Step fresh;
  fresh.index = totals_.steps;
  fresh.sequences = std::move(step_.sequences);  // keeps its memory
  step_ = std::move(fresh);
}

/// Gives tokens to the running sequences that decode, or to those that do not, oldest first.
void Scheduler::schedule_running(bool decodes) {
  turn_.clear();
  for (const JobId id : running_) {
    if (job(id).prefilling != decodes && job(id).in_step == 0) turn_.push_back(id);
  }
  for (const JobId id : turn_) {
    if (budget_ == 0) return;
    if (job(id).running) schedule(id);  // one before it may have preempted it
  }
}

/// Query tokens of a sequence in this step; 0: it waits for a step with more budget.
int32_t Scheduler::wanted_tokens(const Job& j) const {
  if (!j.prefilling) {
    const int32_t most =
        j.request.output_tokens - j.generated - 1;  // a step yields one token more than drafts
    return 1 + std::min({options_.draft_tokens, most, budget_ - 1});
  }
  const int32_t rest = j.known() - j.length;
  if (!options_.chunked_prefill && rest > budget_ && rest <= options_.token_budget) return 0;
  return std::min(rest, budget_);
}

/// Gives tokens to a running sequence, and takes blocks from others if none is free.
void Scheduler::schedule(JobId id) {
  Job& j = job(id);
  const int32_t tokens = wanted_tokens(j);
  if (tokens == 0) return;
  // A prefill is written at once, so that another prompt of this step finds its blocks: a server writes the keys
  // of all sequences before it attends. A decode is written when it is known which drafts are accepted.
  while (
      (j.prefilling ? cache_.append(j.seq, tokens, j.request.prefix_hashes) : cache_.reserve(j.seq, tokens))
          .status != CacheStatus::kOk) {
    const JobId victim = youngest_unscheduled();
    preempt(victim);
    if (victim == id) return;
  }
  launch(id, tokens);
}

/// Adds a sequence, whose slots are there, to the step.
void Scheduler::launch(JobId id, int32_t tokens) {
  Job& j = job(id);
  ScheduledSequence s;
  s.request = j.index;
  s.query_tokens = j.in_step = tokens;
  s.context_tokens = j.length;
  s.decode = !j.prefilling;
  if (s.decode) {
    s.draft_tokens = tokens - 1;
    while (j.accepted < s.draft_tokens && draw_unit(rng_) < options_.acceptance) ++j.accepted;
    s.accepted_tokens = j.accepted;
  }
  step_.recomputed_tokens += std::clamp(j.computed - j.length, 0, tokens);
  step_.sequences.push_back(s);
  scheduled_.push_back(id);
  budget_ -= tokens;
}

/// There is one: the sequence that lacks blocks is itself unscheduled.
Scheduler::JobId Scheduler::youngest_unscheduled() const {
  return *std::find_if(running_.rbegin(), running_.rend(),
                       [&](JobId id) { return jobs_[static_cast<std::size_t>(id)].in_step == 0; });
}

void Scheduler::preempt(JobId id) {
  Job& j = job(id);
  ++step_.preempted;
  if (options_.preemption == Preemption::kSwap) {
    step_.swapped_out_blocks += cache_.blocks_for(j.length);
    j.swapped = true;
  } else {
    j.length = 0;
    j.prefilling = true;
  }
  cache_.free(j.seq);
  j.running = false;
  std::erase(running_, id);
  waiting_.insert(place(waiting_, id), id);
}

void Scheduler::admit() {
  // What was just preempted would come back at the cost of the next one.
  while (step_.preempted == 0 && budget_ > 0 && !waiting_.empty() &&
         static_cast<int32_t>(running_.size()) < options_.max_sequences && admit_one(waiting_.front())) {
    waiting_.pop_front();
    read_arrived();
  }
}

/// False if it must wait.
bool Scheduler::admit_one(JobId id) {
  Job& j = job(id);
  if (watched_ != id) {
    cache_.watch(j.swapped ? j.length : j.known(), j.request.prefix_hashes);
    watched_ = id;
  }
  const PrefixMatch match = cache_.match_watched();
  if (!j.swapped) j.length = match.blocks * cache_.block_size();
  const int32_t tokens = wanted_tokens(j);
  const int32_t needed = cache_.blocks_for(int64_t{j.length} + tokens) - match.blocks + match.idle;
  const int64_t stay = running_.empty() ? 0 : int64_t{cache_.num_blocks()} * options_.watermark_percent / 100;
  if (tokens == 0 || needed + stay > cache_.available_blocks()) {
    if (!j.swapped) j.length = 0;
    return false;
  }
  watched_ = kNoJob;
  j.running = true;
  running_.insert(place(running_, id), id);
  if (j.swapped) {
    j.seq = cache_.allocate_watched(j.length, j.request.prefix_hashes).seq;
    j.swapped = false;
    step_.swapped_in_blocks += cache_.blocks_for(j.length) - match.blocks;
    schedule(id);
  } else {
    j.seq = cache_.allocate_watched(j.length + tokens, j.request.prefix_hashes).seq;
    step_.prefix_hit_tokens += j.length;
    launch(id, tokens);
  }
  return true;
}

void Scheduler::close_step() {
  for (std::size_t i = 0; i < scheduled_.size(); ++i) {
    ScheduledSequence& s = step_.sequences[i];
    const auto blocks =
        static_cast<std::size_t>(cache_.blocks_for(int64_t{s.context_tokens} + s.query_tokens));
    s.block_table = cache_.block_table(job(scheduled_[i]).seq).first(blocks);
    totals_.draft_tokens += s.draft_tokens;
    totals_.accepted_tokens += s.accepted_tokens;
  }
  step_.start_ns = now_ns_;
  step_.query_tokens = options_.token_budget - budget_;
  step_.duration_ns = options_.step_ns + step_.query_tokens * options_.token_ps / 1000;
  step_.running = static_cast<int32_t>(running_.size());
  step_.waiting = static_cast<int32_t>(waiting_.size());
  step_.owned_blocks = cache_.num_blocks() - cache_.available_blocks();
  step_.unfilled_tokens = cache_.unfilled_tokens();
  ++totals_.steps;
  totals_.query_tokens += step_.query_tokens;
  totals_.recomputed_tokens += step_.recomputed_tokens;
  totals_.prefix_hit_tokens += step_.prefix_hit_tokens;
  totals_.preempted += step_.preempted;
  totals_.swapped_out_blocks += step_.swapped_out_blocks;
  totals_.swapped_in_blocks += step_.swapped_in_blocks;
}

}  // namespace attnbench
