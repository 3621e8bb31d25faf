#include "harness/cli/trace_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>

#include "harness/cli/common.h"
#include "harness/cli/usage_error.h"
#include "harness/interop/outputs.h"
#include "harness/results/files.h"
#include "harness/results/text.h"

namespace attnbench::cli {

FlashinferTrace load_trace(const std::string& path, uint64_t seed, bool said) {
  if (!is_flashinfer_trace(path)) {
    throw UsageError(fmt::format(
        "{}: this is a folder; a sweep file is required, or the folder of a FlashInfer trace, with definitions/ and "
        "workloads/",
        path));
  }
  FlashinferTrace trace = read_flashinfer_trace(path, seed);
  if (said) return trace;
  std::cerr << fmt::format("{}: {} of a FlashInfer trace make {}\n", path,
                           counted(std::ssize(trace.workloads), "workload"),
                           counted(std::ssize(trace.cases), "case"));
  constexpr std::size_t kMostErrors = 20;
  const std::size_t shown = std::min(kMostErrors, trace.errors.size());
  for (std::size_t i = 0; i < shown; ++i) std::cerr << trace.errors[i] << '\n';
  if (!trace.errors.empty()) {
    std::cerr << fmt::format("{}: error: {} of the trace cannot be read ({} above); the rest is taken\n",
                             path, counted(std::ssize(trace.errors), "part"), shown);
  }
  for (const auto& [reason, count] : trace.skipped) {
    std::cerr << error_line(fmt::format("{}: {} skipped: {}", path, counted(count, "workload"), reason))
              << "\n";
  }
  return trace;
}

std::string trace_name(const std::string& path) {
  const std::filesystem::path p = std::filesystem::absolute(path).lexically_normal();
  return p.filename().empty() ? p.parent_path().filename().string() : p.filename().string();
}

std::filesystem::path write_evaluations(std::span<const FlashinferTrace> traces,
                                        const std::filesystem::path& dir, const RunContext& context,
                                        std::span<const Record> records) {
  std::filesystem::path path = dir / "flashinfer_trace.jsonl";
  std::string lines;
  int64_t untimed = 0;
  for (const FlashinferTrace& trace : traces) {
    const Evaluations e = evaluations_of(trace, records, context);
    lines += e.lines;
    untimed += e.untimed;
  }
  write_file_atomically(path, lines);
  if (untimed > 0) {
    std::cerr << fmt::format("{}: {} left out: the schema requires a time of what passed\n", path.string(),
                             counted(untimed, "right result"));
  }
  return path;
}

int judge_captured_outputs(std::span<const Case> cases, CheckMode mode, bool quiet) {
  int code = 0;
  for (const Case& c : cases) {
    const auto v = c.params.captured ? judge_captured(c, mode) : std::nullopt;
    if (!v) continue;
    const bool right = v->pass && v->accepts.empty();
    if (right && quiet) continue;
    std::string text = fmt::format("{}: captured {}: {}", c.file,
                                   (v->declared->waived & kNoLse) != 0 ? "out" : "out and lse",
                                   right     ? "right"
                                   : v->pass ? "undecided"
                                             : "wrong");
    if (!right) {
      const std::string reason =
          v->pass ? fmt::format("{} would pass, too", fmt::join(v->accepts, " and ")) : v->reason;
      text = shorten_end(
          fmt::format("{} (attnbench check {} says more): {}", text, shell_word(c.file), reason), 500);
      code = 1;
    }
    std::cerr << text << "\n";
  }
  return code;
}

}  // namespace attnbench::cli
