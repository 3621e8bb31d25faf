#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/device_options.h"
#include "harness/device/cpu_ceilings.h"
#include "harness/device/memory_limit.h"
#include "harness/gigabytes.h"
#include "harness/launch/link_times.h"
#include "harness/results/record.h"
#include "harness/session/plan.h"

namespace attnbench::cli {
namespace {

#ifdef __clang__
constexpr const char* kCompiler = __VERSION__;  // includes the compiler's name
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

constexpr int64_t kLargeLink = 60 << 20;  ///< bytes from which on an exchange shows bandwidth

void line(const char* what, const std::string& value) {
  std::cout << fmt::format("  {:<12} {}\n", what, value);
}

void describe(Device& device, bool measure) {
  const DeviceInfo& d = device.info();
  std::cout << "device " << d.name << "\n";
  line("model", d.model);
  const bool cpu = d.kind == DeviceKind::kCpu;
  line("memory", fmt::format("{} ({} free{})", gigabytes(static_cast<double>(d.memory_bytes)),
                             gigabytes(static_cast<double>(device.free_memory())),
                             cpu ? "; " + memory_limit().binds + " sets the limit" : ""));
  line("cache", fmt::format("{:.1f} MB last level{}", static_cast<double>(d.cache_bytes) * 1e-6,
                            cpu ? fmt::format("; a cold one is made by {}reading {:.1f} MB",
                                              can_evict() ? "evicting the tensors and " : "",
                                              1e-6 * static_cast<double>(d.flush_bytes))
                                : ""));
  if (!cpu) {
    line("compute", fmt::format("sm_{}, {} multiprocessors, {:.0f} MHz at most", d.compute_capability,
                                d.multiprocessors, d.clock_mhz));
    line("driver", d.driver);
    line("runtime", d.runtime);
    const CounterReading counters = device.count_launch([] {}, [] {}, CacheMode::kHot);
    line("counters", counters.reason.empty() ? "can be read (attnbench run --counters)" : counters.reason);
  } else {
    line("threads", std::to_string(d.threads));
  }
  if (!measure) return;
  const Ceilings& c = device.ceilings(ceiling_dtypes());
  if (c.read_gbs) line("read", fmt::format("{:.1f} GB/s", *c.read_gbs));
  if (c.copy_gbs) line("copy", fmt::format("{:.1f} GB/s (read + write)", *c.copy_gbs));
  for (const auto& m : c.matmul)
    line("matrix", fmt::format("{:.2f} {} {}", m.tflops, m.dtype == DType::kInt8 ? "TOP/s" : "TFLOP/s",
                               dtype_name(m.dtype)));
  if (c.floor_us) line("floor", fmt::format("{:.2f} us for an empty launch", *c.floor_us));
  if (!c.note.empty()) line("note", c.note);
}

/// Exchanges between all GPUs, and between two.
void describe_links(int gpus) {
  const auto device = open_device("cuda:0");
  for (const int ranks : std::set<int>{2, std::min(gpus, kMostRanks)}) {
    std::cout << fmt::format("ranks on {} GPUs (configs/README.md)\n", ranks);
    std::string why_not;
    RankTeam* team = device->rank_team(ranks, why_not);
    if (team == nullptr) return line("absent", why_not);
    const Nccl* nccl = nccl_of(*team, why_not);
    line("nccl", nccl != nullptr ? nccl->version() : why_not);
    std::map<std::string, std::string> rows;
    for (const Ceilings::Link& l : link_times(*team)) {
      rows[l.what] +=
          fmt::format("{}{} KiB {:.1f} us", rows[l.what].empty() ? "" : ", ", l.bytes / 1024, l.us);
      if (l.bytes < kLargeLink) continue;
      const double moved = static_cast<double>(l.bytes) * (ranks - 1) / ranks;  // a rank keeps its own share
      rows[l.what] += fmt::format(" ({:.0f} GB/s of each GPU)", moved / l.us * 1e-3);
    }
    for (const auto& [what, times] : rows) line(what.c_str(), times);
  }
}

}  // namespace

void add_doctor(CLI::App& app, Program& program) {
  auto* command = app.add_subcommand("doctor", "Describe this machine's devices, and say what is missing");
  auto measure = std::make_shared<bool>(false);
  command->add_flag("--measure", *measure, "Also measure the ceilings of each device (seconds)");
  command->footer("Examples:\n  attnbench doctor\n  attnbench doctor --measure");
  command->callback([=, &program] {
    program.chosen = [=, &program] {
      const auto cpu = open_device("cpu");
      std::cout << build_text() << "\n";
      line("compiler", kCompiler);
      line("kernels", fmt::format("{}, ABI {} (of plug-ins too)", program.kernels.size(), kKernelAbiVersion));
      describe(*cpu, *measure);
      const DeviceProbe probe = probe_devices();
      if (probe.cuda_devices == 0) {
        std::cout << "device cuda\n";
        line("absent", probe.cuda_reason);
        if (!built_with_cuda(program.kernels))
          line("to have it",
               "build anew with nvcc: CUDACXX=/path/to/nvcc cmake -B NEW_FOLDER -DATTNBENCH_CUDA=ON, or "
               "CUDACXX=/path/to/nvcc pip install --force-reinstall .");
      }
      for (int i = 0; i < probe.cuda_devices; ++i) {
        try {
          describe(*open_device(fmt::format("cuda:{}", i)), *measure);
        } catch (const DeviceError& e) {
          std::cout << fmt::format("device cuda:{}\n  broken       {}\n", i, e.what());
        }
      }
      try {
        if (*measure && probe.cuda_devices > 1) describe_links(probe.cuda_devices);
      } catch (const Error& e) {
        line("broken", e.what());
      }
      return 0;
    };
  });
}

}  // namespace attnbench::cli
