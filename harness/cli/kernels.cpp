#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/cli/cli.h"
#include "harness/cli/peers.h"
#include "harness/cli/plugins.h"
#include "harness/config/feature_keys.h"
#include "harness/facts/declared_types.h"
#include "harness/results/text.h"

namespace attnbench::cli {
namespace {

/// "cuda sm_80+": the device that the kernel needs.
std::string device_text(const Kernel& k) {
  return fmt::format("{}{}", device_kind_name(k.device),
                     k.min_compute_capability ? fmt::format(" sm_{}+", k.min_compute_capability) : "");
}

/// One column per kernel: its device, then a row per feature that a kernel of the op has, and keys of a case that
/// needs it.
void print_support(KernelTable kernels, Op op) {
  std::vector<const Kernel*> columns;
  for (const Kernel* k : kernels) {
    if (k->op == op) columns.push_back(k);
  }
  if (columns.empty()) return;
  std::size_t width = 0;
  for (const FeatureName& f : kFeatureNames) width = std::max(width, std::string_view(f.name).size());
  std::cout << fmt::format("\n{:<{}}", op_name(op), std::max(width, std::string_view(op_name(op)).size()));
  width = std::max(width, std::string_view(op_name(op)).size());
  const auto column = [](const Kernel& k, std::string_view text) {
    return fmt::format("  {:^{}}", text, std::max(std::string_view(k.name).size(), device_text(k).size()));
  };
  for (const Kernel* k : columns) std::cout << column(*k, k->name);
  std::cout << fmt::format("  a key that needs it\n{:<{}}", "device", width);
  for (const Kernel* k : columns) std::cout << column(*k, device_text(*k));
  std::cout << '\n';
  for (const FeatureName& f : kFeatureNames) {
    if (std::ranges::none_of(columns, [&](const Kernel* k) { return k->features & f.bit; })) {
      continue;
    }
    std::cout << fmt::format("{:<{}}", f.name, width);
    for (const Kernel* k : columns) {
      std::cout << column(*k, k->features & f.bit ? "yes" : "-");
    }
    std::cout << "  " << key_that_needs(f.bit, op) << '\n';
  }
}

/// How many variants are compiled; with `verbose`, a line for each: "d64_split  head_dim 64, masked, split".
void print_instances(const Kernel& kernel, bool verbose) {
  if (kernel.instances == nullptr) return;
  std::vector<std::pair<std::string, std::string>> rows;
  std::size_t width = 0;
  std::istringstream text(kernel.instances);
  for (std::string row; std::getline(text, row);) {
    const std::string name = row.substr(0, row.find(' '));
    std::string constants = row.substr(std::min(row.size(), name.size() + 1));
    for (const auto& [from, to] : {std::pair{" = true", ""}, {" = ", " "}, {"Use::", ""}, {".", ""}}) {
      for (std::size_t at; (at = constants.find(from)) != constants.npos;)
        constants.replace(at, std::string_view(from).size(), to);
    }
    rows.emplace_back(one_line(name), one_line(constants));
    width = std::max(width, rows.back().first.size());
  }
  std::cout << fmt::format("    instances {}, each for bf16 and fp16{}\n", rows.size(),
                           verbose ? "" : " (-v lists them)");
  if (!verbose) return;
  for (const auto& [name, constants] : rows)
    std::cout << fmt::format("      {:<{}}  {}\n", name, width, constants);
}

}  // namespace

void add_kernels(CLI::App& app, Program& program) {
  auto* command = app.add_subcommand("kernels", "List the kernels and what each supports");
  add_plugin_option(*command, program);
  add_opening_limit(*command, program);
  add_peers_option(*command, program);
  auto device = std::make_shared<std::string>();
  command->add_option("--device", *device, "Only kernels of this device: cpu or cuda (default: both)")
      ->option_text("NAME")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  auto verbose = std::make_shared<bool>(false);
  command->add_flag("-v,--verbose", *verbose, "List each kernel's compiled instances and their constants");
  command->footer(
      "With --plugin or --peers only their kernels are described; the table has the others of the same op, too.\n\n"
      "The table has the device of each kernel and a row per feature, by its name in kernels/contract and in\nthe "
      "reason of a skip. Its last column has the keys of a sweep file that need the feature; attnbench list\n--keys "
      "explains them.\n"
      "Examples:\n  attnbench kernels\n  attnbench kernels --plugin ./mine.so\n  attnbench kernels --peers all\n"
      "  attnbench kernels --device cuda -v");
  command->callback([&program, device, verbose] {
    program.chosen = [&program, device, verbose] {
      std::vector<const Kernel*> kernels;
      for (const Kernel* k : program.kernels) {
        if (device->empty() || *device == device_kind_name(k->device)) kernels.push_back(k);
      }
      std::vector<const Kernel*> described;
      std::ranges::copy_if(kernels, std::back_inserter(described),
                           [&](const Kernel* k) { return !plugin_of(program, *k).empty(); });
      if (described.empty()) described = kernels;
      for (const Kernel* k : described) {
        std::cout << fmt::format("{} ({}, {}): {}\n", k->name, op_name(k->op), device_text(*k),
                                 one_line(k->summary));
        std::cout << "    shapes    " << one_line(k->shapes);
        std::cout << "\n    promises ";
        if (k->flags & kDeterministic) std::cout << " deterministic";
        if (k->flags & kBatchInvariant) std::cout << " batch_invariant";
        if (k->flags & kPagingInvariant) std::cout << " paging_invariant";
        if (k->flags & kReturnsOutputs) std::cout << "\n    outputs   returned in memory of the kernel";
        const std::string waived = waived_text(k->flags);
        if (!waived.empty()) std::cout << "\n    limits    " << waived.substr(2);
        std::cout << "\n";
        print_instances(*k, *verbose);
        if (const std::string file = plugin_of(program, *k); !file.empty()) {
          std::cout << "    from      " << one_line(file) << "\n";
        }
      }
      std::set<Op> ops;
      for (const Kernel* k : described) ops.insert(k->op);
      for (const Op op : ops) print_support(kernels, op);
      return kernels.empty() ? 6 : 0;
    };
  });
}

}  // namespace attnbench::cli
