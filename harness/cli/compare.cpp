#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iostream>

#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/compare_flags.h"
#include "harness/cli/option.h"
#include "harness/cli/pattern.h"
#include "harness/cli/usage_error.h"
#include "harness/report/compare_formats.h"
#include "harness/report/compare_print.h"
#include "harness/report/console.h"
#include "harness/report/kernel_matrix.h"
#include "harness/results/text.h"

namespace attnbench::cli {
namespace {

struct CompareCommand {
  std::string base, fresh, by, format = "text";
  CompareFlags flags;
};

/// One --min-effect-of.
struct EffectOf {
  std::string text;
  std::function<bool(const std::string&)> found;  ///< in an id
  double effect;                                  ///< 0.05 is 5 %
};

std::vector<EffectOf> effects_of(const std::vector<std::string>& texts) {
  std::vector<EffectOf> out;
  for (const std::string& text : texts) {
    const std::size_t at = text.rfind('=');
    double percent = 0;
    std::size_t used = 0;
    try {
      if (at != std::string::npos) percent = std::stod(text.substr(at + 1), &used);
    } catch (const std::exception&) {
      used = 0;
    }
    if (at == std::string::npos || used == 0 || used != text.size() - at - 1 ||
        !(percent > 0 && percent < 100)) {
      throw UsageError(fmt::format(
          "--min-effect-of '{}': wanted is REGEX=PERCENT, with a percentage over 0 and under 100", text));
    }
    out.push_back({text, finder("--min-effect-of", text.substr(0, at)), percent / 100.0});
  }
  return out;
}

/// compare RUN --by kernel
int compare_kernels(const CompareCommand& c) {
  if (!c.fresh.empty()) throw UsageError("--by kernel compares the kernels of one run: name one result");
  if (c.format != "text" && c.format != "md" && c.format != "json")
    throw UsageError(fmt::format("--by kernel prints text, md or json, not {}", c.format));
  const ResultSet run = load_results(c.base);
  if (c.format == "md") {
    write_kernel_matrix_markdown(std::cout, run);
  } else if (c.format == "json") {
    write_kernel_matrix_json(std::cout, run);
  } else {
    print_kernel_matrix(std::cout, run, {terminal_width(STDOUT_FILENO), false});
  }
  return run.results.empty() ? 6 : 0;
}

int compare(const CompareCommand& c) {
  if (!c.by.empty()) return compare_kernels(c);
  if (c.fresh.empty()) {
    load_results(c.base);  // if it holds no results, that is to be said first
    throw UsageError(fmt::format(
        "compare needs two results, BASE and NEW, and one is given: attnbench compare BASE {0}, or for the "
        "kernels of that run attnbench compare {0} --by kernel",
        c.base));
  }
  const ResultSet base = load_results(c.base);
  const ResultSet fresh = load_results(c.fresh);
  std::vector<std::string> ids;
  for (const ResultSet* set : {&base, &fresh}) {
    for (const Record& r : set->results) ids.push_back(r.item.id);
  }
  c.flags.check_min_effect_of(ids);
  CompareOptions options = c.flags.options(base, fresh);
  options.as_sol = !check_alike(base, fresh, c.flags.allow_mismatch);
  for (const ResultSet* r : {&base, &fresh}) {
    if (!r->context.complete) std::cerr << r->path << ": note: this run was interrupted\n";
  }
  const CompareResult result = compare_results(base, fresh, options);
  if (c.format == "text") {
    print_compare(std::cout, result, style_of_stdout());
  } else {
    write_compare(std::cout, c.format, result, options);
  }
  return compare_exit_code(result, options);
}

}  // namespace

void CompareFlags::add(CLI::App& command) {
  command
      .add_option(
          "--match", match,
          "What is compared with what: kernel (default): the same case and kernel; case: the same case, on two "
          "different kernels")
      ->check(CLI::IsMember({"kernel", "case"}));
  option(command, "--min-effect", min_effect_percent, "PERCENT",
         "Smallest difference that counts, in percent (default 2)")
      ->check(number_in(0.01, 99.0));
  option(command, "--min-effect-of", min_effect_of, "REGEX=PERCENT",
         "The same for the cases whose id matches REGEX: --min-effect-of 'paged16.*=5'. The last one "
         "that matches holds")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);  // a file may follow
  option(command, "--noise", noise, "FILE", "Noise between equal runs: a file that gate --calibrate wrote");
  command.add_flag("--allow-mismatch", allow_mismatch,
                   "Compare runs of different devices, drivers or options, by %SOL");
  command.add_flag("--allow-missing", allow_missing, "A case that only one side has is no failure");
  command.add_flag("--allow-new", allow_new, "A case that only NEW has is no failure");
  command.add_flag("--allow-inconclusive", allow_inconclusive,
                   "Exit code 0, not 4, if some case is inconclusive");
}

CompareOptions CompareFlags::options(const ResultSet& base, const ResultSet& fresh) const {
  CompareOptions o;
  o.match = match == "case" ? Match::kId : Match::kIdAndKernel;
  o.min_effect = min_effect_percent / 100.0;
  o.allow_missing = allow_missing;
  o.allow_new = allow_new;
  o.allow_inconclusive = allow_inconclusive;
  if (!noise.empty()) o.noise_of = load_noise(noise).noise_of;
  for (const EffectOf& e : effects_of(min_effect_of)) {
    for (const ResultSet* set : {&base, &fresh}) {
      for (const Record& r : set->results) {
        if (e.found(r.item.id)) o.min_effect_of_id[r.item.id] = e.effect;
      }
    }
  }
  return o;
}

void CompareFlags::check_min_effect_of(const std::vector<std::string>& ids) const {
  std::vector<std::string> idle;
  for (const EffectOf& e : effects_of(min_effect_of)) {
    if (std::ranges::none_of(ids, e.found)) idle.push_back(e.text);
  }
  if (idle.empty()) return;
  const std::string what =
      fmt::format("--min-effect-of '{}' matches no case: REGEX is looked for in ids, such as '{}'",
                  fmt::join(idle, "', '"), ids.empty() ? "attention/packed/bf16/..." : ids.front());
  if (idle.size() == min_effect_of.size()) throw UsageError(what);
  std::cerr << "attnbench: warning: " << one_line(what) << "\n";
}

bool check_alike(const ResultSet& base, const ResultSet& fresh, bool allow_mismatch) {
  const std::vector<std::string> mismatches = context_mismatches(base, fresh);
  for (const std::string& m : mismatches) std::cerr << "mismatch: " << one_line(m) << "\n";
  if (!mismatches.empty() && !allow_mismatch) {
    throw UsageError(
        "the two results were not taken alike: run both with the same options on the same machine, or "
        "--allow-mismatch compares shares of the speed of light");
  }
  return mismatches.empty();
}

void write_compare(std::ostream& out, const std::string& format, const CompareResult& result,
                   const CompareOptions& options) {
  if (format == "md") write_compare_markdown(out, result);
  if (format == "json") write_compare_json(out, result, options);
  if (format == "junit") write_compare_junit(out, result, options);
  if (format == "github") write_compare_github(out, result, options);
}

void add_compare(CLI::App& app, Program& program) {
  auto* command =
      app.add_subcommand("compare", "Compare two results: faster, slower, same or inconclusive per case");
  auto c = std::make_shared<CompareCommand>();
  option(*command, "base", c->base, "BASE",
         "results.json, journal.jsonl, a run's folder, or Google Benchmark's JSON")
      ->required();
  option(*command, "new", c->fresh, "NEW", "The new run, in one of the same forms");  // compare() requires it
  command
      ->add_option(
          "--format", c->format,
          "text (default), md, json, junit or github (annotations), on stdout; with --by: text, md or json")
      ->check(CLI::IsMember({"text", "md", "json", "junit", "github"}));
  command
      ->add_option("--by", c->by,
                   "kernel: the kernels of one run beside each other, with what was skipped and what failed")
      ->check(CLI::IsMember({"kernel"}));
  c->flags.add(*command);
  command->footer(
      "The columns base and new are medians. The change compares midmeans (means of the middle half of the "
      "samples),\n"
      "on a CPU divided by the time of a test loop that ran beside them.\n"
      "Examples:\n"
      "  attnbench compare results/baselines/cpu/quickstart.json results/runs/quickstart\n"
      "  attnbench compare a/results.json b/results.json --match case --min-effect 5\n"
      "  attnbench compare results/runs/mine --by kernel\n"
      "  attnbench compare old.json new.json --min-effect-of 'kv_append=5' --format junit > compare.xml\n"
      "Exit codes: 0 none slower, 1 incorrect or missing, 2 usage, or results that cannot be compared, 3 slower,\n"
      "  4 inconclusive, 5 errors in NEW, 6 nothing compared.");
  command->callback([=, &program] { program.chosen = [=] { return compare(*c); }; });
}

}  // namespace attnbench::cli
