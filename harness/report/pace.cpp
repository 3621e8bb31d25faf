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
