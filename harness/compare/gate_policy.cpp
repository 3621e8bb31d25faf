#include "harness/compare/gate_policy.h"

#include <algorithm>
#include <utility>

#include "harness/compare/pool.h"
#include "harness/record/exit_code.h"

namespace attnbench {

void add_run(GateSide& side, int exit_code, ResultSet results) {
  side.exit_code = worse_exit_code(side.exit_code, exit_code > 6 ? 5 : exit_code);
  if (side.runs++ == 0) {
    side.results = std::move(results);
  } else {
    pool_runs(side.results, results);
  }
}

void drop_times(ResultSet& set) {
  for (LoadedResult& r : set.results) {
    r.median_us = r.lo_us = r.hi_us = r.sol = std::nullopt;
    r.samples_us.clear();
  }
}

CompareOptions gate_options(CompareOptions options, const GatePolicy& policy, const ResultSet& base,
                            const ResultSet& fresh) {
  options.in_turns = !policy.stored_baseline;
  if (!policy.no_time && !context_mismatches(base, fresh).empty()) options.as_sol = true;
  return options;
}

bool run_is_broken(int exit_code) { return exit_code == 1 || exit_code == 5; }

bool run_is_usable(int exit_code) { return !run_is_broken(exit_code) && exit_code != 6; }

std::set<std::string> undecided_cases(const CompareResult& result, const ResultSet& fresh) {
  std::set<std::string> ids;
  for (const CompareRow& row : result.rows) {
    if (!row.ratio) continue;
    if (row.change == Change::kInconclusive) ids.insert(row.id);
    if (row.change != Change::kSlower && row.change != Change::kFaster) continue;
    for (const LoadedResult& r : fresh.results) {
      if (r.id == row.id && r.kernel == row.new_kernel && r.runs < 2) ids.insert(row.id);
    }
  }
  return ids;
}

int rerun_rounds(const GatePolicy& policy, const ResultSet& base) {
  if (policy.update_baseline) return 0;
  const bool as_one = policy.stored_baseline && base.context.device_kind == "cpu";
  return policy.reruns.value_or(as_one ? kRerunsOfCpu : kReruns);
}

CompareResult decide(int rounds, const ResultSet& fresh, const std::function<CompareResult()>& compare,
                     const std::function<void(const std::set<std::string>&, int)>& run_again,
                     std::set<std::string>& rerun) {
  CompareResult result = compare();
  for (int round = 1; round <= rounds; ++round) {
    const std::set<std::string> ids = undecided_cases(result, fresh);
    if (ids.empty()) break;
    rerun.insert(ids.begin(), ids.end());
    run_again(ids, round);
    result = compare();
  }
  return result;
}

int64_t count_right(const ResultSet& set) {
  return std::count_if(set.results.begin(), set.results.end(),
                       [](const LoadedResult& r) { return r.status == Status::kPass; });
}

int gate_exit_code(const GatePolicy& policy, const CompareResult& result, const CompareOptions& options,
                   const GateSide& fresh) {
  int code = compare_exit_code(result, options);
  if (code == 6 && policy.no_time && count_right(fresh.results) > 0) code = 0;
  return run_is_usable(fresh.exit_code) ? code : worse_exit_code(code, fresh.exit_code);
}

}  // namespace attnbench
