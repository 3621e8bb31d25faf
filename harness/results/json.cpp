#include "harness/results/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "harness/config/json_number.h"
#include "harness/config/keys.h"
#include "harness/facts/median_interval.h"
#include "harness/results/fields.h"

namespace attnbench {

using Json = nlohmann::ordered_json;

// The fields of each part, in the order of the JSON. Fields::written finds these functions by their argument.

static void describe(Fields& f, Declared& d) {
  f("p", d.numerics.p_type);
  f("acc", d.numerics.acc_type);
  // Older files name the first two types alone.
  for (const DeclaredNumber& number : kDeclaredNumbers)
    f.if_known(true, number.key, d.numerics.*number.field);
  f.if_known(true, "head_grads", d.numerics.head_grad_type);
  for (const Waiver& w : kWaivers) {
    bool waived = (d.waived & w.flag) != 0;
    f.if_known(waived, w.key, waived);
    if (waived) d.waived |= w.flag;
  }
}

static void describe(Fields& f, WorstElement& w) {
  f("seq", w.seq);
  f("pos", w.pos);
  f("head", w.head);
  f("channel", w.channel);
  f("got", w.got);
  f("expected", w.expected);
  f("sigma", w.sigma);
}

static void describe(Fields& f, Refusal& r) {
  f("status", r.status);
  f("step", r.step);
  f("message", r.message);
}

static void describe(Fields& f, InvariantResult& i) {
  f("name", i.name);
  f("outcome", i.outcome);
  f("note", i.note);
}

static void describe(Fields& f, Power& p) {
  f("o_scale", p.o_scale);
  f("softmax_scale", p.softmax_scale);
  f("softmax_scale_by_o", p.softmax_scale_by_o);
  f("dropped_key", p.dropped_key);
  f("dropped_key_by_o", p.dropped_key_by_o);
}

static void describe(Fields& f, Verdict& v) {
  f("pass", v.pass);
  f("reason", v.reason);
  f("failed_by", v.failed_by);
  f("clues", v.clues);
  f.if_known(true, "accepts", v.accepts);  // older files lack it
  f.if_known(v.tells_nothing, "tells_nothing", v.tells_nothing);
  f("method", v.method);
  f("rows", v.rows);
  f("rows_total", v.rows_total);
  f.if_known(v.rows_seed != 0, "rows_seed", v.rows_seed);
  f("max_z", v.max_z);
  f("max_row_z2", v.max_row_z2);
  f("rms_z", v.rms_z);
  f("bias_se", v.bias_se);
  f("slope", v.slope);
  f("max_abs", v.max_abs);
  f("max_rel", v.max_rel);
  f("max_ulp", v.max_ulp);
  f("lse_max_z", v.lse_max_z);
  f("probs_max_z", v.probs_max_z);
  f("worst", v.worst);
  f.if_known(v.power.has_value(), "power", v.power);
  f("numerics", v.declared);
  f("outputs_digest", v.outputs_digest);
  f("reference_s", v.reference_s);
  f.if_known(v.refusal.has_value(), "refusal", v.refusal);
  f("invariants", v.invariants);
}

static void describe(Fields& f, WatchSummary& w) {
  f("launches", w.launches);
  f("by_reference", w.by_reference);
  f.or_else(nullptr, w.fresh_us > 0, "fresh_us", w.fresh_us);
}

/// A member of each element of a list, as a list.
template <class S, class T>
static void column(Fields& f, bool known, const char* key, std::vector<S>& list, T S::*member) {
  std::vector<T> values;
  for (const S& s : list) values.push_back(s.*member);
  f.if_known(known, key, values);
  if (list.empty()) list.resize(values.size());
  for (std::size_t i = 0; i < std::min(list.size(), values.size()); ++i) list[i].*member = values[i];
}

/// What was measured of each rank, in lists by rank.
struct ByRank {
  TimeResult& time;
};
static void describe(Fields& f, ByRank& by_rank) {
  TimeResult& t = by_rank.time;
  f("skew_us", t.skew_us);
  f("alone_us", t.alone_us);
  for (const auto& [key, field] : kRankFields) column(f, true, key, t.ranks, field);
  if (t.ranks.size() > kMostRanks) Fields::wrong("ranks", "a mapping to lists by rank");
}

static void describe(Fields& f, TimeResult& t) {
  const bool gpu = f.record->device != "cpu";
  if (!f.writes()) t.median_us = t.lo_us = t.hi_us = std::numeric_limits<double>::quiet_NaN();
  f("median_us", t.median_us);
  f("lo_us", t.lo_us);
  f("hi_us", t.hi_us);
  f("samples_us", t.samples_us);
  if (f.writes() && !t.samples_us.empty()) {
    std::vector<double> sorted = t.samples_us;
    std::ranges::sort(sorted);
    f.derived("min_us", finite_or_null(sorted.front()));
    f.derived("p90_us", finite_or_null(quantile(sorted, 0.9)));
    f.derived("p99_us", finite_or_null(quantile(sorted, 0.99)));
  }
  f("mean_us", t.real_time_us);
  f("cpu_time_us", t.cpu_time_us);
  f("iterations", t.iterations);
  f("cache", t.cache);
  // Before schema 3, "cold" meant cold data alone. Only entries that have this key mean both.
  if (!f.writes() && gpu && t.cache == CacheMode::kCold && !f.has("code")) t.cache = CacheMode::kColdData;
  f.derived("code", !gpu ? Json(nullptr) : Json(t.cache == CacheMode::kCold ? "cold" : "warm"));
  f("graph", t.graph);
  f.if_known(t.clock != TimeClock::kWall, "clock", t.clock);
  f("plan_us", t.plan_us);
  f("disturbed", t.disturbed);
  f.if_known(t.other_us > 0, "other_us", t.other_us);
  f.or_else(nullptr, t.cores_us > 0, "cores_us", t.cores_us);
  f.or_else(nullptr, t.memory_us > 0, "memory_us", t.memory_us);
  f.or_else(nullptr, t.handover_us > 0, "handover_us", t.handover_us);
  f("host_bound", t.host_bound);
  f("near_floor", t.near_floor);
  f("copies", t.copies);
  f.or_else(nullptr, t.watch.launches > 0, "watch", t.watch);
  ByRank ranks{t};
  f.if_known(!t.ranks.empty(), "ranks", ranks);
  f.if_known(t.runs > 1, "runs", t.runs);
  const auto by_run = [&](const char* key, auto RunTimes::*member) {
    column(f, !t.of_runs.empty() && t.of_runs.front().*member > 0, key, t.of_runs, member);
  };
  by_run("run_cores_us", &RunTimes::cores_us);
  by_run("run_handover_us", &RunTimes::handover_us);
  by_run("run_memory_us", &RunTimes::memory_us);
  by_run("run_samples", &RunTimes::samples);
  by_run("run_us", &RunTimes::us);
}

static void describe(Fields& f, Roofline& r) {
  f("flop", r.flop);
  f("executed_flop", r.executed_flop);
  f("bytes", r.bytes);
  f("formula", r.formula);
  f("tflops", r.tflops);
  f("gbs", r.gbs);
  f("sol", r.sol);
  f.or_else(nullptr, !r.bound.empty(), "bound", r.bound);
  f("floor_us", r.floor_us);
  f("limit_us", r.limit_us);
}

static void describe(Fields& f, ClockSummary& c) {
  f("sm_mhz", c.sm_mhz);
  f("sm_mhz_min", c.sm_mhz_min);
  f("sm_mhz_max", c.sm_mhz_max);
  f("mem_mhz", c.mem_mhz);
  f("power_w", c.power_w);
  f("temperature_c", c.temperature_c);
  f.derived("throttled", c.throttled());
  f("throttle", c.throttle);
  f("readings", c.readings);
}

static void describe(Fields& f, CounterReading& c) {
  f("dram_read_bytes", c.dram_read_bytes);
  f("dram_write_bytes", c.dram_write_bytes);
  f.derived("dram_over_model", finite_or_null(dram_over_model(*f.record)));
  f("tensor_active_percent", c.tensor_active_percent);
  f("l2_hit_percent", c.l2_hit_percent);
  f("launches", c.launches);
  f("reason", c.reason);
}

static void describe(Fields& f, StageSeconds& s) {
  f("setup_s", s.setup_s);
  f("verify_s", s.verify_s);
  f("time_s", s.time_s);
}

static void describe(Fields& f, Record& r) {
  f("index", r.index);
  f("id", r.item.id);
  f.derived("op", op_name(r.item.params.op));
  f("sweep", r.item.sweep);
  f("kernel", r.kernel);
  f("device", r.device);
  f("seed", r.item.seed);
  if (f.writes()) f.derived("params", reported_params(r.item.params));
  f("repro", r.repro);
  f("status", r.status);
  f("reason", r.reason);
  f("log", r.log);
  f("check", r.check);
  f("time", r.time);
  f.spread(r.roofline);
  ClockSummary clocks = r.time ? r.time->clocks : ClockSummary{};
  f.or_else(Json::object(), clocks.readings > 0, "clocks", clocks);
  if (r.time) r.time->clocks = clocks;
  f("counters", r.counters);
  f("stages", r.stages);
}

static void describe(Fields& f, DeviceInfo& d) {
  f("name", d.name);
  f("kind", d.kind);
  f("model", d.model);
  f("uuid", d.uuid);
  f("driver", d.driver);
  f("cuda", d.runtime);
  f("compute_capability", d.compute_capability);
  f("multiprocessors", d.multiprocessors);
  f("threads", d.threads);
  f("memory_bytes", d.memory_bytes);
  f("cache_bytes", d.cache_bytes);
  f("flush_bytes", d.flush_bytes);
  f.if_known(!d.trust.empty(), "trust", d.trust);
  f.if_known(!d.confinement.empty(), "confinement", d.confinement);
  f("clock_mhz", d.clock_mhz);
  f("memory_gbs", d.memory_gbs);
}

static void describe(Fields& f, Ceilings::Link& l) {
  f("what", l.what);
  f("ranks", l.ranks);
  f("bytes", l.bytes);
  f("us", l.us);
}

static void describe(Fields& f, Ceilings& c) {
  f("read_gbs", c.read_gbs);
  f("copy_gbs", c.copy_gbs);
  f("cache_gbs", c.cache_gbs);
  std::vector<std::pair<DType, double>> rates;
  for (const Ceilings::Matmul& m : c.matmul) rates.emplace_back(m.dtype, m.tflops);
  f("matmul_tflops", rates);
  c.matmul.clear();
  for (const auto& [dtype, tflops] : rates) c.matmul.push_back({dtype, tflops});
  f("floor_us", c.floor_us);
  f.if_known(!c.links.empty(), "links", c.links);
  f("disturbed", c.disturbed);
  f("note", c.note);
}

static void describe(Fields& f, HostCache& c) {
  f("type", c.type);
  f("level", c.level);
  f("size", c.size);
  f("num_sharing", c.num_sharing);
}

static void describe(Fields& f, PlanInfo& p) {
  f("digest", p.digest);
  f("size", p.size);
  f("shard", p.shard);
  f("shards", p.shards);
  f("options", p.options);
}

static void describe(Fields& f, PluginInfo& p) {
  f("path", p.path);
  f("digest", p.digest);
  f("kernels", p.kernels);
  f.if_known(!p.versions.empty(), "versions", p.versions);
}

struct HostCpu {
  RunContext& of;
};
static void describe(Fields& f, HostCpu& cpu) {
  f("model", cpu.of.cpu_model);
  f("threads", cpu.of.cpu_threads);
}

/// `attnbench` in a context.
struct OwnContext {
  RunContext& of;
};
static void describe(Fields& f, OwnContext& own) {
  RunContext& c = own.of;
  HostCpu cpu{c};
  f.derived("schema", kResultsSchema);
  f.derived("default_params", Json::object());  // results_text omits parameters and lists them here
  f("name", c.name);
  f("version", c.version);
  f("revision", c.revision);
  f("build_type", c.build_type);
  f("command_line", c.command_line);
  f("device", c.device);
  f("cpu", cpu);
  f("ceilings", c.ceilings);
  f("complete", c.complete);
  f("planned", c.planned);
  f("plan", c.plan);
  f("plugins", c.plugins);
  f.derived("real_time",
            "median of the samples in attnbench.time.samples_us; 0 where there is no valid time");
}

static void describe(Fields& f, RunContext& c) {
  f("date", c.date);
  f("host_name", c.host);
  f.derived("executable", c.command_line.empty() ? "" : c.command_line.front());
  f.derived("num_cpus", c.cpu_threads);
  f.derived("mhz_per_cpu", std::isfinite(c.cpu_mhz) ? std::llround(c.cpu_mhz) : 0);
  f("cpu_scaling_enabled", c.cpu_scaling);
  f("caches", c.caches);
  f("load_avg", c.load_avg);
  f.derived("library_build_type", c.build_type == "Debug" ? "debug" : "release");
  OwnContext own{c};
  f("attnbench", own);
}

namespace {

template <class T>
Json part_to_json(T part) {
  Json j;
  return Fields(j, nullptr).written(part);
}

/// Reads `j` over what `part` holds.
template <class T>
T part_from_json(const Json& j, const char* what, bool whole = true, T part = {}) {
  Fields(j, nullptr, whole).read(j, what, part);
  return part;
}

}  // namespace

Json context_to_json(const RunContext& c) { return part_to_json(c); }
RunContext context_from_json(const Json& j) {
  RunContext unknown;
  unknown.device.threads = 0;
  return part_from_json(j, "context", /*whole=*/false, unknown);
}
Json ceilings_to_json(const Ceilings& c) { return part_to_json(c); }
Json device_to_json(const DeviceInfo& d) { return part_to_json(d); }
Ceilings ceilings_from_json(const Json& j) { return part_from_json<Ceilings>(j, "ceilings"); }
DeviceInfo device_from_json(const Json& j) { return part_from_json<DeviceInfo>(j, "device"); }
Record record_from_json(const Json& entry, const Case& item) {
  Record r;
  if (!entry.is_object() || !entry.contains("attnbench")) throw Error("'attnbench' is missing");
  Fields(entry, &r, /*whole=*/true).read(entry.at("attnbench"), "attnbench", r);
  if (r.item.id != item.id) throw Error(fmt::format("it is of case {}, not {}", r.item.id, item.id));
  if (r.item.seed != item.seed) throw Error(fmt::format("its seed is {}, not {}", r.item.seed, item.seed));
  r.item = item;
  return r;
}

Record record_of_file(const Json& entry) {
  Record r;
  const Json& own = entry.at("attnbench");
  Fields(own, &r, /*whole=*/false).read(own, "attnbench", r);
  if (r.item.id.empty()) throw Error("'attnbench.id' is missing");
  if (!own.contains("status") || own.at("status").is_null()) throw Error("'attnbench.status' is missing");
  if (r.time) {
    std::erase_if(r.time->samples_us, [](double us) { return !std::isfinite(us); });
    r.time->runs = std::max(1, r.time->runs);
    r.time->disturbed = std::max(0, r.time->disturbed);
  }
  return r;
}

nlohmann::ordered_json record_to_json(const Record& r, int64_t family, int64_t instance) {
  // A time counts only with a correct result. Other records show 0, as errors of Google Benchmark do.
  const bool timed = r.status == Status::kPass && r.time.has_value();
  const auto shown = [&](double us) { return timed && std::isfinite(us) ? us : 0.0; };
  Json j;
  j["name"] = record_name(r);
  j["family_index"] = family;
  j["per_family_instance_index"] = instance;
  j["run_name"] = record_name(r);
  j["run_type"] = "iteration";
  j["repetitions"] = 1;
  j["repetition_index"] = 0;
  j["threads"] = 1;
  if (r.status != Status::kPass) {
    j["error_occurred"] = true;
    j["error_message"] = std::string(status_name(r.status)) + (r.reason.empty() ? "" : ": " + r.reason);
  }
  j["iterations"] = timed ? r.time->iterations : 0;
  j["real_time"] = timed ? shown(r.time->median_us) : 0.0;
  j["cpu_time"] = timed ? shown(r.time->cpu_time_us) : 0.0;
  j["time_unit"] = "us";
  if (timed && r.roofline) {  // counters; tools expect plain numbers, so unknown ones are omitted
    if (std::isfinite(r.roofline->tflops)) j["TFLOPs"] = r.roofline->tflops;
    if (std::isfinite(r.roofline->gbs)) j["GBs"] = r.roofline->gbs;
    if (r.roofline->sol && std::isfinite(*r.roofline->sol)) j["SOL"] = *r.roofline->sol;
  }
  Record copy = r;
  j["attnbench"] = Fields(j, &copy).written(copy);
  return j;
}

nlohmann::ordered_json results_to_json(const RunContext& c, std::span<const Record> records) {
  Json j;
  j["context"] = context_to_json(c);
  j["benchmarks"] = Json::array();
  std::map<std::string, std::pair<int64_t, int64_t>> families;  // id -> (family, instances so far)
  for (const Record& r : records) {
    const auto next = static_cast<int64_t>(families.size());
    auto& [family, instances] = families.try_emplace(r.item.id, next, 0).first->second;
    j["benchmarks"].push_back(record_to_json(r, family, instances++));
  }
  return j;
}

namespace {

/// The defaults that all entries name, so that an entry omits only parameters that it had.
Json default_params(const Json& entries) {
  Json defaults = reported_params(CaseParams{});
  for (const Json& entry : entries) {
    if (!entry.contains("attnbench") || !entry["attnbench"].contains("params")) continue;
    const Json& params = entry["attnbench"]["params"];
    for (auto it = defaults.begin(); it != defaults.end();)
      it = params.contains(it.key()) ? std::next(it) : defaults.erase(it);
  }
  return defaults;
}

Json without_defaults(Json entry, const Json& defaults) {
  if (!entry.contains("attnbench") || !entry["attnbench"].contains("params")) return entry;
  Json& params = entry["attnbench"]["params"];
  for (const auto& [name, value] : defaults.items())
    if (params.at(name) == value) params.erase(name);
  return entry;
}

}  // namespace

std::string results_text(const nlohmann::ordered_json& results) {
  const bool runs = results.contains("benchmarks");
  const Json defaults = runs ? default_params(results["benchmarks"]) : Json::object();
  std::string text = "{";
  const char* separator = "\n";
  for (const auto& [name, member] : results.items()) {
    text += separator + dump_json(name) + ": ";
    separator = ",\n";
    if (name == "context" && runs) {
      Json context = member;
      context["attnbench"]["schema"] = kResultsSchema;  // merged files may be older
      context["attnbench"]["default_params"] = defaults;
      text += dump_json(context, 1);
    } else if (!member.is_array()) {
      text += dump_json(member, 1);
    } else {
      const char* next = "[\n";
      for (const Json& entry : member) {
        text += next + dump_json(name == "benchmarks" ? without_defaults(entry, defaults) : entry);
        next = ",\n";
      }
      text += member.empty() ? "[]" : "\n]";
    }
  }
  return text + "\n}\n";
}

std::string dump_json(const nlohmann::ordered_json& j, int indent) {
  return j.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string journal_line(const Record& r) { return dump_json(record_to_json(r)) + "\n"; }

}  // namespace attnbench
