// Nsight's command-line tools: where they are, how they are called, what they left.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace attnbench::cli {

/// The tool "ncu" or "nsys": in PATH, under CUDA_HOME and CUDA_PATH, /usr/local/cuda/bin, or the newest under
/// /opt/nvidia/nsight-compute and /opt/nvidia/nsight-systems.
std::optional<std::string> find_profiler(const std::string& tool);

struct ProfilerCall {
  std::string tool;               ///< "ncu" or "nsys"
  std::string path;               ///< how it is started
  std::filesystem::path report;   ///< without the extension that the tool adds
  std::string kernels;            ///< regular expression of device kernels; empty: all of the launches
  std::string sections = "full";  ///< ncu --set
};

/// The tool's command line round `program`: only what is launched inside the NVTX range "launch" of the
/// domain attnbench, between cudaProfilerStart and cudaProfilerStop, is profiled. Clocks stay as they are.
std::vector<std::string> profiler_command(const ProfilerCall& call, const std::vector<std::string>& program);

/// "x.ncu-rep", "x.nsys-rep".
std::filesystem::path profiler_report(const ProfilerCall& call);

/// A shell line of it: what is not plain is quoted.
std::string shell_line(const std::vector<std::string>& args);

/// Runs it and waits; its exit code, 128 + N where signal N ended it, 127 where it could not be started.
int run_command(const std::vector<std::string>& args);
/// The same with its standard output in `out`.
int run_command(const std::vector<std::string>& args, std::string& out);

}  // namespace attnbench::cli
