#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <iterator>

#include "harness/cases/cost.h"
#include "harness/cli/case_options.h"
#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/plugins.h"
#include "harness/config/keys.h"
#include "harness/config/sweep_file.h"
#include "harness/run/launcher.h"
#include "harness/session/plan.h"

namespace attnbench::cli {
namespace {

/// Time of a case beyond its tensors, launches and reference, in seconds. Source: the table "What the harness
/// itself costs" in harness/README.md.
constexpr double overhead_s(DeviceKind kind) { return kind == DeviceKind::kCuda ? 0.004 : 0.013; }

std::string quantity(double x, const char* unit) {
  const char* prefixes[] = {"", "K", "M", "G", "T", "P"};
  int i = 0;
  while (x >= 1000 && i < 5) {
    x /= 1000;
    ++i;
  }
  return fmt::format("{:.3g} {}{}", x, prefixes[i], unit);
}

std::string duration(double seconds) {
  if (seconds < 1) return "under 1 s";
  if (seconds < 120) return fmt::format("about {:.0f} s", seconds);
  return seconds < 7200 ? fmt::format("about {:.0f} min", seconds / 60)
                        : fmt::format("about {:.1f} h", seconds / 3600);
}

/// An estimate for a GPU needs no GPU.
DeviceKind kind_of(const std::string& device) {
  const bool gpu = device == "cuda" || (device == "auto" && probe_devices().cuda_devices > 0);
  return gpu ? DeviceKind::kCuda : DeviceKind::kCpu;
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

}  // namespace

void add_list(CLI::App& app, Program& program) {
  auto* command = app.add_subcommand("list", "Expand sweeps and print the cases, without running anything");
  auto options = std::make_shared<CaseOptions>();
  auto schema = std::make_shared<bool>(false);
  auto keys = std::make_shared<bool>(false);
  auto impossible = std::make_shared<bool>(false);
  auto device = std::make_shared<std::string>("auto");
  options->add(*command);
  add_plugin_option(*command, program);
  command
      ->add_option(
          "--device", *device,
          "Device whose kernels are counted and times estimated: auto (a GPU where one works), cpu, cuda")
      ->type_name("DEVICE")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  command->add_flag("--schema", *schema, "Print the JSON Schema of the YAML format instead");
  command->add_flag("--keys", *keys,
                    "Print the keys of a sweep, their values and meaning (Markdown) instead");
  command->add_flag("--impossible", *impossible,
                    "Print the values that no legal case of a cover holds together, and those that make no "
                    "difference together");
  command->footer(
      "Examples:\n  attnbench list configs/quickstart.yaml\n  attnbench list configs/smoke.yaml --filter "
      "paged");
  command->callback([=, &program] {
    program.chosen = [=, &program] {
      if (*schema) {
        std::cout << json_schema();
        return 0;
      }
      if (*keys) {
        std::cout << keys_markdown();
        return 0;
      }
      const Cases cases = load_cases(*options);
      const DeviceKind kind = kind_of(*device);
      const auto chosen = open_device("cpu");
      double seconds = 0;
      double largest = 0;
      int64_t pairs = 0;
      for (const Case& c : cases.cases) {
        const CaseCost cost = cost_of(c.params);
        const auto kernels = select_kernels(program.kernels, c.params.op, kind, {});
        pairs += static_cast<int64_t>(kernels.size());
        seconds += (overhead_s(kind) + estimated_seconds(c.params, kind, chosen->info().threads)) *
                   static_cast<double>(kernels.size());
        largest = std::max(largest, cost.device_bytes);
        std::cout << fmt::format("{}  {}, {} least traffic, {} memory\n", c.id, quantity(cost.flop, "FLOP"),
                                 quantity(cost.bytes, "B"), quantity(cost.device_bytes, "B"));
      }
      std::cout << fmt::format("{} ({} excluded, {} dropped, {} filtered out), {} on {}; largest {}; {}\n",
                               counted(std::ssize(cases.cases), "case"), cases.excluded,
                               counted(cases.duplicates, "duplicate"), cases.filtered, counted(pairs, "run"),
                               device_kind_name(kind), quantity(largest, "B"), duration(seconds));
      if (pairs == 0 && !cases.cases.empty())
        std::cerr << fmt::format("note: this program has no {} kernel for them\n", device_kind_name(kind));
      print_cover(cases.cover, *impossible);
      return cases.cases.empty() ? 6 : 0;
    };
  });
}

}  // namespace attnbench::cli
