#include "harness/report/show.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <ostream>
#include <sstream>
#include <utility>

#include "harness/config/keys.h"
#include "harness/config/sweep_file.h"
#include "harness/error.h"
#include "harness/report/columns.h"
#include "harness/report/csv.h"
#include "harness/report/markdown.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kCases[] = "cases";

/// Place in an entry by column.
const std::map<std::string, std::string>& places() {
  static const std::map<std::string, std::string> known = [] {
    std::map<std::string, std::string> out;
    const Json params = reported_params(CaseParams{});
    for (const auto& [name, value] : params.items()) out[name] = "params/" + name;
    std::istringstream words(kCsvColumns);
    for (std::string place; words >> place;) out[place.substr(place.find('/') + 1)] = place;
    for (const auto& [name, of] :
         {std::pair("case", "id"), std::pair("time", "median_us"), std::pair("p50", "median_us"),
          std::pair("min", "min_us"), std::pair("p90", "p90_us"), std::pair("p99", "p99_us"),
          std::pair("z", "max_z")})
      out[name] = out.at(of);
    out["tail"] = "tail";
    return out;
  }();
  return known;
}

Json value_of(const Json& row, const std::string& column) {
  const auto known = places().find(column);
  const std::string place = known != places().end() ? known->second : column;
  if (known == places().end() && place.find('/') == std::string::npos) {
    std::vector<std::string> names;
    for (const auto& [name, of] : places()) names.push_back(name);
    const auto near = nearest_word(column, names);
    throw Error(
        fmt::format("there is no column '{}'; {}columns are those of results.csv, parameters of a case "
                    "(configs/keys.md) and places in an entry, such as clocks/sm_mhz",
                    column, near ? "did you mean '" + *near + "'? " : ""));
  }
  const Json::json_pointer at("/" + place);
  return row.contains(at) ? row.at(at) : Json(nullptr);
}

/// Of a group: what all have, or the geometric mean of numbers.
Json common_value(const std::vector<Json>& values) {
  std::vector<Json> known;
  std::ranges::copy_if(values, std::back_inserter(known), [](const Json& v) { return !v.is_null(); });
  if (known.empty()) return nullptr;
  if (std::ranges::all_of(known, [&](const Json& v) { return v == known.front(); })) return known.front();
  double logs = 0;
  for (const Json& v : known) {
    if (!v.is_number() || !(v.get<double>() > 0)) return nullptr;
    logs += std::log(v.get<double>());
  }
  return std::exp(logs / static_cast<double>(known.size()));
}

void group(ShownTable& table, std::size_t keys) {
  std::map<std::vector<Json>, std::vector<std::vector<Json>>> groups;
  std::vector<std::vector<Json>> order;
  for (const auto& row : table.rows) {
    const std::vector<Json> key(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(keys));
    auto& members = groups[key];
    if (members.empty()) order.push_back(key);
    members.push_back(row);
  }
  table.columns.insert(table.columns.begin() + static_cast<std::ptrdiff_t>(keys), kCases);
  table.rows.clear();
  for (const auto& key : order) {
    const auto& members = groups.at(key);
    std::vector<Json> row = key;
    row.push_back(members.size());
    for (std::size_t c = keys; c < members.front().size(); ++c) {
      std::vector<Json> values;
      for (const auto& m : members) values.push_back(m[c]);
      row.push_back(common_value(values));
    }
    table.rows.push_back(std::move(row));
  }
}

std::string text_of(const Json& value) {
  if (value.is_number_float()) return digits(value.get<double>());
  return value.is_null() ? "-" : one_line(cell_text(value));
}

}  // namespace

ShownTable show(std::span<const Record> records, const ShowOptions& options) {
  ShownTable table;
  table.columns = options.by;
  for (const std::string& c : options.columns) {
    if (std::ranges::find(table.columns, c) == table.columns.end()) table.columns.push_back(c);
  }
  const bool sorts = !options.sort.empty();
  const bool hidden = sorts && options.sort != kCases &&
                      std::ranges::find(table.columns, options.sort) == table.columns.end();
  if (hidden) table.columns.push_back(options.sort);
  for (const Record& r : records) {
    Json row = row_of(r);
    const Json::json_pointer params("/attnbench/params");
    if (r.entry && r.entry->contains(params)) row["params"] = r.entry->at(params);
    const Json p99 = value_of(row, "p99"), p50 = value_of(row, "p50");
    if (p99.is_number() && p50.is_number() && p50 > 0) row["tail"] = p99.get<double>() / p50.get<double>();
    std::vector<Json>& cells = table.rows.emplace_back();
    for (const std::string& c : table.columns) cells.push_back(value_of(row, c));
  }
  if (!options.by.empty()) group(table, options.by.size());
  if (sorts) {
    const auto found = std::ranges::find(table.columns, options.sort);
    if (found == table.columns.end()) throw Error("there is a column 'cases' of groups only (--by)");
    const auto at = static_cast<std::size_t>(found - table.columns.begin());
    std::stable_sort(table.rows.begin(), table.rows.end(), [&](const auto& a, const auto& b) {
      if (a[at].is_null() || b[at].is_null()) return !a[at].is_null() && b[at].is_null();
      return options.descending ? b[at] < a[at] : a[at] < b[at];
    });
  }
  if (options.limit > 0 && table.rows.size() > options.limit) table.rows.resize(options.limit);
  return table;
}

void write_shown(std::ostream& out, const ShownTable& table, const std::string& format,
                 const TableOptions& style) {
  if (format == "json") {
    Json rows = Json::array();
    for (const auto& row : table.rows) {
      Json& entry = rows.emplace_back(Json::object());
      for (std::size_t c = 0; c < row.size(); ++c) entry[table.columns[c]] = row[c];
    }
    out << rows.dump(1) << '\n';
    return;
  }
  if (format == "table") {
    std::vector<TableColumn> columns;
    std::vector<TableRow> rows;
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const bool words = std::ranges::any_of(table.rows, [&](const auto& row) { return row[c].is_string(); });
      const bool heading = table.columns[c] == "case" || table.columns[c] == "id";
      columns.push_back({table.columns[c], words ? Align::kLeft : Align::kRight, heading});
    }
    for (const auto& row : table.rows) {
      for (TableRow& line = rows.emplace_back(); const Json& value : row)
        line.cells.push_back(text_of(value));
    }
    return print_table(out, columns, rows, style);
  }
  const bool csv = format == "csv";
  const auto line = [&](const std::vector<std::string>& cells) {
    out << (csv ? fmt::format("{}\n", fmt::join(cells, ","))
                : fmt::format("| {} |\n", fmt::join(cells, " | ")));
  };
  line(table.columns);
  if (!csv) line(std::vector<std::string>(table.columns.size(), "---"));
  for (const auto& row : table.rows) {
    std::vector<std::string> cells;
    for (const Json& value : row)
      cells.push_back(csv ? csv_field(cell_text(value)) : markdown_text(text_of(value)));
    line(cells);
  }
}

}  // namespace attnbench
