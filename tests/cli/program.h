// Runs the built program in a separate folder and returns its output.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace attnbench::testing {

/// Threads that keep cores busy while it lives.
class Busy {
 public:
  explicit Busy(unsigned threads) {
    for (unsigned i = 0; i < threads; ++i)
      threads_.emplace_back([this] {
        while (!end_.load(std::memory_order_relaxed)) {
        }
      });
  }
  ~Busy() {
    end_ = true;
    for (std::thread& t : threads_) t.join();
  }

 private:
  std::atomic<bool> end_{false};
  std::vector<std::thread> threads_;
};

struct Outcome {
  int exit_code = -1;  ///< 128 + signal if a signal ended it
  std::string out;
  std::string err;
};

/// A folder under the build tree. It is removed with the object unless the test has failed.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& dir() const { return dir_; }
  /// Writes a file in the folder and returns its path.
  std::string write(const std::string& name, const std::string& text) const;
  std::string path(const std::string& name) const { return (dir_ / name).string(); }

 private:
  std::filesystem::path dir_;
};

/// A started program. Its working folder is the scratch folder; its input is empty.
class Running {
 public:
  Running(const Scratch& scratch, const std::string& program, const std::vector<std::string>& args);
  void signal(int number) const;
  pid_t pid() const { return pid_; }
  /// Waits up to `seconds` until stderr holds `text`.
  bool wait_for_stderr(const std::string& text, double seconds) const;
  Outcome wait();

 private:
  pid_t pid_;
  std::string out_path_, err_path_;
};

/// Runs `attnbench args...` to the end.
Outcome run_attnbench(const Scratch& scratch, const std::vector<std::string>& args);
/// The same with the program that has faulty kernels (tests/faults).
Outcome run_faulty(const Scratch& scratch, const std::vector<std::string>& args);

std::string read_text(const std::filesystem::path& path);

/// Parses a file. If it is not JSON, fails the test and returns null.
nlohmann::json read_json(const std::filesystem::path& path);

/// The `attnbench` objects of all entries of a results file, or of results.json in a folder. All parameters
/// are filled in.
std::vector<nlohmann::json> read_records(const std::filesystem::path& path);

/// The words of a shell line with single quotes, as in repro lines.
std::vector<std::string> shell_words(const std::string& line);

/// The path of a file in the source tree.
std::string source_path(const std::string& relative);

}  // namespace attnbench::testing
