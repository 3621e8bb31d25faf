#include "harness/cli/cli.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "harness/cli/common.h"
#include "harness/cli/help.h"
#include "harness/cli/installed.h"
#include "harness/cli/misplaced.h"
#include "harness/cli/plugins.h"
#include "harness/cli/streams.h"
#include "harness/cli/usage_error.h"
#include "harness/config/keys.h"
#include "harness/config/sweep_file.h"
#include "harness/launch/last_words.h"
#include "harness/launch/python.h"
#include "harness/launch/runner.h"
#include "harness/results/exit_code.h"
#include "harness/results/text.h"

namespace attnbench::cli {

namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

/// Whether a command has this option, and shows it.
bool has_option(const CLI::App& command, const std::string& name) {
  const CLI::Option* option = command.get_option_no_throw(name);
  return option != nullptr && !option->get_group().empty();
}

/// "; attnbench run, list and gate have it": other commands with this option, which is called `what`, or by its
/// name; empty if none has it.
std::string elsewhere(const CLI::App& command, const std::string& option, std::string what) {
  if (what.empty()) what = option;
  std::vector<std::string> names;
  if (command.get_parent() != nullptr) {
    for (const CLI::App* other :
         command.get_parent()->get_subcommands([](const CLI::App*) { return true; })) {
      if (has_option(*other, option)) names.push_back(other->get_name());
    }
  }
  if (names.empty()) return "";
  const std::string last = names.back();
  names.pop_back();
  return fmt::format("; attnbench {}{}{} {} {}", fmt::join(names, ", "), names.empty() ? "" : " and ", last,
                     names.empty() ? "has" : "have", what);
}

/// Options of other benchmarks, and what to do here.
struct OtherOption {
  std::string_view names;   ///< separated by blanks
  std::string_view option;  ///< what does it; empty if no option does
  std::string_view mend;
  std::string_view commands = {};  ///< that it holds for, separated by blanks; empty: all
};
constexpr OtherOption kOtherOptions[] = {
    {"-w --warmup --warmups --warm-up --warmup-iters --num-warmup --num-warmups --n-warmup --warmup-runs", "",
     "each case is launched before it is timed; drop it"},
    {"-n -r -i --iter --iters --iterations --num-iters --num-iterations --n-iters --rep --reps --repeat --repetitions "
     "--runs --num-runs --trials --rounds --samples --num-samples --max-iters --benchmark_repetitions",
     "--max-samples",
     "a case is sampled until its median is known; --min-time S and --max-samples N bound that"},
    {"-n --n --num --num-cases --count --iters --iterations --runs --tests", "--cases",
     "--cases N does that"},
    {"--benchmark_min_time", "--min-time", "--min-time S does that"},
    {"-k -m --match --only --select --include --pattern --benchmark_filter", "--filter",
     "--filter REGEX chooses cases, --kernel NAME kernels"},
    {"-c --config --cfg -f --file --sweep --yaml --benchmark --suite", "--case",
     "CONFIG needs no option: attnbench COMMAND mine.yaml"},
    {"-l --list --list-cases --list-tests --collect-only --benchmark_list_tests", "",
     "attnbench list CONFIG lists the cases"},
    {"--json --csv --md --markdown --junit --junitxml --xml", "--format",
     "attnbench run, with the command of the run and --resume DIR --format csv,md,junit, writes those",
     "report"},
    {"--json --csv --md --markdown --junit --junitxml --xml --benchmark_format --output-format", "--format",
     "--format json,csv,md,junit chooses reports", "run gate"},
    {"--json --csv --md --markdown --junit --junitxml --xml --benchmark_format --output-format", "--format",
     "--format chooses the reports"},
    {"--output --output-dir --out-dir --outdir --output-file --save --save-to --benchmark_out -O", "--out",
     "--out PATH does that"},
    {"-d -g --gpu --gpus --cuda --cpu --backend", "--device", "--device cpu, cuda or cuda:1 does that"},
    {"-j --jobs --parallel --num-workers", "--workers",
     "--workers N (with --no-time) or --threads N does that, on the cpu"},
    {"--num-threads --nthreads --omp-threads", "--threads", "--threads N does that"},
    {"--atol --rtol --tol --tolerance --eps --epsilon --threshold", "",
     "tolerances follow from the arithmetic that a kernel declares (harness/judge/README.md)"},
    {"--verify --validate --correctness --check-only --verify-only --no-bench --no-benchmark --no-timing",
     "--no-time", "--no-time verifies and does not time"},
    {"--no-check --no-verify --skip-check --skip-verify --no-validation --bench-only --perf-only", "--check",
     "--check off times without verifying"},
    {"--lib --library --so --shared --load --module --kernel-file", "--plugin",
     "--plugin FILE adds the kernels of a file"},
    {"--ncu --nsys --nsight --profile --profiler", "",
     "attnbench profile CONFIG --case ID runs a case under a profiler"},
    {"--base --ref --reference --compare --compare-to --old", "--baseline",
     "--baseline FILE names the results to compare with"},
    {"--model", "--set", "a model is a key: --case '{model: llama-3.1-8b, batch: 8q1s4k}'"},
    {"--version -V", "", "attnbench --version prints it"},
};

/// "; --filter REGEX chooses cases": what does here what an option of another benchmark does; empty if nothing is
/// known.
std::string other_option(const CLI::App& command, const std::string& option) {
  const auto words = [](std::string_view names) {
    std::istringstream in{std::string(names)};
    return std::vector<std::string>(std::istream_iterator<std::string>(in), {});
  };
  const auto has = [&](std::string_view name) {
    return name.empty() || has_option(command, std::string(name));
  };
  std::string others;
  for (const OtherOption& other : kOtherOptions) {
    const std::vector<std::string> names = words(other.names), commands = words(other.commands);
    if (std::ranges::find(names, option) == names.end()) continue;
    if (!commands.empty() && std::ranges::find(commands, command.get_name()) == commands.end()) continue;
    if (has(other.option)) return fmt::format("; {}", other.mend);
    if (others.empty()) others = elsewhere(command, std::string(other.option), "");
  }
  if (!others.empty()) return others;
  if (!option.starts_with("--") || !has("--set")) return "";
  std::string key = option.substr(2);
  std::ranges::replace(key, '-', '_');
  const std::vector<std::string> keys = sweep_key_names({});
  if (std::ranges::find(keys, key) == keys.end() && !word_of_others(key, keys)) return "";
  key = nearest_word(key, keys).value_or(key);
  return fmt::format("; '{0}' is a key of a case: --set {0}=VALUE, or --case '{{batch: 8q1s4k{1}}}'", key,
                     key == "batch" ? "" : fmt::format(", {}: VALUE", key));
}

/// What is wrong with the first word that the command cannot use. `called`: "attnbench run".
std::string unexpected(const CLI::App& command, const std::string& called,
                       const std::vector<std::string>& words) {
  const auto dashed = std::ranges::find_if(words, [](const auto& w) { return w.rfind("-", 0) == 0; });
  if (dashed == words.end()) {
    const std::string place = place_of_file(command, words.front());
    return fmt::format("unexpected argument '{}'{}", words.front(),
                       has_option(command, "--lse") ? "; an LSE is given by --lse"
                       : !place.empty()             ? "; " + place
                                                    : "");
  }
  const std::string option = dashed->substr(0, dashed->find('='));
  std::vector<std::string> known;
  for (const CLI::Option* o : command.get_options()) {
    if (o->get_group().empty()) continue;
    for (const std::string& name : o->get_lnames()) known.push_back("--" + name);
    for (const std::string& name : o->get_snames()) known.push_back("-" + name);
  }
  if (std::ranges::find(known, option) != known.end())
    return fmt::format("option '{0}' stands before the command; write '{1} {0} ...'", option, called);
  const bool letter = option.size() == 2;  // near every other letter
  const std::string near = letter ? "" : did_you_mean(option, known);
  const bool prints =
      called == "attnbench compare" || called == "attnbench list" || called == "attnbench kernels";
  const bool to_file = prints && (option == "-o" || option == "--out" || option == "--output");
  const std::string other = other_option(command, option), others = elsewhere(command, option, "it");
  return fmt::format("unknown option '{}'{}", option,
                     to_file          ? "; it prints to stdout: > FILE"
                     : !other.empty() ? other
                     : near.empty()   ? others
                                      : others + "; " + near.substr(0, near.size() - 1));
}

/// Reports an error of CLI11 in the style of all other errors.
int usage_error(const CLI::App& app, const CLI::ParseError& e) {
  const auto chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  const std::string name = chosen.empty() ? "attnbench" : "attnbench " + command.get_name();
  const std::vector<std::string> left = app.remaining(true);
  // A misspelt option may be why another one is missing.
  const bool dashed = std::ranges::any_of(left, [](const auto& w) { return w.starts_with("-"); });
  const bool extra =
      !left.empty() && (chosen.empty() || dynamic_cast<const CLI::ExtrasError*>(&e) != nullptr ||
                        (dashed && dynamic_cast<const CLI::RequiredError*>(&e) != nullptr));
  const std::string what = one_line(extra ? unexpected(command, name, left) : e.what());
  std::cerr << error_line(fmt::format("{}: error: {}{} '{} --help' lists what there is", name, what,
                                      what.ends_with('?') ? "" : ";", name))
            << "\n";
  return 2;
}

/// The message of an error, which names the subcommand as messages about the command line do.
std::string named(const Error& e, const std::string& subcommand) {
  constexpr std::string_view kUnnamed = "attnbench: error: ";
  const std::string text = e.message();
  if (!text.starts_with(kUnnamed)) return error_line(text);
  return error_line(fmt::format("attnbench {}: error: {}", subcommand, text.substr(kUnnamed.size())));
}

void print_header_folder() {
  const std::string folder = header_folder();
  if (folder.empty()) {
    throw CLI::ValidationError("--include-dir",
                               fmt::format("the headers are not around the program, {}; install "
                                           "it all: cmake --install BUILD --prefix PREFIX",
                                           program_file()));
  }
  std::cout << folder << "\n";
  throw CLI::Success();
}

int run_chosen(Program& program, const CLI::App& command) {
  try {
    if (const std::string wrong = misplaced_file(command); !wrong.empty()) throw UsageError(wrong);
    if (const std::string ignored = ignored_options(command); !ignored.empty())
      std::cerr << fmt::format("note: attnbench {} ignores {}\n", command.get_name(), ignored);
    tell_crashes(AfterLastWords::kExitCode);
    load_plugins(program);
    if (program.runner)
      return serve_kernels(program.kernels, [&](const Kernel& k) { return plugin_of(program, k); });
    return program.chosen();
  } catch (const ConfigError& e) {
    for (const std::string& mistake : e.mistakes()) std::cerr << error_line(mistake) << "\n";
    return e.exit_code();
  } catch (const Error& e) {
    std::cerr << named(e, command.get_name()) << "\n";
    return e.exit_code();
  } catch (const std::filesystem::filesystem_error& e) {  // for example, a given path is too long
    std::cerr << error_line(
                     fmt::format("{}: error: {}; name another path", e.path1().string(), e.code().message()))
              << "\n";
    return kExitUsage;
  } catch (const std::bad_alloc&) {
    std::cerr << "attnbench: error: not enough host memory\n";
    return kExitFailure;
  } catch (const std::exception& e) {
    std::cerr << error_line(fmt::format("attnbench: internal error, please report it: {}", e.what())) << "\n";
    return kExitFailure;
  }
}

}  // namespace

int main_with_kernels(int argc, char** argv, KernelTable kernels) {
  prepare_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a write past ulimit -f fails with an error and does not end the process
  CLI::App app{"attnbench checks and times attention kernels: variable-length (packed) and paged KV."};
  app.name("attnbench");
  app.formatter(help_formatter());  // before the subcommands, which inherit it
  app.footer(
      "Examples:\n"
      "  attnbench run quickstart\n"
      "  attnbench run --case '{kv: paged, batch: 8q1s4k, heads: 32/8}' --device cpu\n"
      "  attnbench compare old/results.json new/results.json\n"
      "Exit codes: 0 all good, 1 some case is incorrect, 2 usage or configuration error, 3 performance "
      "regression,\n"
      "  4 inconclusive, 5 crash, hang or device error, 6 nothing matched or nothing ran, 130 interrupted.");
  app.require_subcommand(1);
  app.set_version_flag("--version", [] { return build_text(); });
  app.add_flag_callback(
      "--include-dir", print_header_folder,
      "Print the folder of the headers for plug-ins: g++ -I $(attnbench --include-dir) ...");
  Program program;
  program.kernels = kernels;
  program.command_line.assign(argv, argv + argc);
  add_run(app, program);
  add_init(app, program);
  add_new_kernel(app, program);
  add_list(app, program);
  add_kernels(app, program);
  add_doctor(app, program);
  add_compare(app, program);
  add_gate(app, program);
  add_merge(app, program);
  add_profile(app, program);
  add_report(app, program);
  add_show(app, program);
  add_selftest(app, program);
  add_fuzz(app, program);
  add_export(app, program);
  add_check(app, program);
  add_serve_sim(app, program);
  add_trace(app, program);
  add_completion(app, program);
  const std::vector<std::string> commands = command_names(app);
  if (argc < 2) {
    std::cerr << fmt::format(
        "attnbench: error: no command given; there are {}; 'attnbench --help' has examples\n",
        fmt::join(commands, ", "));
    return 2;
  }
  std::vector<std::string> words(argv, argv + argc);
  if (words[1] == "help") {  // as in git and other programs
    words.erase(words.begin() + 1);
    words.push_back("--help");
  }
  const std::string& first = words[1];
  if (first[0] != '-' && std::ranges::find(commands, first) == commands.end()) {
    const std::string file = sweep_path(first);
    const bool named = file != first || first.find('.') != first.npos;
    const std::string place = named ? place_of_file(*app.get_subcommand("run"), file) : "";
    std::cerr << error_line(fmt::format(
                     "attnbench: error: unknown command '{}'; {}there are {}", first,
                     place.empty() ? did_you_mean(first, commands)
                                   : fmt::format("a file stands behind one: attnbench run {}; ", first),
                     fmt::join(commands, ", ")))
              << "\n";
    return 2;
  }
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend() - 1));  // CLI11 takes the last word first
    const CLI::Option* timeout = app.get_subcommands().front()->get_option_no_throw("--timeout");
    if (timeout != nullptr && timeout->count() > 0) program.opening_limit_s = timeout->as<double>();
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) return usage_error(app, e);
    app.exit(e);  // --help, --version
    return printed_all() ? 0 : 2;
  }
  int code = run_chosen(program, *app.get_subcommands().front());
  if (!printed_all()) code = worse_exit_code(code, 2);
  if (program.end_pipe >= 0 && write(program.end_pipe, "", 1) != 1) return kExitFailure;
  if (!program.plugins.empty()) end_soon(code);
  return code;
}

}  // namespace attnbench::cli
