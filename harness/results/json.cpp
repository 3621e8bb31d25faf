#include "harness/results/json.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "harness/config/json_number.h"
#include "harness/config/keys.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;

Json declared_to_json(const Declared& d) {
  const Numerics& n = d.numerics;
  Json j = {{"p", dtype_name(n.p_type)}, {"acc", dtype_name(n.acc_type)}};
  for (const DeclaredNumber& number : kDeclaredNumbers) j[number.key] = n.*number.field;
  j["head_grads"] = dtype_name(n.head_grad_type);
  for (const Waiver& w : kWaivers) {
    if ((d.waived & w.flag) != 0) j[w.key] = true;
  }
  return j;
}

Json check_to_json(const Verdict& v) {
  Json j;
  j["pass"] = v.pass;
  j["reason"] = v.reason;
  j["failed_by"] = v.failed_by;
  j["clues"] = v.clues;
  j["accepts"] = v.accepts;
  if (v.tells_nothing) j["tells_nothing"] = true;
  j["method"] = v.method;
  j["rows"] = v.rows;
  j["rows_total"] = v.rows_total;
  if (v.rows_seed != 0) j["rows_seed"] = v.rows_seed;
  j["max_z"] = finite_or_null(v.max_z);
  j["max_row_z2"] = finite_or_null(v.max_row_z2);
  j["rms_z"] = finite_or_null(v.rms_z);
  j["bias_se"] = finite_or_null(v.bias_se);
  j["slope"] = finite_or_null(v.slope);
  j["max_abs"] = finite_or_null(v.max_abs);
  j["max_rel"] = finite_or_null(v.max_rel);
  j["max_ulp"] = finite_or_null(v.max_ulp);
  j["lse_max_z"] = finite_or_null(v.lse_max_z);
  j["probs_max_z"] = finite_or_null(v.probs_max_z);
  j["worst"] = {{"seq", v.worst.seq},
                {"pos", v.worst.pos},
                {"head", v.worst.head},
                {"channel", v.worst.channel},
                {"got", finite_or_null(v.worst.got)},
                {"expected", finite_or_null(v.worst.expected)},
                {"sigma", finite_or_null(v.worst.sigma)}};
  j["numerics"] = v.declared ? declared_to_json(*v.declared) : Json(nullptr);
  j["outputs_digest"] = v.outputs_digest;
  j["reference_s"] = finite_or_null(v.reference_s);
  if (v.refusal)
    j["refusal"] = {
        {"status", v.refusal->status}, {"step", v.refusal->step}, {"message", v.refusal->message}};
  j["invariants"] = Json::array();
  for (const InvariantResult& i : v.invariants)
    j["invariants"].push_back({{"name", i.name}, {"outcome", outcome_name(i.outcome)}, {"note", i.note}});
  return j;
}

/// null if the kernel was trusted.
Json watch_to_json(const WatchSummary& w) {
  if (w.launches == 0) return nullptr;
  return {{"launches", w.launches},
          {"by_reference", w.by_reference},
          {"fresh_us", w.fresh_us > 0 ? finite_or_null(w.fresh_us) : Json(nullptr)}};
}

Json ranks_to_json(const TimeResult& t) {
  Json j = {{"skew_us", finite_or_null(t.skew_us)}, {"alone_us", finite_or_null(t.alone_us)}};
  for (const auto& [key, field] : kRankFields) {
    j[key] = Json::array();
    for (const RankTimes& r : t.ranks) j[key].push_back(finite_or_null(r.*field));
  }
  return j;
}

/// `gpu`: the record is of a GPU.
Json time_to_json(const TimeResult& t, bool gpu) {
  Json j;
  j["median_us"] = finite_or_null(t.median_us);
  j["lo_us"] = finite_or_null(t.lo_us);
  j["hi_us"] = finite_or_null(t.hi_us);
  j["samples_us"] = Json::array();
  for (const double us : t.samples_us) j["samples_us"].push_back(finite_or_null(us));
  j["mean_us"] = finite_or_null(t.real_time_us);
  j["cpu_time_us"] = finite_or_null(t.cpu_time_us);
  j["iterations"] = t.iterations;
  j["cache"] = cache_mode_name(t.cache);
  // Before schema 3, "cold" meant cold data alone. Only entries that have this key mean both.
  j["code"] = !gpu ? Json(nullptr) : Json(t.cache == CacheMode::kCold ? "cold" : "warm");
  j["graph"] = t.graph;
  j["plan_us"] = finite_or_null(t.plan_us);
  j["disturbed"] = t.disturbed;
  j["cores_us"] = t.cores_us > 0 ? finite_or_null(t.cores_us) : Json(nullptr);
  j["memory_us"] = t.memory_us > 0 ? finite_or_null(t.memory_us) : Json(nullptr);
  j["handover_us"] = t.handover_us > 0 ? finite_or_null(t.handover_us) : Json(nullptr);
  j["host_bound"] = t.host_bound;
  j["near_floor"] = t.near_floor;
  j["copies"] = t.copies;
  j["watch"] = watch_to_json(t.watch);
  if (!t.ranks.empty()) j["ranks"] = ranks_to_json(t);
  return j;
}

/// null if the run did not request counters.
Json counters_to_json(const Record& r) {
  if (!r.counters) return nullptr;
  const CounterReading& c = *r.counters;
  Json j;
  j["dram_read_bytes"] = finite_or_null(c.dram_read_bytes);
  j["dram_write_bytes"] = finite_or_null(c.dram_write_bytes);
  j["dram_over_model"] = finite_or_null(dram_over_model(r));
  j["tensor_active_percent"] = finite_or_null(c.tensor_active_percent);
  j["l2_hit_percent"] = finite_or_null(c.l2_hit_percent);
  j["launches"] = c.launches;
  j["reason"] = c.reason;
  return j;
}

/// {} if there was no reading.
Json clocks_to_json(const Record& r) {
  Json j = Json::object();
  if (!r.time || r.time->clocks.readings == 0) return j;
  const ClockSummary& c = r.time->clocks;
  j["sm_mhz"] = finite_or_null(c.sm_mhz);
  j["sm_mhz_min"] = finite_or_null(c.sm_mhz_min);
  j["sm_mhz_max"] = finite_or_null(c.sm_mhz_max);
  j["mem_mhz"] = finite_or_null(c.mem_mhz);
  j["power_w"] = finite_or_null(c.power_w);
  j["temperature_c"] = finite_or_null(c.temperature_c);
  j["throttled"] = c.throttled();
  j["throttle"] = c.throttle;
  j["readings"] = c.readings;
  return j;
}

}  // namespace

nlohmann::ordered_json ceilings_to_json(const Ceilings& c) {
  Json j;
  j["read_gbs"] = finite_or_null(c.read_gbs);
  j["copy_gbs"] = finite_or_null(c.copy_gbs);
  j["cache_gbs"] = finite_or_null(c.cache_gbs);
  j["matmul_tflops"] = Json::object();
  for (const auto& m : c.matmul) j["matmul_tflops"][dtype_name(m.dtype)] = finite_or_null(m.tflops);
  j["floor_us"] = finite_or_null(c.floor_us);
  if (!c.links.empty()) j["links"] = Json::array();
  for (const auto& l : c.links)
    j["links"].push_back(
        {{"what", l.what}, {"ranks", l.ranks}, {"bytes", l.bytes}, {"us", finite_or_null(l.us)}});
  j["disturbed"] = c.disturbed;
  j["note"] = c.note;
  return j;
}

nlohmann::ordered_json device_to_json(const DeviceInfo& d) {
  return {{"name", d.name},
          {"kind", device_kind_name(d.kind)},
          {"model", d.model},
          {"uuid", d.uuid},
          {"driver", d.driver},
          {"cuda", d.runtime},
          {"compute_capability", d.compute_capability},
          {"multiprocessors", d.multiprocessors},
          {"threads", d.threads},
          {"memory_bytes", d.memory_bytes},
          {"cache_bytes", d.cache_bytes},
          {"flush_bytes", d.flush_bytes},
          {"clock_mhz", finite_or_null(d.clock_mhz)},
          {"memory_gbs", finite_or_null(d.memory_gbs)}};
}

namespace {

Json attnbench_to_json(const Record& r) {
  const Roofline* roof = r.roofline ? &*r.roofline : nullptr;
  const auto figure = [&](double Roofline::*field) {
    return roof ? finite_or_null(roof->*field) : Json(nullptr);
  };
  Json j;
  j["index"] = r.index;
  j["id"] = r.item.id;
  j["op"] = op_name(r.item.params.op);
  j["sweep"] = r.item.sweep;
  j["kernel"] = r.kernel;
  j["device"] = r.device;
  j["seed"] = r.item.seed;
  j["params"] = reported_params(r.item.params);
  j["repro"] = r.repro;
  j["status"] = status_name(r.status);
  j["reason"] = r.reason;
  j["log"] = r.log;
  j["check"] = r.check ? check_to_json(*r.check) : Json(nullptr);
  j["time"] = r.time ? time_to_json(*r.time, r.device != "cpu") : Json(nullptr);
  j["flop"] = figure(&Roofline::flop);
  j["executed_flop"] = roof ? finite_or_null(roof->executed_flop) : Json(nullptr);
  j["bytes"] = figure(&Roofline::bytes);
  j["formula"] = roof ? Json(roof->formula) : Json(nullptr);
  j["tflops"] = figure(&Roofline::tflops);
  j["gbs"] = figure(&Roofline::gbs);
  j["sol"] = roof ? finite_or_null(roof->sol) : Json(nullptr);
  j["bound"] = roof && !roof->bound.empty() ? Json(roof->bound) : Json(nullptr);
  j["floor_us"] = figure(&Roofline::floor_us);
  j["limit_us"] = figure(&Roofline::limit_us);
  j["clocks"] = clocks_to_json(r);
  j["counters"] = counters_to_json(r);
  j["stages"] = {{"setup_s", finite_or_null(r.stages.setup_s)},
                 {"verify_s", finite_or_null(r.stages.verify_s)},
                 {"time_s", finite_or_null(r.stages.time_s)}};
  return j;
}

}  // namespace

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
  j["attnbench"] = attnbench_to_json(r);
  return j;
}

nlohmann::ordered_json context_to_json(const RunContext& c) {
  Json j;
  j["date"] = c.date;
  j["host_name"] = c.host;
  j["executable"] = c.command_line.empty() ? "" : c.command_line.front();
  j["num_cpus"] = c.cpu_threads;
  j["mhz_per_cpu"] = std::isfinite(c.cpu_mhz) ? std::llround(c.cpu_mhz) : 0;
  j["cpu_scaling_enabled"] = c.cpu_scaling;
  j["caches"] = Json::array();
  for (const HostCache& cache : c.caches) {
    j["caches"].push_back({{"type", cache.type},
                           {"level", cache.level},
                           {"size", cache.size},
                           {"num_sharing", cache.num_sharing}});
  }
  j["load_avg"] = Json::array();
  for (const double load : c.load_avg) j["load_avg"].push_back(finite_or_null(load));
  j["library_build_type"] = c.build_type == "Debug" ? "debug" : "release";

  Json a;
  a["schema"] = kResultsSchema;
  a["default_params"] = Json::object();  // results_text omits parameters and lists them here
  a["name"] = c.name;
  a["version"] = c.version;
  a["revision"] = c.revision;
  a["build_type"] = c.build_type;
  a["command_line"] = c.command_line;
  a["device"] = device_to_json(c.device);
  a["cpu"] = {{"model", c.cpu_model}, {"threads", c.cpu_threads}};
  a["ceilings"] = ceilings_to_json(c.ceilings);
  a["complete"] = c.complete;
  a["planned"] = c.planned;
  a["plan"] = {{"digest", c.plan.digest},
               {"size", c.plan.size},
               {"shard", c.plan.shard},
               {"shards", c.plan.shards},
               {"options", Json::object()}};
  for (const auto& [name, value] : c.plan.options) a["plan"]["options"][name] = value;
  a["plugins"] = Json::array();
  for (const LoadedPlugin& plugin : c.plugins) {
    Json kernels = Json::array();
    for (const Kernel* k : plugin.kernels) kernels.push_back(k->name);
    a["plugins"].push_back({{"path", plugin.path}, {"digest", plugin.digest}, {"kernels", kernels}});
    for (const auto& [name, version] : plugin.versions) a["plugins"].back()["versions"][name] = version;
  }
  a["real_time"] = "median of the samples in attnbench.time.samples_us; 0 where there is no valid time";
  j["attnbench"] = a;
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
