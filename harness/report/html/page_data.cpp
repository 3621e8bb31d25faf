#include "harness/report/html/page_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "harness/config/keys.h"
#include "harness/facts/median_interval.h"
#include "harness/facts/two_speeds.h"
#include "harness/judge/error_model.h"
#include "harness/report/failures.h"
#include "harness/report/html/case_facts.h"
#include "harness/results/coverage.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;
using Out = Json;

constexpr int kTimeDigits = 5;
constexpr int kFigureDigits = 6;

double rounded(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10.0, digits - 1 - static_cast<int>(std::floor(std::log10(std::abs(value)))));
  if (!std::isfinite(scale) || scale == 0) return value;
  // Dividing by a whole number gives the double nearest to the decimal, which prints briefly.
  return scale >= 1 ? std::round(value * scale) / scale : std::round(value * scale) * std::round(1 / scale);
}

/// A rounded number; null if it is not a finite number.
Out figure(const Json& v, int digits = kFigureDigits) {
  if (v.is_number_integer()) return v.get<int64_t>();
  if (!v.is_number() || !std::isfinite(v.get<double>())) return nullptr;
  return rounded(v.get<double>(), digits);
}
Out figure(const std::optional<double>& v) {
  return v && std::isfinite(*v) ? Out(rounded(*v, kFigureDigits)) : Out(nullptr);
}

const Json& none() {
  static const Json null;
  return null;
}

const Json& at(const Json& j, const char* key) {
  const auto it = j.is_object() ? j.find(key) : j.end();
  return j.is_object() && it != j.end() ? *it : none();
}

/// With the keys in alphabetical order, as the page lists them.
Out sorted(const Json& j) { return nlohmann::json(j); }

std::string text_at(const Json& j, const char* key) {
  return at(j, key).is_string() ? at(j, key).get<std::string>() : "";
}

/// Members with a value (false has none), with numbers rounded.
Out figures_of(const Json& object, const std::set<std::string>& without, int digits) {
  Out out = Out::object();
  const Out all = sorted(object);
  for (const auto& [key, value] : all.items()) {
    if (value.is_null() || without.count(key) || value == Json(false)) continue;
    if ((value.is_string() && value.get_ref<const std::string&>().empty()) ||
        (value.is_array() && value.empty()))
      continue;
    if (value.is_object()) {
      out[key] = figures_of(value, {}, digits);
    } else {
      out[key] = value.is_number() ? figure(value, digits) : value;
    }
  }
  return out;
}

Out run_of(const ResultSet& set) {
  Out run;
  run["file"] = set.path;
  run["complete"] = set.context.complete;
  if (set.context_entry == nullptr) return run;
  const Out c = sorted(*set.context_entry);
  for (const char* key : {"date", "host_name", "num_cpus", "load_avg"}) {
    if (!at(c, key).is_null()) run[key] = at(c, key);
  }
  for (const auto& [key, value] : at(c, "attnbench").items()) {
    if (key != "real_time" && key != "default_params") run[key] = value;  // cases hold the parameters
  }
  return run;
}

/// Names of the runs: those of their sweeps.
std::string title_of(std::span<const ResultSet> sets) {
  std::vector<std::string> names;
  for (const ResultSet& set : sets) {
    if (!set.context.name.empty() && std::ranges::find(names, set.context.name) == names.end())
      names.push_back(set.context.name);
  }
  return names.empty() ? "attnbench report" : fmt::format("{}", fmt::join(names, ", "));
}

class Builder {
 public:
  Builder(std::span<const ResultSet> sets, const PageOptions& options) : sets_(sets) {
    std::size_t samples = 0;
    for (const ResultSet& set : sets) {
      for (const Record& r : set.results) {
        samples += r.samples_us().size();
        const Out given = params_of(r);
        if (!given.is_object() || given.size() >= defaults_.size()) continue;
        const Out all = defaults_;  // an older program did not know all parameters
        for (const auto& [key, value] : all.items()) {
          if (!given.contains(key)) defaults_.erase(key);
        }
      }
    }
    every_ = options.max_samples == 0 ? 1 : (samples + options.max_samples - 1) / options.max_samples;
    every_ = std::max<std::size_t>(every_, 1);
  }

  Out build(const PageOptions& options) {
    Out data;
    data["title"] = options.title.empty() ? title_of(sets_) : options.title;
    data["runs"] = Out::array();
    for (const ResultSet& set : sets_) data["runs"].push_back(run_of(set));
    data["limits"] = {{"max_z", kMaxZ},
                      {"lse_max_z", kMaxZ},
                      {"bias_se", kMaxBiasSe},
                      {"max_row_z2", 1},
                      {"vague", kVague}};
    data["samples_every"] = every_;
    data["params_default"] = defaults_;
    cases_ = Out::array();
    Out results = Out::array();
    CoverageCounter kernels;
    std::vector<const Record*> all;
    std::map<const Record*, std::size_t> numbers;
    for (std::size_t run = 0; run < sets_.size(); ++run) {
      for (const Record& r : sets_[run].results) {
        results.push_back(result_of(r, run));
        kernels.add(r);
        numbers[&r] = all.size();
        all.push_back(&r);
      }
    }
    data["problems"] = Out::array();
    for (const RankedFailure& f : ranked_failures(all))
      data["problems"].push_back(
          {{"result", numbers.at(f.record)}, {"kind", f.kind}, {"alike", f.alike_text()}});
    data["kernels"] = Out::array();
    for (const Coverage& c : kernels.all()) {
      data["kernels"].push_back({{"kernel", c.kernel},
                                 {"asked", c.asked},
                                 {"ran", c.ran},
                                 {"types", c.types},
                                 {"skipped_for", c.skipped_for}});
    }
    data["cases"] = std::move(cases_);
    data["results"] = std::move(results);
    return data;
  }

 private:
  static Out params_of(const Record& r) {
    return r.entry == nullptr ? Out() : sorted(at(at(*r.entry, "attnbench"), "params"));
  }

  /// The repro line of a case differs between kernels only in the kernel's name. Returns the parts before and
  /// after it.
  static Out repro_parts(const Record& r) {
    const std::string option = " --kernel ", with_name = option + r.kernel;
    const std::size_t begin = r.kernel.empty() ? std::string::npos : r.repro.find(with_name);
    const std::size_t end = begin + with_name.size();
    const bool whole = begin != std::string::npos && (end == r.repro.size() || r.repro[end] == ' ');
    if (!whole) return {r.repro};
    return {r.repro.substr(0, begin + option.size()), r.repro.substr(end)};
  }

  /// Index in `cases`. The same id with another seed, sweep or repro line is another case.
  std::size_t case_of(const Record& r) {
    Out c;
    c["id"] = r.item.id;
    const Json& own = r.entry != nullptr ? at(*r.entry, "attnbench") : none();
    for (const char* key : {"sweep", "seed"}) {
      if (!at(own, key).is_null()) c[key] = at(own, key);
    }
    if (const auto facts = facts_of(r)) {
      c["phase"] = facts->phase;
      if (facts->apart) c["apart"] = true;
    }
    c["repro"] = repro_parts(r);
    if (const Out params = params_of(r); params.is_object()) {
      Out set = Out::object();
      for (const auto& [key, value] : params.items()) {
        if (!defaults_.contains(key) || defaults_[key] != value) set[key] = value;
      }
      c["params"] = std::move(set);
    }
    const std::string text = c.dump(-1, ' ', false, Out::error_handler_t::replace);
    const auto [it, fresh] = case_numbers_.try_emplace(text, cases_.size());
    if (fresh) cases_.push_back(std::move(c));
    return it->second;
  }

  Out result_of(const Record& r, std::size_t run) {
    Out out;
    out["case"] = case_of(r);
    out["run"] = run;
    out["kernel"] = r.kernel;
    const bool elsewhere = r.device != text_at(at(run_context(run), "device"), "name");
    if (elsewhere && !r.device.empty()) out["device"] = r.device;
    out["status"] = status_name(r.status);
    if (!r.reason.empty()) out["reason"] = r.reason;
    const Json& a = r.entry != nullptr ? at(*r.entry, "attnbench") : none();
    if (at(a, "check").is_object()) {
      // What no panel shows is left out. A broken invariant is the reason.
      out["check"] = figures_of(
          at(a, "check"), {"pass", "reason", "invariants", "outputs_digest", "slope", "probs_max_z"}, 4);
      // Unrounded: the table rounds it once, as the console does.
      if (const Json& z = at(at(a, "check"), "max_z"); z.is_number_float()) out["check"]["max_z"] = z;
    }
    if (r.median_us()) out["time"] = time_of(r, at(a, "time"));
    for (const char* key : {"flop", "executed_flop", "bytes", "tflops", "gbs", "sol", "floor_us"}) {
      if (at(a, key).is_number()) out[key] = figure(at(a, key));
    }
    if (at(a, "bound").is_string()) out["bound"] = at(a, "bound");
    if (at(a, "clocks").is_object() && !at(a, "clocks").empty()) {
      out["clocks"] = figures_of(at(a, "clocks"), {}, kFigureDigits);
    }
    if (at(a, "counters").is_object()) out["counters"] = figures_of(at(a, "counters"), {}, kFigureDigits);
    return out;
  }

  Out time_of(const Record& r, const Json& own) {
    Out t = own.is_object() ? figures_of(own,
                                         {"samples_us", "mean_us", "cpu_time_us", "iterations", "watch",
                                          "plan_us", "code", "copies"},
                                         kTimeDigits)
                            : Out::object();
    t["median_us"] = figure(r.median_us());
    t["lo_us"] = figure(std::optional(r.time->lo_us));
    t["hi_us"] = figure(std::optional(r.time->upper_us()));
    t["samples"] = r.samples_us().size();
    t["samples_us"] = Out::array();
    for (std::size_t i = 0; i < r.samples_us().size(); i += every_)
      t["samples_us"].push_back(figure(Json(r.samples_us()[i]), kTimeDigits));
    if (r.samples_us().empty()) return t;
    std::vector<double> x = r.samples_us();
    std::ranges::sort(x);
    const std::pair<const char*, double> shares[] = {{"min_us", 0}, {"p90_us", 0.9}, {"p99_us", 0.99}};
    for (const auto& [key, share] : shares) t[key] = figure(Json(quantile(x, share)), kTimeDigits);
    // Outliers are farther from the middle half of the samples than three times its width, or 1.5 % of the median.
    const double q1 = quantile(x, 0.25), q3 = quantile(x, 0.75);
    const double far = 3 * std::max(q3 - q1, 0.005 * *r.median_us());
    for (const double us : x) {
      if (us < q1 - far || us > q3 + far) t["outliers_us"].push_back(figure(Json(us), kTimeDigits));
    }
    if (const auto speeds = r.time->busy() ? std::nullopt : two_speeds(std::move(x)))
      t["two_speeds"] = {figure(Json(speeds->quick), kTimeDigits), figure(Json(speeds->slow), kTimeDigits),
                         figure(Json(speeds->quick_share), 2)};
    return t;
  }

  const Json& run_context(std::size_t run) const {
    const auto& entry = sets_[run].context_entry;
    return entry != nullptr ? at(*entry, "attnbench") : none();
  }

  std::span<const ResultSet> sets_;
  std::size_t every_ = 1;
  Out defaults_ = sorted(reported_params(CaseParams{}));  ///< of the parameters that all cases have
  Out cases_;
  std::map<std::string, std::size_t> case_numbers_;
};

/// Index of a row's result in the page: the first one with its id and kernel.
Out comparison_json(const PageComparison& c, std::span<const ResultSet> sets) {
  std::map<std::pair<std::string, std::string>, std::size_t> numbers;
  std::size_t number = 0;
  for (const ResultSet& set : sets) {
    for (const Record& r : set.results) numbers.try_emplace({r.item.id, r.kernel}, number++);
  }
  Out out;
  out["base"] = c.base_path;
  out["mismatches"] = c.mismatches;
  out["as_sol"] = c.result.as_sol;
  out["min_effect"] = c.options.min_effect;
  out["geomean"] = figure(c.result.geomean);
  out["compared"] = c.result.compared;
  out["counts"] = Out::object();
  for (const auto& [change, n] : c.result.counts) out["counts"][change_name(change)] = n;
  out["rows"] = Out::array();
  for (const CompareRow& r : c.result.rows) {
    Out row;
    row["id"] = r.id;
    row["base_kernel"] = r.base_kernel;
    row["kernel"] = r.new_kernel;
    row["change"] = change_name(r.change);
    const auto it = numbers.find({r.id, r.new_kernel});
    if (it != numbers.end()) row["result"] = it->second;
    const std::pair<const char*, const std::optional<double>&> figures[] = {
        {"base_us", r.base_us}, {"new_us", r.new_us}, {"ratio", r.ratio},
        {"lo", r.lo},           {"hi", r.hi},         {"p", r.p}};
    for (const auto& [key, value] : figures) {
      if (value) row[key] = figure(value);
    }
    if (!r.note.empty()) row["note"] = r.note;
    out["rows"].push_back(std::move(row));
  }
  return out;
}

}  // namespace

ResultSet joined(std::span<const ResultSet> sets) {
  ResultSet all;
  std::set<std::string> seen;
  for (const ResultSet& set : sets) {
    if (all.path.empty()) {
      all.path = set.path;
      all.context = set.context;
    }
    for (const Record& r : set.results) {
      if (seen.insert(r.item.id + "\n" + r.kernel + "\n" + r.device).second) all.results.push_back(r);
    }
  }
  return all;
}

PageComparison compare_with(const ResultSet& base, std::span<const ResultSet> sets, CompareOptions options) {
  PageComparison out;
  out.base_path = base.path;
  for (const ResultSet& set : sets) {
    for (std::string& m : context_mismatches(base, set)) {
      if (std::ranges::find(out.mismatches, m) == out.mismatches.end())
        out.mismatches.push_back(std::move(m));
    }
  }
  options.as_sol = !out.mismatches.empty();
  out.options = options;
  out.result = compare_results(base, joined(sets), options);
  return out;
}

Out page_data(std::span<const ResultSet> sets, const std::optional<PageComparison>& comparison,
              const PageOptions& options) {
  Out data = Builder(sets, options).build(options);
  if (comparison) data["comparison"] = comparison_json(*comparison, sets);
  for (const ResultSet& set : sets) {
    for (const TokenTime& t : token_times(step_times(set.results))) {
      data["tokens"].push_back({{"replay", t.group},
                                {"kernel", t.kernel},
                                {"us", figure(t.us)},
                                {"lo", figure(t.lo)},
                                {"hi", figure(t.hi)},
                                {"timed", t.timed},
                                {"steps", t.steps},
                                {"why", t.why}});
    }
  }
  return data;
}

}  // namespace attnbench
