#include "tests/cli/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

namespace attnbench::testing {
namespace {

namespace fs = std::filesystem;

/// Runs in the child. On failure it exits with 127, as a shell does.
void redirect(const std::string& path, int flags, int fd) {
  const int opened = open(path.c_str(), flags, 0666);
  if (opened < 0 || dup2(opened, fd) < 0) _exit(127);
}

}  // namespace

Scratch::Scratch() {
  fs::create_directories(ATTNBENCH_SCRATCH_DIR);
  std::string name = std::string(ATTNBENCH_SCRATCH_DIR) + "/XXXXXX";
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
  dir_ = name;
}

Scratch::~Scratch() {
  std::error_code ignored;
  if (!::testing::Test::HasFailure()) fs::remove_all(dir_, ignored);
}

std::string Scratch::write(const std::string& name, const std::string& text) const {
  std::ofstream(dir_ / name, std::ios::binary) << text;
  return path(name);
}

Running::Running(const Scratch& scratch, const std::string& program, const std::vector<std::string>& args) {
  static int count = 0;
  const std::string base = scratch.path("stream" + std::to_string(++count));
  out_path_ = base + ".out";
  err_path_ = base + ".err";
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    if (chdir(scratch.dir().c_str()) != 0) _exit(127);
    // Tests share their cores. Threads that spin at a barrier would wait for each other's time slices.
    setenv("OMP_WAIT_POLICY", "passive", 0);
    redirect("/dev/null", O_RDONLY, 0);
    redirect(out_path_, O_WRONLY | O_CREAT | O_TRUNC, 1);
    redirect(err_path_, O_WRONLY | O_CREAT | O_TRUNC, 2);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
}

void Running::signal(int number) const { kill(pid_, number); }

bool Running::wait_for_stderr(const std::string& text, double seconds) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (read_text(err_path_).find(text) != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

Outcome Running::wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  Outcome o;
  o.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  o.out = read_text(out_path_);
  o.err = read_text(err_path_);
  return o;
}

Outcome run_attnbench(const Scratch& scratch, const std::vector<std::string>& args) {
  return Running(scratch, ATTNBENCH_PROGRAM, args).wait();
}

Outcome run_faulty(const Scratch& scratch, const std::vector<std::string>& args) {
  return Running(scratch, ATTNBENCH_FAULTY, args).wait();
}

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

nlohmann::json read_json(const fs::path& path) {
  const std::string text = read_text(path);
  nlohmann::json j = nlohmann::json::parse(text, nullptr, false);
  EXPECT_FALSE(j.is_discarded()) << path << " is not JSON: " << text.substr(0, 500);
  return j.is_discarded() ? nlohmann::json() : j;
}

std::vector<nlohmann::json> read_records(const fs::path& path) {
  std::vector<nlohmann::json> records;
  const nlohmann::json results = read_json(fs::is_directory(path) ? path / "results.json" : path);
  if (!results.contains("benchmarks")) return records;
  for (const auto& entry : results["benchmarks"]) {
    nlohmann::json& record = records.emplace_back(entry["attnbench"]);
    nlohmann::json params = results.at("context").at("attnbench").at("default_params");
    params.update(record.at("params"));
    record["params"] = params;
  }
  return records;
}

std::vector<std::string> shell_words(const std::string& line) {
  std::vector<std::string> words;
  bool quoted = false;
  bool in_word = false;
  for (const char c : line) {
    if (c == '\'') {
      quoted = !quoted;
      if (!in_word) words.emplace_back();
      in_word = true;
    } else if (c == ' ' && !quoted) {
      in_word = false;
    } else {
      if (!in_word) words.emplace_back();
      in_word = true;
      words.back() += c;
    }
  }
  return words;
}

std::string source_path(const std::string& relative) {
  return std::string(ATTNBENCH_SOURCE_DIR) + "/" + relative;
}

}  // namespace attnbench::testing
