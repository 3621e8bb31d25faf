#include "harness/selftest/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "harness/error.h"
#include "harness/facts/verdict.h"
#include "harness/results/json.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;
using Outcome = FaultResult::Outcome;

Json rule_to_json(const std::optional<bool>& says) {
  return says ? Json(*says ? "pass" : "fail") : Json(nullptr);
}

const char* rule_cell(const std::optional<bool>& says) { return !says ? "" : *says ? "pass" : "fail"; }

constexpr std::array<const char*, 6> kColumns = {detector::kPoison, detector::kEmptyRow, detector::kMaxZ,
                                                 detector::kRowZ2,  detector::kBias,     detector::kLse};

/// The detectors without a column of their own (memory, caches, invariants), by name.
std::string others(const std::vector<std::string>& caught_by) {
  std::string text;
  std::vector<std::string> told;
  for (const std::string& d : caught_by) {
    if (std::find(kColumns.begin(), kColumns.end(), d) != kColumns.end()) continue;
    if (std::find(told.begin(), told.end(), d) != told.end()) continue;
    told.push_back(d);
    const std::string prefix = detector::kInvariant;
    text += (text.empty() ? "" : ", ") + (d.rfind(prefix, 0) == 0 ? d.substr(prefix.size()) : d);
  }
  return text;
}

std::optional<bool> rule_from_json(const Json& says) {
  return says.is_null() ? std::nullopt : std::optional(says == "pass");
}

Json fault_to_json(const FaultResult& f) {
  return {{"name", f.name},
          {"class", f.fault_class},
          {"what", f.what},
          {"kernel", f.kernel},
          {"case", f.item},
          {"outcome", outcome_name(f.outcome)},
          {"caught_by", f.caught_by},
          {"reason", f.reason},
          {"allclose_1e2", rule_to_json(f.allclose)},
          {"twice_naive", rule_to_json(f.twice_naive)}};
}

/// A failed clean run in a line: "with its inputs copied to other memory: attnbench run ...: O of ...".
std::string failure_line(const CleanFailure& f) {
  return fmt::format("{}{}: {}", f.beside.empty() ? "" : "with " + f.beside + ": ", f.repro, f.reason);
}

FaultResult fault_from_json(const Json& j) {
  FaultResult f;
  j.at("name").get_to(f.name);
  j.at("class").get_to(f.fault_class);
  j.at("what").get_to(f.what);
  j.at("kernel").get_to(f.kernel);
  j.at("case").get_to(f.item);
  j.at("caught_by").get_to(f.caught_by);
  j.at("reason").get_to(f.reason);
  f.allclose = rule_from_json(j.at("allclose_1e2"));
  f.twice_naive = rule_from_json(j.at("twice_naive"));
  for (const Outcome o : {Outcome::kCaught, Outcome::kEscaped, Outcome::kNotApplicable, Outcome::kError}) {
    if (j.at("outcome") != outcome_name(o)) continue;
    f.outcome = o;
    return f;
  }
  throw Error("no outcome: " + j.at("outcome").dump(), kExitFailure);
}

}  // namespace

Json step_to_json(const StepResult& r) {
  Json failures = Json::array();
  for (const CleanFailure& f : r.clean.failures)
    failures.push_back(
        {{"kernel", f.kernel}, {"reason", f.reason}, {"repro", f.repro}, {"beside", f.beside}});
  return {{"fault", r.fault ? fault_to_json(*r.fault) : Json(nullptr)},
          {"runs", r.clean.runs},
          {"skipped", r.clean.skipped},
          {"failures", failures},
          {"errors", r.clean.errors}};
}

StepResult step_from_json(const Json& j) {
  StepResult r;
  if (!j.at("fault").is_null()) r.fault = fault_from_json(j.at("fault"));
  j.at("runs").get_to(r.clean.runs);
  j.at("skipped").get_to(r.clean.skipped);
  for (const Json& f : j.at("failures"))
    r.clean.failures.push_back({f.at("kernel").get<std::string>(), f.at("reason").get<std::string>(),
                                f.at("repro").get<std::string>(), f.at("beside").get<std::string>()});
  j.at("errors").get_to(r.clean.errors);
  return r;
}

Json selftest_to_json(const RunContext& context, const SelftestResult& result) {
  Json j;
  j["context"] = context_to_json(context);
  j["faults"] = Json::array();
  for (const FaultResult& f : result.faults) j["faults"].push_back(fault_to_json(f));
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

std::string SelftestResult::clean_text() const {
  // The first failure of each kind, and how many there are.
  std::vector<std::pair<const CleanFailure*, int64_t>> groups;
  for (const CleanFailure& f : clean.failures) {
    const auto known = std::find_if(groups.begin(), groups.end(), [&](const auto& g) {
      return g.first->kernel == f.kernel && g.first->beside == f.beside;
    });
    if (known == groups.end()) {
      groups.emplace_back(&f, 1);
    } else {
      ++known->second;
    }
  }
  std::string text;
  for (const auto& [first, n] : groups) {
    const std::string runs = n == 1 ? "1 clean run" : fmt::format("{} clean runs", n);
    const bool has_faults = std::any_of(faults.begin(), faults.end(),
                                        [&f = *first](const FaultResult& r) { return r.kernel == f.kernel; });
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
        const bool saw = std::find(f.caught_by.begin(), f.caught_by.end(), c) != f.caught_by.end();
        out << (saw ? " x |" : " |");
      }
      out << " " << others(f.caught_by) << " |";
    }
    out << fmt::format(" {} | {} |\n", rule_cell(f.allclose), rule_cell(f.twice_naive));
  }
  const auto passed = [&](std::optional<bool> FaultResult::*rule) {
    return std::count_if(result.faults.begin(), result.faults.end(), [&](const FaultResult& f) {
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
