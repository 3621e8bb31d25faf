#include "harness/report/formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "harness/results/load.h"
#include "tests/unit/results_fixtures.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;
using test::make_context;
using test::passing;
using testing::ThrowsMessage;

class ReportFiles : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    dir_ = fs::temp_directory_path() / ("report_files_" + name + "_" + std::to_string(getpid()));
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  int files_in(const fs::path& dir) {
    return static_cast<int>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
  }

  fs::path dir_;
};

TEST_F(ReportFiles, WritesWhatIsAskedAndJsonAlways) {
  const std::vector<Record> records = {passing("a")};
  const fs::path none = dir_ / "deep" / "none", all = dir_ / "all";
  EXPECT_EQ(write_reports(none, {}, make_context(), records), std::vector<fs::path>{none / "results.json"});
  const std::vector<std::string> formats = {"junit", "csv", "md", "json"};
  const std::vector<fs::path> paths = write_reports(all, formats, make_context(), records);
  EXPECT_EQ(paths, (std::vector<fs::path>{all / "results.json", all / "results.csv", all / "results.md",
                                          all / "junit.xml"}));
  for (const fs::path& p : paths) EXPECT_GT(fs::file_size(p), 100u) << p;
  EXPECT_EQ(files_in(all), 4);
  EXPECT_EQ(load_results((all / "results.json").string()).results.size(), 1u);
}

TEST_F(ReportFiles, RefusesAnUnknownFormatBeforeWriting) {
  const std::vector<std::string> formats = {"csv", "xml"};
  EXPECT_THAT([&] { write_reports(dir_ / "x", formats, make_context(), {}); },
              ThrowsMessage<Error>("unknown format 'xml': allowed are json, csv, md, junit"));
  EXPECT_FALSE(fs::exists(dir_ / "x"));
}

}  // namespace
}  // namespace attnbench
