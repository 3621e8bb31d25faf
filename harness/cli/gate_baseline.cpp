#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "harness/cli/common.h"
#include "harness/cli/gate.h"
#include "harness/compare/gate_policy.h"
#include "harness/compare/join_runs.h"
#include "harness/compare/noise.h"
#include "harness/results/files.h"
#include "harness/results/json.h"
#include "harness/results/text.h"

namespace attnbench::cli {
namespace {

/// Says that runs of a new baseline differ by more than a gate looks for, if they do.
std::string scatter_note(const std::vector<std::string>& files, double effect) {
  std::vector<ResultSet> runs;
  for (const std::string& file : files) runs.push_back(load_results(file));
  const auto noise = noise_between(runs);
  double most = 0;
  std::ptrdiff_t wide = 0;
  for (const auto& [name, n] : noise) {
    if (n.sigma <= effect) continue;
    ++wide;
    most = std::max(most, n.sigma);
  }
  if (wide == 0) return "";
  return fmt::format(
      "gate: note: in {} of {} the runs of this baseline scatter by up to {:.0f} % (standard deviation), and gates look "
      "for {:.2g} %: they will stay undecided there. Make it again on quieter cores, or compare two builds in turns "
      "(--against, --against-plugin)\n",
      wide, counted(std::ssize(noise), "case"), std::ceil(100 * most), 100 * effect);
}

}  // namespace

int update_baseline(const GateOptions& o, const GateRuns& runs, const Side& side,
                    const std::vector<int>& numbers, int run_code) {
  if (!run_is_usable(run_code)) {
    std::cerr << fmt::format("gate: {} is not changed: the new results are wrong or empty\n", o.baseline);
    return run_code;
  }
  std::vector<std::string> files;
  for (const int n : numbers) {
    files.push_back((runs.dir() / fmt::format("{}-{}", n, side.name) / "results.json").string());
  }
  write_file_atomically(o.baseline, results_text(pool_result_files(files)));
  std::cout << fmt::format("baseline: {} now holds {} of each case\n", o.baseline,
                           counted(std::ssize(files), "run"));
  if (!o.quiet) std::cerr << scatter_note(files, o.compare.min_effect_percent / 100);
  return 0;
}

}  // namespace attnbench::cli
