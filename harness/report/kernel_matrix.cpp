#include "harness/report/kernel_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <utility>

#include "harness/record/text.h"
#include "harness/report/summary.h"

namespace attnbench {
namespace {

bool is_timed(const LoadedResult& r) { return r.status == Status::kPass && r.median_us && *r.median_us > 0; }

/// What a run says of one kernel.
struct KernelColumn {
  std::string name;
  int fastest = 0, timed = 0;
  double logs = 0;  ///< sum over timed cases of the logarithm of its time over the fastest kernel's
  std::map<std::string, int> skips;
  std::vector<const LoadedResult*> failures;

  double slowdown() const { return timed > 0 ? std::exp(logs / timed) : HUGE_VAL; }
};

/// The results of a case by kernel. A case on two devices is two rows.
struct MatrixRow {
  std::map<std::string, const LoadedResult*> of;
  const LoadedResult* fastest = nullptr;
};

using MatrixRows = std::vector<std::pair<std::pair<std::string, std::string>, MatrixRow>>;

MatrixRows rows_of(const ResultSet& run) {
  MatrixRows rows;
  for (const LoadedResult& r : run.results) {
    const std::pair key(r.id, r.device);
    auto row = std::find_if(rows.rbegin(), rows.rend(), [&](const auto& x) { return x.first == key; });
    if (row == rows.rend()) {
      rows.emplace_back(key, MatrixRow{});
      row = rows.rbegin();
    }
    MatrixRow& found = row->second;
    found.of[r.kernel] = &r;
    if (is_timed(r) && (found.fastest == nullptr || *r.median_us < *found.fastest->median_us)) {
      found.fastest = &r;
    }
  }
  return rows;
}

/// Whether the intervals of the two times overlap, so that the faster one may be so by chance.
bool is_tied(const LoadedResult& r, const LoadedResult& fastest) {
  return &r != &fastest && r.lo_us && fastest.hi_us && *r.lo_us <= *fastest.hi_us;
}

/// As `run` marks it: other processes took the cores during more than half of the samples.
bool is_disturbed(const LoadedResult& r) {
  return 2 * static_cast<std::size_t>(r.disturbed) > r.samples_us.size();
}

std::string cell_of(const LoadedResult* r, const MatrixRow& row) {
  if (r == nullptr) return "-";
  if (!is_timed(*r)) return std::string(status_name(r->status));
  return fmt::format("{}{} {}{}x", time_text(*r->median_us), is_disturbed(*r) ? "!" : "",
                     is_tied(*r, *row.fastest) ? "~" : "",
                     digits(*r->median_us / *row.fastest->median_us, 3));
}

std::vector<KernelColumn> columns_of(const ResultSet& run, const MatrixRows& rows) {
  std::vector<KernelColumn> columns;
  const auto column = [&columns](const std::string& name) -> KernelColumn& {
    const auto c =
        std::find_if(columns.begin(), columns.end(), [&](const KernelColumn& x) { return x.name == name; });
    if (c != columns.end()) return *c;
    columns.push_back({name, 0, 0, 0, {}, {}});
    return columns.back();
  };
  for (const LoadedResult& r : run.results) {
    KernelColumn& c = column(r.kernel);
    if (r.status == Status::kSkip) ++c.skips[r.reason];
    if (needs_attention(r.status)) c.failures.push_back(&r);
  }
  for (const auto& [key, row] : rows) {
    for (const auto& [name, r] : row.of) {
      if (!is_timed(*r)) continue;
      KernelColumn& c = column(name);
      ++c.timed;
      c.fastest += r == row.fastest;
      c.logs += std::log(*r->median_us / *row.fastest->median_us);
    }
  }
  std::stable_sort(columns.begin(), columns.end(),
                   [](const KernelColumn& a, const KernelColumn& b) { return a.slowdown() < b.slowdown(); });
  return columns;
}

void print_column(std::ostream& out, const KernelColumn& c) {
  const std::string name = c.name.empty() ? "no kernel" : one_line(c.name);
  if (c.timed > 0) {
    out << fmt::format(
        "{}: fastest in {} of {} timed cases; {} times the fastest kernel's time (geometric mean)\n", name,
        c.fastest, c.timed, digits(c.slowdown(), 3));
  }
  for (const auto& [reason, n] : c.skips) {
    out << fmt::format("{}: {} skipped: {}\n", name, n, one_line(reason));
  }
  for (const LoadedResult* r : c.failures) {
    out << fmt::format("{}: {} {}: {}\n  {}\n", name, status_name(r->status), one_line(r->id),
                       one_line(r->reason), one_line(r->repro));
  }
}

}  // namespace

void print_kernel_matrix(std::ostream& out, const ResultSet& run, const TableOptions& options) {
  const MatrixRows rows = rows_of(run);
  const std::vector<KernelColumn> columns = columns_of(run, rows);
  std::vector<TableColumn> header = {{"case", Align::kLeft, true, false}};
  for (const KernelColumn& c : columns) header.push_back({one_line(c.name)});
  std::vector<TableRow> table;
  for (const auto& [key, row] : rows) {
    TableRow line{{one_line(key.first)}, Colour::kNone, ""};
    for (const KernelColumn& c : columns) {
      const auto r = row.of.find(c.name);
      line.cells.push_back(cell_of(r == row.of.end() ? nullptr : r->second, row));
    }
    table.push_back(std::move(line));
  }
  print_table(out, header, table, options);
  const auto any = [&run](const auto& holds) {
    return std::any_of(run.results.begin(), run.results.end(), holds);
  };
  out << "\nmedian, and its multiple of the fastest kernel's; ~: their 95 % intervals overlap, so the order may be chance";
  if (any([](const LoadedResult& r) { return is_timed(r) && is_disturbed(r); }))
    out << "\n!: other processes took the cores during more than half of the samples";
  out << "\n\n";
  for (const KernelColumn& c : columns) print_column(out, c);
}

}  // namespace attnbench
