#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "harness/cases/cost.h"
#include "harness/cli/case_options.h"
#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/device_options.h"
#include "harness/cli/misplaced.h"
#include "harness/cli/option.h"
#include "harness/cli/plugins.h"
#include "harness/config/batch_spec.h"
#include "harness/config/keys.h"
#include "harness/config/mixes.h"
#include "harness/config/models.h"
#include "harness/config/sweep_file.h"
#include "harness/launch/launcher.h"
#include "harness/results/exit_code.h"
#include "harness/results/text.h"
#include "harness/session/estimate.h"
#include "harness/session/memory_check.h"
#include "harness/session/plan.h"

namespace attnbench::cli {
namespace {

struct ListOptions {
  CaseOptions cases;
  std::vector<std::string> kernels;
  std::string device = "auto";
  bool schema = false, keys = false, models = false, mixes = false, impossible = false, verbose = false;
};

std::string quantity(double x, const char* unit) {
  const char* prefixes[] = {"", "K", "M", "G", "T", "P"};
  int i = 0;
  while (x >= 1000 && i < 5) {
    x /= 1000;
    ++i;
  }
  return fmt::format("{:.3g} {}{}", x, prefixes[i], unit);
}

/// A bound of a range as people say it: rounded down or up to 1, 1.5, 2, 3, ... 9 times a power of ten.
double round_bound(double x, bool up) {
  if (x <= 0) return 0;
  const double power = std::pow(10.0, std::floor(std::log10(x)));
  double bound = up ? 10 * power : power;
  for (const double step : {1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0}) {
    if (!up && step * power <= x) bound = step * power;
    if (up && step * power >= x) bound = std::min(bound, step * power);
  }
  return bound;
}

/// A rounded bound: its number, and its unit.
std::pair<std::string, std::string> bound_text(double seconds, bool up) {
  const auto [unit, name] = seconds < 100    ? std::pair(1.0, "s")
                            : seconds < 6000 ? std::pair(60.0, "min")
                                             : std::pair(3600.0, "h");
  return {fmt::format("{:g}", round_bound(seconds / unit, up)), name};
}

/// "about 10 to 60 s", "about 50 s to 3 min"; "up to 2 s" where the least is under one.
std::string duration(const Seconds& s) {
  if (s.most < 1) return "under 1 s";
  const auto [most, unit] = bound_text(s.most, true);
  if (s.least < 1) return fmt::format("up to {} {}", most, unit);
  const auto [least, unit_of_least] = bound_text(s.least, false);
  return fmt::format("about {}{}{} to {} {}", least, unit == unit_of_least ? "" : " ",
                     unit == unit_of_least ? "" : unit_of_least, most, unit);
}

/// A GPU need not be there to be estimated for.
DeviceKind kind_of(const ListOptions& o, const std::vector<std::string>& kernels, KernelTable table) {
  if (o.device != "auto") return o.device == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
  if (const auto kind = kernels.empty() ? std::nullopt : kind_of_kernels(kernels, table)) return *kind;
  return probe_devices().cuda_devices > 0 ? DeviceKind::kCuda : DeviceKind::kCpu;
}

/// The device that `run` would take; null where there is none of the kind.
std::unique_ptr<Device> device_of(DeviceKind kind) {
  if (kind == DeviceKind::kCuda && probe_devices().cuda_devices == 0) return nullptr;
  try {
    return open_device(kind == DeviceKind::kCuda ? "cuda:0" : "cpu");
  } catch (const DeviceError&) {
    return nullptr;  // list says nothing of a broken device; run and doctor do
  }
}

/// Prints what the covers contain, and with `all` each combination of values that they lack.
void print_cover(const CoverCounts& cover, bool all) {
  for (const std::string& sample : cover.short_samples) std::cout << "sample: " << sample << '\n';
  std::string met;
  if (cover.pairs > 0) met = counted(cover.pairs, "pair");
  if (cover.triples > 0) met += (met.empty() ? "" : " and ") + counted(cover.triples, "triple");
  if (met.empty()) return;
  const bool hidden = !all && !(cover.impossible.empty() && cover.indifferent.empty());
  const char* none = cover.exact ? "no legal case" : "no legal case found";
  std::cout << fmt::format("cover: {} of values meet; {}: {}; no difference: {}{}\n", met, none,
                           cover.impossible.size(), cover.indifferent.size(),
                           hidden ? " (--impossible lists them)" : "");
  if (!all) return;
  for (const std::string& values : cover.impossible) std::cout << "  " << none << ": " << values << '\n';
  for (const std::string& values : cover.indifferent) std::cout << "  no difference: " << values << '\n';
}

/// Cases that stand together, of one sweep.
using Group = std::span<const Case>;

std::vector<Group> groups_of(const std::vector<Case>& cases) {
  std::vector<Group> groups;
  for (std::size_t begin = 0, end = 0; begin < cases.size(); begin = end) {
    const Case& first = cases[begin];
    while (end < cases.size() && cases[end].sweep == first.sweep && cases[end].file == first.file) ++end;
    groups.push_back({&first, end - begin});
  }
  return groups;
}

std::string heading(const Group& group) {
  const Case& c = group.front();
  const std::string count = counted(std::ssize(group), "case");
  if (c.file == "--case") return fmt::format("--case: {}", count);
  return fmt::format("sweep \"{}\" of {}: {}", one_line(c.sweep), one_line(c.file), count);
}

/// What a list knows of the runs that it speaks of.
struct Outlook {
  KernelTable table;
  std::vector<std::string> kernels;  ///< names; empty: all
  Checks checks;
  Machine machine;
  std::unique_ptr<Device> device;    ///< null: there is none here
  std::optional<FreeMemory> memory;  ///< of the device
};

/// Cases that a chosen kernel refuses for one reason.
struct Refusals {
  int64_t cases = 0;
  std::string reason;  ///< of the first case, in the kernel's words
};

struct Totals {
  int64_t runs = 0, skipped = 0;
  double largest = 0;  ///< bytes
  CaseSeconds seconds;
  std::map<std::pair<std::string, std::string>, Refusals> refused;  ///< by kernel, and reason without numbers
};

/// Adds to the totals what the chosen kernels themselves refuse. Returns the reason if all of them do.
std::optional<SkipReason> ask_kernels(const Case& c, const std::vector<const Kernel*>& kernels,
                                      const Outlook& outlook, Totals& totals) {
  if (outlook.kernels.empty() || outlook.device == nullptr || c.params.expect_refused) return std::nullopt;
  std::optional<SkipReason> first;
  std::size_t refused = 0;
  for (const Kernel* kernel : kernels) {
    std::optional<SkipReason> why;
    try {
      why = refusal(*kernel, outlook.table, *outlook.device, c);
    } catch (const TooLarge& e) {
      why = SkipReason{e.what()};
    }
    if (!why) continue;
    ++refused;
    if (!first) first = why;
    Refusals& r = totals.refused[{kernel->name, without_numbers(why->text)}];
    if (r.cases++ == 0) r.reason = why->text;
  }
  return refused == kernels.size() ? first : std::nullopt;
}

/// Prints the line of a case, and adds it to the totals.
void print_case(const Case& c, const Outlook& outlook, bool verbose, Totals& totals) {
  const DeviceKind kind = outlook.machine.device;
  const CaseCost cost = cost_of(c);
  const std::vector<const Kernel*> kernels =
      select_kernels(outlook.table, c.params.op, kind, outlook.kernels);
  const auto runs = std::ssize(kernels);
  std::optional<SkipReason> why = ask_kernels(c, kernels, outlook, totals);
  if (outlook.memory && !why) {
    why = runs == 0 ? no_kernel(c.params.op, outlook.memory->device, !outlook.kernels.empty())
                    : does_not_fit(c, *outlook.memory, outlook.checks.mode);
  }
  totals.runs += runs;
  totals.skipped += why.has_value();
  const double memory = cost.bytes_of(outlook.memory && outlook.memory->holes);
  totals.largest = std::max(totals.largest, memory);
  std::cout << fmt::format("{}  {}, {} least traffic, {} memory{}\n", c.id, quantity(cost.flop, "FLOP"),
                           quantity(cost.bytes, "B"), quantity(memory, "B"),
                           why                       ? "; will be skipped here: " + why->text
                           : c.params.expect_refused ? "; a refusal is expected"
                                                     : "");
  if (verbose) {
    const std::string batch = format_batch_spec(c.params.seqs);
    if (batch != batch_label(c.params.seqs)) std::cout << "  batch: " << batch << '\n';
  }
  if (why) return;
  const CaseSeconds s =
      estimated_seconds(c.params, outlook.machine, outlook.checks.mode, outlook.checks.invariants);
  for (int64_t i = 0; i < runs; ++i) totals.seconds = totals.seconds + s;
}

int list(const ListOptions& o, const Program& program) {
  check_kernel_names(o.kernels, program.kernels);
  const Cases cases = load_cases(for_interpreter(o.cases, program));
  if (o.impossible) {
    print_cover(cases.cover, true);
    return 0;
  }
  Outlook outlook{program.kernels, kernels_to_run(o.kernels, cases), checks_of(cases.check), {}, nullptr, {}};
  check_kernel_names(outlook.kernels, program.kernels);
  const DeviceKind kind = kind_of(o, outlook.kernels, program.kernels);
  const DeviceInfo host = open_device("cpu")->info();
  outlook.machine = {kind, host.threads, host.cache_bytes};
  outlook.device = device_of(kind);
  if (outlook.device) outlook.memory = free_memory_of(*outlook.device);
  if (outlook.memory) outlook.memory->holes = kind == DeviceKind::kCpu;  // as in a run

  Totals totals;
  const std::vector<Group> groups = groups_of(cases.cases);
  for (const Group& group : groups) {
    if (groups.size() > 1) std::cout << heading(group) << '\n';
    for (const Case& c : group) print_case(c, outlook, o.verbose, totals);
  }
  if (totals.seconds.check.most > 0) totals.seconds = totals.seconds + estimated_start(outlook.machine);
  const std::string skipped =
      totals.skipped > 0 ? fmt::format("; {} will be skipped here", counted(totals.skipped, "case")) : "";
  std::cout << fmt::format(
      "{} ({} excluded, {} dropped, {} filtered out), {} on {}{}; largest {}; {}, with --no-time {}{}\n",
      counted(std::ssize(cases.cases), "case"), cases.excluded,
      counted(std::ssize(cases.duplicates), "duplicate"), cases.filtered, counted(totals.runs, "run"),
      device_kind_name(kind), skipped, quantity(totals.largest, "B"),
      duration(totals.seconds.check + totals.seconds.time), duration(totals.seconds.check),
      program.plugins.empty() ? "" : ", if the plug-in is as fast as the built-in kernels");
  for (const auto& [group, r] : totals.refused)
    std::cout << fmt::format("{} will refuse {}: {}\n", one_line(group.first), counted(r.cases, "case"),
                             one_line(r.reason));
  if (cases.cases.empty()) say_nothing_matched(cases);
  if (totals.runs == 0 && !cases.cases.empty())
    std::cerr << fmt::format("note: this program has no {} kernel{} for them\n", device_kind_name(kind),
                             outlook.kernels.empty() ? "" : " of the chosen names");
  print_cover(cases.cover, false);
  return worse_exit_code(cases.cases.empty() ? 6 : 0, cases.exit_code());
}

}  // namespace

void add_list(CLI::App& app, Program& program) {
  auto* command = app.add_subcommand("list", "Expand sweeps and print the cases, without running anything");
  auto o = std::make_shared<ListOptions>();
  o->cases.add(*command);
  add_kernel_option(
      *command, o->kernels,
      "Count and mark what these kernels, comma-separated, would run (default: all of the device)");
  add_plugin_option(*command, program);
  add_opening_limit(*command, program);
  option(*command, "--device", o->device, "DEVICE",
         "Device whose kernels are counted and times estimated: auto (a GPU where one works), cpu, cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  command->add_flag("-v,--verbose", o->verbose,
                    "Print the whole batch below a case whose id has only a hash of the lengths");
  command->add_flag("--schema", o->schema, "Print the JSON Schema of the YAML format instead");
  command->add_flag("--keys", o->keys,
                    "Print the keys of a sweep, their values and meaning (Markdown) instead");
  command->add_flag("--models", o->models,
                    "Print the models that 'model' names, and their keys (Markdown) instead");
  command->add_flag(
      "--mixes", o->mixes,
      "Print the mixes of requests that serve-sim knows, with quantiles and sources (Markdown) instead");
  command->add_flag(
      "--impossible", o->impossible,
      "For sweeps with 'cover': print the pairs or triples of values that no legal case has, and those "
      "that make no difference, instead");
  ignore_repro_options(app, *command);
  command->footer(
      "A case that does not fit into the memory that is free now, or that all kernels of --kernel refuse, is\n"
      "marked: run would skip it.\n"
      "The time is that of run with its default options and the file's 'check', on this machine\n"
      "when it does nothing else, for kernels about as fast as those of this program.\n\n"
      "Examples:\n  attnbench list quickstart\n  attnbench list smoke --filter "
      "paged\n  attnbench list mine.yaml --kernel cpu -v");
  command->callback([=, &program] {
    program.calls = Calls::kInChild;
    program.chosen = [=, &program] {
      if (o->mixes) {
        std::cout << mixes_markdown();
        return 0;
      }
      if (o->schema || o->keys || o->models) {
        std::cout << (o->schema ? json_schema() : o->keys ? keys_markdown() : models_markdown());
        return 0;
      }
      return list(*o, program);
    };
  });
}

}  // namespace attnbench::cli
