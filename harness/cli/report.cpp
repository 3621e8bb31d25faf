#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/option.h"
#include "harness/cli/usage_error.h"
#include "harness/report/html/page.h"
#include "harness/report/html/page_data.h"
#include "harness/report/html/svg_plots.h"
#include "harness/results/files.h"

namespace attnbench::cli {
namespace {

namespace fs = std::filesystem;

struct ReportCommand {
  std::vector<std::string> results;
  std::string baseline, out, title, format = "html";
  double min_effect_percent = 2.0;
};

void write_one(const fs::path& path, const std::string& text) {
  write_file_atomically(path, text);
  std::cout << fmt::format("report: {} ({} KB)\n", path.string(), (text.size() + 1023) / 1024);
}

int write_plots(const ReportCommand& c, const std::vector<ResultSet>& sets) {
  const auto plots = svg_plots(sets);
  if (plots.empty()) {
    std::cerr << "attnbench: no plot: nothing in these results was timed\n";
    return 6;
  }
  const fs::path folder = c.out.empty() ? "." : c.out;
  make_folder(folder);
  for (const auto& [name, text] : plots) write_one(folder / name, text);
  return 0;
}

int report(const ReportCommand& c) {
  const std::string ending = fs::path(c.out).extension().string();
  if (c.format == "svg" && ending == ".svg")
    throw UsageError(fmt::format("-o {}: several plots are written; name a folder", c.out));
  if (c.format == "html" && ending == ".svg")
    throw UsageError(fmt::format("-o {}: the page is HTML; --format svg -o FOLDER writes plots", c.out));
  for (const char* other : {".csv", ".json", ".md", ".xml"}) {
    if (c.format == "html" && ending == other)
      throw UsageError(fmt::format(
          "-o {}: the page is HTML; attnbench run, with the command of the run and --resume DIR --format {}, writes it",
          c.out, ending == ".xml" ? "junit" : ending.substr(1)));
  }
  if (c.format == "html" && !page_available()) {
    throw UsageError(
        "built without Chart.js, which the HTML report needs: install libjs-chart.js (apt), configure and build "
        "again; --format svg works without");
  }
  if (c.format == "svg" && !c.baseline.empty()) throw UsageError("--baseline goes into the HTML report only");
  std::vector<ResultSet> sets;
  std::optional<ResultSet> base;
  std::vector<std::string> inputs = c.results;
  if (!c.baseline.empty()) inputs.push_back(c.baseline);
  check_no_input(c.out, inputs);
  for (const std::string& path : c.results) {
    ResultSet set = load_results(path);
    const auto same = std::ranges::find_if(sets, [&](const ResultSet& s) {
      std::error_code ec;
      return fs::equivalent(s.path, set.path, ec);
    });
    if (same != sets.end()) {
      std::cerr << fmt::format("note: {} is given twice; it counts once\n", set.path);
    } else {
      sets.push_back(std::move(set));
    }
  }
  if (!c.baseline.empty()) base = load_results(c.baseline);
  for (const ResultSet& set : sets) {
    if (!set.context.complete) std::cerr << set.path << ": note: this run was interrupted\n";
  }
  if (c.format == "svg") return write_plots(c, sets);
  PageOptions options;
  options.title = c.title;
  std::optional<PageComparison> comparison;
  if (base) {
    CompareOptions compare;
    compare.min_effect = c.min_effect_percent / 100.0;
    comparison = compare_with(*base, sets, compare);
  }
  const fs::path out = c.out.empty() ? "report.html" : c.out;
  make_folder(out.parent_path());
  write_one(out, write_page(page_data(sets, comparison, options)));
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Program& program) {
  auto* command = app.add_subcommand("report", "Show results as one HTML page, or its main plots as SVG");
  auto c = std::make_shared<ReportCommand>();
  option(*command, "results", c->results, "RESULTS",
         "results.json, journal.jsonl, a run's folder, or Google Benchmark's JSON; several go on one page")
      ->required();
  option(*command, "--baseline", c->baseline, "FILE",
         "Compare with these results, as attnbench compare does");
  option(*command, "--min-effect", c->min_effect_percent, "PERCENT",
         "Smallest difference from the baseline that counts, in percent (default 2)")
      ->check(number_in(0.01, 99.0));
  path_option(*command, "-o,--out", c->out, "PATH",
              "The HTML file (default report.html); of svg, a folder (default: this one)");
  command->add_option("--format", c->format, "html (default) or svg")->check([](const std::string& given) {
    if (given == "html" || given == "svg") return std::string();
    return fmt::format(
        "{} is none of html and svg; attnbench run, with the command of the run and --resume DIR "
        "--format csv,md,junit, writes those without running anything again",
        given);
  });
  option(*command, "--title", c->title, "TEXT", "Heading of the page (default: the name of the sweep)");
  command->footer(
      "Examples:\n"
      "  attnbench report results/runs/quickstart -o report.html\n"
      "  attnbench report new/results.json --baseline results/baselines/cpu/quickstart.json -o report.html\n"
      "  attnbench report results/baselines/h100/prefill.json --format svg -o plots\n"
      "The page needs no network: it may be mailed, attached to a CI run, or opened from disk.");
  command->callback([=, &program] { program.chosen = [=] { return report(*c); }; });
}

}  // namespace attnbench::cli
