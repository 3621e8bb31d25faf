#include "harness/report/columns.h"

#include "harness/results/text.h"

namespace attnbench {

const char kCsvColumns[] =
    "name id sweep kernel device seed status reason time/median_us time/lo_us time/hi_us time/samples "
    "tflops gbs sol bound flop bytes formula time/cache time/graph time/plan_us time/host_bound "
    "check/check check/rows check/rows_total check/max_z check/max_row_z2 check/bias_se check/slope "
    "check/max_abs check/max_rel check/lse_max_z repro check/probs_max_z executed_flop "
    "counters/dram_read_bytes counters/dram_write_bytes counters/dram_over_model "
    "counters/tensor_active_percent counters/l2_hit_percent counters/counters_reason time/copies time/min_us "
    "time/p90_us time/p99_us";

std::vector<FigureColumn> figure_columns(const RateUnit& rate) {
  using S = FigureStyle;
  std::vector<FigureColumn> out;
  const auto add = [&](TableColumn table, const char* unknown, auto cell) {
    out.push_back({table, table.header, unknown, false, cell});
  };
  add({rate.name}, "-", [](const Record& r, const S& s) {
    return r.roofline && r.roofline->flop > 0 ? digits(r.roofline->tflops * s.rate.per_tflops) : "";
  });
  add({"GB/s"}, "-", [](const Record& r, const S&) { return r.roofline ? digits(r.roofline->gbs) : ""; });
  add({"%SOL"}, "-", [](const Record& r, const S& s) {
    if (!r.roofline || !r.roofline->sol) return std::string();
    return digits(100 * *r.roofline->sol, s.sol_digits) + (s.disturbed ? "*" : "");
  });
  add({"bound", Align::kLeft, false, true}, "", [](const Record& r, const S& s) {
    if (!r.roofline || r.roofline->bound.empty()) return std::string();
    return r.roofline->bound + (s.disturbed ? "*" : "");
  });
  add({"max|z|", Align::kRight, false, true}, "",
      [](const Record& r, const S&) { return r.check ? z_cell(*r.check) : ""; });
  out.back().markdown = "max \\|z\\|";
  add({"rows", Align::kRight, false, true}, "",
      [](const Record& r, const S&) { return r.check ? rows_text(*r.check) : ""; });
  const auto add_counter = [&](const char* header, auto figure) {
    add({header}, "-", [figure](const Record& r, const S&) {
      if (!r.counters) return std::string();
      const std::optional<double> value = figure(r);
      return value ? digits(*value, 3) : "-";
    });
    out.back().counter = true;
  };
  add_counter("DRAM/model", [](const Record& r) { return dram_over_model(r); });
  add_counter("tensor %", [](const Record& r) { return r.counters->tensor_active_percent; });
  add_counter("L2 hit %", [](const Record& r) { return r.counters->l2_hit_percent; });
  return out;
}

}  // namespace attnbench
