#include <fmt/format.h>

#include <iostream>

#include "harness/cli/common.h"
#include "harness/cli/gate.h"
#include "harness/compare/gate_policy.h"
#include "harness/compare/pool.h"
#include "harness/record/files.h"
#include "harness/record/json.h"

namespace attnbench::cli {

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
  return 0;
}

}  // namespace attnbench::cli
