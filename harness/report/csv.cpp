#include "harness/report/csv.h"

#include <charconv>
#include <iterator>
#include <ostream>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "harness/config/keys.h"
#include "harness/report/columns.h"
#include "harness/results/json.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;

bool is_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Json row_of(const Record& r) {
  const Json entry = record_to_json(r);
  Json own = entry.at("attnbench");
  own["name"] = entry.at("name");
  if (r.time) own["time"]["samples"] = r.time->samples_us.size();
  if (r.check) own["check"]["check"] = r.check->method;
  if (r.counters) own["counters"]["counters_reason"] = r.counters->reason;
  return own;
}

std::string cell_text(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? exact(value.get<double>()) : value.dump();
}

std::string csv_field(std::string_view text) {
  std::string clean = printable(text);
  // A spreadsheet runs a cell with such a start as a formula. Numbers are safe.
  if (!clean.empty() && std::string_view("=+-@\t\n").find(clean[0]) != std::string_view::npos &&
      !is_number(clean)) {
    clean.insert(0, 1, '\'');
  }
  if (clean.find_first_of(",\"\r\n") == std::string::npos) return clean;
  std::string quoted = "\"";
  for (const char c : clean) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

void write_csv(std::ostream& out, std::span<const Record> records) {
  const char* separator = "";
  const auto put = [&](std::string_view text) {
    out << separator << text;
    separator = ",";
  };
  std::istringstream words(kCsvColumns);
  const std::vector<std::string> places(std::istream_iterator<std::string>(words), {});
  for (const std::string& place : places) put(place.substr(place.find('/') + 1));
  const auto defaults = reported_params(CaseParams{});
  for (const auto& [name, value] : defaults.items()) put(name);
  out << '\n';
  for (const Record& r : records) {
    separator = "";
    const Json row = row_of(r);
    for (const std::string& place : places) {
      const Json::json_pointer at("/" + place);
      put(csv_field(row.contains(at) ? cell_text(row.at(at)) : ""));
    }
    for (const auto& [name, value] : row.at("params").items()) put(csv_field(cell_text(value)));
    out << '\n';
  }
}

}  // namespace attnbench
