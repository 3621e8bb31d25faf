// Untrusted configurations and results: their text runs nothing, forges nothing, and writes only in the
// folder of the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

/// Names in double quotes, as in YAML. Each breaks some careless reader.
constexpr const char* kNames[] = {
    R"(=HYPERLINK(\"http://x\",\"y\"))",    // a spreadsheet formula
    R"(+1+cmd|' /C calc'!A0)",              // a spreadsheet formula
    R"(@SUM(1))",                           // a spreadsheet formula
    R"(-2+3)",                              // a spreadsheet formula
    R"(\e[2J\e]0;owned\x07\u009b31m)",      // control sequences of a terminal
    R"(x\n::error::forged\r\n##[error]y)",  // extra lines in a CI log
    R"(</testsuite><script>alert(1)</script>]]>&x;)",
    R"(| `x` | [a](javascript:x) **b** <img src=x onerror=y>)",
    R"(../../../../../../tmp/attnbench-owned)",
    R"($(touch owned) `touch owned`; touch owned)",
    R"(\u202egnp.exe\u2066)",  // reads backwards
};

std::string hostile_sweep() {
  std::string text = std::string("name: \"") + kNames[8] + "\"\nsweeps:\n";
  int i = 0;
  for (const char* name : kNames)
    text += std::string("  - {name: \"") + name +
            "\", batch: q5, heads: 2, head_dim: " + std::to_string(8 * ++i) + "}\n";
  return text;
}

/// Fails for bytes that a terminal obeys and for characters that change the direction of text.
void expect_plain(const std::string& text, const std::string& what) {
  for (const char c : text) {
    ASSERT_FALSE((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
        << what << ":\n"
        << text;
  }
  for (const char* bad : {"\xc2\x9b", "\xe2\x80\xae", "\xe2\x81\xa6"})
    EXPECT_THAT(text, Not(HasSubstr(bad))) << what;
}

std::set<std::string> files_under(const fs::path& dir) {
  std::set<std::string> out;
  for (const auto& e : fs::recursive_directory_iterator(dir)) {
    if (e.is_regular_file()) out.insert(fs::relative(e.path(), dir).string());
  }
  return out;
}

/// Fields as in RFC 4180, as far as this test needs it.
std::vector<std::string> csv_fields(const std::string& text) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      if (quoted && i + 1 < text.size() && text[i + 1] == '"') {
        fields.back() += text[++i];
      } else {
        quoted = !quoted;
      }
    } else if (!quoted && (c == ',' || c == '\n')) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

TEST(CliHostile, NamesOfASweep) {
  const Scratch scratch;
  const std::string file = scratch.write("h.yaml", hostile_sweep());
  const Outcome o =
      run_faulty(scratch, {"run", file, "--device", "cpu", "--no-time", "--kernel", "cpu", "--kernel",
                           "drop_last_key", "--out", "out", "--format", "json,csv,md,junit"});
  ASSERT_EQ(o.exit_code, 1) << o.err;
  const fs::path dir = scratch.dir() / "out";
  EXPECT_EQ(files_under(dir), (std::set<std::string>{"journal.jsonl", "junit.xml", "results.csv",
                                                     "results.json", "results.md"}));
  EXPECT_FALSE(fs::exists(scratch.path("owned")));
  EXPECT_FALSE(fs::exists("/tmp/attnbench-owned"));
  expect_plain(o.out, "stdout");
  expect_plain(o.err, "stderr");
  const std::string markdown = read_text(dir / "results.md");
  expect_plain(markdown, "Markdown");
  for (const char* bad : {"<script", "<img", "](javascript"}) EXPECT_THAT(markdown, Not(HasSubstr(bad)));
  const std::string junit = read_text(dir / "junit.xml");
  expect_plain(junit, "JUnit");
  EXPECT_THAT(junit, Not(HasSubstr("<script")));
  EXPECT_THAT(junit, HasSubstr("&lt;/testsuite&gt;&lt;script&gt;"));
  for (const std::string& field : csv_fields(read_text(dir / "results.csv"))) {
    if (field.empty() || std::string("=+-@\t\r").find(field[0]) == std::string::npos) continue;
    std::size_t used = 0;
    EXPECT_NO_THROW(std::stod(field, &used)) << field;
    EXPECT_EQ(used, field.size()) << field;
  }
  // The JSON keeps the text of the file.
  const auto records = read_records(dir);
  ASSERT_EQ(records.size(), 22u);
  EXPECT_EQ(records[6]["sweep"], "-2+3");
  EXPECT_EQ(records[12]["sweep"], "</testsuite><script>alert(1)</script>]]>&x;");
}

TEST(CliHostile, NamesOfFoldersStayBelowResultsRuns) {
  const Scratch scratch;
  const std::string file = scratch.write(
      "h.yaml", std::string("name: \"") + kNames[8] + "\"\nsweeps: [{batch: q5, heads: 2, head_dim: 8}]\n");
  EXPECT_EQ(run_attnbench(scratch, {"run", file, "--device", "cpu", "--no-time"}).exit_code, 0);
  int folders = 0;
  for (const auto& e : fs::directory_iterator(scratch.dir() / "results" / "runs")) {
    ++folders;
    EXPECT_THAT(e.path().filename().string(), HasSubstr("tmp-attnbench-owned"));
  }
  EXPECT_EQ(folders, 1);
  EXPECT_FALSE(fs::exists("/tmp/attnbench-owned"));
}

TEST(CliHostile, ErrorsQuoteNothingThatATerminalObeys) {
  const Scratch scratch;
  for (const char* name : kNames) {
    const std::string quoted = std::string("\"") + name + "\"";
    for (const std::string& text : {"name: x\nsweeps: [{batch: " + quoted + "}]\n",
                                    "name: x\n" + quoted + ": 1\nsweeps: [{batch: q4}]\n",
                                    "name: x\nsweeps: [{batch: q4, dtype: " + quoted + "}]\n"}) {
      const Outcome o = run_attnbench(scratch, {"list", scratch.write("h.yaml", text)});
      EXPECT_EQ(o.exit_code, 2) << text;
      expect_plain(o.err, text);
      EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << "a forged line: " << o.err;
    }
  }
}

TEST(CliHostile, WhatAPlugInPrintsAndSaysOfItself) {
  const Scratch scratch;
  const std::string plugin = ATTNBENCH_PLUGIN_DIR "/ends.so";
  setenv("ATTNBENCH_TEST_END", "launch steer", 1);
  const Outcome run =
      run_attnbench(scratch, {"run", "--case", "{batch: q5, heads: 2, head_dim: 24}", "--device", "cpu",
                              "--plugin", plugin, "--kernel", "example", "--no-time", "--out", "out"});
  unsetenv("ATTNBENCH_TEST_END");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  expect_plain(run.err, "live output");
  EXPECT_THAT(run.err, HasSubstr("A\\x1b[2J\\x0dB\\u009b1mC\\u202eD\n"));
  const Outcome kernels = run_attnbench(scratch, {"kernels", "--plugin", plugin});
  expect_plain(kernels.out, "summary");
  EXPECT_THAT(kernels.out, HasSubstr("clears the screen:\\x1b[2J\n"));
}

TEST(CliHostile, NamesOfFiles) {
  const Scratch scratch;
  const std::string name = "a\x1b[2J\xe2\x80\xae\xc2\x9b.yaml";
  scratch.write(name, "name: x\nsweeps: [{batch: q5, heads: 2, head_dim: 8}]\n");
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"list", "no" + name},
        {"run", name, "--device", "cpu", "--no-time", "--out", "d" + name},
        {"compare", "e" + name, "d" + name},
        {"trace", name},
        {"init", name},
        {"check", name, name},
        {"run", name, "--plugin", name},
        {"rum" + name},
        {"merge", "d" + name, "-o", "m" + name}}) {
    const Outcome o = run_attnbench(scratch, args);
    expect_plain(o.out + o.err, args[0]);
    EXPECT_THAT(o.out + o.err, HasSubstr("a\\x1b[2J\\u202e\\u009b.yaml")) << args[0];
  }
}

TEST(CliHostile, LongErrorsKeepTheirBeginAndTheirEnd) {
  const Scratch scratch;
  const std::string x(9000, 'x');
  const auto file = [&](const std::string& name, const std::string& text) {
    return scratch.write(name, text);
  };
  const std::string sweep = "name: x\nsweeps: [{batch: ";
  struct {
    std::vector<std::string> args;
    const char* ends;
  } const mistakes[] = {
      {{x}, "completion\n"},  // the last command
      {{"run", "--" + x}, "'attnbench run --help' lists what there is\n"},
      {{"run", x}, "error: File name too long; name another path\n"},
      {{"list", "./" + x + ".yaml"}, "error: File name too long; name another path\n"},
      {{"list", file("batch.yaml", sweep + x + "}]\n")}, "\n"},
      {{"list", file("number.yaml", sweep + "q" + std::string(9000, '9') + "}]\n")}, "\n"},
      {{"list", file("key.yaml", sweep + "q4, " + x + ": 1}]\n")}, "\n"},
      {{"list", file("value.yaml", sweep + "q4, dtype: [" + x + "]}]\n")}, "\n"},
      {{"run", "--case", "{batch: q4, dtype: " + x + "}"}, "\n"},
      {{"run", "--case", "{batch: q4}", "--kernel", x}, "\n"},
      {{"run", "--case", "{batch: q4}", "--device", x}, "\n"},
      {{"run", "--case", "{batch: q4}", "--plugin", x}, "\n"},
      {{"run", "--case", "{batch: q4}", "--filter", "(" + x}, "\n"},
      {{"run", "--case", "{batch: q4}", "--device", "cpu", "--out", x},
       "name a place where you may write (run, gate: --out DIR)\n"},
      {{"run", "--case", "{batch: q4}", "--peers", x}, "\n"},
      {{"compare", x, x}, "the folder of a run that holds one\n"},
      {{"compare",
        file("a.json", "{\"benchmarks\": [{\"name\": \"a\", \"attnbench\": {\"id\": \"a\", \"status\": \"" +
                           x + "\"}}]}"),
        "a.json"},
       "\n"},
      {{"trace", x}, "give a file of requests (attnbench trace --help)\n"},
      {{"serve-sim", x}, "\n"},
      {{"check", x, x}, "\n"},
      {{"merge", x, "-o", x}, "\n"},
      {{"export", "{batch: q4}", "-o", x}, "the file's name must end in .safetensors\n"},
      {{"init", x}, "the file's name must end in .yaml\n"},
  };
  for (const auto& m : mistakes) {
    const Outcome o = run_attnbench(scratch, m.args);
    const std::string what =
        m.args[0].substr(0, 20) + " " + (m.args.size() > 1 ? m.args[1].substr(0, 20) : "");
    EXPECT_EQ(o.exit_code, 2) << what;
    EXPECT_THAT(o.err, ::testing::EndsWith(m.ends)) << what;
    std::istringstream lines(o.err);
    for (std::string line; std::getline(lines, line);) {
      const auto characters =
          std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
      EXPECT_LE(characters, 500) << what << ": " << line.substr(0, 600);
    }
  }
}

TEST(CliHostile, ResultsFiles) {
  const Scratch scratch;
  ASSERT_EQ(run_attnbench(scratch, {"run", "--case", "{batch: q5, heads: 2, head_dim: 8}", "--device", "cpu",
                                    "--no-time", "--out", "out"})
                .exit_code,
            0);
  const json good = read_json(scratch.dir() / "out" / "results.json");
  const std::string hostile =
      "=x|$(touch owned)`touch owned`\x1b[31m\n::error::forged\n../../owned <script>\xc2\x9b";
  json bad = good;
  bad["context"]["attnbench"]["name"] = hostile;
  bad["context"]["attnbench"]["command_line"] = {"sh", "-c", "touch owned"};
  bad["context"]["executable"] = "/bin/rm";
  json& own = bad["benchmarks"][0]["attnbench"];
  for (const char* key : {"id", "kernel", "repro", "reason", "device", "sweep", "log"}) own[key] = hostile;
  own["status"] = "fail";
  bad["benchmarks"][0]["name"] = bad["benchmarks"][0]["run_name"] = hostile;
  const std::string file = scratch.write("bad.json", bad.dump());
  const auto before = files_under(scratch.dir());
  for (const std::vector<std::string>& args : {std::vector<std::string>{"compare", file, file},
                                               {"compare", file, file, "--format", "md"},
                                               {"compare", file, "out"},
                                               {"merge", file, file, "-o", "merged.json"},
                                               {"merge", file, "-o", "merged.json"}}) {
    const Outcome o = run_attnbench(scratch, args);
    EXPECT_NE(o.exit_code, 0) << args[0];
    expect_plain(o.out + o.err, args[0]);
    EXPECT_THAT(o.out + o.err, Not(HasSubstr("\n::error::")));
  }
  auto after = files_under(scratch.dir());
  after.erase("merged.json");
  std::erase_if(after, [](const std::string& name) { return name.rfind("stream", 0) == 0; });
  auto expected = before;
  std::erase_if(expected, [](const std::string& name) { return name.rfind("stream", 0) == 0; });
  EXPECT_EQ(after, expected);
  EXPECT_FALSE(fs::exists(scratch.path("owned")));
}

}  // namespace
}  // namespace attnbench::testing
