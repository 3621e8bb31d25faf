#include "harness/report/kernel_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "harness/compare/token_time.h"
#include "harness/report/markdown.h"
#include "harness/report/summary.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

bool is_timed(const Record& r) { return r.status == Status::kPass && r.median_us() && r.time->median_us > 0; }

/// A time that `run` marks with ? or ! is shown, but is compared with no other.
bool is_usable(const Record& r) { return is_timed(r) && !r.time->vague(); }
bool counts(const Record& r) { return is_timed(r) && is_ranked(*r.time); }

/// What a run says of one kernel.
struct KernelColumn {
  std::string name;
  int fastest = 0, compared = 0;  ///< of cases that another kernel has a time that counts of, too
  int disturbed = 0;              ///< cases that would be compared, but others took the cores meanwhile
  double logs = 0;  ///< sum over `compared` of the logarithm of its time over the fastest kernel's
  std::map<std::string, int> skips;
  std::vector<const Record*> failures;

  double slowdown() const { return compared > 0 ? std::exp(logs / compared) : HUGE_VAL; }
};

/// The results of a case by kernel. A case on two devices is two rows.
struct MatrixRow {
  std::map<std::string, const Record*> of;
  const Record* fastest = nullptr;         ///< of those whose time counts
  int timed = 0, usable = 0, counted = 0;  ///< kernels that have a time, a usable one, and one that counts
};

using MatrixRows = std::vector<std::pair<std::pair<std::string, std::string>, MatrixRow>>;

MatrixRows rows_of(const ResultSet& run) {
  MatrixRows rows;
  for (const Record& r : run.results) {
    const std::pair key(r.item.id, r.device);
    auto row = std::find_if(rows.rbegin(), rows.rend(), [&](const auto& x) { return x.first == key; });
    if (row == rows.rend()) {
      rows.emplace_back(key, MatrixRow{});
      row = rows.rbegin();
    }
    MatrixRow& found = row->second;
    found.of[r.kernel] = &r;
    found.timed += is_timed(r);
    found.usable += is_usable(r);
    found.counted += counts(r);
    if (counts(r) && (found.fastest == nullptr || r.time->median_us < found.fastest->time->median_us)) {
      found.fastest = &r;
    }
  }
  return rows;
}

/// Whether the intervals of the two times overlap, so that the faster one may be so by chance.
bool is_tied(const Record& r, const Record& fastest) {
  return &r != &fastest && r.time->lo_us <= fastest.time->upper_us();
}

std::string cell_of(const Record* r, const MatrixRow& row) {
  if (r == nullptr) return "-";
  if (!is_timed(*r)) return std::string(status_name(r->status));
  std::string time =
      time_text(r->time->median_us) + (r->time->busy() ? "!" : "") + (r->time->vague() ? "?" : "");
  if (!counts(*r)) return time;
  return fmt::format("{} {}{}x", time, is_tied(*r, *row.fastest) ? "~" : "",
                     digits(r->time->median_us / row.fastest->time->median_us, 3));
}

std::vector<KernelColumn> columns_of(const ResultSet& run, const MatrixRows& rows) {
  std::vector<KernelColumn> columns;
  const auto column = [&columns](const std::string& name) -> KernelColumn& {
    const auto c = std::ranges::find_if(columns, [&](const KernelColumn& x) { return x.name == name; });
    if (c != columns.end()) return *c;
    columns.push_back({name, 0, 0, 0, 0, {}, {}});
    return columns.back();
  };
  for (const Record& r : run.results) {
    KernelColumn& c = column(r.kernel);
    if (r.status == Status::kSkip) ++c.skips[r.reason];
    if (needs_attention(r.status)) c.failures.push_back(&r);
  }
  for (const auto& [key, row] : rows) {
    if (row.usable < 2) continue;
    for (const auto& [name, r] : row.of) {
      if (!is_usable(*r)) continue;
      KernelColumn& c = column(name);
      if (!counts(*r) || row.counted < 2) {
        ++c.disturbed;
        continue;
      }
      ++c.compared;
      c.fastest += r == row.fastest;
      c.logs += std::log(r->time->median_us / row.fastest->time->median_us);
    }
  }
  std::ranges::stable_sort(
      columns, [](const KernelColumn& a, const KernelColumn& b) { return a.slowdown() < b.slowdown(); });
  return columns;
}

/// What stands below the table.
struct Remark {
  std::string text;
  std::string repro;  ///< the line that repeats a failure
};

std::vector<Remark> remarks_on(const KernelColumn& c) {
  const std::string name = c.name.empty() ? "no kernel" : one_line(c.name);
  std::vector<Remark> out;
  if (c.compared > 0) {
    out.push_back({fmt::format(
        "{}: fastest in {} of {} timed cases{}; {} times the fastest kernel's time (geometric mean)", name,
        c.fastest, c.compared, c.disturbed > 0 ? fmt::format(" ({} disturbed left out)", c.disturbed) : "",
        digits(c.slowdown(), 3))});
  } else if (c.disturbed > 0) {
    out.push_back({fmt::format("{}: not ranked: other processes disturbed {}", name,
                               c.disturbed == 1 ? "its case" : fmt::format("all {} cases", c.disturbed))});
  }
  for (const auto& [reason, n] : c.skips)
    out.push_back({fmt::format("{}: {} skipped: {}", name, n, one_line(reason))});
  for (const Record* r : c.failures) {
    out.push_back({fmt::format("{}: {} {}: {}", name, status_name(r->status), one_line(r->item.id),
                               one_line(r->reason)),
                   one_line(r->repro)});
  }
  return out;
}

/// The matrix, for all formats.
struct Matrix {
  std::vector<TableColumn> header;
  std::vector<TableRow> table;
  std::vector<std::string> legend;
  std::vector<Remark> remarks;
};

Matrix matrix_of(const ResultSet& run) {
  const MatrixRows rows = rows_of(run);
  const std::vector<KernelColumn> columns = columns_of(run, rows);
  Matrix m;
  m.header = {{"case", Align::kLeft, true, false}};
  for (const KernelColumn& c : columns) m.header.push_back({one_line(c.name)});
  int alone = 0, of_one_usable = 0;  // cases that are left out of the counts
  for (const auto& [key, row] : rows) {
    alone += row.timed == 1;
    of_one_usable += row.timed > 1 && row.usable < 2;
    TableRow line{{one_line(key.first)}, Colour::kNone, ""};
    for (const KernelColumn& c : columns) {
      const auto r = row.of.find(c.name);
      line.cells.push_back(cell_of(r == row.of.end() ? nullptr : r->second, row));
    }
    m.table.push_back(std::move(line));
  }
  m.legend = {
      "median, and its multiple of the fastest kernel's; ~: their 95 % intervals overlap, so the order may be chance"};
  const auto disturbed = [](const Record& r) { return is_timed(r) && r.time->busy(); };
  const auto vague = [](const Record& r) { return is_timed(r) && r.time->vague(); };
  if (std::ranges::any_of(run.results, disturbed))
    m.legend.emplace_back(
        "!: other processes took the cores during more than half of the samples: an unreliable time, not "
        "counted");
  if (std::ranges::any_of(run.results, vague))
    m.legend.push_back(fmt::format("?: +/- {:g} % or more: not usable, and not counted", 100 * kVague));
  const auto left_out = [&m](int n, const char* which) {
    if (n == 0) return;
    m.remarks.push_back(
        {fmt::format("{} {} {} left out of the counts", counted(n, "case"), which, n == 1 ? "is" : "are")});
  };
  left_out(alone, "that a single kernel has a time of");
  left_out(of_one_usable, "without two usable times");
  for (const TokenTime& t : token_times(step_times(run.results)))
    m.remarks.push_back({one_line(token_time_text(t))});
  for (const KernelColumn& c : columns) {
    for (Remark& remark : remarks_on(c)) m.remarks.push_back(std::move(remark));
  }
  return m;
}

}  // namespace

void print_kernel_matrix(std::ostream& out, const ResultSet& run, const TableOptions& options) {
  const Matrix m = matrix_of(run);
  print_table(out, m.header, m.table, options);
  out << '\n';
  for (const std::string& line : m.legend) out << line << '\n';
  out << '\n';
  for (const Remark& r : m.remarks) out << r.text << '\n' << (r.repro.empty() ? "" : "  " + r.repro + "\n");
}

void write_kernel_matrix_markdown(std::ostream& out, const ResultSet& run) {
  const Matrix m = matrix_of(run);
  for (const TableColumn& c : m.header) out << "| " << markdown_text(c.header) << ' ';
  out << "|\n";
  for (const TableColumn& c : m.header) out << (c.align == Align::kLeft ? "|---" : "|--:");
  out << "|\n";
  for (const TableRow& row : m.table) {
    for (std::size_t i = 0; i < row.cells.size(); ++i)
      out << "| " << (i == 0 ? markdown_code(row.cells[i]) : markdown_text(row.cells[i])) << ' ';
    out << "|\n";
  }
  for (const std::string& line : m.legend) out << '\n' << markdown_text(line) << '\n';
  out << '\n';
  for (const Remark& r : m.remarks) {
    out << "- " << markdown_text(r.text) << (r.repro.empty() ? "" : "<br>" + markdown_code(r.repro)) << '\n';
  }
}

void write_kernel_matrix_json(std::ostream& out, const ResultSet& run) {
  using Json = nlohmann::ordered_json;
  const auto rounded = [](double x) { return std::round(x * 1e4) / 1e4; };
  const MatrixRows rows = rows_of(run);
  Json j = {{"context",
             {{"date", valid_utf8(run.context.date)},
              {"device", valid_utf8(run.context.device.model)},
              {"driver", valid_utf8(run.context.device.driver)},
              {"version", valid_utf8(run.context.version)},
              {"revision", valid_utf8(run.context.revision)},
              {"complete", run.context.complete}}},
            {"kernels", Json::array()},
            {"cases", Json::array()},
            {"us_per_token", Json::array()}};
  for (const KernelColumn& c : columns_of(run, rows)) {
    j["kernels"].push_back(
        {{"kernel", valid_utf8(c.name)}, {"fastest", c.fastest}, {"compared", c.compared}});
    if (c.disturbed > 0) j["kernels"].back()["disturbed"] = c.disturbed;
    if (c.compared > 0) j["kernels"].back()["slowdown"] = rounded(c.slowdown());
    for (const auto& [reason, n] : c.skips) j["kernels"].back()["skips"][valid_utf8(reason)] = n;
  }
  for (const auto& [key, row] : rows) {
    Json line = {{"id", valid_utf8(key.first)}, {"device", valid_utf8(key.second)}};
    for (const auto& [kernel, r] : row.of) {
      if (is_timed(*r)) {
        line["us"][valid_utf8(kernel)] = rounded(r->time->median_us);
      } else {
        line["status"][valid_utf8(kernel)] = status_name(r->status);
      }
    }
    j["cases"].push_back(std::move(line));
  }
  for (const TokenTime& t : token_times(step_times(run.results))) {
    j["us_per_token"].push_back({{"replay", valid_utf8(t.group)},
                                 {"kernel", valid_utf8(t.kernel)},
                                 {"device", valid_utf8(t.device)},
                                 {"us", t.us ? Json(rounded(*t.us)) : Json(nullptr)},
                                 {"lo", t.lo ? Json(rounded(*t.lo)) : Json(nullptr)},
                                 {"hi", t.hi ? Json(rounded(*t.hi)) : Json(nullptr)},
                                 {"timed", t.timed},
                                 {"steps", t.steps}});
    if (!t.why.empty()) j["us_per_token"].back()["why"] = t.why;
  }
  // One entry per line, so that a difference between two files can be read.
  out << "{\n";
  for (auto it = j.begin(); it != j.end(); ++it) {
    out << Json(it.key()).dump() << ": ";
    if (it->is_array()) {
      out << "[";
      for (std::size_t i = 0; i < it->size(); ++i) out << (i == 0 ? "\n" : ",\n") << (*it)[i].dump();
      out << "\n]";
    } else {
      out << it->dump();
    }
    out << (std::next(it) == j.end() ? "\n" : ",\n");
  }
  out << "}\n";
}

}  // namespace attnbench
