// Runs on traces of FlashInfer and on captured tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CliTrace, WorkloadsRunWithTheirPagesAndAreReportedBack) {
  const Scratch scratch;
  const std::string trace = source_path("tests/traces/flashinfer");
  const Outcome o = run_attnbench(scratch, {"run", trace, "--device", "cpu", "--no-ceilings", "--min-time",
                                            "0.01", "-q", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.err, AllOf(HasSubstr("5 workloads of a FlashInfer trace make 5 cases"),
                           HasSubstr("1 workload skipped: op_type rmsnorm")));
  EXPECT_THAT(o.out, HasSubstr("report: out/flashinfer_trace.jsonl"));
  std::istringstream lines(read_text(scratch.path("out/flashinfer_trace.jsonl")));
  std::set<std::string> passed;
  for (std::string line; std::getline(lines, line);) {
    const json j = json::parse(line);
    EXPECT_EQ(j["evaluation"]["status"], "PASSED") << line;
    EXPECT_GT(j["evaluation"]["performance"]["latency_ms"].get<double>(), 0);
    passed.insert(j["workload"]["uuid"]);
  }
  EXPECT_EQ(passed, (std::set<std::string>{"d1", "d2", "p1", "r1", "m1"}));
  // A record's line runs its case alone, with the trace's pages.
  for (const json& record : read_records(scratch.dir() / "out")) {
    if (record["params"]["page_layout"] != "given") continue;
    std::vector<std::string> words = shell_words(record["repro"]);
    words.erase(words.begin());
    words.insert(words.end(), {"--no-time", "-q", "--out", "again"});
    const Outcome again = run_attnbench(scratch, words);
    EXPECT_EQ(again.exit_code, 0) << again.out << again.err;
    EXPECT_EQ(read_records(scratch.dir() / "again").at(0)["id"], record["id"]);
    EXPECT_EQ(read_records(scratch.dir() / "again").at(0)["check"]["outputs_digest"],
              record["check"]["outputs_digest"]);
    break;
  }
}

TEST(CliTrace, InvariantsHoldOnGivenPages) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"run", source_path("tests/traces/flashinfer"), "--device", "cpu",
                                            "--no-time", "--check", "full,invariants", "-q", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.err, HasSubstr("right results left out: the schema requires a time"));
}

TEST(CliTrace, AKernelThatReadsAnotherPageFails) {
  const Scratch scratch;
  const Outcome o =
      run_faulty(scratch, {"run", source_path("tests/traces/flashinfer"), "--kernel", "drop_last_key",
                           "--device", "cpu", "--no-time", "-q", "--out", "out"});
  EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
  EXPECT_THAT(read_text(scratch.path("out/flashinfer_trace.jsonl")), HasSubstr("INCORRECT_NUMERICAL"));
}

TEST(CliTrace, AGivenTableGoesThroughExport) {
  const Scratch scratch;
  const std::string trace = source_path("tests/traces/flashinfer");
  const Outcome o = run_attnbench(
      scratch, {"export", trace, "--filter", "paged1-nhd-given.*h8-2.*q1s2$", "-o", "case.safetensors"});
  ASSERT_EQ(o.exit_code, 0) << o.out << o.err;
  const Outcome ran = run_attnbench(
      scratch, {"run", "case.safetensors", "--device", "cpu", "--no-time", "-q", "--out", "out"});
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  EXPECT_THAT(read_records(scratch.dir() / "out").at(0)["id"].get<std::string>(), HasSubstr("-given"));
}

TEST(CliTrace, AFileThatCannotBeReadIsNamedAndTheOthersRun) {
  const Scratch scratch;
  std::filesystem::copy(source_path("tests/traces/flashinfer"), scratch.dir() / "trace",
                        std::filesystem::copy_options::recursive);
  scratch.write("trace/definitions/broken.json", "{");
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"list", "trace"},
        {"run", "trace", "--device", "cpu", "--no-time", "-q", "--out", "out"},
        {"run", "trace", "--device", "cpu", "--dry-run"}}) {
    const Outcome o = run_attnbench(scratch, command);
    EXPECT_EQ(o.exit_code, 2) << o.out << o.err;
    EXPECT_THAT(o.err, AllOf(HasSubstr("trace/definitions/broken.json: error: no valid JSON"),
                             HasSubstr("1 part of the trace cannot be read"), HasSubstr("make 5 cases")));
  }
  EXPECT_EQ(read_records(scratch.dir() / "out").size(), 5u);
  const Outcome gate = run_attnbench(scratch, {"gate", "trace", "--against", "/bin/true", "--device", "cpu"});
  EXPECT_EQ(gate.exit_code, 2);
  EXPECT_THAT(gate.err, HasSubstr("a gate compares whole traces"));
}

TEST(CliTrace, MistakesAreExplained) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.dir() / "empty");
  Outcome o = run_attnbench(scratch, {"run", "empty"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(
      o.err,
      HasSubstr("empty: this is a folder; a sweep file is required, or the folder of a FlashInfer trace"));
  o = run_attnbench(scratch, {"run", source_path("tests/traces/flashinfer"), "--set", "dtype=fp16"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--set replaces keys of sweep files"));
}

/// A safetensors file of these tensors: name, dtype, shape, bytes.
struct Part {
  std::string name, dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
std::string write_tensors(const Scratch& scratch, const std::vector<Part>& parts, const json& metadata,
                          const std::string& name = "capture.safetensors") {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::string data;
  for (const Part& p : parts) {
    header[p.name] = {{"dtype", p.dtype},
                      {"shape", p.shape},
                      {"data_offsets", {data.size(), data.size() + p.bytes.size()}}};
    data += p.bytes;
  }
  const std::string text = header.dump();
  const auto length = static_cast<uint64_t>(text.size());
  return scratch.write(name, std::string(reinterpret_cast<const char*>(&length), 8) + text + data);
}
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
/// Numbers that no generator of the program makes.
std::string numbers(std::size_t count, float first) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = first * static_cast<float>(i % 97) / 50 - 1;
  return bytes_of(out);
}

/// Two sequences with 2 and 1 queries on 5 and 3 keys, in blocks of 4; both begin with block 2.
std::vector<Part> paged_parts() {
  return {{"q", "F32", {3, 4, 8}, numbers(96, 1.5f)},
          {"k", "F32", {4, 4, 2, 8}, numbers(256, 1.25f)},
          {"v", "F32", {4, 4, 2, 8}, numbers(256, 0.75f)},
          {"cu_seqlens_q", "I32", {3}, bytes_of<int32_t>({0, 2, 3})},
          {"seqused_k", "I64", {2}, bytes_of<int64_t>({5, 3})},
          {"block_table", "I32", {2, 3}, bytes_of<int32_t>({2, 0, -1, 2, 99, -1})}};
}

TEST(CliCaptured, TensorsOfAFileAreTheInputs) {
  const Scratch scratch;
  write_tensors(scratch, paged_parts(), {{"case", "{mask: causal, softcap: 5}"}});
  const auto digest_of = [&](const char* out) {
    const Outcome o =
        run_attnbench(scratch, {"run", "capture.safetensors", "--device", "cpu", "--check", "full,invariants",
                                "--no-ceilings", "--min-time", "0.01", "-q", "--out", out});
    EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
    const json record = read_records(scratch.dir() / out).at(0);
    EXPECT_THAT(record["id"].get<std::string>(),
                AllOf(HasSubstr("paged4-nhd-given"), HasSubstr("/captured"), HasSubstr("softcap5")));
    EXPECT_EQ(record["check"]["rows"], 12);
    return record["check"]["outputs_digest"].get<std::string>();
  };
  const std::string first = digest_of("first");
  EXPECT_EQ(digest_of("again"), first);
  std::vector<Part> parts = paged_parts();
  parts[2].bytes = numbers(256, 0.5f);
  write_tensors(scratch, parts, {{"case", "{mask: causal, softcap: 5}"}});
  EXPECT_NE(digest_of("other"), first);
}

/// `out` and `lse` as the file of an export expects them, times a factor; in F32.
std::vector<Part> expected_parts(const Scratch& scratch, float factor) {
  const std::string text = read_text(scratch.path("case.safetensors"));
  uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  const json header = json::parse(text.substr(8, length));
  std::vector<Part> parts;
  for (const char* name : {"out", "lse"}) {
    const json& entry = header.at(std::string("expected_") + name);
    const auto begin = entry["data_offsets"][0].get<std::size_t>(),
               end = entry["data_offsets"][1].get<std::size_t>();
    std::vector<double> wide((end - begin) / 8);
    std::memcpy(wide.data(), text.data() + 8 + length + begin, end - begin);
    std::vector<float> values(wide.begin(), wide.end());
    for (float& x : values) x *= factor;
    parts.push_back({name, "F32", entry["shape"], bytes_of(values)});
  }
  return parts;
}

// Unused rows stand before and between the queries: outputs stand where the queries do.
TEST(CliCaptured, CapturedOutputsAreCompared) {
  const json keys = {{"case", "{mask: causal, softcap: 5, lse_log: base2, out_lse_layout: token_major}"}};
  for (const bool first_row : {false, true}) {
    const Scratch scratch;
    std::vector<Part> inputs = paged_parts();
    if (first_row) {
      inputs[0] = {"q", "F32", {5, 4, 8}, numbers(160, 1.5f)};
      inputs[3].bytes = bytes_of<int32_t>({1, 3, 4});
    }
    write_tensors(scratch, inputs, keys);
    Outcome o = run_attnbench(scratch, {"check", "capture.safetensors"});
    EXPECT_EQ(o.exit_code, 2);
    EXPECT_THAT(o.err, HasSubstr("the file has no tensor 'out' of a captured case"));
    o = run_attnbench(scratch, {"export", "capture.safetensors", "--full", "-o", "case.safetensors"});
    ASSERT_EQ(o.exit_code, 0) << o.err;
    const std::vector<std::string> run = {
        "run", "capture.safetensors", "--device", "cpu", "--no-time", "--out", "out"};
    for (const float factor : {1.0f, 1.1f}) {
      const bool right = factor == 1;
      const std::vector<Part> outputs = expected_parts(scratch, factor);
      std::vector<Part> all = inputs;
      all.insert(all.end(), outputs.begin(), outputs.end());
      write_tensors(scratch, all, keys);
      o = run_attnbench(scratch, run);
      EXPECT_EQ(o.exit_code, right ? 0 : 1) << o.out << o.err;
      EXPECT_THAT(
          o.err,
          HasSubstr(right ? "capture.safetensors: captured out and lse: right"
                          : "captured out and lse: wrong (attnbench check capture.safetensors says more)"));
      o = run_attnbench(scratch, {"check", "capture.safetensors", "--full"});
      EXPECT_EQ(o.exit_code, right ? 0 : 1) << o.out << o.err;
      write_tensors(scratch, outputs, {}, "outputs.safetensors");
      for (const char* file : {"capture.safetensors", "case.safetensors"}) {
        o = run_attnbench(scratch, {"check", file, "outputs.safetensors"});
        EXPECT_EQ(o.exit_code, right ? 0 : 1) << file << o.out << o.err;
      }
    }
  }
}

// Scores of some 1e9: the rounding of a score decides which key a row takes, so zeros would pass, too.
TEST(CliCaptured, CapturedOutputsThatProveNothingAreUndecided) {
  const Scratch scratch;
  std::vector<Part> parts = paged_parts();
  for (std::size_t i : {0u, 1u}) parts[i].bytes = numbers(i == 0 ? 96 : 256, 3e5f);
  const json keys = {{"case", "{mask: none}"}};
  write_tensors(scratch, parts, keys);
  ASSERT_EQ(
      run_attnbench(scratch, {"export", "capture.safetensors", "--full", "-o", "case.safetensors"}).exit_code,
      0);
  for (Part& part : expected_parts(scratch, 1)) parts.push_back(std::move(part));
  write_tensors(scratch, parts, keys);
  const Outcome o = run_attnbench(
      scratch, {"run", "capture.safetensors", "--device", "cpu", "--no-time", "-q", "--out", "out"});
  EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
  EXPECT_THAT(
      o.err,
      HasSubstr("captured out and lse: undecided (attnbench check capture.safetensors says more): zeros"));
}

TEST(CliCaptured, ARecordsLineRunsTheFileAgain) {
  const Scratch scratch;
  write_tensors(scratch, paged_parts(), json::object());
  ASSERT_EQ(run_attnbench(
                scratch, {"run", "capture.safetensors", "--device", "cpu", "--no-time", "-q", "--out", "out"})
                .exit_code,
            0);
  const json record = read_records(scratch.dir() / "out").at(0);
  std::vector<std::string> words = shell_words(record["repro"]);
  EXPECT_EQ(words.at(2), "capture.safetensors");
  words.erase(words.begin());
  words.insert(words.end(), {"-q", "--out", "again"});
  const Outcome again = run_attnbench(scratch, words);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(read_records(scratch.dir() / "again").at(0)["check"]["outputs_digest"],
            record["check"]["outputs_digest"]);
}

TEST(CliCaptured, AWrongKernelFailsOnThem) {
  const Scratch scratch;
  write_tensors(scratch, paged_parts(), json::object());
  const Outcome o = run_faulty(scratch, {"run", "capture.safetensors", "--kernel", "drop_last_key",
                                         "--device", "cpu", "--no-time", "-q", "--out", "out"});
  EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
}

TEST(CliCaptured, MistakesNameFileAndTensor) {
  const Scratch scratch;
  const auto error = [&](const std::vector<Part>& parts, const json& metadata = json::object()) {
    write_tensors(scratch, parts, metadata);
    const Outcome o = run_attnbench(
        scratch, {"run", "capture.safetensors", "--device", "cpu", "--no-time", "-q", "--out", "out"});
    EXPECT_EQ(o.exit_code, 2) << o.out << o.err;
    EXPECT_THAT(o.err, HasSubstr("capture.safetensors: error: "));
    return o.err;
  };
  const auto with = [](std::size_t i, const Part& part) {
    std::vector<Part> parts = paged_parts();
    parts[i] = part;
    return parts;
  };
  const auto without = [](std::size_t i) {
    std::vector<Part> parts = paged_parts();
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i));
    return parts;
  };
  EXPECT_THAT(error(without(0)), HasSubstr("no tensor 'q'"));
  EXPECT_THAT(error(without(2)), HasSubstr("no tensor 'v'; if values are a view of k"));
  EXPECT_THAT(error(without(3)), HasSubstr("no tensor 'cu_seqlens_q'"));
  EXPECT_THAT(error(without(4)), HasSubstr("no tensor 'seqused_k'"));
  EXPECT_THAT(error(with(3, {"cu_seqlens_q", "I32", {3}, bytes_of<int32_t>({0, 2, 1})})),
              HasSubstr("ascending"));
  EXPECT_THAT(error(with(3, {"cu_seqlens_q", "I32", {3}, bytes_of<int32_t>({0, 2, 9})})),
              HasSubstr("tensor 'q' has 3 rows, and cu_seqlens_q ends with 9"));
  EXPECT_THAT(error(with(4, {"seqused_k", "I32", {1}, bytes_of<int32_t>({5})})),
              HasSubstr("tensor 'seqused_k' is of 1 sequences, and cu_seqlens_q of 2"));
  EXPECT_THAT(error(with(4, {"seqused_k", "I32", {2}, bytes_of<int32_t>({13, 3})})),
              HasSubstr("'block_table' has 3 blocks for sequence 0, and its 13 keys need 4"));
  EXPECT_THAT(error(with(5, {"block_table", "I32", {2, 2}, bytes_of<int32_t>({2, 4, 2, 0})})),
              HasSubstr("holds block 4 for sequence 0, and there are blocks 0 to 3"));
  EXPECT_THAT(error(with(1, {"k", "F32", {4, 4, 3, 8}, numbers(384, 1)})),
              HasSubstr("tensor 'v' has 2 heads, and 'k' 3"));
  EXPECT_THAT(error(with(1, {"k", "F16", {4, 4, 2, 8}, std::string(512, '\0')})),
              HasSubstr("tensor 'k' is F16; BF16, F16 or F32 is required, the same for q, k and v"));
  EXPECT_THAT(error(with(1, {"k", "F32", {4, 8, 8}, numbers(256, 1)})),
              HasSubstr("(blocks, block_size, heads, channels) is required"));
  std::vector<float> nan(96, 0.5f);
  nan[2 * 32 + 3] = NAN;
  EXPECT_THAT(error(with(0, {"q", "F32", {3, 4, 8}, bytes_of(nan)})),
              HasSubstr("tensor 'q' is not finite at sequence 1, position 0, head 0, channel 3"));
  EXPECT_THAT(error(paged_parts(), {{"case", "mask: causal"}}), HasSubstr("a mapping is required"));
  EXPECT_THAT(error(paged_parts(), {{"case", "{mask: round}"}}),
              HasSubstr("its shapes and keys make no case"));
  EXPECT_THAT(error(paged_parts(), {{"case", "{sinks: true}"}}), HasSubstr("may be set"));
  EXPECT_THAT(error(paged_parts(), {{"case", "{mask: [none, causal]}"}}), HasSubstr("several cases"));
}

}  // namespace
}  // namespace attnbench::testing
