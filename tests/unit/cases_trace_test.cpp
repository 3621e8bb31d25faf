// Traces of requests as the batches of cases.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "harness/cases/case.h"
#include "harness/serving/trace_lines.h"
#include "tests/unit/temp_folder.h"

namespace attnbench {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kTraceServer = "steps: 40, warmup: 10, max_sequences: 4";
constexpr int kTraceRequests = 60;

/// A trace of equal requests, each a second after the last. `line` writes one from its number.
template <class Line>
std::string lines_of(std::string text, const Line& line) {
  for (int i = 0; i < kTraceRequests; ++i) text += line(i) + "\n";
  return text;
}

std::string plain_trace(const std::string& prefix = "", int output = 12) {
  return lines_of("arrival,prompt,output,prefix\n",
                  [&](int i) { return fmt::format("{},{},{},{}", i, 90 + i, output, prefix); });
}

std::string without_header(const std::string& text) { return text.substr(text.find('\n') + 1); }

std::string azure_trace() {
  return lines_of("TIMESTAMP,ContextTokens,GeneratedTokens\n",
                  [](int i) { return fmt::format("2023-11-16 18:00:{:02}.0000000,{},12", i, 90 + i); });
}

std::string burst_trace() {
  return lines_of("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n",
                  [](int i) { return fmt::format("{},GPT-4,{},12,{},API log", i, 90 + i, 102 + i); });
}

/// All prompts begin with the same 512 tokens.
std::string mooncake_trace() {
  return lines_of("", [](int i) {
    return fmt::format(R"({{"timestamp": {}, "input_length": {}, "output_length": 12, "hash_ids": [7, {}]}})",
                       1000 * i, 600 + i, 100 + i);
  });
}

class Traces : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  /// The cases of a sweep in the test's folder, with `more` behind the keys of the server.
  Expansion expand_trace(const std::string& trace, const std::string& more = ", step: {spread: 8}",
                         const std::string& keys = "kv: paged") const {
    return expand(
        parse_sweep_text(fmt::format("name: t\nsweeps:\n  - {{{}, batch: {{serving: {{{}, {}{}}}}}}}\n", keys,
                                     trace, kTraceServer, more),
                         (folder_ / "t.yaml").string()));
  }
  template <class E = ConfigError>
  std::string error_of(const std::string& trace, const std::string& more = "",
                       const std::string& keys = "kv: paged") const {
    try {
      expand_trace(trace, more, keys);
    } catch (const E& e) {
      return e.what();
    }
    return "no error";
  }
  test::TempFolder folder_;
};

std::vector<std::string> trace_ids_of(const Expansion& e) {
  std::vector<std::string> ids;
  for (const Case& c : e.cases) ids.push_back(c.id);
  return ids;
}

TEST_F(Traces, EveryFormIsReplayed) {
  const std::pair<const char*, std::string> forms[] = {{"plain.csv", plain_trace()},
                                                       {"azure.csv", azure_trace()},
                                                       {"burst.csv", burst_trace()},
                                                       {"mooncake.jsonl", mooncake_trace()}};
  for (const auto& [name, text] : forms) {
    const std::string path = write(name, text);
    const Expansion e = expand_trace(fmt::format("trace: {}", name));
    ASSERT_EQ(e.cases.size(), 8u) << name;
    const std::string stem = std::filesystem::path(name).stem();
    for (const Case& c : e.cases) {
      EXPECT_THAT(c.id, HasSubstr(fmt::format("/{}-{}-", stem, file_digest(path))));
      EXPECT_THAT(c.id, HasSubstr(fmt::format("x8-step{}-", c.params.served->step)));
      EXPECT_EQ(c.params.blocks->ids().size(), c.params.seqs.size());
    }
  }
}

TEST_F(Traces, FormsOfTheSameRequestsHaveTheSameSteps) {
  write("plain.csv", plain_trace());
  write("azure.csv", azure_trace());
  const Expansion plain = expand_trace("trace: plain.csv"), azure = expand_trace("trace: azure.csv");
  for (std::size_t i = 0; i < plain.cases.size(); ++i) {
    EXPECT_EQ(plain.cases[i].params.seqs, azure.cases[i].params.seqs);
    EXPECT_EQ(plain.cases[i].params.blocks->digest(), azure.cases[i].params.blocks->digest());
  }
}

TEST_F(Traces, PromptsShareTheBlocksOfTheTracesPrefixes) {
  write("plain.csv", plain_trace("7:64"));
  write("mooncake.jsonl", mooncake_trace());
  const auto shared = [&](const std::string& more) {
    // Four requests a step: without the times, the server is full.
    const Expansion e = expand_trace(more, ", step: all, speed_up: 1000000");
    int64_t places = 0;
    for (const Case& c : e.cases) places += c.params.blocks->shared();
    return places;
  };
  for (const char* trace : {"trace: plain.csv", "trace: mooncake.jsonl"}) {
    EXPECT_GT(shared(trace), 0) << trace;
    EXPECT_EQ(shared(std::string(trace) + ", prefix_sharing: false"), 0) << trace;
  }
}

TEST_F(Traces, RequestsArriveWhenTheTraceSays) {
  write("t.csv", plain_trace());
  const auto most = [&](const std::string& more) {
    std::size_t n = 0;
    for (const Case& c : expand_trace("trace: t.csv", ", step: all" + more).cases)
      n = std::max(n, c.params.seqs.size());
    return n;
  };
  // A request takes 13 steps, a fifth of a second.
  EXPECT_EQ(most(""), 1u);
  EXPECT_EQ(most(", speed_up: 1000000"), 4u);
}

TEST_F(Traces, TheSameFileHasTheSameCasesWhereverItLies) {
  write("t.csv", plain_trace("7:64"));
  const std::string copy = write("more/t.csv", plain_trace("7:64"));
  const Expansion e = expand_trace("trace: t.csv");
  ASSERT_EQ(e.cases.size(), 8u);
  EXPECT_EQ(trace_ids_of(expand_trace("trace: t.csv")), trace_ids_of(e));
  EXPECT_EQ(trace_ids_of(expand_trace("trace: ./more/../more/t.csv")), trace_ids_of(e));
  EXPECT_EQ(trace_ids_of(expand_trace("trace: " + copy)), trace_ids_of(e));
}

TEST_F(Traces, AChangedFileIsAnotherCase) {
  write("t.csv", plain_trace());
  const Expansion before = expand_trace("trace: t.csv");
  write("t.csv", plain_trace() + "70,5,5,\n");  // behind what the replay reads
  const Expansion after = expand_trace("trace: t.csv");
  ASSERT_EQ(after.cases.size(), before.cases.size());
  for (std::size_t i = 0; i < before.cases.size(); ++i) {
    EXPECT_EQ(after.cases[i].params.seqs, before.cases[i].params.seqs);
    EXPECT_NE(after.cases[i].id, before.cases[i].id);
  }
}

TEST_F(Traces, TheMappingOfACaseReproducesIt) {
  for (const std::string name : {"t.csv", "it's a \"trace\", {or: not}.csv", "12", "true"}) {
    write(name, plain_trace());
    std::string quoted;
    for (const char c : name) quoted += c == '"' ? std::string("\\\"") : std::string(1, c);
    for (const std::string keys : {"kv: paged, block_size: 64", "kv: packed", "op: kv_append"}) {
      for (const Case& c :
           expand_trace("trace: \"" + quoted + "\"", ", step: {spread: 4}, speed_up: 3", keys).cases) {
        const Expansion again = expand(parse_inline_case(case_yaml(c.params, c.batch)));
        ASSERT_EQ(again.cases.size(), 1u) << c.batch;
        std::string id = c.id;
        id.erase(id.find("x4-step"), 2);  // it is no part of a sample
        EXPECT_EQ(again.cases[0].id, id);
        EXPECT_EQ(again.cases[0].params.seqs, c.params.seqs);
      }
    }
  }
}

TEST_F(Traces, ColumnsOfTheUsersOwnAreReadAndPartOfTheMapping) {
  const std::string plain = plain_trace();
  write("own.csv", "sent,in,out,images\n" + without_header(plain));
  const Expansion e =
      expand_trace("trace: own.csv, columns: \"arrival=sent,prompt=in,output=out\"", ", step: 3");
  ASSERT_EQ(e.cases.size(), 1u);
  write("own.csv", plain);
  EXPECT_EQ(expand_trace("trace: own.csv", ", step: 3").cases.at(0).params.seqs, e.cases[0].params.seqs);
  write("own.csv", "sent,in,out,images\n" + without_header(plain));
  const Expansion again = expand(parse_inline_case(case_yaml(e.cases[0].params, e.cases[0].batch)));
  EXPECT_EQ(again.cases.at(0).id, e.cases[0].id);
  EXPECT_THAT(e.notes, ElementsAre(HasSubstr("note: columns not read: images")));
  EXPECT_THAT(error_of("trace: own.csv, columns: tokens=in"),
              HasSubstr("'tokens=in' is no name of a column"));
  EXPECT_THAT(error_of("mix: sharegpt, columns: prompt=in"), HasSubstr("which has no columns; drop it"));
}

TEST_F(Traces, NamesAreSafeForIds) {
  write("My chat-served: \xc3\xa4 v2.1.csv", plain_trace());
  EXPECT_THAT(expand_trace("trace: \"My chat-served: \xc3\xa4 v2.1.csv\"").cases.at(0).id,
              HasSubstr("/My_chat_served_v2_1-"));
  write(std::string(99, 'a') + ".csv", plain_trace());
  EXPECT_THAT(expand_trace("trace: " + std::string(99, 'a') + ".csv").cases.at(0).id,
              HasSubstr("/" + std::string(40, 'a') + "-"));
}

TEST_F(Traces, WrongMappingsAreRefusedWithTheirPlaceAndTheMend) {
  write("t.csv", plain_trace());
  const std::string place = (folder_ / "t.yaml").string() + ":3:";
  EXPECT_THAT(error_of("seed: 3"), AllOf(StartsWith(place), HasSubstr("'mix' or 'trace' is missing")));
  EXPECT_THAT(error_of("mix: sharegpt, trace: t.csv"),
              AllOf(StartsWith(place), HasSubstr("key 'trace': stands beside 'mix', expected one of them")));
  EXPECT_THAT(error_of("mix: t.csv"), HasSubstr("the file of a trace is named by 'trace'"));
  EXPECT_THAT(error_of("trace: none.csv"),
              AllOf(StartsWith(place), HasSubstr("cannot read " + (folder_ / "none.csv").string()),
                    HasSubstr("begins at the folder of the sweep file")));
  EXPECT_THAT(error_of("trace: ."),
              HasSubstr("this is a folder; the file of a trace is required (attnbench trace --help)"));
  EXPECT_THAT(error_of("trace: /dev/zero"), HasSubstr("this is a device; the file"));
  EXPECT_THAT(error_of("trace: 5"), HasSubstr("put it in quotes"));
  EXPECT_THAT(error_of("trace: t.csv", ", rate: 5"), HasSubstr("write e.g. speed_up: 2"));
  EXPECT_THAT(error_of("mix: sharegpt", ", speed_up: 2"), HasSubstr("write e.g. rate: 20"));
  EXPECT_THAT(error_of("mix: sharegpt", ", skip_bad: true"), HasSubstr("has no lines; drop it"));
  EXPECT_THAT(error_of("trace: t.csv", ", speed_up: 0"), HasSubstr("a number from 0.001 to 1000000"));
}

TEST_F(Traces, WhatIsWrongInTheFileNamesItsLine) {
  const std::string path =
      write("t.csv", "arrival,prompt,output,prefix\n0,5,-5,\n" + without_header(plain_trace()));
  const auto bad = [&](const std::string& more, const std::string& keys = "kv: paged") {
    return error_of<BadTraceError>("trace: t.csv, step: all", more, keys);
  };
  const std::string error = bad("");
  EXPECT_THAT(error, StartsWith(path + ":2:5: error: output is negative"));
  EXPECT_THAT(error, HasSubstr("'skip_bad: true' leaves out lines that are wrong"));
  EXPECT_THAT(error, HasSubstr("; named in " + (folder_ / "t.yaml").string() + ":3:"));
  // No row of a cover is left out for it.
  EXPECT_THAT(bad("", "kv: paged, cover: pairwise, heads: [4, 8]"), StartsWith(path + ":2:5"));
  const Expansion e =
      expand_trace("trace: t.csv", ", step: all, skip_bad: true", "kv: paged, block_size: [16, 32]");
  EXPECT_THAT(e.notes, ElementsAre(AllOf(StartsWith((folder_ / "t.yaml").string() + ":3:"),
                                         HasSubstr("note: 1 line skipped; the first: " + path + ":2:5"))));

  write("t.csv", plain_trace());
  EXPECT_EQ(bad(""), "no error");
  EXPECT_THAT(bad(", cache_tokens: 96"), HasSubstr("t.csv:2:3: error: the request needs 101 tokens"));
  EXPECT_THAT(bad(", chunked_prefill: false, token_budget: 80"), HasSubstr("the prompt has 90 tokens"));
  write("t.csv", mooncake_trace());
  EXPECT_THAT(bad("", "kv: paged, block_size: 48"), HasSubstr("do not fit the trace"));
  write("t.csv", "no trace\n");
  EXPECT_THAT(bad(""), HasSubstr("t.csv:1:1: error: "));
}

TEST_F(Traces, AShortTraceIsAnErrorThatSaysHowManyStepsItHas) {
  write("t.csv", "arrival,prompt,output\n0,100,10\n");
  const auto bad = [&](const std::string& server) {
    return error_of<BadTraceError>("trace: t.csv, step: all", server);
  };
  // The prompt takes one step, and so does each of the other nine output tokens.
  EXPECT_THAT(bad(""), AllOf(HasSubstr("t.csv: error: the trace ends after 10 steps"),
                             HasSubstr("warmup: 10 and steps: 40 need 50; lower them to 10 in all")));
  EXPECT_EQ(
      expand(parse_sweep_text("name: t\nsweeps:\n  - batch: {serving: {trace: t.csv, step: all, warmup: 2, "
                              "steps: 8}}\n",
                              (folder_ / "t.yaml").string()))
          .cases.size(),
      8u);
  write("t.csv", "arrival,prompt,output\n");
  EXPECT_THAT(bad(""), HasSubstr("t.csv: error: the trace has no request"));
}

}  // namespace
}  // namespace attnbench
