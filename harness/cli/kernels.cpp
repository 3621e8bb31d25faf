#include <fmt/format.h>

#include <iostream>

#include "harness/cli/common.h"

namespace attnbench::cli {

void add_kernels(CLI::App& app, Program& program) {
  auto* command = app.add_subcommand("kernels", "List the kernels and what each supports");
  command->footer("Example:\n  attnbench kernels");
  command->callback([&program] {
    program.chosen = [&program] {
      for (const Kernel* k : program.kernels) {
        std::cout << fmt::format(
            "{} ({}, {}{}): {}\n", k->name, op_name(k->op), device_kind_name(k->device),
            k->min_compute_capability ? fmt::format(" sm_{}+", k->min_compute_capability) : "", k->summary);
        std::cout << "    shapes    " << k->shapes << "\n    features ";
        for (const FeatureName& f : kFeatureNames) {
          if (k->features & f.bit) std::cout << ' ' << f.name;
        }
        std::cout << "\n    promises ";
        if (k->flags & kDeterministic) std::cout << " deterministic";
        if (k->flags & kBatchInvariant) std::cout << " batch_invariant";
        std::cout << "\n";
      }
      return program.kernels.empty() ? 6 : 0;
    };
  });
}

}  // namespace attnbench::cli
