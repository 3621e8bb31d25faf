#include "harness/report/csv.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <ostream>
#include <system_error>
#include <vector>

#include "harness/config/batch_spec.h"
#include "harness/report/text.h"

namespace attnbench {
namespace {

struct Column {
  const char* name;
  std::function<std::string(const Record&)> value;
};

template <class F>
auto of_params(F get) {
  return [get](const Record& r) { return std::to_string(get(r.item.params)); };
}

/// A figure of the check, the time or the roofline; empty where that part is missing.
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

int64_t total(const CaseParams& p, int32_t SeqLen::*length) {
  int64_t sum = 0;
  for (const SeqLen& s : p.seqs) sum += s.*length;
  return sum;
}

const std::vector<Column>& columns() {
  using P = const CaseParams&;
  static const std::vector<Column> list = {
      {"name", [](const Record& r) { return record_name(r); }},
      {"id", [](const Record& r) { return r.item.id; }},
      {"sweep", [](const Record& r) { return r.item.sweep; }},
      {"op", [](const Record& r) { return std::string(op_name(r.item.params.op)); }},
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
      {"dtype", [](const Record& r) { return std::string(dtype_name(r.item.params.dtype)); }},
      {"num_heads_q", of_params([](P p) { return p.num_heads_q; })},
      {"num_heads_kv", of_params([](P p) { return p.num_heads_kv; })},
      {"head_dim", of_params([](P p) { return p.head_dim; })},
      {"batch", [](const Record& r) { return format_batch_spec(r.item.params.seqs); }},
      {"num_seqs", of_params([](P p) { return p.seqs.size(); })},
      {"total_q", of_params([](P p) { return total(p, &SeqLen::q); })},
      {"total_k", of_params([](P p) { return total(p, &SeqLen::k); })},
      {"kv", [](const Record& r) { return kv_name(r.item.params.kv); }},
      {"kv_layout",
       [](const Record& r) { return r.item.params.kv_layout == KvLayout::kHnd ? "hnd" : "nhd"; }},
      {"block_size", of_params([](P p) { return p.block_size; })},
      {"page_layout", [](const Record& r) { return page_layout_name(r.item.params.page_layout); }},
      {"causal", [](const Record& r) { return r.item.params.causal ? "true" : "false"; }},
      {"window_left", of_params([](P p) { return p.window_left; })},
      {"window_right", of_params([](P p) { return p.window_right; })},
      {"softcap", [](const Record& r) { return exact(r.item.params.softcap); }},
      {"data", [](const Record& r) { return std::string(profile_name(r.item.params.data)); }},
      {"repro", [](const Record& r) { return r.repro; }},
      {"alibi", [](const Record& r) { return alibi_name(r.item.params.alibi); }},
      {"alibi_sqrt", [](const Record& r) { return r.item.params.alibi_sqrt ? "true" : "false"; }},
      {"sinks", [](const Record& r) { return r.item.params.sinks ? "true" : "false"; }},
      {"num_splits", of_params([](P p) { return p.num_splits; })},
      {"q_dtype", [](const Record& r) { return dtype_name(r.item.params.type_of_q()); }},
      {"kv_dtype",
       [](const Record& r) {
         const CaseParams& p = r.item.params;
         return p.kv_dtype == KvDType::kSame ? dtype_name(p.dtype) : kv_dtype_name(p.kv_dtype);
       }},
      {"leftpad", of_params([](P p) { return p.leftpad; })},
      {"shared_prefix", of_params([](P p) { return p.shared_prefix; })},
      {"path", [](const Record& r) { return path_name(r.item.params.path); }},
      {"states", of_params([](P p) { return p.states; })},
      {"empty_states", [](const Record& r) { return exact(r.item.params.empty_states); }},
      {"lse_layout",
       [](const Record& r) { return r.item.params.lse_token_major ? "token_major" : "head_major"; }},
      {"partial_dtype", [](const Record& r) { return dtype_name(r.item.params.type_of_partial()); }},
      {"head_dim_v", of_params([](P p) { return p.dim_v(); })},
      {"probs", [](const Record& r) { return r.item.params.probs ? "true" : "false"; }},
      {"dropout", [](const Record& r) { return exact(r.item.params.dropout); }},
      {"probs_max_z", check(&Verdict::probs_max_z)},
      {"scales", [](const Record& r) { return scales_name(r.item.params.scales); }},
      {"append", [](const Record& r) { return r.item.params.append ? "in_call" : "none"; }},
      {"new_tokens", of_params([](P p) { return p.new_tokens; })},
      {"rotary", [](const Record& r) { return rotary_name(r.item.params.rotary); }},
      {"rotary_dim", of_params([](P p) { return p.rotary == Rotary::kNone ? 0 : p.rotary_width(); })},
      {"expired", [](const Record& r) { return expired_name(r.item.params.expired); }},
      {"rotary_q", [](const Record& r) { return rotary_q_name(r.item.params.rotary_q); }},
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

bool is_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string csv_field(std::string_view text) {
  std::string clean = valid_utf8(text);
  clean.erase(std::remove(clean.begin(), clean.end(), '\0'), clean.end());  // readers choke on NUL
  // A spreadsheet runs a cell that begins so as a formula; a number may.
  if (!clean.empty() && std::string_view("=+-@\t\r").find(clean[0]) != std::string_view::npos &&
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
  for (const Column& c : columns()) {
    out << separator << c.name;
    separator = ",";
  }
  out << '\n';
  for (const Record& r : records) {
    separator = "";
    for (const Column& c : columns()) {
      out << separator << csv_field(c.value(r));
      separator = ",";
    }
    out << '\n';
  }
}

}  // namespace attnbench
