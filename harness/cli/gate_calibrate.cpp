#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "harness/cli/gate.h"
#include "harness/cli/usage_error.h"
#include "harness/compare/gate_policy.h"
#include "harness/report/table.h"
#include "harness/results/files.h"
#include "harness/results/text.h"

namespace attnbench::cli {

int calibrate(const GateOptions& o, const Side& side, GateRuns& runs, SideRun& last) {
  const std::string path = noise_path(o);
  if (path.empty()) throw UsageError("--calibrate: name the file to write, --noise FILE or --baseline FILE");
  if (o.no_time) throw UsageError("--calibrate learns the noise of times; drop --no-time");
  std::vector<ResultSet> sets;
  NoiseFile noise;
  noise.pairs = o.pairs;
  noise.min_effect = o.compare.min_effect_percent / 100.0;
  runs.plan(2 * o.pairs);
  for (int i = 0; i < 2 * o.pairs; ++i) {
    const double began_s = runs.seconds();
    last = runs.run(side, {}, "calibration", GateRuns::Show::kProgress);
    if (i == 0 && !o.quiet) std::cerr << ahead_text(ahead_of_turns(o, runs, runs.seconds() - began_s));
    if (!run_is_usable(last.exit_code)) {
      std::cerr << "attnbench: error: cannot calibrate on cases that are wrong or do not run; see "
                << runs.dir().string() << "\n";
      return last.exit_code;
    }
    sets.push_back(last.results);
    if (i % 2 == 0) continue;
    CompareOptions plain;
    plain.min_effect = noise.min_effect;
    const CompareResult pair = compare_results(sets[sets.size() - 2], sets.back(), plain);
    noise.false_alarms += pair.count(Change::kSlower) > 0;
  }
  const auto busy = std::ranges::count_if(sets, [](const ResultSet& set) {
    return std::ranges::any_of(set.results, [](const Record& r) { return r.time && r.time->busy(); });
  });
  noise.context = sets.front().context;
  noise.noise_of = noise_between(sets);
  write_file_atomically(path, noise_to_text(noise));

  std::vector<TableRow> rows;
  double largest = 0;
  for (const auto& [name, n] : noise.noise_of) {
    largest = std::max(largest, n.sigma);
    rows.push_back(
        {{one_line(name), std::to_string(n.runs), fmt::format("{:.2f}", 100 * n.sigma)}, Colour::kNone, ""});
  }
  print_table(std::cout, {{"case", Align::kLeft, true}, {"runs"}, {"sd between runs, %"}}, rows, {});
  std::cout << fmt::format(
      "\n{} cases, {} turns, largest noise between runs {:.2f} %; without this noise file, {} of {} pairs "
      "of equal turns would have been called slower\nnoise: {}\n",
      noise.noise_of.size(), sets.size(), 100 * largest, noise.false_alarms, o.pairs, path);
  if (busy > 0) {
    std::cerr << fmt::format(
        "note: other processes took the cores in {} of the {} turns, so this noise is too wide: calibrate again when "
        "nothing else runs\n",
        busy, sets.size());
  }
  return 0;
}

}  // namespace attnbench::cli
