#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "harness/cases/cost.h"
#include "harness/cli/case_options.h"
#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/device_options.h"
#include "harness/cli/misplaced.h"
#include "harness/cli/option.h"
#include "harness/cli/plugins.h"
#include "harness/cli/profiler_tool.h"
#include "harness/cli/usage_error.h"
#include "harness/error.h"
#include "harness/launch/last_words.h"
#include "harness/launch/launcher.h"
#include "harness/report/ncu_csv.h"
#include "harness/results/text.h"

namespace attnbench::cli {
namespace {

constexpr int kWarmups = 3;

struct ProfileOptions {
  CaseOptions cases;
  std::string kernel;
  std::string device = "auto";
  std::string tool = "none";
  std::string tool_path, kernels;
  std::string sections = "full";
  std::string out = "results/runs/profiles";
  int launches = 1;
  bool dry_run = false;
};

const Case& the_case(const Cases& cases) {
  if (cases.cases.size() != 1) {
    throw UsageError(fmt::format("{}: choose one with --case ID (attnbench list prints the ids)",
                                 counted(std::ssize(cases.cases), "case")));
  }
  return cases.cases.front();
}

/// An id as a file name: "attention-packed-bf16-...", cut at a length that file systems accept.
std::string safe_name(const std::string& id) {
  std::string out;
  for (const char c : id)
    out += std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' ? c : '-';
  return out.substr(0, 200);
}

/// Prints the figures of ncu's report. Returns false, with the reason on stderr, if it cannot be read back.
bool print_figures(const ProfilerCall& call, const Case& item, int launches) {
  std::string csv;
  const int rc = run_command({call.path, "--import", profiler_report(call).string(), "--csv", "--page", "raw",
                              "--print-units", "base"},
                             csv);
  try {
    if (rc != 0) throw Error(fmt::format("ncu --import ended with {}", rc));
    const std::vector<NcuLaunch> kernels = parse_ncu_csv(csv);
    if (kernels.empty()) throw Error("it holds no launch");
    std::cout << ncu_summary(kernels, cost_of(item).bytes, launches);
    return true;
  } catch (const Error& e) {
    std::cerr << error_line(fmt::format("attnbench: {}: {}", profiler_report(call).string(), e.what()))
              << "\n";
    return false;
  }
}

/// The command line of this program for the case, which the tool profiles.
std::vector<std::string> own_command(const ProfileOptions& o, const Program& program, const Case& item,
                                     const Kernel& kernel, const std::string& device) {
  std::vector<std::string> args = {program.command_line.front(),
                                   "profile",
                                   "--case",
                                   case_yaml(item.params, item.params.served ? item.batch : ""),
                                   "--seed",
                                   std::to_string(item.seed),
                                   "--device",
                                   device,
                                   "--kernel",
                                   kernel.name,
                                   "--launches",
                                   std::to_string(o.launches),
                                   "--tool",
                                   "none"};
  const std::string plugin = plugin_of(program, kernel);
  if (plugin.empty()) return args;
  args.insert(args.end(), {"--plugin", plugin});
  for (const std::string& word : python_words(program)) args.push_back(word);
  return args;
}

/// The first kernel of a plug-in that does the op; empty if there is none.
std::string of_a_plug_in(const Program& program, Op op) {
  for (const LoadedPlugin& plugin : program.plugins) {
    for (const Kernel* k : plugin.kernels) {
      if (k->op == op) return k->name;
    }
  }
  return "";
}

/// Starts the tool on this program with --tool none, and reads back its report.
int run_tool(const ProfileOptions& o, const Program& program, const Case& item, const Kernel& kernel,
             const std::string& device) {
  if (device == "cpu" && o.tool == "ncu" && o.tool_path.empty()) {  // --tool-path may name another tool
    const DeviceProbe probe = probe_devices();
    ProfileOptions sampled = o;  // so many launches that set-up is a small part of what perf sees
    sampled.launches = std::max(o.launches, 200);
    throw UsageError(
        fmt::format("--tool ncu profiles GPUs, and the device is cpu{}; on a CPU take perf: "
                    "OMP_WAIT_POLICY=passive perf record {}",
                    probe.cuda_devices > 0 ? ": take --device cuda"
                                           : fmt::format(" ({}; see attnbench doctor)", probe.cuda_reason),
                    shell_line(own_command(sampled, program, item, kernel, device))));
  }
  if (device == "cpu") {
    std::cerr << fmt::format(
        "note: the cpu device launches nothing on a GPU, which is all that {} looks at; of a CPU's tools "
        "any goes round --tool none, such as perf record\n",
        o.tool);
  }
  ProfilerCall call;
  call.tool = o.tool;
  const std::optional<std::string> found = o.tool_path.empty() ? find_profiler(o.tool) : o.tool_path;
  call.path = found.value_or(o.tool);
  call.report = std::filesystem::path(o.out) / (safe_name(item.id) + "." + kernel.name);
  call.kernels = o.kernels;
  call.sections = o.sections;
  const auto args = profiler_command(call, own_command(o, program, item, kernel, device));
  std::cout << shell_line(args) << std::endl;
  if (o.dry_run) return 0;
  if (!found) {
    throw UsageError(
        fmt::format("no {} in PATH, CUDA_HOME/bin, /usr/local/cuda/bin or /opt/nvidia: install NVIDIA "
                    "Nsight, name it with "
                    "--tool-path, or run the line above where it is",
                    o.tool));
  }
  const std::filesystem::path report = profiler_report(call);
  std::error_code ec;
  std::filesystem::create_directories(o.out, ec);
  std::filesystem::remove(report, ec);  // so that an old report is not taken for the new one
  const int rc = run_command(args);
  if (rc != 0 || !std::filesystem::exists(report)) {
    std::cerr << fmt::format(
        "attnbench: {} ended with {} and {} {}; where it speaks of ERR_NVGPUCTRPERM, reading counters needs "
        "root or "
        "the driver's option NVreg_RestrictProfilingToAdminUsers=0\n",
        o.tool, rc, std::filesystem::exists(report) ? "left" : "without", report.string());
    return 5;
  }
  std::cout << fmt::format("report: {}\n", report.string()) << std::flush;
  return o.tool == "ncu" && !print_figures(call, item, o.launches) ? 5 : 0;
}

int profile(const ProfileOptions& o, const Program& program) {
  const Cases cases = load_cases(o.cases);
  std::string kernel_name = o.kernel.empty() ? cases.kernel : o.kernel;
  const Case& item = the_case(cases);
  if (kernel_name.empty()) kernel_name = of_a_plug_in(program, item.params.op);
  if (!kernel_name.empty()) check_kernel_names({kernel_name}, program.kernels);
  const auto names = kernel_name.empty() ? std::vector<std::string>{} : std::vector{kernel_name};
  const auto device = open_chosen_device(device_for(o.device, names, program.kernels), 0, false);
  const auto kernels = select_kernels(program.kernels, item.params.op, device->info().kind, names);
  if (kernels.empty()) {
    std::cerr << fmt::format("attnbench: no kernel {} for {} on {}\n", kernel_name, op_name(item.params.op),
                             device->info().name);
    return 6;
  }
  const Kernel& kernel = *kernels.front();
  if (o.tool != "none") {
    return run_tool(o, program, item, kernel, device->info().name);
  }
  if (o.dry_run) {
    std::cout << shell_line(own_command(o, program, item, kernel, device->info().name)) << "\n";
    return 0;
  }
  const std::string plugin = plugin_of(program, kernel);
  set_in_hand(
      fmt::format("case {}, kernel {}{}", item.id, kernel.name, plugin.empty() ? "" : " of " + plugin));
  set_advice("attnbench run --case tells whether it is right");
  if (item.params.expect_refused) {
    std::cerr << "attnbench: skipped: the case expects a refusal, so there is no launch to profile\n";
    return 6;
  }
  if (auto why = refusal(kernel, program.kernels, *device, item)) {
    std::cerr << error_line("attnbench: skipped: " + why->text) << "\n";
    return 6;
  }
  Workload workload(*device, item, layout_for(kernel));
  Launcher launcher(kernel, program.kernels, *device, workload);
  for (int i = 0; i < kWarmups; ++i) launcher.launch();
  device->synchronize();
  device->profiler_start();
  {
    const DeviceRange range(*device, item.id.c_str());
    for (int i = 0; i < o.launches; ++i) launcher.launch_alone();
    device->synchronize();
  }
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
  option(*command, "--kernel", o->kernel, "NAME",
         "Kernel (default: the first of --plugin, else of the device)");
  add_plugin_option(*command, program);
  add_opening_limit(*command, program);
  option(*command, "--device", o->device, "DEVICE", "auto (default), cpu, cuda or cuda:N");
  command
      ->add_option(
          "--tool", o->tool,
          "none (default): launch here, three times and then inside cudaProfilerStart/Stop and an NVTX range named by the "
          "case id. ncu, nsys: find the tool, print its command line, run it; of ncu's report print "
          "duration, DRAM traffic against the model's, tensor pipe, occupancy, L2 hits, stalls. Both look at GPUs only: "
          "for the cpu device see the end of this help")
      ->check([](const std::string& tool) {
        return tool == "perf"
                   ? std::string(
                         "perf goes round this command: perf record attnbench profile ... --device cpu "
                         "--launches 200")
                   : std::string();
      })
      ->check(CLI::IsMember({"none", "ncu", "nsys"}));
  path_option(*command, "-o,--out", o->out, "DIR",
              "Folder of the .ncu-rep or .nsys-rep (default results/runs/profiles)");
  option(*command, "--tool-path", o->tool_path, "FILE", "Path of the tool, if it is not found by itself");
  option(*command, "--device-kernels", o->kernels, "REGEX",
         "ncu: only device functions whose name matches (default: all of the launch)");
  command
      ->add_option(
          "--sections", o->sections,
          "ncu: its --set (default full); basic has no DRAM traffic, L2 hits and stalls, which are printed as -")
      ->check(CLI::IsMember({"basic", "detailed", "full", "roofline"}));
  command->add_option("--launches", o->launches, "Launches inside the profiled range (default 1)")
      ->check(CLI::Range(1, 1000000));
  command->add_flag("--dry-run", o->dry_run, "Print the command line only");
  ignore_repro_options(app, *command);
  command->footer(
      "Examples:\n"
      "  attnbench profile quickstart --case 'attention/packed/bf16/h32-8/d128/causal/4q512' "
      "--tool ncu\n"
      "  attnbench profile --case '{kv: paged, batch: 8q1s4k}' --tool nsys --launches 5\n"
      "  attnbench profile --case '{kv: paged, batch: 8q1s4k}' --plugin ./mine.so --kernel mine --tool ncu\n"
      "  OMP_WAIT_POLICY=passive perf record attnbench profile --case '{batch: 4q512}' --device cpu --launches 200\n"
      "On the cpu device, put perf around this command, as in the last example. perf is a program of its own (Debian:\n"
      "linux-perf, Ubuntu: linux-tools-generic) and needs kernel.perf_event_paranoid <= 2, or root. Without perf the\n"
      "launches run and nothing is profiled.");
  command->callback([=, &program] {
    program.calls = Calls::kHere;
    program.chosen = [=, &program] { return profile(*o, program); };
  });
}

}  // namespace attnbench::cli
