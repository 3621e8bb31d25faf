#include "harness/report/pace.h"

#include <algorithm>
#include <cmath>

namespace attnbench {
namespace {

bool tells_pace(const std::vector<LoadedRun>& runs, std::size_t samples) {
  std::size_t told = 0;
  for (const LoadedRun& r : runs) {
    if (!(r.cores_us > 0) || r.samples == 0) return false;
    told += r.samples;
  }
  return told > 0 && told == samples;
}

/// Geometric mean over the runs; nullopt where one does not tell.
std::optional<double> mean_of(const std::vector<LoadedRun>& runs, double LoadedRun::*field) {
  double sum = 0;
  for (const LoadedRun& r : runs) {
    if (!(r.*field > 0)) return std::nullopt;
    sum += std::log(r.*field);
  }
  return std::exp(sum / static_cast<double>(runs.size()));
}

}  // namespace

std::optional<Pace> pace_between(const LoadedResult& base, const LoadedResult& fresh) {
  const std::vector<LoadedRun> b = runs_of(base), f = runs_of(fresh);
  if (!tells_pace(b, base.samples_us.size()) || !tells_pace(f, fresh.samples_us.size())) return std::nullopt;
  Pace pace;
  pace.cores = *mean_of(f, &LoadedRun::cores_us) / *mean_of(b, &LoadedRun::cores_us);
  const auto base_memory = mean_of(b, &LoadedRun::memory_us),
             fresh_memory = mean_of(f, &LoadedRun::memory_us);
  if (base_memory && fresh_memory) pace.memory = *fresh_memory / *base_memory;
  return pace;
}

LikeRuns keep_like_runs(LoadedResult& base, LoadedResult& fresh) {
  const std::vector<LoadedRun> b = runs_of(base), f = runs_of(fresh);
  const auto tells = [](const LoadedRun& r) { return r.handover_us > 0; };
  if (!std::all_of(b.begin(), b.end(), tells) || !std::all_of(f.begin(), f.end(), tells)) {
    return LikeRuns::kUnknown;
  }
  std::vector<double> us;
  for (const LoadedRun& r : f) us.push_back(r.handover_us);
  const auto middle = us.begin() + static_cast<std::ptrdiff_t>(us.size() / 2);
  std::nth_element(us.begin(), middle, us.end());
  const auto alike = [now = *middle](const LoadedRun& r) {
    return r.handover_us < now * kSameHandover && r.handover_us > now / kSameHandover;
  };
  if (std::count_if(b.begin(), b.end(), alike) < std::min<std::ptrdiff_t>(3, std::ssize(b))) {
    return LikeRuns::kNone;
  }
  for (LoadedResult* side : {&base, &fresh}) {
    const std::vector<LoadedRun> all = runs_of(*side);
    std::vector<double> samples;
    side->per_run.clear();
    std::size_t begin = 0;
    for (const LoadedRun& r : all) {
      const auto first = side->samples_us.begin() + static_cast<std::ptrdiff_t>(begin);
      begin += r.samples;
      if (!alike(r)) continue;
      samples.insert(samples.end(), first, first + static_cast<std::ptrdiff_t>(r.samples));
      side->per_run.push_back(r);
    }
    side->samples_us = std::move(samples);
    side->runs = static_cast<int>(side->per_run.size());
  }
  return LikeRuns::kAlike;
}

std::vector<double> paced_samples(const LoadedResult& result) {
  std::vector<double> out = result.samples_us;
  std::size_t i = 0;
  for (const LoadedRun& run : runs_of(result)) {
    for (std::size_t k = 0; k < run.samples && i < out.size(); ++k) out[i++] /= run.cores_us;
  }
  return out;
}

std::vector<double> run_times(const LoadedResult& result, bool paced) {
  std::vector<double> out;
  for (const LoadedRun& r : runs_of(result)) out.push_back(paced ? r.us / r.cores_us : r.us);
  return out;
}

}  // namespace attnbench
