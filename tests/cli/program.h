// Runs the built program in a folder of its own and says what came out.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace attnbench::testing {

struct Outcome {
  int exit_code = -1;  ///< 128 + signal where one ended it
  std::string out;
  std::string err;
};

/// A folder under the build tree, removed with the object unless the test has failed.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& dir() const { return dir_; }
  /// Writes a file in it; returns its path.
  std::string write(const std::string& name, const std::string& text) const;
  std::string path(const std::string& name) const { return (dir_ / name).string(); }

 private:
  std::filesystem::path dir_;
};

/// A started program; its working folder is the scratch folder, its input is empty.
class Running {
 public:
  Running(const Scratch& scratch, const std::string& program, const std::vector<std::string>& args);
  void signal(int number) const;
  pid_t pid() const { return pid_; }
  /// Waits up to `seconds` until stderr so far holds `text`.
  bool wait_for_stderr(const std::string& text, double seconds) const;
  Outcome wait();

 private:
  pid_t pid_;
  std::string out_path_, err_path_;
};

/// Runs `attnbench args...` to its end.
Outcome run_attnbench(const Scratch& scratch, const std::vector<std::string>& args);
/// The same of the program with faulty kernels (tests/faults).
Outcome run_faulty(const Scratch& scratch, const std::vector<std::string>& args);

std::string read_text(const std::filesystem::path& path);

/// Parses a file; a test failure and null where it is no JSON.
nlohmann::json read_json(const std::filesystem::path& path);

/// The `attnbench` objects of all entries of a results file, or of results.json in a folder, with all parameters.
std::vector<nlohmann::json> read_records(const std::filesystem::path& path);

/// The words of a shell line with single quotes, as the repro lines have them.
std::vector<std::string> shell_words(const std::string& line);

/// The path of a file of the source tree.
std::string source_path(const std::string& relative);

}  // namespace attnbench::testing
