#include "harness/results/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <filesystem>

#include "harness/results/files.h"
#include "harness/results/json.h"
#include "tests/unit/results_fixtures.h"

namespace attnbench {
namespace {

using test::make_context;
using test::not_passing;
using test::passing;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string error_of(const std::string& text, const std::string& path = "f.json") {
  try {
    parse_results(text, path);
  } catch (const ResultsError& e) {
    return e.what();
  }
  return "";
}

TEST(RecordLoad, ReadsBackWhatWasWritten) {
  const std::vector<Record> records = {passing("a"), not_passing("b", Status::kFail, "max|z| 40"),
                                       not_passing("c", Status::kSkip, "head_dim")};
  const ResultSet set = parse_results(dump_json(results_to_json(make_context(), records), 2), "r.json");
  ASSERT_EQ(set.results.size(), 3u);
  const Record& a = set.results[0];
  EXPECT_EQ(record_name(a), "a/cuda_simt");
  EXPECT_EQ(a.item.id, "a");
  EXPECT_EQ(a.kernel, "cuda_simt");
  EXPECT_EQ(a.device, "cuda:0");
  EXPECT_EQ(a.status, Status::kPass);
  EXPECT_EQ(a.median_us(), 100);
  EXPECT_EQ(a.samples_us(), records[0].time->samples_us);
  EXPECT_EQ(a.roofline->sol, 0.643);
  EXPECT_EQ(a.time->cache, CacheMode::kCold);
  EXPECT_EQ(a.roofline->bound, "memory");
  EXPECT_EQ(set.results[1].status, Status::kFail);
  EXPECT_EQ(set.results[1].reason, "max|z| 40");
  EXPECT_FALSE(set.results[1].median_us());
  EXPECT_EQ(set.results[2].status, Status::kSkip);
  EXPECT_EQ(set.context.device.model, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(set.context.device.driver, "580.0");
  EXPECT_EQ(set.context.build_type, "Release");
  EXPECT_TRUE(set.context.complete);
}

TEST(RecordLoad, BothFormsOfResultsAreTheSame) {
  const nlohmann::ordered_json whole =
      results_to_json(make_context(), std::vector{passing("a"), passing("b")});
  const ResultSet old = parse_results(dump_json(whole), "r.json"),
                  light = parse_results(results_text(whole), "r.json");
  ASSERT_EQ(light.results.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(*light.results[i].entry, *old.results[i].entry);
    EXPECT_EQ(light.results[i].entry->at("/attnbench/params/softcap"_json_pointer), 0.0);
  }
}

TEST(RecordLoad, AFileThatCannotBeReadBackWholeIsRefused) {
  const std::string text = results_text(results_to_json(make_context(), std::vector{passing("a")}));
  const auto changed = [&](const auto& change) {
    nlohmann::ordered_json file = nlohmann::ordered_json::parse(text);
    change(file["context"]["attnbench"]);
    return error_of(file.dump());
  };
  EXPECT_EQ(changed([](auto&) {}), "");
  EXPECT_THAT(changed([](auto& own) { own["schema"] = kResultsSchema + 1; }),
              StartsWith("f.json: error: context.attnbench: 'schema' is 4, this program reads up to 3"));
  EXPECT_THAT(changed([](auto& own) { own.erase("default_params"); }),
              HasSubstr("'default_params' is missing"));
  // Older files name every parameter in every entry.
  EXPECT_EQ(changed([](auto& own) { own["schema"] = 1, own.erase("default_params"); }), "");
}

TEST(RecordLoad, ColdOfAnOldGpuRecordMeansColdDataAlone) {
  const auto cache_of = [](const char* device, bool with_code) {
    nlohmann::ordered_json file = results_to_json(make_context(), std::vector{passing("a")});
    nlohmann::ordered_json& own = file["benchmarks"][0]["attnbench"];
    own["device"] = device;
    if (!with_code) own["time"].erase("code");
    return parse_results(file.dump(), "r.json").results.at(0).time->cache;
  };
  EXPECT_EQ(cache_of("cuda:0", true), CacheMode::kCold);
  EXPECT_EQ(cache_of("cuda:0", false), CacheMode::kColdData);
  EXPECT_EQ(cache_of("cpu", false), CacheMode::kCold);
}

TEST(RecordLoad, JournalToleratesATornLastLine) {
  const std::string a = journal_line(passing("a")), b = journal_line(passing("b"));
  const ResultSet whole = parse_results(a + b, "journal.jsonl");
  EXPECT_EQ(whole.results.size(), 2u);
  EXPECT_EQ(whole.torn_lines, 0);
  for (const std::size_t cut : {std::size_t{1}, b.size() / 2, b.size() - 2}) {
    const ResultSet torn = parse_results(a + b.substr(0, cut), "journal.jsonl");
    EXPECT_EQ(torn.results.size(), 1u) << cut;
    EXPECT_EQ(torn.torn_lines, 1) << cut;
  }
  const ResultSet unterminated = parse_results(a + b.substr(0, b.size() - 1), "journal.jsonl");
  EXPECT_EQ(unterminated.results.size(), 2u);
  EXPECT_EQ(unterminated.torn_lines, 0);
  EXPECT_TRUE(parse_results("", "journal.jsonl").results.empty());
  EXPECT_THAT(error_of(a + "{\"na\n" + b, "journal.jsonl"), StartsWith("journal.jsonl:2: error: not JSON"));
}

TEST(RecordLoad, ALaterEntryOfAResumedRunWins) {
  const std::string text =
      journal_line(not_passing("a", Status::kTimeout, "hung")) + journal_line(passing("a"));
  const ResultSet set = parse_results(text, "journal.jsonl");
  ASSERT_EQ(set.results.size(), 1u);
  EXPECT_EQ(set.results[0].status, Status::kPass);
  EXPECT_EQ(set.replaced, 1);
}

TEST(RecordLoad, PlainGoogleBenchmark) {
  const ResultSet set =
      parse_results(R"({"context": {"date": "d", "host_name": "h", "num_cpus": 2}, "benchmarks": [
    {"name": "BM/r", "run_name": "BM/r", "run_type": "iteration", "real_time": 300.0, "cpu_time": 1, "time_unit": "ns"},
    {"name": "BM/r", "run_name": "BM/r", "run_type": "iteration", "real_time": 100.0, "cpu_time": 1, "time_unit": "ns"},
    {"name": "BM/r", "run_name": "BM/r", "run_type": "iteration", "real_time": 200.0, "cpu_time": 1, "time_unit": "ns"},
    {"name": "BM/r_mean", "run_name": "BM/r", "run_type": "aggregate", "real_time": 200.0, "time_unit": "ns"},
    {"name": "MS", "real_time": 2.0, "time_unit": "ms"},
    {"name": "Bad", "run_type": "iteration", "error_occurred": true, "error_message": "boom", "real_time": 0},
    {"name": "Skipped", "skipped": true, "skip_message": "no GPU", "real_time": 0}]})",
                    "gb.json");
  ASSERT_EQ(set.results.size(), 4u);
  EXPECT_THAT(set.results[0].samples_us(), ElementsAre(0.3, 0.1, 0.2));
  EXPECT_DOUBLE_EQ(set.results[0].time->median_us, 0.2);
  EXPECT_DOUBLE_EQ(set.results[0].time->lo_us, 0.1);
  EXPECT_DOUBLE_EQ(set.results[0].time->hi_us, 0.3);
  EXPECT_DOUBLE_EQ(set.results[1].time->median_us, 2000);
  EXPECT_EQ(set.results[2].status, Status::kError);
  EXPECT_EQ(set.results[2].reason, "boom");
  EXPECT_EQ(set.results[3].status, Status::kSkip);
}

TEST(RecordLoad, ErrorsNameTheFileAndThePlace) {
  EXPECT_THAT(error_of(""), StartsWith("f.json: error: the file is empty"));
  EXPECT_THAT(error_of("name: yaml"), StartsWith("f.json: error: this is no results file"));
  EXPECT_THAT(error_of("[1, 2"),
              StartsWith("f.json: error: not JSON: it breaks off or is damaged at byte 5 of 5"));
  EXPECT_THAT(error_of("{\"benchmarks\": 1e999}"), StartsWith("f.json: error: not JSON"));
  EXPECT_THAT(error_of("{}"), HasSubstr("f.json: error: not a results file"));
  EXPECT_THAT(error_of("[]"), HasSubstr("not a results file"));
  EXPECT_THAT(error_of(R"({"benchmarks": [3]})"), StartsWith("f.json: error: benchmarks[0]: not an object"));
  EXPECT_THAT(error_of(R"({"benchmarks": [{"name": 3}]})"),
              HasSubstr("benchmarks[0]: 'name' is not a string"));
  EXPECT_THAT(error_of(R"({"benchmarks": [{"name": "a"}]})"), HasSubstr("'real_time' is missing"));
  EXPECT_THAT(error_of(R"({"benchmarks": [{"name": "a", "real_time": 1, "time_unit": "h"}]})"),
              HasSubstr("time_unit 'h' is not one of"));
  EXPECT_THAT(error_of(R"({"benchmarks": [{"name": "a", "attnbench": {"id": "a", "status": "good"}}]})"),
              HasSubstr("status 'good' is not one of"));
  EXPECT_THAT(error_of(R"({"benchmarks": [{"name": "a", "attnbench": {"status": "pass"}}]})"),
              HasSubstr("'attnbench.id' is missing"));
  EXPECT_THAT(error_of(R"({"benchmarks": [{"name": "a_mean", "run_type": "aggregate"}]})"),
              HasSubstr("holds only aggregates"));
  EXPECT_THAT([] { load_results("/no/such/file.json"); },
              testing::ThrowsMessage<ResultsError>(
                  StartsWith("/no/such/file.json: error: cannot be read: No such file")));
}

class RecordLoadFolder : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() /
           ("record_load_" + std::to_string(testing::UnitTest::GetInstance()->random_seed()) + "_" +
            std::to_string(getpid()));
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::filesystem::path dir_;
};

TEST_F(RecordLoadFolder, StandsForItsResultsOrElseItsJournal) {
  EXPECT_THROW(load_results(dir_.string()), ResultsError);
  write_file_atomically(dir_ / "journal.jsonl", journal_line(passing("from_journal")));
  EXPECT_EQ(load_results(dir_.string()).results.at(0).item.id, "from_journal");
  const std::vector<Record> records = {passing("from_results")};
  write_file_atomically(dir_ / "results.json", results_text(results_to_json(make_context(), records)));
  EXPECT_EQ(load_results(dir_.string()).results.at(0).item.id, "from_results");

  // After a kill, the journal has more than the first results.json, which still has the context.
  RunContext context = make_context();
  context.complete = false;
  write_file_atomically(dir_ / "results.json", results_text(results_to_json(context, {})));
  const ResultSet killed = load_results(dir_.string());
  EXPECT_EQ(killed.results.at(0).item.id, "from_journal");
  EXPECT_FALSE(killed.context.complete);
  EXPECT_EQ(killed.context.device.model, "NVIDIA H100 80GB HBM3");
}

}  // namespace
}  // namespace attnbench
