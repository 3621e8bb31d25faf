#include "harness/results/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

namespace attnbench {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

class RecordFiles : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    dir_ = fs::temp_directory_path() / ("record_files_" + name + "_" + std::to_string(getpid()));
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

TEST_F(RecordFiles, ReplacesAndLeavesNothingBehind) {
  write_file_atomically(dir_ / "a.txt", "one");
  write_file_atomically(dir_ / "a.txt", "two");
  EXPECT_EQ(text_of(dir_ / "a.txt"), "two");
  EXPECT_EQ(files_in(dir_), 1);
  fs::create_symlink(dir_ / "a.txt", dir_ / "link");
  write_file_atomically(dir_ / "link", "three");
  EXPECT_EQ(text_of(dir_ / "a.txt"), "three");
  EXPECT_TRUE(fs::is_symlink(dir_ / "link"));
}

TEST_F(RecordFiles, ErrorsNameThePathAndTheReason) {
  const fs::path missing = dir_ / "no" / "a.txt";
  EXPECT_THAT([&] { write_file_atomically(missing, "x"); },
              ThrowsMessage<std::runtime_error>(missing.string() +
                                                ": error: cannot write: No such file or directory"));
  EXPECT_THAT([&] { write_file_atomically(dir_, "x"); },
              ThrowsMessage<std::runtime_error>(HasSubstr("Is a directory")));
  EXPECT_THAT([&] { write_file_atomically("/dev/full", "x"); },
              ThrowsMessage<std::runtime_error>("/dev/full: error: cannot write: No space left on device"));
}

TEST_F(RecordFiles, ANewFolderIsNobodyElses) {
  constexpr int kThreads = 8, kEach = 20;
  std::vector<std::vector<fs::path>> made(kThreads);
  std::vector<std::thread> threads;
  for (auto& mine : made) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) mine.push_back(make_new_folder(dir_ / "runs" / "a"));
    });
  }
  for (std::thread& t : threads) t.join();
  std::set<fs::path> all;
  for (const auto& mine : made) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), kThreads * kEach);
  EXPECT_TRUE(all.count(dir_ / "runs" / "a") && all.count(dir_ / "runs" / "a-2"));
  EXPECT_THAT([&] { make_new_folder("/proc/a"); },
              ThrowsMessage<FileError>(HasSubstr("cannot make the folder")));
}

}  // namespace
}  // namespace attnbench
