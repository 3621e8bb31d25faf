// Writes results in the form of FlashInfer traces.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/interop/flashinfer_trace.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;

/// JSON has no NaN and no infinity; the schema writes them as texts.
Json error_number(double x) {
  if (std::isnan(x)) return "NaN";
  if (std::isinf(x)) return "Infinity";
  return x;
}

/// The status of the schema; empty if it has none for this record.
const char* status_text(const Record& r) {
  switch (r.status) {
    case Status::kPass:
      return r.time ? "PASSED" : "";
    case Status::kFail:
    case Status::kUndecided:  // the schema has no word for it; the log has the reason
      return "INCORRECT_NUMERICAL";
    case Status::kError:
      return "RUNTIME_ERROR";
    case Status::kTimeout:
      return "TIMEOUT";
    default:
      return "";
  }
}

Json environment_of(const RunContext& context) {
  std::string hardware = context.device.kind == DeviceKind::kCuda ? context.device.model : context.cpu_model;
  std::ranges::replace(hardware, ' ', '_');
  Json libs = {{"attnbench", context.version}};
  if (!context.device.runtime.empty()) libs["cuda"] = context.device.runtime;
  return {{"hardware", hardware.empty() ? "unknown" : valid_utf8(hardware)}, {"libs", std::move(libs)}};
}

std::string log_of(const Record& r) {
  std::string log = reason_text(r);
  if (r.check) {
    for (const std::string& clue : r.check->clues) log += "\n" + clue;
  }
  if (!r.log.empty()) log += "\n" + r.log;
  if (!r.repro.empty()) log += (log.empty() ? "" : "\n") + ("reproduce: " + r.repro);
  return valid_utf8(log);
}

Json evaluation_of(const Record& r, const char* status, const RunContext& context) {
  Json e = {{"status", status},
            {"environment", environment_of(context)},
            {"timestamp", context.date},
            {"log", log_of(r)}};
  e["correctness"] = nullptr;
  e["performance"] = nullptr;
  if (r.status == Status::kPass || r.status == Status::kFail) {
    // Where the check failed before it compared a row, or was off, no error is known.
    const bool known = r.check && (r.check->pass || r.check->rows > 0);
    e["correctness"] = {{"max_relative_error", error_number(known ? r.check->max_rel : NAN)},
                        {"max_absolute_error", error_number(known ? r.check->max_abs : NAN)}};
  }
  if (r.status == Status::kPass && r.time) {
    // The schema's 0 stands for what was not measured: attnbench does not time the definition's own code.
    e["performance"] = {
        {"latency_ms", r.time->median_us / 1000}, {"reference_latency_ms", 0.0}, {"speedup_factor", 0.0}};
  }
  return e;
}

}  // namespace

Evaluations evaluations_of(const FlashinferTrace& trace, std::span<const Record> records,
                           const RunContext& context) {
  Evaluations out;
  for (const TraceWorkload& w : trace.workloads) {
    for (const Record& r : records) {
      if (r.item.id != w.case_id || r.kernel.empty()) continue;
      const char* status = status_text(r);
      if (*status == '\0') {
        out.untimed += r.status == Status::kPass || r.status == Status::kInvalidTime;
        continue;
      }
      const Json line = {{"definition", w.definition},
                         {"workload", Json::parse(w.workload)},
                         {"solution", r.kernel},
                         {"evaluation", evaluation_of(r, status, context)}};
      out.lines += line.dump() + "\n";
      ++out.written;
    }
  }
  return out;
}

}  // namespace attnbench
