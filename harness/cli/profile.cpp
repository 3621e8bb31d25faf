#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>

#include "harness/cli/common.h"
#include "harness/run/launcher.h"

namespace attnbench::cli {
namespace {

constexpr int kWarmups = 3;

struct ProfileOptions {
  CaseOptions cases;
  std::string kernel;
  std::string device = "auto";
  std::string tool = "none";
  int launches = 1;
  bool dry_run = false;
};

const Case& the_case(const Cases& cases) {
  if (cases.cases.size() != 1) {
    throw UsageError(fmt::format("{} cases: choose one with --case ID (attnbench list prints the ids)",
                                 cases.cases.size()));
  }
  return cases.cases.front();
}

std::string quoted(const std::string& s) {
  std::string out = "'";
  for (const char c : s) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// The profiler's command line round this program with --tool none.
std::vector<std::string> tool_command(const ProfileOptions& o, const Case& item, const std::string& kernel,
                                      const std::string& device, const std::string& self) {
  std::vector<std::string> args;
  if (o.tool == "ncu") {
    args = {"ncu", "--profile-from-start", "off", "--nvtx", "--set", "full", "-f", "-o", "attnbench"};
  } else {
    args = {
        "nsys", "profile",  "--capture-range=cudaProfilerApi", "--trace=cuda,nvtx", "--force-overwrite=true",
        "-o",   "attnbench"};
  }
  for (const std::string& a :
       {self, std::string("profile"), std::string("--case"), case_yaml(item.params), std::string("--seed"),
        std::to_string(item.seed), std::string("--device"), device, std::string("--kernel"), kernel,
        std::string("--launches"), std::to_string(o.launches), std::string("--tool"), std::string("none")}) {
    args.push_back(a);
  }
  return args;
}

int run_tool(const std::vector<std::string>& args) {
  std::vector<char*> argv;
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  throw UsageError(
      fmt::format("cannot run {}: {}; install it (NVIDIA Nsight) or run the line above where it is", args[0],
                  std::strerror(errno)));
}

int profile(const ProfileOptions& o, const Program& program) {
  const Cases cases = load_cases(o.cases);
  const std::string kernel_name = o.kernel.empty() ? cases.kernel : o.kernel;
  const Case& item = the_case(cases);
  if (!kernel_name.empty()) check_kernel_names({kernel_name}, program.kernels);
  const auto device = open_chosen_device(o.device, 0, false);
  const auto kernels =
      select_kernels(program.kernels, item.params.op, device->info().kind,
                     kernel_name.empty() ? std::vector<std::string>{} : std::vector{kernel_name});
  if (kernels.empty()) {
    std::cerr << fmt::format("attnbench: no kernel {} for {} on {}\n", kernel_name, op_name(item.params.op),
                             device->info().name);
    return 6;
  }
  const Kernel& kernel = *kernels.front();
  if (o.tool != "none") {
    const auto args = tool_command(o, item, kernel.name, device->info().name, program.command_line.front());
    std::string text;
    for (const std::string& a : args) {
      const bool plain =
          a.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,") ==
          std::string::npos;
      text += (text.empty() ? "" : " ") + (plain ? a : quoted(a));
    }
    std::cout << text << std::endl;
    return o.dry_run ? 0 : run_tool(args);
  }
  if (auto why = refusal(kernel, *device, item)) {
    std::cerr << "attnbench: skipped: " << *why << "\n";
    return 6;
  }
  Workload workload(*device, item);
  Launcher launcher(kernel, *device, workload);
  for (int i = 0; i < kWarmups; ++i) launcher.launch();
  device->synchronize();
  device->profiler_start();
  device->range_push(item.id.c_str());
  for (int i = 0; i < o.launches; ++i) launcher.launch();
  device->synchronize();
  device->range_pop();
  device->profiler_stop();
  std::cout << fmt::format("{} on {}: {} warm-up launches, then {} in the profiled range '{}'\n", kernel.name,
                           device->info().name, kWarmups, o.launches, item.id);
  return 0;
}

}  // namespace

void add_profile(CLI::App& app, Program& program) {
  auto* command =
      app.add_subcommand("profile", "Launch one case for a profiler, or start the profiler round it");
  auto o = std::make_shared<ProfileOptions>();
  o->cases.add(*command);
  command->add_option("--kernel", o->kernel, "Kernel (default: the first of the device)");
  command->add_option("--device", o->device, "auto, cpu, cuda or cuda:N");
  command
      ->add_option("--tool", o->tool,
                   "none: launch here, inside cudaProfilerStart/Stop and an NVTX range named by the "
                   "case id. ncu, nsys: print the tool's command line and run it")
      ->check(CLI::IsMember({"none", "ncu", "nsys"}));
  command->add_option("--launches", o->launches, "Launches inside the profiled range (default 1)")
      ->check(CLI::Range(1, 1000000));
  command->add_flag("--dry-run", o->dry_run, "Print the tool's command line only");
  command->footer(
      "Examples:\n"
      "  attnbench profile configs/quickstart.yaml --case 'attention/packed/bf16/h32-8/d128/causal/4q512' "
      "--tool ncu\n"
      "  attnbench profile --case '{kv: paged, batch: 8q1s4k}' --tool nsys --launches 5\n"
      "  perf record attnbench profile --case '{batch: 4q512}' --device cpu --launches 20");
  command->callback([=, &program] { program.chosen = [=, &program] { return profile(*o, program); }; });
}

}  // namespace attnbench::cli
