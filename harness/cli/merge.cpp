#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/option.h"
#include "harness/report/summary.h"
#include "harness/results/exit_code.h"
#include "harness/results/files.h"
#include "harness/results/json.h"
#include "harness/results/load.h"
#include "harness/results/merge.h"
#include "harness/results/text.h"

namespace attnbench::cli {
namespace {

struct MergeOptions {
  std::vector<std::string> paths;
  std::string out;
  MergeAllowed allowed;
};

int merge(const MergeOptions& o) {
  check_no_input(o.out, o.paths);
  try {
    const nlohmann::ordered_json merged = merge_results(o.paths, o.allowed);
    const std::string text = results_text(merged);
    // Reads the text back with the common reader, so that nothing is written that it refuses.
    const std::vector<Record> records = parse_results(text, o.out).results;
    make_folder(std::filesystem::path(o.out).parent_path());
    write_file_atomically(o.out, text);
    std::cout << fmt::format("{} of {}: {}\nreport: {}\n", counted(std::ssize(records), "run"),
                             counted(std::ssize(o.paths), "file"), summary_text(records), o.out);
    return exit_code_of(records);
  } catch (const nlohmann::json::exception& e) {
    throw ResultsError(std::string("error: a field is of a wrong type: ") + e.what());
  }
}

}  // namespace

void add_merge(CLI::App& app, Program& program) {
  auto* command = app.add_subcommand("merge", "Join the results of shards into those of one sweep");
  auto o = std::make_shared<MergeOptions>();
  option(*command, "results", o->paths, "RESULTS", "results.json files, or folders of runs")->required();
  path_option(*command, "-o,--out,--output", o->out, "FILE", "The file to write")->required();
  command->add_flag("--allow-overlaps", o->allowed.overlaps,
                    "If several files hold a run, take that of the last one");
  command->add_flag("--allow-gaps", o->allowed.gaps, "Merge although planned runs are in none of the files");
  command->add_flag("--allow-mixed", o->allowed.mixed,
                    "Merge files of other sweeps, options, programs or devices");
  command->footer(
      "The exit code is that of the merged run: 1 where a case is incorrect, 5 where one crashed, and so "
      "on.\n"
      "Examples:\n"
      "  attnbench run ci --shard 1/2 --out part-1     (and 2/2 elsewhere)\n"
      "  attnbench merge part-1 part-2 -o results.json");
  command->callback([=, &program] { program.chosen = [=] { return merge(*o); }; });
}

}  // namespace attnbench::cli
