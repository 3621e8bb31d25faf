// What Nsight Compute measured, read from `ncu --import FILE --csv --page raw`, and the few figures of it
// that matter for an attention kernel.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attnbench {

/// One launch of one device kernel.
struct NcuLaunch {
  std::string kernel;  ///< "Kernel Name"
  std::map<std::string, double>
      metrics;  ///< in base units (bytes, seconds, ratios in percent as ncu has them)
  std::map<std::string, std::string> words;  ///< cells that are no numbers, such as "Block Size"
};

/// Lines before the table ("==PROF== ...") are passed over. Throws Error, with what is wrong,
/// where there is no table.
std::vector<NcuLaunch> parse_ncu_csv(std::string_view text);

/// Names of metrics differ between GPUs and versions: each figure is the first that is there, nullopt where
/// none is.
struct NcuFigures {
  std::optional<double> duration_us;
  std::optional<double> dram_read_bytes, dram_written_bytes;
  std::optional<double> tensor_percent;           ///< of cycles in which the tensor pipe was busy
  std::optional<double> occupancy_percent;        ///< warps that were resident, of what the SM can hold
  std::optional<double> occupancy_limit_percent;  ///< what registers and shared memory allow
  std::optional<double> l2_hit_percent;
  std::optional<double> registers;  ///< per thread
  std::vector<std::pair<std::string, double>>
      stalls;  ///< reason, percent of all stall cycles; the largest first
};
NcuFigures ncu_figures(const NcuLaunch& launch);

/// The figures of all launches for a terminal. `model_bytes`: least traffic of one launch by the model; 0:
/// unknown. `launches`: how many times the case was launched, each of which may consist of several kernels.
std::string ncu_summary(const std::vector<NcuLaunch>& kernels, double model_bytes, int launches);

}  // namespace attnbench
