#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <iterator>

#include "harness/cli/cli.h"
#include "harness/cli/option.h"
#include "harness/cli/pattern.h"
#include "harness/report/console.h"
#include "harness/report/show.h"
#include "harness/results/load.h"
#include "harness/results/text.h"

namespace attnbench::cli {
namespace {

struct ShowCommand {
  std::vector<std::string> results;
  std::string filter, format = "table";
  ShowOptions options;
};

int show_results(const ShowCommand& c) {
  const auto wanted = finder("--filter", c.filter);
  std::vector<Record> records;
  for (const std::string& path : c.results) {
    const ResultSet set = load_results(path);
    if (!set.context.complete) std::cerr << one_line(path) << ": note: this run was interrupted\n";
    std::ranges::copy_if(set.results, std::back_inserter(records),
                         [&](const Record& r) { return wanted(record_name(r)); });
  }
  ShowOptions options = c.options;
  if (options.columns.empty())
    options.columns = {"case", "kernel", "status", "time", "p90", "p99", "gbs", "sol"};
  if (!options.by.empty() && std::ranges::find(options.by, "kernel") == options.by.end())
    options.by.push_back("kernel");  // times of several kernels have no common mean
  const ShownTable table = show(records, options);
  write_shown(std::cout, table, c.format, {terminal_width(STDOUT_FILENO), false});
  return records.empty() ? 6 : 0;
}

}  // namespace

void add_show(CLI::App& app, Program& program) {
  auto* command =
      app.add_subcommand("show", "Print stored results: sorted, filtered, grouped, in chosen columns");
  auto c = std::make_shared<ShowCommand>();
  option(*command, "results", c->results, "RESULTS",
         "results.json, journal.jsonl, a run's folder, or Google Benchmark's JSON")
      ->required();
  list_option(
      *command, "--columns", c->options.columns,
      "Columns: case kernel status time min p50 p90 p99 tail tflops gbs sol bound z rows ..., parameters of the "
      "case (block_size), or places in an entry (clocks/sm_mhz). Times are in us, sol is a share, tail is p99 "
      "over p50");
  option(*command, "--sort", c->options.sort, "COLUMN", "Sort by this column, the least first");
  command->add_flag("--descending", c->options.descending, "The largest first");
  list_option(*command, "--by", c->options.by,
              "Group by these columns and the kernel: number of cases, and geometric means");
  option(*command, "--filter", c->filter, "REGEX", "Only records whose case and kernel match REGEX");
  option(*command, "--limit", c->options.limit, "N", "At most N rows");
  command->add_option("--format", c->format, "table (default), csv, md or json")
      ->check(CLI::IsMember({"table", "csv", "md", "json"}));
  command->footer(
      "Examples:\n"
      "  attnbench show results/runs/quickstart --sort sol --limit 10\n"
      "  attnbench show results.json --columns case,p50,p99,tail --sort tail --descending\n"
      "  attnbench show results.json --by block_size --columns time,gbs --format md");
  command->callback([=, &program] { program.chosen = [=] { return show_results(*c); }; });
}

}  // namespace attnbench::cli
