// Traces: each form, each mistake with its place, and lines in a buffer that divides them anywhere.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "harness/config/trace_path.h"
#include "harness/serving/trace_reader.h"
#include "tests/unit/temp_folder.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kAzureText =
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 23:59:59.5000000,4808,10\n"
    "2023-11-17 00:00:00.7500001,3180,8\n";
constexpr const char* kMooncakeText =
    R"({"timestamp": 27482, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 2353]})"
    "\n"
    R"({"timestamp": 30535, "input_length": 600, "output_length": 26, "hash_ids": [46, 2366]})"
    "\n";
constexpr const char* kBurstText =
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45.25,GPT-4,1087,230,1317,API log\n";
constexpr const char* kPlainText =
    "arrival,prompt,output,prefix\n"
    "0.5,100,10,7:64\n"
    "0.75,200,1,\n"
    "2,80,3,7:40\n";

/// A reader of bytes in chunks of `chunk`.
ReadBytes read_text_in(std::string text, std::size_t chunk = 1 << 20) {
  return [text = std::move(text), chunk, at = std::size_t{0}](char* to, std::size_t size) mutable {
    const std::size_t n = std::min({size, chunk, text.size() - at});
    text.copy(to, n, at);
    at += n;
    return n;
  };
}

struct ReadTrace {
  std::vector<Request> requests;
  int64_t skipped = 0;
  std::string note;
};

ReadTrace read_trace(const std::string& text, const TraceOptions& options = {}, std::size_t buffer = 1 << 12,
                     std::size_t chunk = 1 << 20) {
  TraceReader reader("t.csv", LineReader(read_text_in(text, chunk), buffer), options);
  ReadTrace all;
  for (Request r; r.prefix_hashes.clear(), reader(r);) all.requests.push_back(r);
  all.skipped = reader.skipped();
  all.note = reader.note();
  return all;
}

std::string error_of(const std::string& text, const TraceOptions& options = {}) {
  try {
    read_trace(text, options);
  } catch (const BadTraceError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Trace, ReadsAzure) {
  const auto requests = read_trace(kAzureText).requests;
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].arrival_ns, 0);
  EXPECT_EQ(requests[0].prompt_tokens, 4808);
  EXPECT_EQ(requests[0].output_tokens, 10);
  EXPECT_EQ(requests[1].arrival_ns, 1'250'000'100);
  const auto zone = read_trace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-02-29 00:00:00.009930+00:00,1,1\r\n"
      "2024-03-01 00:00:00+00:00,2,2\r\n");
  EXPECT_EQ(zone.requests.at(1).arrival_ns, 86'400'000'000'000 - 9'930'000);
}

TEST(Trace, ReadsMooncake) {
  const auto requests = read_trace(kMooncakeText, {.block_size = 512}).requests;
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[1].arrival_ns, 3'053'000'000);
  EXPECT_EQ(requests[0].prompt_tokens, 1100);
  EXPECT_EQ(requests[0].output_tokens, 52);
  ASSERT_EQ(requests[0].prefix_hashes.size(), 2u);  // the third piece is no full block
  ASSERT_EQ(requests[1].prefix_hashes.size(), 1u);
  EXPECT_EQ(requests[0].prefix_hashes[0], requests[1].prefix_hashes[0]);
  // The order of fields is free.
  const auto other = read_trace(
      R"({"hash_ids":[46,47],"output_length":1,"input_length":1024,"timestamp":0.5})", {.block_size = 512});
  ASSERT_EQ(other.requests.size(), 1u);
  EXPECT_EQ(other.requests[0].prefix_hashes, requests[0].prefix_hashes);
}

TEST(Trace, ReadsBurstGpt) {
  const auto requests = read_trace(kBurstText).requests;
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[1].arrival_ns, 40'250'000'000);
  EXPECT_EQ(requests[1].prompt_tokens, 1087);
  EXPECT_EQ(requests[1].output_tokens, 230);
}

TEST(Trace, ReadsPlain) {
  const auto requests = read_trace(kPlainText).requests;
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[2].arrival_ns, 1'500'000'000);
  EXPECT_EQ(requests[0].prefix_hashes.size(), 4u);
  EXPECT_TRUE(requests[1].prefix_hashes.empty());
  ASSERT_EQ(requests[2].prefix_hashes.size(), 2u);
  EXPECT_EQ(requests[0].prefix_hashes[1], requests[2].prefix_hashes[1]);
  EXPECT_EQ(read_trace(kPlainText, {.speed_up = 2}).requests[2].arrival_ns, 750'000'000);
}

TEST(Trace, DerivesBlocksOfOtherSizes) {
  const std::string two = R"({"timestamp":0,"input_length":2048,"output_length":1,"hash_ids":[1,2,3,4]})"
                          "\n"
                          R"({"timestamp":0,"input_length":2048,"output_length":1,"hash_ids":[1,2,3,3]})"
                          "\n";
  for (const int32_t size : {1, 16, 256, 512, 1024}) {
    const auto requests = read_trace(two, {.block_size = size}).requests;
    const auto& a = requests[0].prefix_hashes;
    const auto& b = requests[1].prefix_hashes;
    ASSERT_EQ(a.size(), static_cast<std::size_t>(2048 / size));
    ASSERT_EQ(b.size(), a.size());
    const auto shared =
        static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
    EXPECT_EQ(shared, static_cast<std::size_t>(1536 / size)) << size;
    std::vector<uint64_t> sorted = b;  // the id that occurs twice is two blocks
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end()) << size;
  }
  EXPECT_THAT(error_of(two, {.block_size = 48}), HasSubstr("divides 512 (16, 32, 64, 128, 256)"));
  EXPECT_EQ(read_trace(kPlainText, {.block_size = 48}).requests.size(), 3u);
}

TEST(Trace, NamesPlaceAndMend) {
  const auto plain = [](const std::string& line) {
    return error_of("arrival,prompt,output\n1,10,10\n" + line + "\n");
  };
  EXPECT_THAT(plain("1,-5,10"), StartsWith("t.csv:3:3: error: prompt is negative; mend or remove"));
  EXPECT_THAT(plain("1,10,-1"), StartsWith("t.csv:3:6: error: output is negative"));
  EXPECT_THAT(plain("-1,10,1"), StartsWith("t.csv:3:1: error: arrival is negative"));
  std::string sorted_lines;
  for (int i = 0; i < 4096; ++i) sorted_lines += "2,10,1\n";
  EXPECT_THAT(
      plain(sorted_lines + "0.5,10,1"),
      StartsWith("t.csv:4099:1: error: the request arrives 1.5 s before that of line 3, and only 4096"));
  EXPECT_THAT(plain("1,10"),
              StartsWith("t.csv:3:5: error: the line has 2 of 3 columns; 'output' is missing"));
  EXPECT_THAT(plain("1,10,1,7"), StartsWith("t.csv:3:7: error: the line has more than 3 columns"));
  EXPECT_THAT(plain("1,,1"), StartsWith("t.csv:3:3: error: prompt is nothing, a whole number is required"));
  EXPECT_THAT(plain("1,ten,1"), HasSubstr("prompt is 'ten', a whole number"));
  EXPECT_THAT(plain("1,1.5,1"), StartsWith("t.csv:3:4: error: '.5' stands behind prompt"));
  EXPECT_THAT(plain("1e3,1,1"), StartsWith("t.csv:3:2: error: 'e3' stands behind arrival"));
  EXPECT_THAT(plain("1,0,1"), HasSubstr("prompt is 0, at least 1 is required"));
  EXPECT_THAT(plain("1,99999999999999999999,1"), HasSubstr("prompt is more than 16777216"));
  EXPECT_THAT(plain("99999999999,1,1"), HasSubstr("arrival is more than 7000000000"));
  EXPECT_THAT(plain("1,1,1\n" + std::string(5000, '1')),
              StartsWith("t.csv:4:1: error: the line is longer than 4096"));
  EXPECT_THAT(plain("1,1,1"), "no error");
  EXPECT_THAT(error_of("arrival,prompt,output\n1,10"), HasSubstr("ends here without a newline"));
  EXPECT_THAT(error_of("arrival,prompt,output\n1,10,1"), "no error");
  EXPECT_THAT(error_of("arrival,prompt,output\n1,-1,1\n"), HasSubstr("--skip-bad leaves out"));
}

TEST(Trace, NamesMistakesOfEachForm) {
  EXPECT_THAT(error_of(""), HasSubstr("the file is empty"));
  EXPECT_THAT(error_of("a,b\n"), StartsWith("t.csv:1:1: error: no known form"));
  EXPECT_THAT(error_of("TIMESTAMP,ContextTokens\n"), HasSubstr("the column 'GeneratedTokens' is missing"));
  EXPECT_THAT(error_of("arrival,prompt,output,prompt\n"), HasSubstr("'prompt' occurs twice"));
  EXPECT_THAT(error_of(std::string(5000, 'x')), HasSubstr("the first line is too long"));
  const auto prefix = [](const std::string& value) {
    return error_of("arrival,prompt,output,prefix\n0,100,1," + value + "\n");
  };
  EXPECT_THAT(prefix("7"), HasSubstr("t.csv:2:10: error: ID:TOKENS is required"));
  EXPECT_THAT(prefix("sys:128"), HasSubstr("the prefix's id is 'sys', a whole number is required"));
  EXPECT_THAT(prefix("7:101"), HasSubstr("the prefix has 101 tokens, and the prompt 100"));
  const auto azure = [](const std::string& time) {
    return error_of("TIMESTAMP,ContextTokens,GeneratedTokens\n" + time + ",1,1\n");
  };
  EXPECT_THAT(azure("2023-02-29 00:00:00"), StartsWith("t.csv:2:9: error: the day is 29, 1 to 28"));
  EXPECT_THAT(azure("12.5"), HasSubstr("a time such as 2023-11-16"));
  EXPECT_THAT(azure("2023-02-28 24:00:00"), HasSubstr("the hour is 24"));
  EXPECT_THAT(azure("2023-02-28 23:00:00."), HasSubstr("no digit behind its point"));
  const auto object = [](const std::string& text) { return error_of("{" + text + "\n"); };
  EXPECT_THAT(object(R"("timestamp":0,"input_length":600,"output_length":1,"hash_ids":[1,2,3]})"),
              HasSubstr("there are 3 hash ids, and 600 tokens are 2 pieces of 512"));
  EXPECT_THAT(object(R"("timestamp":0,"input_length":600})"),
              StartsWith("t.csv:1:34: error: the field output_length is missing"));
  EXPECT_THAT(object(R"("timestamp":0,"timestamp":0)"), HasSubstr("timestamp occurs twice"));
  EXPECT_THAT(object(R"("turn":})"), StartsWith("t.csv:1:9: error: a value is required, there is '}'"));
  EXPECT_THAT(object(R"("turn":"0})"), StartsWith("t.csv:1:9: error: the text has no closing quote"));
  EXPECT_THAT(object(R"("hash_ids":[1,]})"), HasSubstr("a hash id is ']}'"));
  EXPECT_THAT(object(R"("hash_ids":[-1]})"), HasSubstr("a hash id is negative"));
  EXPECT_THAT(object(R"("timestamp":0,"input_length":1,"output_length":1,"hash_ids":[]}x)"),
              HasSubstr("'x' stands behind the object"));
  EXPECT_THAT(object(R"("timestamp":0,"inp)"), HasSubstr("the text has no closing quote"));
}

/// The same two requests, 1.25 s apart, as other programs write them.
TEST(Trace, ReadsOtherSpellingsOfTheSameRequests) {
  const std::string header = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  const std::pair<const char*, std::string> spellings[] = {
      {"quoted",
       "\"TIMESTAMP\",\"ContextTokens\",\"GeneratedTokens\"\n\"2024-02-03 23:59:59.5\",\"865\",\"370\"\n"
       "\"2024-02-04 00:00:00.75\",\"1289\",\"47\"\n"},
      {"T and Z", header + "2024-02-03T23:59:59.5Z,865,370\n2024-02-04T00:00:00.75Z,1289,47\n"},
      {"offsets", header + "2024-02-03T23:59:59.5+01:00,865,370\n2024-02-03 17:30:00.750-0530,1289,47\n"},
      {"offset behind a blank",
       header + "2024-02-04 00:59:59.5 +01,865,370\n2024-02-04 00:00:00.75 UTC,1289,47\n"},
      {"blanks",
       "TIMESTAMP, ContextTokens ,\tGeneratedTokens\n2024-02-03 23:59:59.5 , 865,\t370 \n  \n"
       " 2024-02-04 00:00:00.75 , 1289 , 47\n"},
      {"blanks and quotes",
       "\"timestamp\", \"contexttokens\", \"generatedtokens\"\n"
       "\"2024-02-03 23:59:59.5\", \" 865 \", \"370\"\n2024-02-04 00:00:00.75, \"1289\" ,47\n"},
      {"mark and CRLF",
       "\xef\xbb\xbfTimestamp,CONTEXTTOKENS,generatedTokens\r\n2024-02-03 23:59:59.5,865,370\r\n"
       "2024-02-04 00:00:00.75,1289,47\r\n"},
      {"others with commas",
       "\"Prompt, as \"\"sent\"\"\",TIMESTAMP,ContextTokens,GeneratedTokens\n"
       "\"a, b\",2024-02-03 23:59:59.5,865,370\n\"say \"\"1,2\"\"\",2024-02-04 00:00:00.75,1289,47\n"},
      {"dates in a plain CSV",
       "arrival,prompt,output\n2024-02-03T23:59:59.5Z,865,370\n2024-02-04T00:00:00.75Z,1289,47\n"},
      {"not in order", header + "2024-02-04 00:00:00.75,1289,47\n2024-02-03 23:59:59.5,865,370\n"},
      {"Vidur", "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,865,370\n1.75,1289,47\n"},
      {"SplitwiseSim",
       "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
       "0,2,0,0.5,1,865,370\n1,2,0,1.75,1,1289,47\n"},
      {"JSON lines", R"({"timestamp": 500, "input_length": 865, "output_length": 370})"
                     "\n"
                     R"({"timestamp": 1750, "input_length": 1289, "output_length": 47})"},
      {"JSON lines with more",
       R"( {"id": "a\"}", "timestamp": "2024-02-03T23:59:59.5Z", "input_length": 865, )"
       R"("tags": [{"x": [1, "]"]}, null], "output_length": 370, "hash_ids": null})"
       "\n"
       R"({"id":{},"timestamp":"2024-02-04T00:00:00.75Z","input_length":1289,"output_length":47})"},
  };
  for (const auto& [name, text] : spellings) {
    SCOPED_TRACE(name);
    ASSERT_EQ(error_of(text), "no error");
    const auto requests = read_trace(text).requests;
    ASSERT_EQ(requests.size(), 2u);
    EXPECT_EQ(requests[1].arrival_ns, 1'250'000'000);
    EXPECT_EQ(requests[0].prompt_tokens, 865);
    EXPECT_EQ(requests[0].output_tokens, 370);
    EXPECT_EQ(requests[1].prompt_tokens, 1289);
    EXPECT_EQ(requests[1].output_tokens, 47);
  }
}

TEST(Trace, NamesMistakesInOtherSpellings) {
  const auto azure = [](const std::string& line) {
    return error_of("TIMESTAMP,ContextTokens,GeneratedTokens\n" + line + "\n");
  };
  EXPECT_THAT(azure("\"2024-02-03 23:59:59\",\"8x\",1"),
              StartsWith("t.csv:2:25: error: 'x' stands where a closing quote is required"));
  EXPECT_THAT(azure("2024-02-03T23:59:59+25:00,1,1"),
              StartsWith("t.csv:2:21: error: the offset's hour is 25"));
  EXPECT_THAT(azure("2024-02-03T23:59:59X,1,1"),
              StartsWith("t.csv:2:20: error: 'X' stands behind TIMESTAMP"));
  EXPECT_THAT(azure("03.02.2024 23:59,1,1"),
              StartsWith("t.csv:2:1: error: the year is '03.02.2024 23:59'; a time"));
  EXPECT_THAT(error_of("note,arrival,prompt,output\n\"a,1,2,3\n"),
              StartsWith("t.csv:2:1: error: the quote is not closed on this line"));
  EXPECT_THAT(error_of("TIMESTAMP,ContextTokens,Model\n"),
              HasSubstr("the column 'GeneratedTokens' is missing; Azure LLM inference CSV needs"));
  EXPECT_THAT(error_of("a,b\n"), HasSubstr("arrival=NAME,prompt=NAME,output=NAME"));
}

TEST(Trace, ReadsColumnsThatTheUserNames) {
  const auto named = [](const char* text) {
    TraceOptions options;
    EXPECT_EQ(read_trace_columns(text, options.columns), "");
    return options;
  };
  const TraceOptions all = named("arrival=sent at,prompt=in,output=out,prefix=head");
  const auto requests = read_trace("out,head,Sent At,in\n7,3:16,0.5,40\n8,,1.5,50\n", all).requests;
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[1].arrival_ns, 1'000'000'000);
  EXPECT_EQ(requests[0].prompt_tokens, 40);
  EXPECT_EQ(requests[0].output_tokens, 7);
  EXPECT_EQ(requests[0].prefix_hashes.size(), 1u);
  EXPECT_THAT(error_of("sent at,in,head\n1,1,\n", all),
              HasSubstr("the column 'out' is missing; CSV needs sent at, in, out; the file has sent"));
  // The others are those of the form.
  const TraceOptions one = named("prompt=input");
  EXPECT_EQ(read_trace("TIMESTAMP,input,GeneratedTokens\n2024-02-03 00:00:00,9,1\n", one).requests.size(),
            1u);
  const auto lines = read_trace(
      "{\"timestamp\":0,\"input\":9,\"output_length\":1}\n"
      "{\"timestamp\":2,\"input\":9,\"output_length\":1}\n",
      one);
  ASSERT_EQ(lines.requests.size(), 2u);
  EXPECT_EQ(lines.requests[1].arrival_ns, 2'000'000);
  const auto seconds = read_trace(
      "{\"t\":0,\"input_length\":9,\"output_length\":1}\n"
      "{\"t\":2.5,\"input_length\":9,\"output_length\":1}\n",
      named("arrival=t"));
  EXPECT_EQ(seconds.requests.at(1).arrival_ns, 2'500'000'000);
  TraceColumns wrong;
  for (const char* text : {"", "prompt", "prompt=", "tokens=x", "prompt=a,prompt=b", "prompt=a,"}) {
    wrong = {};
    EXPECT_THAT(read_trace_columns(text, wrong), HasSubstr("such as arrival=arrived_at,prompt=")) << text;
  }
}

TEST(Trace, NamesColumnsThatAreDropped) {
  EXPECT_EQ(read_trace("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-02-03 00:00:00,3,9,1\n").note,
            "columns not read: NumImages (what they add to the load is missing)");
  EXPECT_EQ(read_trace(R"({"timestamp":0,"input_length":9,"output_length":1,"images":[1],"type":"x"})").note,
            "columns not read: images, type (what they add to the load is missing)");
  EXPECT_EQ(read_trace(kBurstText).note, "");
  EXPECT_EQ(read_trace(kMooncakeText).note, "");
  EXPECT_EQ(
      read_trace("a,arrival,prompt,output\n1,1,1,x\n", {.skip_bad = true}).note,
      "columns not read: a (what they add to the load is missing); 1 line skipped; the first: t.csv:2:7: error: "
      "output is 'x', a whole number is required");
}

/// A log that is written when requests end is out of order. An error stops no request in front of it.
TEST(Trace, SortsRequests) {
  const std::string text = "arrival,prompt,output\n3,30,1\n1,10,1\n2,20,1\n1,11,1\n4,-1,1\n";
  TraceReader reader("t.csv", LineReader(read_text_in(text)), {});
  std::vector<int32_t> prompts;
  Request r;
  for (int i = 0; i < 4; ++i) {
    r.prefix_hashes.clear();
    ASSERT_TRUE(reader(r));
    prompts.push_back(r.prompt_tokens);
  }
  EXPECT_EQ(prompts, (std::vector<int32_t>{10, 11, 20, 30}));
  EXPECT_EQ(r.arrival_ns, 2'000'000'000);
  EXPECT_THROW(reader(r), BadTraceError);
}

/// "arrival,prompt,output\n1,10,2\n2,11,3\n", packed by gzip.
constexpr unsigned char kPacked[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0xff, 0x4b, 0x2c,
                                     0x2a, 0xca, 0x2c, 0x4b, 0xcc, 0xd1, 0x29, 0x28, 0xca, 0xcf, 0x2d, 0x28,
                                     0xd1, 0xc9, 0x2f, 0x2d, 0x29, 0x28, 0x2d, 0xe1, 0x32, 0xd4, 0x31, 0x34,
                                     0xd0, 0x31, 0xe2, 0x32, 0xd2, 0x31, 0x34, 0xd4, 0x31, 0xe6, 0x02, 0x00,
                                     0x41, 0xb4, 0x8a, 0xf6, 0x24, 0x00, 0x00, 0x00};

TEST(Trace, UnpacksGzip) {
  const test::TempFolder folder;
  const auto write = [&](const char* name, std::size_t bytes) {
    std::ofstream(folder / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(kPacked), static_cast<std::streamsize>(bytes));
    return (folder / name).string();
  };
  const std::string packed = write("t.csv.gz", sizeof kPacked);
  TraceReader reader(packed, TraceOptions{});
  int32_t tokens = 0;
  for (Request r; reader(r);) tokens += r.prompt_tokens;
  EXPECT_EQ(tokens, 21);
  std::ofstream(folder / "t.csv") << "arrival,prompt,output\n1,10,2\n2,11,3\n";
  EXPECT_EQ(file_digest(packed), file_digest((folder / "t.csv").string())) << "the same trace";
  EXPECT_EQ(trace_name(packed), "t");
  for (const std::size_t part : {20u, 50u}) {
    const std::string cut = write("cut.gz", part);
    try {
      TraceReader cut_reader(cut, TraceOptions{});
      for (Request r; cut_reader(r);) continue;
      FAIL();
    } catch (const BadTraceError& e) {
      EXPECT_THAT(e.what(), StartsWith(cut + ": error: cannot read: "));
    }
  }
}

TEST(Trace, SkipsAndCountsBadLines) {
  const std::string text = "arrival,prompt,output\n1,10,10\n1,-10,10\n\n1,10\n2,50,1\n" +
                           std::string(9000, '7') + "\n3,20,20\n4,1";
  const ReadTrace all = read_trace(text, {.skip_bad = true});
  EXPECT_EQ(all.requests.size(), 3u);
  EXPECT_EQ(all.skipped, 4);
  EXPECT_THAT(all.note, HasSubstr("skipped; the first: t.csv:3:3: error: prompt is negative"));
  EXPECT_EQ(all.requests.back().arrival_ns, 2'000'000'000);
  const ReadTrace fits = read_trace(text, {.skip_bad = true, .cache_tokens = 40});
  EXPECT_EQ(fits.requests.size(), 1u);  // 32 tokens in whole blocks
  EXPECT_EQ(fits.skipped, 6);
}

TEST(Trace, RefusesWhatDoesNotFit) {
  const std::string text = "arrival,prompt,output\n1,30,4\n";
  EXPECT_THAT(
      error_of(text, {.cache_tokens = 47}),
      StartsWith("t.csv:2:3: error: the request needs 33 tokens of the cache, which has 32; give it 48"));
  EXPECT_EQ(error_of(text, {.cache_tokens = 48}), "no error");
  EXPECT_THAT(error_of(text, {.prompt_tokens = 29}), HasSubstr("the prompt has 30 tokens, and a step"));
}

TEST(Trace, ReadsNumbersOfAnyLength) {
  TraceParser parser("arrival,prompt,output,prefix");
  const std::string digits = "98765432109876543210", most = "18446744073709551615";
  for (std::size_t n = 1; n <= 20; ++n) {
    const std::string id = n == 20 ? most : digits.substr(0, n), fraction = digits.substr(0, n);
    for (const char* tokens : {"1", "16777216"}) {  // the line ends close behind, and not
      const std::string text = fmt::format("2.{},16777216,1,{}:{}", fraction, id, tokens);
      const std::vector<char> line(text.begin(), text.end());  // so that a sanitizer sees a byte behind it
      const TraceLine& read = parser.parse({line.data(), line.size()});
      EXPECT_EQ(read.prefix_id, std::stoull(id));
      EXPECT_EQ(read.prefix_tokens, std::stoi(tokens));
      EXPECT_EQ(read.time_ns, 2'000'000'000 + std::stoll((fraction + "000000000").substr(0, 9))) << text;
    }
  }
  TraceParser shortest("prompt,output,arrival");
  const std::vector<char> line = {'7', ',', '8', ',', '0'};
  EXPECT_EQ(shortest.parse({line.data(), line.size()}).output_tokens, 8);
  EXPECT_THAT(error_of("arrival,prompt,output,prefix\n0,9,1,18446744073709551616:1\n"),
              HasSubstr(":2:7: error: the prefix's id is more than 18446744073709551615"));
  EXPECT_THAT(error_of("arrival,prompt,output\n0,123456789,1\n"),
              HasSubstr(":2:3: error: prompt is more than 16777216"));
}

TEST(Trace, BufferDividesLinesAnywhere) {
  for (const char* text : {kAzureText, kMooncakeText, kBurstText, kPlainText}) {
    const auto whole = read_trace(text).requests;
    for (std::size_t buffer = 104; buffer < 140; ++buffer) {
      for (const std::size_t chunk : {1, 7, 1000}) {
        const auto parts = read_trace(text, {}, buffer, chunk).requests;
        ASSERT_EQ(parts.size(), whole.size());
        for (std::size_t i = 0; i < whole.size(); ++i) {
          EXPECT_EQ(parts[i].arrival_ns, whole[i].arrival_ns);
          EXPECT_EQ(parts[i].prompt_tokens, whole[i].prompt_tokens);
          EXPECT_EQ(parts[i].prefix_hashes, whole[i].prefix_hashes);
        }
      }
    }
  }
}

TEST(Trace, NamesAFileThatIsNotThere) {
  try {
    TraceReader reader("/nowhere/t.csv", TraceOptions{});
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), StartsWith("/nowhere/t.csv: error: cannot open"));
  }
}

}  // namespace
}  // namespace attnbench
