#include "harness/report/compare.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>

#include "harness/cli/common.h"
#include "harness/report/compare_print.h"
#include "harness/report/console.h"

namespace attnbench::cli {
namespace {

struct CompareCommand {
  std::string base, fresh, match = "kernel", format = "text";
  double min_effect_percent = 2.0;
  CompareOptions options;
  bool allow_mismatch = false;
};

int compare(CompareCommand c) {
  ResultSet base, fresh;
  try {
    base = load_results(c.base);
    fresh = load_results(c.fresh);
  } catch (const ResultsError& e) {
    std::cerr << e.what() << "\n";
    return 2;
  }
  c.options.match = c.match == "case" ? Match::kId : Match::kIdAndKernel;
  c.options.min_effect = c.min_effect_percent / 100.0;
  const std::vector<std::string> mismatches = context_mismatches(base, fresh);
  for (const std::string& m : mismatches) std::cerr << "mismatch: " << m << "\n";
  if (!mismatches.empty() && !c.allow_mismatch) {
    throw UsageError(
        "the two results were not taken alike; --allow-mismatch compares shares of the speed of light "
        "instead");
  }
  c.options.as_sol = !mismatches.empty();
  for (const ResultSet* r : {&base, &fresh}) {
    if (!r->context.complete) std::cerr << r->path << ": note: this run was interrupted\n";
  }
  const CompareResult result = compare_results(base, fresh, c.options);
  if (c.format == "md") {
    write_compare_markdown(std::cout, result);
  } else {
    const std::size_t width = terminal_width(STDOUT_FILENO);
    print_compare(std::cout, result, {width, width > 0 && !std::getenv("NO_COLOR")});
  }
  return compare_exit_code(result, c.options);
}

}  // namespace

void add_compare(CLI::App& app, Program& program) {
  auto* command =
      app.add_subcommand("compare", "Compare two results: faster, slower, same or inconclusive per case");
  auto c = std::make_shared<CompareCommand>();
  command
      ->add_option("base", c->base, "results.json, journal.jsonl, a run's folder, or Google Benchmark's JSON")
      ->type_name("BASE")
      ->required();
  command->add_option("new", c->fresh, "The same of the new run")->type_name("NEW")->required();
  command
      ->add_option("--match", c->match,
                   "kernel (default): the same case and kernel; case: two kernels on the same cases")
      ->check(CLI::IsMember({"kernel", "case"}));
  command
      ->add_option("--min-effect", c->min_effect_percent,
                   "Smallest difference that counts, in percent (default 2)")
      ->type_name("PERCENT")
      ->check(CLI::Range(0.01, 99.0));
  command->add_option("--format", c->format, "text or md")->check(CLI::IsMember({"text", "md"}));
  command->add_flag("--allow-mismatch", c->allow_mismatch,
                    "Compare runs of different devices, drivers or options, by %SOL");
  command->add_flag("--allow-missing", c->options.allow_missing,
                    "A case that only one side has is no failure");
  command->add_flag("--allow-inconclusive", c->options.allow_inconclusive,
                    "Exit 0 where some case is inconclusive");
  command->footer(
      "Examples:\n"
      "  attnbench compare results/baselines/cpu/quickstart.json results/runs/quickstart\n"
      "  attnbench compare a/results.json b/results.json --match case --min-effect 5\n"
      "Exit codes: 0 none slower, 1 incorrect or missing, 3 slower, 4 inconclusive, 5 errors in NEW, 6 "
      "nothing compared.");
  command->callback([=, &program] { program.chosen = [=] { return compare(*c); }; });
}

}  // namespace attnbench::cli
