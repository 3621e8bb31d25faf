#include "harness/report/compare_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <vector>

#include "harness/config/json_number.h"
#include "harness/report/compare_print.h"
#include "harness/report/junit.h"
#include "harness/results/json.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

constexpr std::size_t kAnnotations = 10;  ///< annotations of one kind that GitHub shows per step

std::string name_of(const CompareRow& r) {
  const std::string& kernel = r.new_kernel.empty() ? r.base_kernel : r.new_kernel;
  return kernel.empty() ? r.id : r.id + "/" + kernel;
}

/// "slower: 105.0 us against 100.0 us, +5.00 % (+4.10 .. +5.90)"
std::string sentence(const CompareRow& r) {
  std::string text = change_name(r.change);
  if (r.base_us && r.new_us)
    text += fmt::format(": {} against {}", time_text(*r.new_us), time_text(*r.base_us));
  if (r.ratio) text += fmt::format(", {:+.2f} %", 100 * (*r.ratio - 1));
  if (r.lo && r.hi) text += fmt::format(" ({})", interval_text(*r.lo, *r.hi));
  if (!r.note.empty()) text += "; " + r.note;
  return text;
}

std::string escaped(std::string_view text, bool property) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    const bool special = c == '%' || c == '\r' || c == '\n' || (property && (c == ':' || c == ','));
    out += special ? fmt::format("%{:02X}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return out;
}

}  // namespace

void write_compare_json(std::ostream& out, const CompareResult& result, const CompareOptions& options) {
  nlohmann::ordered_json j;
  j["summary"] = compare_summary(result);
  j["exit_code"] = compare_exit_code(result, options);
  j["interrupted"] = result.interrupted;
  j["stopped"] = valid_utf8(result.stopped);
  j["min_effect"] = options.min_effect;
  j["as_sol"] = result.as_sol;
  j["counts"] = nlohmann::ordered_json::object();
  for (const auto& [change, n] : result.counts) j["counts"][change_name(change)] = n;
  j["geomean"] = finite_or_null(result.geomean);
  j["sweeps"] = nlohmann::ordered_json::array();
  for (const SweepMean& s : result.sweeps) {
    j["sweeps"].push_back({{"sweep", s.sweep}, {"geomean", s.geomean}, {"compared", s.compared}});
  }
  j["us_per_token"] = nlohmann::ordered_json::array();
  for (const TokenChange& t : result.tokens) {
    j["us_per_token"].push_back({{"replay", valid_utf8(t.group)},
                                 {"base_kernel", valid_utf8(t.base_kernel)},
                                 {"new_kernel", valid_utf8(t.new_kernel)},
                                 {"base", t.base_us},
                                 {"new", t.new_us},
                                 {"ratio", t.ratio},
                                 {"lo", t.lo},
                                 {"hi", t.hi}});
  }
  j["rows"] = nlohmann::ordered_json::array();
  for (const CompareRow& r : result.rows) {
    nlohmann::ordered_json row;
    row["id"] = r.id;
    row["sweep"] = r.sweep;
    row["base_kernel"] = r.base_kernel;
    row["new_kernel"] = r.new_kernel;
    row["verdict"] = change_name(r.change);
    row["base_us"] = finite_or_null(r.base_us);
    row["new_us"] = finite_or_null(r.new_us);
    row["ratio"] = finite_or_null(r.ratio);
    row["lo"] = finite_or_null(r.lo);
    row["hi"] = finite_or_null(r.hi);
    row["p"] = finite_or_null(r.p);
    row["within"] = finite_or_null(r.within);
    row["not_slower"] = r.not_slower;
    row["runs_left_out"] = r.left_out.base + r.left_out.fresh;
    row["note"] = r.note;
    if (!r.clues.empty()) row["clues"] = r.clues;
    row["repro"] = r.repro;
    j["rows"].push_back(std::move(row));
  }
  out << dump_json(j, 2) << '\n';
}

void write_compare_junit(std::ostream& out, const CompareResult& result, const CompareOptions& options) {
  std::vector<JunitSuite> suites;
  for (const CompareRow& r : result.rows) {
    JunitSuite& s = suite_of(suites, r.sweep.empty() ? "compare" : r.sweep);
    ++s.tests;
    std::string class_name = "attnbench." + (r.sweep.empty() ? std::string("compare") : r.sweep);
    std::replace(class_name.begin() + 10, class_name.end(), '.', '_');
    s.xml += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.6f}\">\n",
                         xml_text(class_name), xml_text(name_of(r)), r.new_us.value_or(0) * 1e-6);
    if (row_fails(r, options)) {
      s.add_problem(r.change == Change::kError ? "error" : "failure", change_name(r.change), sentence(r),
                    r.clues, r.repro);
    } else if (r.change == Change::kInconclusive || r.change == Change::kNotCompared) {
      s.add_skipped(sentence(r));
    } else {
      s.xml += fmt::format("      <system-out>{}</system-out>\n", xml_text(sentence(r)));
    }
    s.xml += "    </testcase>\n";
  }
  if (result.interrupted) {  // what is not there must not pass for green
    suites.push_back({"gate", "",
                      fmt::format("    <testcase classname=\"attnbench.gate\" name=\"interrupted\">\n      "
                                  "<error message=\"{}\" type=\"interrupted\"/>\n    </testcase>\n",
                                  xml_text(result.stopped)),
                      1, 0, 1});
  }
  write_junit_suites(out, "attnbench compare", "", suites);
}

std::string github_command(std::string_view kind, std::string_view title, std::string_view message) {
  return fmt::format("::{} title={}::{}\n", kind, escaped(title, true), escaped(message, false));
}

void write_compare_github(std::ostream& out, const CompareResult& result, const CompareOptions& options) {
  std::vector<const CompareRow*> errors, warnings;
  for (const CompareRow& r : result.rows) {
    if (row_fails(r, options) && r.change != Change::kInconclusive) {
      errors.push_back(&r);
    } else if (r.change == Change::kInconclusive) {
      warnings.push_back(&r);
    }
  }
  const auto write = [&](const char* kind, const std::vector<const CompareRow*>& rows) {
    for (std::size_t i = 0; i < rows.size() && i < kAnnotations; ++i) {
      const bool last = i + 1 == kAnnotations && rows.size() > kAnnotations;
      std::string message = sentence(*rows[i]);
      for (const std::string& clue : rows[i]->clues) message += "\n" + clue;
      if (!rows[i]->repro.empty()) message += "\nreproduce: " + rows[i]->repro;
      if (last) message += fmt::format("\nand {} more", rows.size() - kAnnotations);
      out << github_command(kind, "attnbench: " + name_of(*rows[i]), message);
    }
  };
  write("error", errors);
  write("warning", warnings);
  if (result.interrupted) out << github_command("error", "attnbench", result.stopped);
  out << github_command("notice", "attnbench",
                        compare_summary(result) + (result.stopped.empty() ? "" : "; " + result.stopped));
}

}  // namespace attnbench
