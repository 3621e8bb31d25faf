#include "harness/results/json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <algorithm>

#include <functional>
#include <regex>
#include <set>
#include <sstream>

#include "harness/config/keys.h"
#include "harness/results/load.h"
#include "tests/unit/results_fixtures.h"
#include "tests/unit/tree_files.h"

namespace attnbench {
namespace {

using test::kHostile;
using test::kInf;
using test::kNan;
using test::make_context;
using test::not_passing;
using test::passing;
using Json = nlohmann::ordered_json;

Json reread(const Json& j) { return Json::parse(dump_json(j, 2)); }

std::vector<std::string> keys_of(const Json& j) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : j.items()) keys.push_back(key);
  return keys;
}

TEST(RecordJson, ContextHasTheKeysOfGoogleBenchmark) {
  const Json c = reread(context_to_json(make_context()));
  for (const char* key : {"date", "host_name", "executable", "num_cpus", "mhz_per_cpu", "cpu_scaling_enabled",
                          "caches", "load_avg", "library_build_type"}) {
    EXPECT_TRUE(c.contains(key)) << key;
  }
  EXPECT_EQ(c["executable"], "attnbench");
  EXPECT_EQ(c["library_build_type"], "release");
  const Json& a = c["attnbench"];
  EXPECT_EQ(a["revision"], "abc");
  EXPECT_EQ(a["device"]["driver"], "580.0");
  EXPECT_EQ(a["device"]["cuda"], "13.0");
  EXPECT_EQ(a["ceilings"]["read_gbs"], 3100.0);
  EXPECT_TRUE(a["ceilings"]["copy_gbs"].is_null());
  EXPECT_EQ(a["ceilings"]["matmul_tflops"]["bf16"], 796.0);
  EXPECT_EQ(a["command_line"].size(), 3u);
}

TEST(RecordJson, EntryHasTheKeysOfGoogleBenchmarkInItsOrder) {
  const Json j = reread(record_to_json(passing("case"), 2, 1));
  const std::vector<std::string> expected = {"name",
                                             "family_index",
                                             "per_family_instance_index",
                                             "run_name",
                                             "run_type",
                                             "repetitions",
                                             "repetition_index",
                                             "threads",
                                             "iterations",
                                             "real_time",
                                             "cpu_time",
                                             "time_unit",
                                             "TFLOPs",
                                             "GBs",
                                             "SOL",
                                             "attnbench"};
  EXPECT_EQ(keys_of(j), expected);
  EXPECT_EQ(j["name"], "case/cuda_simt");
  EXPECT_EQ(j["family_index"], 2);
  EXPECT_EQ(j["per_family_instance_index"], 1);
  EXPECT_EQ(j["run_type"], "iteration");
  EXPECT_EQ(j["real_time"], 100.0);
  EXPECT_EQ(j["cpu_time"], 3.5);
  EXPECT_EQ(j["time_unit"], "us");
  EXPECT_EQ(j["iterations"], 6);
  EXPECT_DOUBLE_EQ(j["TFLOPs"].get<double>(), 412.345);
}

TEST(RecordJson, EntryHasTheNamesThatTheFormatPromises) {
  const Json a = reread(record_to_json(passing("case")))["attnbench"];
  for (const char* key :
       {"id", "op", "kernel", "device", "seed", "params", "repro", "status", "reason", "check", "time",
        "flop", "bytes", "formula", "tflops", "gbs", "sol", "bound", "clocks"}) {
    EXPECT_TRUE(a.contains(key)) << key;
  }
  for (const char* key :
       {"rows", "rows_total", "max_z", "max_row_z2", "bias_se", "slope", "max_abs", "max_rel", "lse_max_z"}) {
    EXPECT_TRUE(a["check"][key].is_number()) << key;
  }
  for (const char* key : {"seq", "pos", "head", "channel"}) EXPECT_EQ(a["check"]["worst"][key], -1) << key;
  for (const char* key : {"median_us", "lo_us", "hi_us", "samples_us", "cache", "graph", "plan_us"}) {
    EXPECT_TRUE(a["time"].contains(key)) << key;
  }
  EXPECT_EQ(a["time"]["samples_us"].size(), 6u);
  EXPECT_EQ(a["time"]["cache"], "cold");
  EXPECT_EQ(a["params"]["kv"], "paged");
  EXPECT_EQ(a["params"]["total_q"], 514);
  EXPECT_EQ(a["params"]["total_k"], 4096);
  EXPECT_TRUE(a["params"]["softmax_scale"].is_null());
  EXPECT_EQ(a["status"], "pass");
  EXPECT_TRUE(a["clocks"].is_object());
}

/// The names of all fields below `j`, as fields.md writes them: "check.worst.seq", "plugins[].path",
/// "params.*". What has no fixed names below it is in `open`.
void add_names(const Json& j, const std::string& at, const std::set<std::string>& open,
               std::set<std::string>& out) {
  if (open.contains(at)) {
    out.insert(at + ".*");
  } else if (j.is_object() && !j.empty()) {
    for (const auto& [key, value] : j.items())
      add_names(value, at.empty() ? key : fmt::format("{}.{}", at, key), open, out);
  } else if (j.is_array() && !j.empty() && j[0].is_object()) {
    for (const Json& element : j) add_names(element, at + "[]", open, out);
  } else {
    out.insert(at);
  }
}

/// The names in the first column of the tables of a section.
void add_rows(const std::string& page, const std::string& title, std::set<std::string>& out) {
  const std::size_t begin = page.find("\n## " + title + "\n");
  ASSERT_NE(begin, page.npos) << title;
  std::istringstream section(page.substr(begin, page.find("\n## ", begin + 1) - begin));
  const std::regex name("`([^`]+)`");
  for (std::string line; std::getline(section, line);) {
    if (!line.starts_with("| `")) continue;
    const std::string cell = line.substr(0, line.find(" | "));
    for (std::sregex_iterator i(cell.begin(), cell.end(), name), end; i != end; ++i)
      EXPECT_TRUE(out.insert(i->str(1)).second) << i->str(1) << " stands there twice";
  }
}

TEST(RecordJson, ThePageOfTheFieldsHasEachOfThem) {
  Record passed = passing("case");
  passed.check->declared = Declared{{DType::kFp32, DType::kFp32, 0}, kWaiverFlags};
  passed.check->invariants = {{"repeat", InvariantResult::Outcome::kHeld, ""}};
  passed.check->refusal = Refusal{"unsupported", "supports", "no"};
  passed.time->clocks = {1, 1755, 1755, 1755, 2619, 650, 50, {}};
  passed.check->tells_nothing = true;
  passed.time->watch.launches = 1;
  passed.time->clock = TimeClock::kCpu;
  passed.time->other_us = 200;
  passed.time->ranks.resize(1);
  passed.counters = CounterReading{};
  RunContext context = make_context();
  context.ceilings.links = {{"all_gather", 2, 8192, 10}};
  context.caches = {{"Data", 1, 32768, 1}};
  context.plan.options = {{"arguments", ""}};
  context.plugins = {{"a.py", "0", {}, {{"python", "3.11"}}}};
  context.device.trust = "runner";
  context.device.confinement = "landlock, seccomp";
  Json entry = record_to_json(passed);
  entry.update(record_to_json(not_passing("case", Status::kFail, "why")), /*merge_objects=*/true);
  Json own = record_to_json(passed).at("attnbench");
  entry.erase("attnbench");
  std::set<std::string> entry_names, own_names, context_names;
  add_names(entry, "", {}, entry_names);
  add_names(own, "", {"params"}, own_names);
  for (const char* whole : {"check", "time", "clocks", "counters"}) own_names.insert(whole);
  add_names(context_to_json(context), "",
            {"attnbench.default_params", "attnbench.ceilings.matmul_tflops", "attnbench.plan.options",
             "attnbench.plugins[].versions"},
            context_names);

  const std::string page = tree::read(tree::root() / "harness/results/fields.md");
  std::set<std::string> entry_rows, own_rows, context_rows;
  add_rows(page, "An entry of benchmarks", entry_rows);
  for (const char* title : {"attnbench in an entry", "check", "time", "clocks and counters"})
    add_rows(page, title, own_rows);
  add_rows(page, "context", context_rows);
  EXPECT_EQ(entry_rows, entry_names);
  EXPECT_EQ(own_rows, own_names);
  EXPECT_EQ(context_rows, context_names);
}

TEST(RecordJson, WhatDidNotPassIsAnErrorWithoutATime) {
  for (const Status s : {Status::kFail, Status::kUndecided, Status::kSkip, Status::kError, Status::kTimeout,
                         Status::kInvalidTime}) {
    Record r = passing("case");
    r.status = s;
    r.reason = "why";
    const Json j = reread(record_to_json(r));
    EXPECT_EQ(j["error_occurred"], true);
    EXPECT_EQ(j["error_message"], std::string(status_name(s)) + ": why");
    EXPECT_EQ(j["real_time"], 0.0);
    EXPECT_FALSE(j.contains("TFLOPs"));
    EXPECT_EQ(j["attnbench"]["time"]["median_us"], 100.0) << "the evidence stays";
  }
  Record untimed = passing("case");
  untimed.time.reset();
  untimed.roofline.reset();
  const Json j = reread(record_to_json(untimed));
  EXPECT_FALSE(j.contains("error_occurred"));
  EXPECT_EQ(j["real_time"], 0.0);
  EXPECT_TRUE(j["attnbench"]["time"].is_null());
}

/// Calls `visit` on every value.
void walk(const Json& j, const std::function<void(const Json&)>& visit) {
  visit(j);
  if (j.is_structured()) {
    for (const Json& child : j) walk(child, visit);
  }
}

/// Results read back from their text, with the omitted parameters filled in.
Json filled(const std::string& text) {
  Json results = Json::parse(text);
  for (Json& entry : results["benchmarks"]) fill_params(entry, results["context"]);
  results["context"]["attnbench"]["default_params"] = Json::object();
  return results;
}

TEST(RecordJson, TextHasALineForEachEntry) {
  for (const std::size_t entries : {0, 1, 3}) {
    const std::vector<Record> records(entries, passing("case"));
    Json results = results_to_json(make_context(), records);
    results["more"] = {{"member", 1}};
    const std::string text = results_text(results);
    // Plain JSON, because the order of keys does not matter.
    EXPECT_EQ(nlohmann::json(filled(text)), nlohmann::json(results));
    const std::string behind = text.substr(text.find("\"benchmarks\""));
    EXPECT_EQ(static_cast<std::size_t>(std::count(behind.begin(), behind.end(), '\n')),
              entries == 0 ? 5 : entries + 6)
        << behind.substr(0, 200);
  }
}

TEST(RecordJson, TextLeavesOutDefaults) {
  Record r = passing("case");
  r.item.params.head_dim = 64;
  Json text = Json::parse(results_text(results_to_json(make_context(), std::vector{r})));
  Json& params = text["benchmarks"][0]["attnbench"]["params"];
  EXPECT_EQ(params["head_dim"], 64);
  EXPECT_FALSE(params.contains("softcap"));
  EXPECT_EQ(text["context"]["attnbench"]["default_params"], reported_params(CaseParams{}));
}

TEST(RecordJson, DefaultsAreThoseOfTheFile) {
  Json context, entry;
  context["attnbench"]["default_params"] = {{"block_size", 1000}, {"kv", "lost"}};
  entry["attnbench"]["params"] = {{"kv", "paged"}, {"head_dim", 64}};
  const Json old = entry;
  fill_params(entry, Json::object());
  EXPECT_EQ(entry, old) << "an older file names all";
  fill_params(entry, context);
  EXPECT_EQ(entry["attnbench"]["params"], Json({{"block_size", 1000}, {"kv", "paged"}, {"head_dim", 64}}));
}

TEST(RecordJson, AParameterThatAnEntryNeverHadIsNotMadeUp) {
  Json results = results_to_json(make_context(), std::vector{passing("older"), passing("newer")});
  results["benchmarks"][0]["attnbench"]["params"].erase("softcap");
  Json read = filled(results_text(results));
  EXPECT_FALSE(read["benchmarks"][0]["attnbench"]["params"].contains("softcap"));
  EXPECT_EQ(read["benchmarks"][1]["attnbench"]["params"]["softcap"], 0.0);
}

TEST(RecordJson, NoNanOrInfinityAnywhere) {
  Record r = passing("case");
  for (double Verdict::*f : {&Verdict::max_z, &Verdict::max_row_z2, &Verdict::rms_z, &Verdict::slope,
                             &Verdict::bias_se, &Verdict::max_abs, &Verdict::max_rel, &Verdict::max_ulp,
                             &Verdict::lse_max_z, &Verdict::reference_s}) {
    (*r.check).*f = kNan;
  }
  r.check->worst.got = -kInf;
  r.time->median_us = kNan;
  r.time->cpu_time_us = kInf;
  r.time->samples_us = {1, kNan, kInf};
  r.roofline->tflops = kInf;
  r.roofline->gbs = kNan;
  r.roofline->sol = kNan;
  r.item.params.softcap = kInf;
  r.item.params.softmax_scale = kNan;
  RunContext c = make_context();
  c.ceilings.read_gbs = kInf;
  c.load_avg = {kNan};
  c.cpu_mhz = kNan;
  const std::vector<Record> records = {r};
  const Json built = results_to_json(c, records);
  walk(built, [](const Json& v) { EXPECT_TRUE(!v.is_number_float() || std::isfinite(v.get<double>())); });
  const std::string text = dump_json(built);
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_FALSE(std::regex_search(text, std::regex("[:,\\[ ]-?[iI]nf"))) << "words in quotes may hold it";
  const Json j = Json::parse(text);
  EXPECT_TRUE(j["benchmarks"][0]["attnbench"]["check"]["max_z"].is_null());
  EXPECT_EQ(j["benchmarks"][0]["real_time"], 0.0);
  EXPECT_FALSE(j["benchmarks"][0].contains("TFLOPs"));
}

TEST(RecordJson, HostileStringsStayValid) {
  Record r = not_passing(kHostile, Status::kError, kHostile);
  r.repro = kHostile;
  RunContext c = make_context();
  c.name = c.device.model = kHostile;
  const std::vector<Record> records = {r};
  const Json j = reread(results_to_json(c, records));
  const std::string reason = j["benchmarks"][0]["attnbench"]["reason"];
  EXPECT_NE(reason.find("\"b\""), std::string::npos);
  EXPECT_NE(reason.find("\xef\xbf\xbd"), std::string::npos) << "U+FFFD for the broken bytes";
  const std::string line = journal_line(r);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_TRUE(Json::accept(line));
}

TEST(RecordJson, FamiliesAreCasesAndInstancesAreKernels) {
  const std::vector<Record> records = {passing("a", "k1"), passing("b", "k1"), passing("a", "k2")};
  const Json b = results_to_json(make_context(), records)["benchmarks"];
  EXPECT_EQ(b[0]["family_index"], 0);
  EXPECT_EQ(b[1]["family_index"], 1);
  EXPECT_EQ(b[2]["family_index"], 0);
  EXPECT_EQ(b[2]["per_family_instance_index"], 1);
}

TEST(RecordJson, ClocksAreInTheRecord) {
  Record r = test::passing("a");
  EXPECT_TRUE(record_to_json(r)["attnbench"]["clocks"].empty()) << "nothing told";
  r.time->clocks = {1, 1755, 1755, 1755, 2619, 650, std::nullopt, {"sw_power_cap"}};
  const auto c = record_to_json(r)["attnbench"]["clocks"];
  EXPECT_EQ(c["sm_mhz"], 1755);
  EXPECT_EQ(c["power_w"], 650);
  EXPECT_TRUE(c["temperature_c"].is_null());
  EXPECT_EQ(c["throttled"], true);
  EXPECT_EQ(c["throttle"][0], "sw_power_cap");
  const ResultSet back =
      parse_results(dump_json(results_to_json(test::make_context(), std::vector{r})), "x.json");
  EXPECT_EQ(back.results.at(0).time->clocks.sm_mhz, 1755);
  EXPECT_TRUE(back.results.at(0).time->clocks.throttled());
  EXPECT_EQ(back.results.at(0).item.sweep, "decode");
}

}  // namespace
}  // namespace attnbench
