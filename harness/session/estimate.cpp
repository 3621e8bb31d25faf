#include "harness/session/estimate.h"

#include <algorithm>

#include "harness/cases/cost.h"
#include "harness/cases/paths.h"
#include "harness/device/cpu_ceilings.h"
#include "harness/judge/sample.h"
#include "harness/tensors/strides.h"
#include "harness/timing/timing.h"

namespace attnbench {
namespace {

// Rates of one host thread, from the stages of records (setup_s, verify_s) of configs/ on an EPYC with 2 and
// one with 16 threads.
constexpr double kFillRate = 5e8;         ///< bytes of inputs written a second
constexpr double kInputRate = 1.6e8;      ///< bytes of inputs that the reference makes for itself
constexpr double kReferenceFlop = 4.5e9;  ///< of the float64 reference
// Not divided by threads.
constexpr double kCompareRate = 1e9;      ///< bytes of caches compared with what should be in them
constexpr double kMergeRate = 1.5e8;      ///< bytes of partial states merged by the reference
constexpr double kFlushRate = 1.6e10;     ///< bytes evicted from the caches of a CPU, or read to empty them
constexpr double kEvictionSample = 2e-3;  ///< s of what is read beside
constexpr double kGpuSample = 2e-4;       ///< s of a sample beside its launch: flush, events, spin

/// Launches and set-ups of an attention case's invariants, and comparisons with the reference; of other ops one.
constexpr Seconds kInvariantLaunches = {8, 15};
constexpr Seconds kInvariantChecks = {3, 6};

/// Watching timed launches fills a second copy of the tensors and one with new values, whose outputs may be
/// compared with the reference.
constexpr double kWatchedFills = 3;

/// How far the host's part may be from the rates above: other machines, other load.
constexpr double kLeastOfHost = 0.5, kMostOfHost = 3.0;

/// What a case costs beside its tensors, launches and reference: the table "What the harness itself costs" of
/// tests/README.md.
constexpr double overhead_s(DeviceKind kind) { return kind == DeviceKind::kCuda ? 0.004 : 0.013; }

/// One launch, from the fastest kernel of the device to the slowest of this program.
Seconds launch_seconds(const CaseCost& c, const Machine& m) {
  if (m.device == DeviceKind::kCuda)
    return {c.flop / 1e15 + c.bytes / 4e12, c.flop / 5e12 + c.bytes / 2.5e11};
  return {c.flop / (6e10 * m.threads) + c.bytes / (2e10 * m.threads),
          c.flop / (1.5e10 * m.threads) + c.bytes / (2.5e9 * m.threads)};
}

double fill_seconds(const CaseCost& c, const Machine& m) {
  return c.bytes_of(m.device == DeviceKind::kCpu) /
         (m.device == DeviceKind::kCuda ? 1e11 : kFillRate * m.threads);
}

/// One comparison of outputs with the reference.
Seconds reference_seconds(const CaseParams& p, const CaseCost& c, const Machine& m, CheckMode check) {
  if (check == CheckMode::kOff) return {};
  const bool sampled = check == CheckMode::kSampled && c.flop > kCheapFlop;
  const double inputs = c.bytes_of(m.device == DeviceKind::kCpu) / (kInputRate * m.threads);
  // A sample takes few rows of each sequence, but may need the inputs of all.
  const double flop = sampled ? 0.1 * kCheapFlop : c.flop;
  double other = writes_cache(p) ? c.bytes_of(m.device == DeviceKind::kCpu) / kCompareRate : 0;
  if (p.does().merges || merged_states(p) > 0) other += c.bytes_of(m.device == DeviceKind::kCpu) / kMergeRate;
  const double all = inputs + flop / (kReferenceFlop * m.threads) + other;
  return {sampled ? 0.25 * all : all, all};
}

/// Samples until the stopping rule holds: at least 10 and two to warm up, at most what the budget and the
/// batches of samples allow.
Seconds sampling_seconds(const Seconds& launch, const CaseCost& c, const Machine& m) {
  const TimingOptions o;
  const double read = static_cast<double>(cpu_flush_bytes(m.cache_bytes));
  const double flush = m.device == DeviceKind::kCuda
                           ? kGpuSample
                           : kEvictionSample + std::min(c.bytes_of(true), read) / kFlushRate;
  const double fast = 0.5 * flush + launch.least;
  const double slow = 3 * flush + launch.most;
  const double fewest = o.min_samples + 2;
  const double most = o.max_samples + 2;
  // Times of a CPU vary too much for the rule to stop it early.
  const double patience = m.device == DeviceKind::kCuda ? 0 : 0.3 * o.budget_s;
  return {std::max(fewest * fast, std::min(most * fast, patience)),
          std::max(fewest * slow, std::min(most * slow, o.budget_s + 10 * slow))};
}

}  // namespace

CaseSeconds estimated_seconds(const CaseParams& params, const Machine& machine, CheckMode check,
                              bool invariants) {
  if (params.expect_refused) return {{0, overhead_s(machine.device)}, {}};
  const CaseCost cost = cost_of(params);
  const Seconds launch = launch_seconds(cost, machine);
  const double fill = fill_seconds(cost, machine);
  const Seconds reference = reference_seconds(params, cost, machine, check);
  const double new_inputs = reference_seconds(params, cost, machine, CheckMode::kSampled).most;
  Seconds launches = {1, 1}, checks = {1, 1};
  if (invariants) {
    const bool attention = params.does().attends;
    launches = launches + (attention ? kInvariantLaunches : Seconds{1, 1});
    checks = checks + (attention ? kInvariantChecks : Seconds{1, 1});
  }
  const double overhead = overhead_s(machine.device);
  const auto host = [&](double n_launches, double n_checks, double compared) {
    return overhead + n_launches * fill + n_checks * compared;
  };
  return {
      {kLeastOfHost * host(launches.least, checks.least, reference.least) + launches.least * launch.least,
       kMostOfHost * host(launches.most, checks.most, reference.most) + launches.most * launch.most},
      sampling_seconds(launch, cost, machine) + Seconds{0, kMostOfHost * kWatchedFills * fill + new_inputs}};
}

CaseSeconds estimated_start(const Machine& machine) {
  if (machine.device == DeviceKind::kCuda) return {{0.5, 5}, {0.2, 5}};
  return {{0.05, 1}, {0.2, 3}};
}

}  // namespace attnbench
