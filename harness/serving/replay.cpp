#include "harness/serving/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "harness/error.h"
#include "harness/serving/request_source.h"
#include "harness/serving/server_options.h"

namespace attnbench {
namespace {

constexpr double kPairsPerKey = 64;
constexpr uint64_t kDrawSeed = 0x7374657073;  // keeps draws of steps apart from those of requests
/// Most entries of all block tables of the chosen steps: 1 GiB.
constexpr int64_t kMostEntries = int64_t{1} << 28;

void lengths_of(const Step& step, std::vector<SeqLen>& seqs) {
  seqs.clear();
  for (const ScheduledSequence& s : step.sequences)
    seqs.push_back({s.query_tokens, s.context_tokens + s.query_tokens});
}

/// The server from its start. A replay runs twice: first to weigh its steps, then to keep those that are chosen.
class Server {
 public:
  Server(const ServingSpec& spec, int32_t block_size)
      : spec_(spec),
        requests_(spec, block_size, "'skip_bad: true'"),
        scheduler_(cache_options(spec, block_size), scheduler_options(spec),
                   [this](Request& r) { return requests_(r); }) {
    for (int64_t i = 0; i < spec.warmup; ++i) next();
  }
  /// A mix has no end. Throws BadTraceError at that of a trace.
  const Step& next() {
    const Step* step = scheduler_.next();
    if (step == nullptr) fail_short();
    ++steps_;
    return *step;
  }
  int64_t output_tokens() const { return scheduler_.totals().output_tokens; }
  std::string note() const { return requests_.trace() ? requests_.trace()->note() : ""; }

 private:
  [[noreturn]] void fail_short() const {
    if (steps_ == 0) throw BadTraceError(fmt::format("{}: error: the trace has no request", spec_.trace));
    throw BadTraceError(fmt::format(
        "{}: error: the trace ends after {} steps, and warmup: {} and steps: {} need {}; lower them "
        "to {} in all, or give a longer trace",
        spec_.trace, steps_, spec_.warmup, spec_.steps, spec_.warmup + spec_.steps, steps_));
  }

  const ServingSpec& spec_;
  RequestSource requests_;
  Scheduler scheduler_;
  int64_t steps_ = 0;
};

int64_t percentile_step(const std::vector<double>& work, double share) {
  std::vector<int64_t> order(work.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto at = order.begin() + static_cast<int64_t>(share * static_cast<double>(work.size() - 1));
  std::nth_element(order.begin(), at, order.end(), [&](int64_t a, int64_t b) {
    const double x = work[static_cast<std::size_t>(a)], y = work[static_cast<std::size_t>(b)];
    return x != y ? x < y : a < b;
  });
  return *at;
}

/// The chosen steps without their lengths and tables, and without what is known of the whole replay.
std::vector<ServedStep> choose(const ServingSpec& spec, const std::vector<double>& work) {
  using Kind = StepChoice::Kind;
  std::vector<ServedStep> chosen;
  const auto add = [&](int64_t step, int64_t stratum = -1, int64_t stratum_steps = 0) {
    chosen.push_back({.step = step,
                      .stratum = stratum,
                      .stratum_steps = stratum_steps,
                      .drawn = stratum < 0 ? 0 : spec.cases()});
  };
  switch (spec.step.kind) {
    case Kind::kFirst:
      add(0);
      break;
    case Kind::kIndex:
      add(spec.step.number);
      break;
    case Kind::kP50:
      add(percentile_step(work, 0.50));
      break;
    case Kind::kP99:
      add(percentile_step(work, 0.99));
      break;
    case Kind::kAll:
      for (int64_t i = 0; i < spec.steps; ++i) add(i, i, 1);
      break;
    case Kind::kSpread: {
      const std::vector<Stratum> strata = draw_steps(work, spec.step.number, spec.seed);
      for (std::size_t s = 0; s < strata.size(); ++s) {
        for (const int64_t step : strata[s].drawn) add(step, static_cast<int64_t>(s), strata[s].steps);
      }
      break;
    }
  }
  return chosen;
}

}  // namespace

double attention_work(const std::vector<SeqLen>& seqs) {
  double work = 0;
  for (const SeqLen& s : seqs) {
    const double context = s.k - s.q, q = s.q;
    work += s.k + q * (context + (q + 1) / 2) / kPairsPerKey;
  }
  return work;
}

namespace {

/// What a step adds to its stratum, in the order of work. Strata of equal sums of sqrt(distance to the next step's work)
/// give the least error for a quantity that follows the work (T. Dalenius, J. Hodges, "Minimum variance stratification",
/// 1959). A time does not follow it exactly, so half of the sum counts steps.
std::vector<double> spread_of(const std::vector<double>& work, const std::vector<int64_t>& order) {
  constexpr int64_t kReach = 8;  // neighbours on either side: one distance alone is noise
  const int64_t last = std::ssize(order) - 1;
  const auto work_at = [&](int64_t rank) {
    return work[static_cast<std::size_t>(order[static_cast<std::size_t>(rank)])];
  };
  std::vector<double> spread;
  for (int64_t rank = 0; rank <= last; ++rank) {
    const int64_t lo = std::max<int64_t>(0, rank - kReach), hi = std::min(last, rank + kReach);
    spread.push_back(hi > lo ? std::sqrt((work_at(lo) - work_at(hi)) / static_cast<double>(hi - lo)) : 0);
  }
  const double mean = std::accumulate(spread.begin(), spread.end(), 0.0) / static_cast<double>(spread.size());
  for (double& x : spread) x += mean > 0 ? mean : 1;
  return spread;
}

}  // namespace

std::vector<Stratum> draw_steps(const std::vector<double>& work, int64_t count, uint64_t seed) {
  std::vector<int64_t> order(work.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto work_of = [&](int64_t step) { return work[static_cast<std::size_t>(step)]; };
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return work_of(a) > work_of(b); });
  const std::vector<double> weight = spread_of(work, order);
  double left = std::accumulate(weight.begin(), weight.end(), 0.0);
  std::mt19937_64 rng(seed ^ kDrawSeed);
  std::vector<Stratum> strata;
  std::size_t begin = 0;
  for (int64_t open = count / 2; open > 0; --open) {
    // Two steps are kept for each stratum behind this one; the last takes all that is left.
    const std::size_t most = order.size() - 2 * static_cast<std::size_t>(open - 1);
    double of_stratum = 0;
    std::size_t end = begin;
    while (end < most && (open == 1 || end < begin + 2 || of_stratum < left / static_cast<double>(open))) {
      of_stratum += weight[end++];
    }
    left -= of_stratum;
    const uint64_t n = end - begin;
    const uint64_t first = rng() % n;
    const uint64_t second = (first + 1 + rng() % (n - 1)) % n;
    strata.push_back({static_cast<int64_t>(n), {order[begin + first], order[begin + second]}});
    begin = end;
  }
  return strata;
}

Replay replay_steps(const ServingSpec& spec, int32_t block_size) {
  Replay replay;
  const std::string digest = spec.trace.empty() ? "" : file_digest(spec.trace);
  std::vector<double> work;
  std::vector<SeqLen> seqs;
  int64_t output_tokens = 0;
  {
    Server server(spec, block_size);
    output_tokens -= server.output_tokens();
    for (int64_t i = 0; i < spec.steps; ++i) {
      lengths_of(server.next(), seqs);
      work.push_back(attention_work(seqs));
    }
    output_tokens += server.output_tokens();
    replay.note = server.note();
  }
  std::vector<ReplayedStep>& steps = replay.steps;
  for (ServedStep& s : choose(spec, work)) {
    s.mix = spec.mix;
    s.trace = spec.trace;
    s.digest = digest;
    s.replay = replay_text(spec);
    s.steps = spec.steps;
    s.output_tokens = output_tokens;
    steps.push_back({std::move(s), {}, nullptr});
  }

  std::vector<std::size_t> in_time(steps.size());
  std::iota(in_time.begin(), in_time.end(), std::size_t{0});
  std::ranges::sort(
      in_time, [&](std::size_t a, std::size_t b) { return steps[a].served.step < steps[b].served.step; });
  Server server(spec, block_size);
  int64_t next = 0, entries = 0;
  for (const std::size_t i : in_time) {
    const Step* step = nullptr;
    for (; next <= steps[i].served.step; ++next) step = &server.next();
    lengths_of(*step, steps[i].seqs);
    GivenBlocks::Ids ids;
    std::vector<int32_t> k_lens;
    for (std::size_t b = 0; b < step->sequences.size(); ++b) {
      const auto& table = step->sequences[b].block_table;
      entries += static_cast<int64_t>(table.size());
      ids.emplace_back(table.begin(), table.end());
      k_lens.push_back(steps[i].seqs[b].k);
    }
    if (entries > kMostEntries) {
      throw Error(fmt::format(
          "the block tables of the chosen steps have more than {} entries; choose fewer steps, or "
          "larger blocks",
          kMostEntries));
    }
    steps[i].blocks = std::make_shared<const GivenBlocks>(std::move(ids), k_lens, block_size);
  }
  return replay;
}

}  // namespace attnbench
