#include "harness/report/csv.h"

#include <charconv>
#include <functional>
#include <ostream>
#include <system_error>
#include <vector>

#include "harness/config/keys.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

struct Column {
  const char* name;
  std::function<std::string(const Record&)> value;
};

/// A figure of the check, the time or the roofline; empty if that part is missing.
auto check(double Verdict::*field) {
  return [field](const Record& r) { return r.check ? exact((*r.check).*field) : ""; };
}
auto timing(double TimeResult::*field) {
  return [field](const Record& r) { return r.time ? exact((*r.time).*field) : ""; };
}
auto roof(double Roofline::*field) {
  return [field](const Record& r) { return r.roofline ? exact((*r.roofline).*field) : ""; };
}
auto counted(std::optional<double> CounterReading::*field) {
  return [field](const Record& r) {
    return r.counters && (*r.counters).*field ? exact(*((*r.counters).*field)) : "";
  };
}

/// Columns of the record itself. The parameters of its case follow them.
const std::vector<Column>& columns() {
  static const std::vector<Column> list = {
      {"name", [](const Record& r) { return record_name(r); }},
      {"id", [](const Record& r) { return r.item.id; }},
      {"sweep", [](const Record& r) { return r.item.sweep; }},
      {"kernel", [](const Record& r) { return r.kernel; }},
      {"device", [](const Record& r) { return r.device; }},
      {"seed", [](const Record& r) { return std::to_string(r.item.seed); }},
      {"status", [](const Record& r) { return std::string(status_name(r.status)); }},
      {"reason", [](const Record& r) { return r.reason; }},
      {"median_us", timing(&TimeResult::median_us)},
      {"lo_us", timing(&TimeResult::lo_us)},
      {"hi_us", timing(&TimeResult::hi_us)},
      {"samples", [](const Record& r) { return r.time ? std::to_string(r.time->samples_us.size()) : ""; }},
      {"tflops", roof(&Roofline::tflops)},
      {"gbs", roof(&Roofline::gbs)},
      {"sol", [](const Record& r) { return r.roofline && r.roofline->sol ? exact(*r.roofline->sol) : ""; }},
      {"bound", [](const Record& r) { return r.roofline ? r.roofline->bound : ""; }},
      {"flop", roof(&Roofline::flop)},
      {"bytes", roof(&Roofline::bytes)},
      {"formula", [](const Record& r) { return r.roofline ? r.roofline->formula : ""; }},
      {"cache", [](const Record& r) { return std::string(r.time ? cache_mode_name(r.time->cache) : ""); }},
      {"graph", [](const Record& r) { return std::string(!r.time         ? ""
                                                         : r.time->graph ? "true"
                                                                         : "false"); }},
      {"plan_us", timing(&TimeResult::plan_us)},
      {"host_bound", [](const Record& r) { return r.time ? std::to_string(r.time->host_bound) : ""; }},
      {"check", [](const Record& r) { return r.check ? r.check->method : ""; }},
      {"rows", [](const Record& r) { return r.check ? std::to_string(r.check->rows) : ""; }},
      {"rows_total", [](const Record& r) { return r.check ? std::to_string(r.check->rows_total) : ""; }},
      {"max_z", check(&Verdict::max_z)},
      {"max_row_z2", check(&Verdict::max_row_z2)},
      {"bias_se", check(&Verdict::bias_se)},
      {"slope", check(&Verdict::slope)},
      {"max_abs", check(&Verdict::max_abs)},
      {"max_rel", check(&Verdict::max_rel)},
      {"lse_max_z", check(&Verdict::lse_max_z)},
      {"repro", [](const Record& r) { return r.repro; }},
      {"probs_max_z", check(&Verdict::probs_max_z)},
      {"executed_flop",
       [](const Record& r) {
         return r.roofline && r.roofline->executed_flop ? exact(*r.roofline->executed_flop) : "";
       }},
      {"dram_read_bytes", counted(&CounterReading::dram_read_bytes)},
      {"dram_write_bytes", counted(&CounterReading::dram_write_bytes)},
      {"dram_over_model",
       [](const Record& r) {
         const auto ratio = dram_over_model(r);
         return ratio ? exact(*ratio) : "";
       }},
      {"tensor_active_percent", counted(&CounterReading::tensor_active_percent)},
      {"l2_hit_percent", counted(&CounterReading::l2_hit_percent)},
      {"counters_reason", [](const Record& r) { return r.counters ? r.counters->reason : ""; }},
  };
  return list;
}

std::string cell(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? exact(value.get<double>()) : value.dump();
}

bool is_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

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
  for (const Column& c : columns()) put(c.name);
  const auto defaults = reported_params(CaseParams{});
  for (const auto& [name, value] : defaults.items()) put(name);
  out << '\n';
  for (const Record& r : records) {
    separator = "";
    for (const Column& c : columns()) put(csv_field(c.value(r)));
    const auto params = reported_params(r.item.params);
    for (const auto& [name, value] : params.items()) put(csv_field(cell(value)));
    out << '\n';
  }
}

}  // namespace attnbench
