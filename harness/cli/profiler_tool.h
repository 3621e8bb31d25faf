// Nsight's command-line tools: how to find them, how to call them, and what they write.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace attnbench::cli {

/// Path of the tool "ncu" or "nsys". It is searched in PATH, under CUDA_HOME and CUDA_PATH, in
/// /usr/local/cuda/bin, and in the newest version under /opt/nvidia/nsight-compute and
/// /opt/nvidia/nsight-systems.
std::optional<std::string> find_profiler(const std::string& tool);

struct ProfilerCall {
  std::string tool;               ///< "ncu" or "nsys"
  std::string path;               ///< the command that starts it
  std::filesystem::path report;   ///< without the extension that the tool adds
  std::string kernels;            ///< regular expression of device kernels; empty: all in the launches
  std::string sections = "full";  ///< ncu --set
};

/// The tool's command line with `program` as its target. It profiles only launches inside the NVTX range
/// "launch" of the domain attnbench, between cudaProfilerStart and cudaProfilerStop. Clocks are not changed.
std::vector<std::string> profiler_command(const ProfilerCall& call, const std::vector<std::string>& program);

/// The file that the tool writes: "x.ncu-rep", "x.nsys-rep".
std::filesystem::path profiler_report(const ProfilerCall& call);

/// The arguments as a shell line; words that are not plain are quoted.
std::string shell_line(const std::vector<std::string>& args);

/// Runs a command and waits. Returns its exit code, 128 + N if signal N ended it, 127 if it could not be
/// started.
int run_command(const std::vector<std::string>& args);
/// The same, with its standard output in `out`.
int run_command(const std::vector<std::string>& args, std::string& out);

}  // namespace attnbench::cli
