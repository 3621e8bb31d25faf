#include "harness/fuzz/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/report/console.h"
#include "harness/report/summary.h"
#include "harness/report/table.h"
#include "harness/results/json.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;

/// Most reasons in the table; the JSON has all.
constexpr std::size_t kReasonsShown = 3;
/// Longest `attnbench run` line of a skipped case in the table, in characters.
constexpr std::size_t kLongestLine = 500;

/// Refusals by number of cases, the most frequent first.
std::vector<Refusals> by_count(const std::map<std::string, Refusals>& refusals) {
  std::vector<Refusals> out;
  for (const auto& [reason, alike] : refusals) out.push_back(alike);
  std::ranges::stable_sort(out, [](const Refusals& a, const Refusals& b) { return a.cases > b.cases; });
  return out;
}

/// Turns "block_size=16", "block_size=64" into {"block_size": ["16", "64"], ...}.
Json values_by_key(const std::set<std::string>& features) {
  Json values = Json::object();
  for (const std::string& f : features) {
    const std::size_t equals = f.find('=');
    values[f.substr(0, equals)].push_back(f.substr(equals + 1));
  }
  return values;
}

Json tally_to_json(const FuzzTally& t) {
  Json refusals = Json::array();
  for (const Refusals& r : by_count(t.refusals))
    refusals.push_back({{"reason", r.reason}, {"cases", r.cases}, {"id", r.id}, {"repro", r.repro}});
  return {{"kernel", t.kernel->name},
          {"op", op_name(t.kernel->op)},
          {"ran", t.ran},
          {"with_invariants", t.invariants},
          {"skipped", t.skipped},
          {"failed", t.failed},
          {"features", t.features.size()},
          {"values", values_by_key(t.features)},
          {"refusals", refusals}};
}

Json finding_to_json(const Finding& f) {
  Json like = Json::array();
  for (const Record& r : f.like)
    like.push_back({{"id", r.item.id}, {"reason", r.reason}, {"repro", r.repro}});
  return {{"kernel", f.kernel->name},  {"op", op_name(f.kernel->op)},
          {"id", f.record.item.id},    {"status", status_name(f.record.status)},
          {"reason", f.record.reason}, {"repro", f.record.repro},
          {"found_as", f.found_as},    {"clues_as_found", f.clues_as_found},
          {"repeats", f.repeats},      {"tries", f.tries},
          {"run_again", f.run_again},  {"failed_again", f.failed_again},
          {"alike", f.alike},          {"like", like}};
}

}  // namespace

nlohmann::ordered_json fuzz_to_json(const RunContext& context, const FuzzOptions& options,
                                    const FuzzResult& result) {
  Json kernels = Json::array(), findings = Json::array();
  for (const FuzzTally& t : result.kernels) kernels.push_back(tally_to_json(t));
  for (const Finding& f : result.findings) findings.push_back(finding_to_json(f));
  return {{"context", context_to_json(context)},      {"seed", options.seed}, {"seconds", result.seconds},
          {"cases", result.ran() + result.skipped()}, {"kernels", kernels},   {"findings", findings}};
}

void print_finding(std::ostream& out, const Finding& f, std::size_t number) {
  out << fmt::format("finding {}: {}: {}: {}\n", number, f.kernel->name, status_name(f.record.status),
                     one_line(reason_text(f.record)));
  print_details(out, f.record);
  out << fmt::format("  reproduce: {}\n", f.record.repro);
  const char* time =
      "a race, memory that is read before it is written, or something that an earlier case left";
  if (!f.repeats) {
    out << fmt::format(
        "  it failed once and not again in the same case, so it was not shrunk: it depends on {}\n", time);
    return;
  }
  out << fmt::format("  shrunk in {} runs from {}\n", f.tries, f.found_as);
  for (const std::string& clue : f.clues_as_found)
    out << fmt::format("  that larger case {}\n", one_line(clue));
  if (f.failed_again < f.run_again)
    out << fmt::format("  it fails in {} of {} more runs of this case: it depends on {}\n", f.failed_again,
                       f.run_again, time);
}

void print_finding_like(std::ostream& out, const Record& record, std::size_t number) {
  out << fmt::format("like finding {}: {}: {}: {}\n  reproduce: {}\n", number, record.kernel,
                     status_name(record.status), one_line(reason_text(record)), record.repro);
}

void print_fuzz_table(std::ostream& out, const FuzzResult& result, std::size_t width) {
  std::vector<TableRow> rows;
  for (const FuzzTally& t : result.kernels) {
    const auto n = [](int64_t count) { return std::to_string(count); };
    rows.push_back({{t.kernel->name, op_name(t.kernel->op), n(t.ran), n(t.invariants), n(t.skipped),
                     n(t.failed), std::to_string(t.features.size())},
                    t.failed > 0 ? Colour::kRed : Colour::kNone,
                    ""});
  }
  print_table(out,
              {{"kernel", Align::kLeft},
               {"op", Align::kLeft},
               {"ran"},
               {"invariants"},
               {"skipped"},
               {"failed"},
               {"values"}},
              rows, {width, false});
  out << "invariants: cases that ran with invariants, too; values: different values of sweep keys in the cases that "
         "ran\n";
  for (const FuzzTally& t : result.kernels) {
    const std::vector<Refusals> reasons = by_count(t.refusals);
    for (std::size_t i = 0; i < std::min(kReasonsShown, reasons.size()); ++i) {
      const auto& [count, reason, repro, id] = reasons[i];
      const std::string line =
          one_line(repro.size() <= kLongestLine ? repro : id + " (its long line is in fuzz.json of --out)");
      out << fmt::format("{:.0f} % of the skips of {} ({}){}: {}\n  a skipped case: {}\n",
                         100.0 * static_cast<double>(count) / static_cast<double>(t.skipped), t.kernel->name,
                         op_name(t.kernel->op), count > 1 ? ", for example" : "", one_line(reason), line);
    }
  }
}

std::string fuzz_summary(const FuzzOptions& options, const FuzzResult& result) {
  int64_t failed = 0;
  for (const FuzzTally& t : result.kernels) failed += t.failed;
  std::string text =
      fmt::format("seed {}: {} ran, {} skipped, {} failed ({} distinct) in {:.0f} s", options.seed,
                  result.ran(), result.skipped(), failed, result.findings.size(), result.seconds);
  if (result.gave_up)
    text += fmt::format("; ended before {} ran, because {} were skipped for each of them",
                        options.cases == 1 ? "1 case" : fmt::format("{} cases", options.cases),
                        kMostSkipsPerCase);
  return text;
}

}  // namespace attnbench
