#include "harness/report/ncu_csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "harness/error.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

using Row = std::vector<std::string>;

/// Rows of quoted or plain cells; "" inside quotes is a quote.
std::vector<Row> csv_rows(std::string_view text) {
  std::vector<Row> rows;
  Row row;
  std::string cell;
  bool quoted = false, any = false;
  const auto end_row = [&] {
    row.push_back(cell);
    cell.clear();
    rows.push_back(std::move(row));
    row = {};
    any = false;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"') {
        cell += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        cell += text[++i];
      } else {
        quoted = false;
      }
    } else if (c == '"') {
      quoted = any = true;
    } else if (c == ',') {
      row.push_back(std::move(cell));
      cell.clear();
      any = true;
    } else if (c == '\n') {
      if (any || !cell.empty()) end_row();
    } else if (c != '\r') {
      cell += c;
    }
  }
  if (any || !cell.empty()) end_row();
  return rows;
}

/// The text from the header line on.
std::string_view table_of(std::string_view text) {
  for (const std::string_view head : {"\"ID\",", "ID,"}) {
    if (text.substr(0, head.size()) == head) return text;
    const std::size_t at = text.find("\n" + std::string(head));
    if (at != std::string_view::npos) return text.substr(at + 1);
  }
  throw Error("no table: no line begins with \"ID\"");
}

/// Thousands may be grouped: "1,234.5". nullopt for other cells, such as "(384, 1, 1)" and "no".
std::optional<double> number_of_cell(std::string cell) {
  cell.erase(std::remove(cell.begin(), cell.end(), ','), cell.end());
  if (cell.empty() || std::isspace(static_cast<unsigned char>(cell.front()))) return std::nullopt;
  char* end = nullptr;
  const double v = std::strtod(cell.c_str(), &end);
  return *end == '\0' && std::isfinite(v) ? std::optional(v) : std::nullopt;
}

/// Bytes or seconds per unit; 1 for units without such a scale (percent, counts, rates).
double scale_of(const std::string& unit) {
  static const std::map<std::string, double> prefixes = {{"", 1},     {"K", 1e3},  {"k", 1e3},
                                                         {"M", 1e6},  {"G", 1e9},  {"T", 1e12},
                                                         {"n", 1e-9}, {"u", 1e-6}, {"m", 1e-3}};
  for (const std::string_view base : {"byte", "second", "B", "s"}) {
    if (unit.size() < base.size() || unit.substr(unit.size() - base.size()) != base) continue;
    const auto it = prefixes.find(unit.substr(0, unit.size() - base.size()));
    if (it != prefixes.end()) return it->second;
  }
  if (unit == "usecond" || unit == "µs") return 1e-6;
  return 1;
}

std::optional<double> first_of(const NcuLaunch& l, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const auto it = l.metrics.find(name);
    if (it != l.metrics.end()) return it->second;
  }
  return std::nullopt;
}

bool ends_with(std::string_view s, std::string_view end) {
  return s.size() >= end.size() && s.substr(s.size() - end.size()) == end;
}

/// The busiest part of the tensor pipe (hmma, gmma, imma ...). Each GPU has its own names.
std::optional<double> tensor_percent(const NcuLaunch& l) {
  std::optional<double> cycles, instructions;
  for (const auto& [name, value] : l.metrics) {
    if (name.rfind("sm__", 0) != 0 || name.find("pipe_tensor") == std::string::npos) continue;
    if (!ends_with(name, ".pct_of_peak_sustained_active") &&
        !ends_with(name, ".pct_of_peak_sustained_elapsed"))
      continue;
    auto& best = name.find("cycles_active") != std::string::npos ? cycles : instructions;
    best = std::max(best.value_or(0), value);
  }
  return cycles ? cycles : instructions;
}

std::vector<std::pair<std::string, double>> stall_shares(const NcuLaunch& l) {
  constexpr std::string_view kBefore = "smsp__average_warps_issue_stalled_",
                             kAfter = "_per_issue_active.ratio";
  std::vector<std::pair<std::string, double>> out;
  double sum = 0;
  for (const auto& [name, value] : l.metrics) {
    if (name.rfind(kBefore, 0) != 0 || !ends_with(name, kAfter)) continue;
    const std::string reason = name.substr(kBefore.size(), name.size() - kBefore.size() - kAfter.size());
    if (value <= 0 || ends_with(reason, "_not_issued") || reason == "selected")
      continue;  // counted twice, and not a stall
    out.push_back({reason, value});
    sum += value;
  }
  for (auto& [reason, value] : out) value = sum > 0 ? 100 * value / sum : 0;
  std::ranges::sort(out, [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}

std::string bytes_text(double bytes) {
  return bytes >= 1e9   ? digits(bytes / 1e9) + " GB"
         : bytes >= 1e6 ? digits(bytes / 1e6) + " MB"
                        : digits(bytes / 1e3) + " KB";
}

std::string percent_text(const std::optional<double>& v) { return v ? digits(*v, 3) + " %" : "-"; }

std::string word(const NcuLaunch& l, const char* name) {
  const auto it = l.words.find(name);
  return it == l.words.end() ? "-" : one_line(it->second);
}

}  // namespace

std::vector<NcuLaunch> parse_ncu_csv(std::string_view text) {
  const std::vector<Row> rows = csv_rows(table_of(text));
  const Row& head = rows.at(0);
  const auto name_at = std::ranges::find(head, "Kernel Name") - head.begin();
  if (name_at == static_cast<std::ptrdiff_t>(head.size()))
    throw Error("the table has no column \"Kernel Name\"");
  // The second row holds the units and has no id.
  const bool has_units = rows.size() > 1 && !rows[1].empty() && rows[1][0].empty();
  std::vector<NcuLaunch> out;
  for (std::size_t i = has_units ? 2 : 1; i < rows.size(); ++i) {
    const Row& row = rows[i];
    if (row.size() != head.size()) {
      if (row.size() == 1) continue;  // a message after the table
      throw Error(fmt::format("row {} has {} cells, the header {}", i, row.size(), head.size()));
    }
    NcuLaunch l;
    l.kernel = row[static_cast<std::size_t>(name_at)];
    // ncu omits scopes and cuts "<unnamed>::f" in the middle.
    if (constexpr std::string_view cut = "unnamed>::"; l.kernel.starts_with(cut))
      l.kernel.erase(0, cut.size());
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string unit = has_units && c < rows[1].size() ? rows[1][c] : "";
      if (const auto v = number_of_cell(row[c])) {
        l.metrics[head[c]] = *v * scale_of(unit);
      } else {
        l.words[head[c]] = row[c];
      }
    }
    out.push_back(std::move(l));
  }
  return out;
}

NcuFigures ncu_figures(const NcuLaunch& l) {
  NcuFigures f;
  if (const auto s = first_of(
          l, {"gpu__time_duration.sum", "gpu__time_duration.avg", "gpu__time_duration_measured_user.sum"}))
    f.duration_us = *s * 1e6;
  f.dram_read_bytes = first_of(l, {"dram__bytes_read.sum", "dram__bytes_op_read.sum"});
  f.dram_written_bytes = first_of(l, {"dram__bytes_write.sum", "dram__bytes_op_write.sum"});
  f.tensor_percent = tensor_percent(l);
  f.occupancy_percent = first_of(l, {"sm__warps_active.avg.pct_of_peak_sustained_active"});
  f.occupancy_limit_percent = first_of(l, {"sm__maximum_warps_per_active_cycle_pct"});
  f.l2_hit_percent =
      first_of(l, {"lts__t_sector_hit_rate.pct", "lts__average_t_sector_hit_rate_realtime.pct"});
  f.registers = first_of(l, {"launch__registers_per_thread"});
  f.stalls = stall_shares(l);
  return f;
}

std::string ncu_summary(const std::vector<NcuLaunch>& kernels, double model_bytes, int launches) {
  std::string out;
  double us = 0, bytes = 0;
  bool all_bytes = !kernels.empty();
  for (const NcuLaunch& l : kernels) {
    const NcuFigures f = ncu_figures(l);
    us += f.duration_us.value_or(0);
    all_bytes = all_bytes && f.dram_read_bytes && f.dram_written_bytes;
    bytes += f.dram_read_bytes.value_or(0) + f.dram_written_bytes.value_or(0);
    out += fmt::format("{}\n", shorten_end(one_line(l.kernel), 100));
    out += fmt::format("  duration     {} us, grid {}, block {}, {} registers a thread\n",
                       f.duration_us ? digits(*f.duration_us) : "-", word(l, "Grid Size"),
                       word(l, "Block Size"), f.registers ? fmt::format("{:g}", *f.registers) : "-");
    out += fmt::format("  DRAM         {} read, {} written\n",
                       f.dram_read_bytes ? bytes_text(*f.dram_read_bytes) : "-",
                       f.dram_written_bytes ? bytes_text(*f.dram_written_bytes) : "-");
    out += fmt::format("  tensor pipe  {} busy; occupancy {} of {}; L2 hits {}\n",
                       percent_text(f.tensor_percent), percent_text(f.occupancy_percent),
                       percent_text(f.occupancy_limit_percent), percent_text(f.l2_hit_percent));
    std::string stalls;
    for (std::size_t i = 0; i < std::min<std::size_t>(4, f.stalls.size()); ++i) {
      stalls +=
          fmt::format("{}{} {} %", i == 0 ? "" : ", ", f.stalls[i].first, digits(f.stalls[i].second, 2));
    }
    out += fmt::format("  stalls       {}\n", stalls.empty() ? "-" : stalls);
  }
  const double all = std::max(1, launches);
  out += fmt::format("a launch: {} us", digits(us / all));
  if (all_bytes) out += fmt::format(", {} of DRAM traffic", bytes_text(bytes / all));
  if (all_bytes && model_bytes > 0) {
    out += fmt::format(", {} times the least that the model says ({})", digits(bytes / all / model_bytes, 3),
                       bytes_text(model_bytes));
  }
  return out +
         "\nncu emptied the caches of data and left the code: do not compare these durations with run's\n";
}

}  // namespace attnbench
