// Measurements of Nsight Compute, read from `ncu --import FILE --csv --page raw`, and the few figures that
// matter for an attention kernel.
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
  std::string kernel;                        ///< "Kernel Name"
  std::map<std::string, double> metrics;     ///< in base units (bytes, seconds, ratios in percent, as in ncu)
  std::map<std::string, std::string> words;  ///< cells that are not numbers, such as "Block Size"
};

/// Skips lines before the table ("==PROF== ..."). Throws Error, which says what is wrong, if there is no
/// table.
std::vector<NcuLaunch> parse_ncu_csv(std::string_view text);

/// Figures of one launch. Names of metrics differ between GPUs and versions, so each figure is the first
/// metric that exists; nullopt if none does.
struct NcuFigures {
  std::optional<double> duration_us;
  std::optional<double> dram_read_bytes, dram_written_bytes;
  std::optional<double> tensor_percent;           ///< share of cycles in which the tensor pipe was busy
  std::optional<double> occupancy_percent;        ///< resident warps, as a share of what the SM can hold
  std::optional<double> occupancy_limit_percent;  ///< limit set by registers and shared memory
  std::optional<double> l2_hit_percent;
  std::optional<double> registers;  ///< per thread
  std::vector<std::pair<std::string, double>>
      stalls;  ///< reason and percent of all stall cycles, largest first
};
NcuFigures ncu_figures(const NcuLaunch& launch);

/// The figures of all launches, as text for a terminal. `model_bytes`: least traffic of one launch by the
/// model; 0: unknown. `launches`: how often the case was launched; one launch may run several device kernels.
std::string ncu_summary(const std::vector<NcuLaunch>& kernels, double model_bytes, int launches);

}  // namespace attnbench
