#include "harness/cli/cli.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>

#include "harness/cli/common.h"
#include "harness/config/sweep_file.h"
#include "harness/report/load.h"
#include "harness/report/text.h"

namespace attnbench::cli {

namespace {

bool is_command(const CLI::App& app, const std::string& name) {
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (sub->get_name() == name) return true;
  }
  return false;
}

}  // namespace

int main_with_kernels(int argc, char** argv, KernelTable kernels) {
  CLI::App app{"attnbench proves and times attention kernels: variable-length (packed) and paged KV."};
  app.name("attnbench");
  app.footer(
      "Examples:\n"
      "  attnbench run configs/quickstart.yaml\n"
      "  attnbench run --case '{kv: paged, batch: 8q1s4k, heads: 32/8}' --device cpu\n"
      "  attnbench compare old/results.json new/results.json\n"
      "Exit codes: 0 all good, 1 some case is incorrect, 2 usage or configuration error, 3 performance "
      "regression,\n"
      "  4 inconclusive, 5 crash, hang or device error, 6 nothing matched or nothing ran.");
  app.require_subcommand(1);
  Program program;
  program.kernels = kernels;
  program.command_line.assign(argv, argv + argc);
  add_run(app, program);
  add_list(app, program);
  add_kernels(app, program);
  add_doctor(app, program);
  add_compare(app, program);
  add_gate(app, program);
  add_merge(app, program);
  add_profile(app, program);
  add_report(app, program);
  add_selftest(app, program);
  if (argc > 1 && argv[1][0] != '-' && !is_command(app, argv[1])) {
    std::vector<std::string> names;
    for (const CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; }))
      names.push_back(sub->get_name());
    std::cerr << fmt::format("attnbench: error: unknown command '{}'; {}there are {}\n", argv[1],
                             did_you_mean(argv[1], names), fmt::join(names, ", "));
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;  // CLI11 has codes of its own; --help is 0
  }
  try {
    return program.chosen();
  } catch (const ConfigError& e) {
    std::cerr << one_line(e.what()) << "\n";  // it quotes a file, which may hold anything
    return 2;
  } catch (const ResultsError& e) {
    std::cerr << one_line(e.what()) << "\n";
    return 2;
  } catch (const UsageError& e) {
    std::cerr << "attnbench: error: " << one_line(e.what()) << "\n";
    return 2;
  } catch (const DeviceError& e) {
    std::cerr << "attnbench: device error: " << one_line(e.what()) << "\n";
    return 5;
  } catch (const std::exception& e) {
    std::cerr << "attnbench: error: " << one_line(e.what()) << "\n";
    return 2;
  }
}

}  // namespace attnbench::cli
