#include "harness/results/json_read.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <concepts>
#include <limits>
#include <stdexcept>
#include <utility>

#include "harness/device/rank_rows.h"
#include "harness/error.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;

const Json& member(const Json& j, const char* key) {
  const auto it = j.is_object() ? j.find(key) : j.end();
  if (!j.is_object() || it == j.end()) throw Error(fmt::format("'{}' is missing", key));
  return *it;
}

[[noreturn]] void wrong(const char* key, const char* wanted) {
  throw Error(fmt::format("'{}' is not {}", key, wanted));
}

void get(const Json& j, const char* key, std::string& out) {
  const Json& v = member(j, key);
  if (!v.is_string()) wrong(key, "a string");
  out = v.get<std::string>();
}
void get(const Json& j, const char* key, bool& out) {
  const Json& v = member(j, key);
  if (!v.is_boolean()) wrong(key, "true or false");
  out = v.get<bool>();
}
/// null stands for a number that was not finite; it is read as NaN.
void get(const Json& j, const char* key, double& out) {
  const Json& v = member(j, key);
  if (!v.is_number() && !v.is_null()) wrong(key, "a number");
  out = v.is_null() ? std::numeric_limits<double>::quiet_NaN() : v.get<double>();
}
void get(const Json& j, const char* key, std::optional<double>& out) {
  const Json& v = member(j, key);
  if (!v.is_number() && !v.is_null()) wrong(key, "a number");
  out = v.is_null() ? std::nullopt : std::optional(v.get<double>());
}
void get(const Json& j, const char* key, std::vector<std::string>& out) {
  const Json& v = member(j, key);
  if (!v.is_array()) wrong(key, "a list");
  for (const Json& word : v) {
    if (!word.is_string()) wrong(key, "a list of strings");
    out.push_back(word.get<std::string>());
  }
}
template <std::integral Integer>
void get(const Json& j, const char* key, Integer& out) {
  const Json& v = member(j, key);
  if (!v.is_number_integer()) wrong(key, "an integer");
  const auto value = v.get<int64_t>();
  if (!std::in_range<Integer>(value)) wrong(key, "an integer of its range");
  out = static_cast<Integer>(value);
}

InvariantResult invariant_from_json(const Json& j) {
  using Outcome = InvariantResult::Outcome;
  InvariantResult r;
  std::string outcome;
  get(j, "name", r.name);
  get(j, "outcome", outcome);
  get(j, "note", r.note);
  for (const Outcome o : {Outcome::kHeld, Outcome::kBroken, Outcome::kDiffers, Outcome::kSkipped}) {
    if (outcome != outcome_name(o)) continue;
    r.outcome = o;
    return r;
  }
  wrong("outcome", "held, broken, differs or skipped");
}

DType dtype_from_json(const Json& j, const char* key) {
  std::string name;
  get(j, key, name);
  for (const DType t :
       {DType::kBf16, DType::kFp16, DType::kFp32, DType::kE4m3, DType::kInt8, DType::kE5m2, DType::kE2m1x2}) {
    if (name == dtype_name(t)) return t;
  }
  wrong(key, "a type");
}

Verdict check_from_json(const Json& j) {
  Verdict v;
  get(j, "pass", v.pass);
  get(j, "reason", v.reason);
  get(j, "failed_by", v.failed_by);
  get(j, "clues", v.clues);
  if (j.contains("accepts")) get(j, "accepts", v.accepts);
  v.tells_nothing = j.contains("tells_nothing");
  const Json& invariants = member(j, "invariants");
  if (!invariants.is_array()) wrong("invariants", "a list");
  for (const Json& i : invariants) v.invariants.push_back(invariant_from_json(i));
  get(j, "method", v.method);
  if (j.contains("refusal")) {
    const Json& said = member(j, "refusal");
    v.refusal.emplace();
    get(said, "status", v.refusal->status);
    get(said, "step", v.refusal->step);
    get(said, "message", v.refusal->message);
  }
  get(j, "rows", v.rows);
  get(j, "rows_total", v.rows_total);
  if (j.contains("rows_seed")) get(j, "rows_seed", v.rows_seed);
  get(j, "max_z", v.max_z);
  get(j, "max_row_z2", v.max_row_z2);
  get(j, "rms_z", v.rms_z);
  get(j, "bias_se", v.bias_se);
  get(j, "slope", v.slope);
  get(j, "max_abs", v.max_abs);
  get(j, "max_rel", v.max_rel);
  get(j, "max_ulp", v.max_ulp);
  get(j, "lse_max_z", v.lse_max_z);
  get(j, "probs_max_z", v.probs_max_z);
  if (const Json& declared = member(j, "numerics"); !declared.is_null())
    v.declared = declared_from_json(declared);
  get(j, "outputs_digest", v.outputs_digest);
  const Json& worst = member(j, "worst");
  get(worst, "seq", v.worst.seq);
  get(worst, "pos", v.worst.pos);
  get(worst, "head", v.worst.head);
  get(worst, "channel", v.worst.channel);
  get(worst, "got", v.worst.got);
  get(worst, "expected", v.worst.expected);
  get(worst, "sigma", v.worst.sigma);
  get(j, "reference_s", v.reference_s);
  return v;
}

WatchSummary watch_from_json(const Json& j) {
  WatchSummary w;
  get(j, "launches", w.launches);
  get(j, "by_reference", w.by_reference);
  std::optional<double> us;
  get(j, "fresh_us", us);
  w.fresh_us = us.value_or(0);
  return w;
}

void set_ranks(const Json& j, TimeResult& t) {
  get(j, "skew_us", t.skew_us);
  get(j, "alone_us", t.alone_us);
  for (const auto& [key, field] : kRankFields) {
    const Json& by_rank = member(j, key);
    if (!by_rank.is_array() || by_rank.size() > kMostRanks) wrong(key, "a list by rank");
    t.ranks.resize(std::max(t.ranks.size(), by_rank.size()));
    for (std::size_t r = 0; r < by_rank.size(); ++r) {
      if (!by_rank[r].is_number()) wrong(key, "a list of numbers");
      t.ranks[r].*field = by_rank[r].get<double>();
    }
  }
}

TimeResult time_from_json(const Json& j) {
  TimeResult t;
  get(j, "median_us", t.median_us);
  get(j, "lo_us", t.lo_us);
  get(j, "hi_us", t.hi_us);
  const Json& samples = member(j, "samples_us");
  if (!samples.is_array()) wrong("samples_us", "a list");
  for (const Json& s : samples) {
    if (!s.is_number() && !s.is_null()) wrong("samples_us", "a list of numbers");
    t.samples_us.push_back(s.is_null() ? std::numeric_limits<double>::quiet_NaN() : s.get<double>());
  }
  get(j, "mean_us", t.real_time_us);
  get(j, "cpu_time_us", t.cpu_time_us);
  get(j, "iterations", t.iterations);
  std::string cache;
  get(j, "cache", cache);
  const auto mode = cache_mode_of(cache);
  if (!mode) wrong("cache", "the name of a cache mode");
  t.cache = *mode;
  get(j, "graph", t.graph);
  get(j, "plan_us", t.plan_us);
  get(j, "disturbed", t.disturbed);
  for (const auto& [key, field] : {std::pair{"cores_us", &t.cores_us}, std::pair{"memory_us", &t.memory_us},
                                   std::pair{"handover_us", &t.handover_us}}) {
    std::optional<double> us;
    get(j, key, us);
    *field = us.value_or(0);
  }
  get(j, "host_bound", t.host_bound);
  get(j, "near_floor", t.near_floor);
  get(j, "copies", t.copies);
  if (const Json& watch = member(j, "watch"); !watch.is_null()) t.watch = watch_from_json(watch);
  if (j.contains("ranks")) set_ranks(member(j, "ranks"), t);
  return t;
}

ClockSummary clocks_from_json(const Json& j) {
  ClockSummary c;
  if (!j.is_object()) wrong("clocks", "a mapping");
  if (j.empty()) return c;
  get(j, "sm_mhz", c.sm_mhz);
  get(j, "sm_mhz_min", c.sm_mhz_min);
  get(j, "sm_mhz_max", c.sm_mhz_max);
  get(j, "mem_mhz", c.mem_mhz);
  get(j, "power_w", c.power_w);
  get(j, "temperature_c", c.temperature_c);
  get(j, "throttle", c.throttle);
  get(j, "readings", c.readings);
  return c;
}

CounterReading counters_from_json(const Json& j) {
  CounterReading c;
  get(j, "dram_read_bytes", c.dram_read_bytes);
  get(j, "dram_write_bytes", c.dram_write_bytes);
  get(j, "tensor_active_percent", c.tensor_active_percent);
  get(j, "l2_hit_percent", c.l2_hit_percent);
  get(j, "launches", c.launches);
  get(j, "reason", c.reason);
  return c;
}

Roofline roofline_from_json(const Json& j) {
  Roofline r;
  get(j, "flop", r.flop);
  get(j, "executed_flop", r.executed_flop);
  get(j, "bytes", r.bytes);
  get(j, "formula", r.formula);
  get(j, "tflops", r.tflops);
  get(j, "gbs", r.gbs);
  get(j, "sol", r.sol);
  if (!member(j, "bound").is_null()) get(j, "bound", r.bound);
  get(j, "floor_us", r.floor_us);
  get(j, "limit_us", r.limit_us);
  return r;
}

Status status_from(const std::string& name) {
  if (const auto s = status_of(name)) return *s;
  wrong("status", fmt::format("one of {}", fmt::join(kStatusNames, ", ")).c_str());
}

}  // namespace

Declared declared_from_json(const Json& j) {
  Declared d;
  d.numerics.p_type = dtype_from_json(j, "p");
  d.numerics.acc_type = dtype_from_json(j, "acc");
  for (const DeclaredNumber& n : kDeclaredNumbers) {
    if (j.contains(n.key)) get(j, n.key, d.numerics.*n.field);
  }
  if (j.contains("head_grads")) d.numerics.head_grad_type = dtype_from_json(j, "head_grads");
  for (const Waiver& w : kWaivers) d.waived |= j.value(w.key, false) ? w.flag : 0u;
  return d;
}

Record record_from_json(const Json& entry, const Case& item) {
  const Json& j = member(entry, "attnbench");
  std::string id, status;
  uint64_t seed = 0;
  get(j, "id", id);
  if (id != item.id) throw Error(fmt::format("it is of case {}, not {}", id, item.id));
  const Json& seed_value = member(j, "seed");
  if (!seed_value.is_number_unsigned()) wrong("seed", "an integer from 0");
  seed = seed_value.get<uint64_t>();
  if (seed != item.seed) throw Error(fmt::format("its seed is {}, not {}", seed, item.seed));
  Record r;
  r.item = item;
  get(j, "index", r.index);
  get(j, "kernel", r.kernel);
  get(j, "device", r.device);
  get(j, "repro", r.repro);
  get(j, "status", status);
  r.status = status_from(status);
  get(j, "reason", r.reason);
  get(j, "log", r.log);
  if (const Json& check = member(j, "check"); !check.is_null()) r.check = check_from_json(check);
  if (const Json& time = member(j, "time"); !time.is_null()) r.time = time_from_json(time);
  if (!member(j, "formula").is_null()) r.roofline = roofline_from_json(j);
  const ClockSummary clocks = clocks_from_json(member(j, "clocks"));
  if (r.time) r.time->clocks = clocks;
  if (const Json& counters = member(j, "counters"); !counters.is_null()) {
    r.counters = counters_from_json(counters);
  }
  const Json& stages = member(j, "stages");
  get(stages, "setup_s", r.stages.setup_s);
  get(stages, "verify_s", r.stages.verify_s);
  get(stages, "time_s", r.stages.time_s);
  return r;
}

DeviceInfo device_from_json(const Json& j) {
  DeviceInfo d;
  std::string kind;
  get(j, "name", d.name);
  get(j, "kind", kind);
  d.kind = kind == device_kind_name(DeviceKind::kCuda) ? DeviceKind::kCuda : DeviceKind::kCpu;
  if (kind != device_kind_name(d.kind)) wrong("kind", "cpu or cuda");
  get(j, "model", d.model);
  get(j, "uuid", d.uuid);
  get(j, "driver", d.driver);
  get(j, "cuda", d.runtime);
  get(j, "compute_capability", d.compute_capability);
  get(j, "multiprocessors", d.multiprocessors);
  get(j, "threads", d.threads);
  get(j, "memory_bytes", d.memory_bytes);
  get(j, "cache_bytes", d.cache_bytes);
  get(j, "flush_bytes", d.flush_bytes);
  get(j, "clock_mhz", d.clock_mhz);
  get(j, "memory_gbs", d.memory_gbs);
  return d;
}

Ceilings ceilings_from_json(const Json& j) {
  Ceilings c;
  get(j, "read_gbs", c.read_gbs);
  get(j, "copy_gbs", c.copy_gbs);
  get(j, "cache_gbs", c.cache_gbs);
  for (const auto& [name, rate] : member(j, "matmul_tflops").items()) {
    bool known = false;
    for (const DType t : {DType::kBf16, DType::kFp16, DType::kFp32, DType::kE4m3, DType::kInt8}) {
      if (name != dtype_name(t)) continue;
      known = true;
      if (!rate.is_number()) wrong("matmul_tflops", "a mapping to numbers");
      c.matmul.push_back({t, rate.get<double>()});
    }
    if (!known) wrong("matmul_tflops", "a mapping from element types");
  }
  get(j, "floor_us", c.floor_us);
  if (j.contains("links")) {
    if (!member(j, "links").is_array()) wrong("links", "a list");
    for (const Json& of : member(j, "links")) {
      Ceilings::Link& l = c.links.emplace_back();
      get(of, "what", l.what);
      get(of, "ranks", l.ranks);
      get(of, "bytes", l.bytes);
      get(of, "us", l.us);
    }
  }
  get(j, "disturbed", c.disturbed);
  get(j, "note", c.note);
  return c;
}

}  // namespace attnbench
