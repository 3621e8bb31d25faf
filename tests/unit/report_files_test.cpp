#include "harness/report/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "harness/report/load.h"
#include "tests/unit/report_fixtures.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;
using test::make_context;
using test::passing;
using testing::HasSubstr;
using testing::ThrowsMessage;

class ReportFiles : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    dir_ = fs::temp_directory_path() / ("report_files_" + name + "_" + std::to_string(getpid()));
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  std::string text_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  int files_in(const fs::path& dir) {
    return static_cast<int>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
  }

  fs::path dir_;
};

TEST_F(ReportFiles, ReplacesAndLeavesNothingBehind) {
  write_file_atomically(dir_ / "a.txt", "one");
  write_file_atomically(dir_ / "a.txt", "two");
  EXPECT_EQ(text_of(dir_ / "a.txt"), "two");
  EXPECT_EQ(files_in(dir_), 1);
  fs::create_symlink(dir_ / "a.txt", dir_ / "link");
  write_file_atomically(dir_ / "link", "three");
  EXPECT_EQ(text_of(dir_ / "a.txt"), "three");
  EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
}

TEST_F(ReportFiles, ErrorsNameThePathAndTheReason) {
  const fs::path missing = dir_ / "no" / "a.txt";
  EXPECT_THAT([&] { write_file_atomically(missing, "x"); },
              ThrowsMessage<std::runtime_error>(missing.string() +
                                                ": error: cannot write: No such file or directory"));
  EXPECT_THAT([&] { write_file_atomically(dir_, "x"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("Is a directory")));
  EXPECT_THAT([&] { write_file_atomically("/dev/full", "x"); },
              ThrowsMessage<std::runtime_error>("/dev/full: error: cannot write: No space left on device"));
}

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
