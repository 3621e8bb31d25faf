#include "harness/selftest/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "harness/facts/verdict.h"
#include "harness/results/fields.h"
#include "harness/results/json.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;
using Outcome = FaultResult::Outcome;

const char* rule_cell(const std::optional<bool>& says) { return !says ? "" : *says ? "pass" : "fail"; }

constexpr std::array<const char*, 6> kColumns = {detector::kPoison, detector::kEmptyRow, detector::kMaxZ,
                                                 detector::kRowZ2,  detector::kBias,     detector::kLse};

/// The detectors without a column of their own (memory, caches, invariants), by name.
std::string others(const std::vector<std::string>& caught_by) {
  std::string text;
  std::vector<std::string> told;
  for (const std::string& d : caught_by) {
    if (std::ranges::find(kColumns, d) != kColumns.end()) continue;
    if (std::ranges::find(told, d) != told.end()) continue;
    told.push_back(d);
    const std::string prefix = detector::kInvariant;
    text += (text.empty() ? "" : ", ") + (d.rfind(prefix, 0) == 0 ? d.substr(prefix.size()) : d);
  }
  return text;
}

/// A failed clean run in a line: "with its inputs copied to other memory: attnbench run ...: O of ...".
std::string failure_line(const CleanFailure& f) {
  return fmt::format("{}{}: {}", f.beside.empty() ? "" : "with " + f.beside + ": ", f.repro, f.reason);
}

}  // namespace

static std::span<const char* const> names_of(Outcome) { return kFaultOutcomeNames; }

static void describe(Fields& f, FaultResult& r) {
  const auto rule = [&f](const char* key, std::optional<bool>& says) {
    std::string word = says ? rule_cell(says) : "";
    f.or_else(nullptr, says.has_value(), key, word);
    if (!word.empty()) says = word == "pass";
  };
  f("name", r.name);
  f("class", r.fault_class);
  f("what", r.what);
  f("kernel", r.kernel);
  f("case", r.item);
  f("outcome", r.outcome);
  f("caught_by", r.caught_by);
  f("reason", r.reason);
  rule("allclose_1e2", r.allclose);
  rule("twice_naive", r.twice_naive);
}

static void describe(Fields& f, CleanFailure& c) {
  f("kernel", c.kernel);
  f("reason", c.reason);
  f("repro", c.repro);
  f("beside", c.beside);
}

static void describe(Fields& f, StepResult& r) {
  f("fault", r.fault);
  f("runs", r.clean.runs);
  f("skipped", r.clean.skipped);
  f("failures", r.clean.failures);
  f("errors", r.clean.errors);
}

Json step_to_json(const StepResult& result) {
  StepResult copy = result;
  Json j;
  return Fields(j, nullptr).written(copy);
}

StepResult step_from_json(const Json& j) {
  StepResult r;
  Fields(j, nullptr, /*whole=*/true).read(j, "step", r);
  return r;
}

Json selftest_to_json(const RunContext& context, const SelftestResult& result) {
  Json j;
  j["context"] = context_to_json(context);
  std::vector<FaultResult> faults = result.faults;
  j["faults"] = Fields(j, nullptr).written(faults);
  Json failures = Json::array();
  for (const CleanFailure& f : result.clean.failures) failures.push_back(failure_line(f));
  j["clean"] = {{"runs", result.clean.runs},
                {"false_alarms", failures.size()},
                {"skipped", result.clean.skipped},
                {"alarms", failures}};
  j["summary"] = {{"caught", result.count(Outcome::kCaught)},
                  {"escaped", result.count(Outcome::kEscaped)},
                  {"not_applicable", result.count(Outcome::kNotApplicable)},
                  {"errors", result.count(Outcome::kError)}};
  if (!result.unfinished.empty()) j["unfinished"] = result.unfinished;
  return j;
}

Json sensitivity_to_json(const RunContext& context, const Kernel& kernel,
                         const std::vector<SensitivityRow>& rows) {
  Json j;
  j["context"] = context_to_json(context);
  j["kernel"] = kernel.name;
  j["op"] = op_name(kernel.op);
  j["sensitivity"] = Json::array();
  for (const SensitivityRow& r : rows) {
    Json& row = j["sensitivity"].emplace_back(Json{{"dtype", r.dtype},
                                                   {"p_type", r.p_type},
                                                   {"case", r.item},
                                                   {"context", r.context},
                                                   {"rows", r.rows},
                                                   {"max_z", r.max_z}});
    for (const Threshold& t : r.faults) {
      row[t.fault] = {{"smallest", t.smallest > 0 ? Json(t.smallest) : Json(nullptr)},
                      {"missed", t.missed > 0 ? Json(t.missed) : Json(nullptr)},
                      {"caught_by", t.caught_by}};
    }
  }
  return j;
}

Json clues_to_json(const RunContext& context, const std::vector<ClueShare>& shares) {
  Json j{{"context", context_to_json(context)}, {"faults", Json::array()}, {"summary", clue_summary(shares)}};
  for (const ClueShare& s : shares) {
    Json& row = j["faults"].emplace_back(Json{{"name", s.fault},
                                              {"kernel", s.kernel},
                                              {"cases", s.cases},
                                              {"named", s.named},
                                              {"misnamed", s.misnamed}});
    if (!s.seen.empty()) row["seen"] = s.seen;
  }
  return j;
}

std::string SelftestResult::clean_text() const {
  // The first failure of each kind, and how many there are.
  std::vector<std::pair<const CleanFailure*, int64_t>> groups;
  for (const CleanFailure& f : clean.failures) {
    const auto known = std::ranges::find_if(
        groups, [&](const auto& g) { return g.first->kernel == f.kernel && g.first->beside == f.beside; });
    if (known == groups.end()) {
      groups.emplace_back(&f, 1);
    } else {
      ++known->second;
    }
  }
  std::string text;
  for (const auto& [first, n] : groups) {
    const std::string runs = n == 1 ? "1 clean run" : fmt::format("{} clean runs", n);
    const bool has_faults =
        std::ranges::any_of(faults, [&f = *first](const FaultResult& r) { return r.kernel == f.kernel; });
    text += first->beside.empty()
                ? fmt::format("{} is wrong without any fault, in {}{}: make `attnbench run` pass first\n",
                              first->kernel, runs, has_faults ? "" : ", so no fault was put into it")
                : fmt::format(
                      "{} passes, but fails with {}, in {}: a false alarm of the checks, or a kernel "
                      "that depends on addresses\n",
                      first->kernel, first->beside, runs);
    text += fmt::format("  {}{}\n  reproduce: {}\n", n == 1 ? "" : "the first: ", one_line(first->reason),
                        one_line(first->repro));
  }
  return text;
}

std::string selftest_summary(const SelftestResult& result) {
  const int64_t caught = result.count(Outcome::kCaught);
  const int64_t applied = static_cast<int64_t>(result.faults.size()) - result.count(Outcome::kNotApplicable);
  if (result.faults.empty()) {
    return fmt::format("{} clean runs, {} failed", result.clean.runs, result.clean.failures.size());
  }
  return fmt::format(
      "{} of {} faults caught ({} more not applicable, listed in the report); {} clean runs, {} failed",
      caught, applied, result.count(Outcome::kNotApplicable), result.clean.runs,
      result.clean.failures.size());
}

void write_selftest_markdown(std::ostream& out, const SelftestResult& result) {
  out << "| class | fault | the wrong kernel | kernel |";
  for (const char* c : kColumns) out << " " << c << " |";
  out << " memory, invariants | allclose 1e-2 | twice naive |\n|---|---|---|---|";
  for (std::size_t i = 0; i < kColumns.size(); ++i) out << ":-:|";
  out << "---|---|---|\n";
  for (const FaultResult& f : result.faults) {
    out << fmt::format("| {} | `{}` | {} | {} |", f.fault_class, f.name, f.what, f.kernel);
    if (f.outcome != Outcome::kCaught) {
      for (std::size_t i = 0; i < kColumns.size(); ++i) out << " |";
      out << fmt::format(" **{}**{}{} |", outcome_name(f.outcome), f.reason.empty() ? "" : ": ", f.reason);
    } else {
      for (const char* c : kColumns) {
        const bool saw = std::ranges::find(f.caught_by, c) != f.caught_by.end();
        out << (saw ? " x |" : " |");
      }
      out << " " << others(f.caught_by) << " |";
    }
    out << fmt::format(" {} | {} |\n", rule_cell(f.allclose), rule_cell(f.twice_naive));
  }
  const auto passed = [&](std::optional<bool> FaultResult::*rule) {
    return std::ranges::count_if(result.faults, [&](const FaultResult& f) {
      return f.outcome != Outcome::kNotApplicable && (f.*rule).value_or(false);
    });
  };
  out << "\n" << selftest_summary(result) << ".";
  if (!result.faults.empty()) {
    out << fmt::format(
        " allclose(1e-2, 1e-2) of O passes {} of the faults, the rule of twice the naive error {}.",
        passed(&FaultResult::allclose), passed(&FaultResult::twice_naive));
  }
  out << "\n";
  if (!result.unfinished.empty()) out << "\nunfinished: " << result.unfinished << "\n";
  for (const CleanFailure& f : result.clean.failures)
    out << "\nfailed without a fault: " << failure_line(f) << "\n";
}

}  // namespace attnbench
