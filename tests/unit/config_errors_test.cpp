// Every possible error in a file is refused. The message has the place, the name and the allowed values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <random>
#include <string_view>

#include "harness/config/sweep_file.h"

namespace attnbench {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct BadText {
  const char* text;
  const char* place;  ///< line:column
  const char* message;
};

/// Names of tests have one line.
void PrintTo(const BadText& bad, std::ostream* out) {
  for (const char c : std::string_view(bad.text)) *out << (c == '\n' ? '|' : c);
}

class BadTexts : public testing::TestWithParam<BadText> {};

TEST_P(BadTexts, AreRefusedAtTheRightPlace) {
  const BadText& bad = GetParam();
  try {
    parse_sweep_text(bad.text, "a.yaml");
    FAIL() << "accepted";
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), StartsWith("a.yaml:" + std::string(bad.place) + ": error: "));
    EXPECT_THAT(e.what(), HasSubstr(bad.message));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Documents, BadTexts,
    testing::Values(BadText{"", "1:1", "is empty"}, BadText{"# nothing\n\n", "1:1", "is empty"},
                    BadText{"---\n", "1:1", "is empty"},
                    BadText{"- name: x\n", "1:1", "holds a list, expected a mapping"},
                    BadText{"\n  hello\n", "2:3", "holds 'hello', expected a mapping"},
                    BadText{"name: a\nsweeps: [{}]\n---\nname: b\n", "3:1",
                            "a second YAML document starts here"},
                    BadText{"name: a\nsweeps: [{op: attention}\n", "3:1",
                            "YAML syntax: the list that begins with '[' has no ']'"},
                    BadText{"name: a\n\tseed: 5\n", "2:1", "YAML syntax: this line begins with a tab"},
                    BadText{"name: a\nsweeps:\n\t- batch: q4\n", "3:2", "begins with a tab"},
                    BadText{", name: a\n", "1:1", "YAML syntax: illegal start"},
                    BadText{"name: \"a", "1:9", "YAML syntax: illegal EOF in scalar"},
                    BadText{"name: a: b\n", "1:8", "YAML syntax: a 'key: value' cannot stand here"},
                    BadText{"name: *nobody\n", "1:7", "YAML syntax: the referenced anchor is not defined"}));

INSTANTIATE_TEST_SUITE_P(
    TopLevel, BadTexts,
    testing::Values(
        BadText{"sweeps: [{}]\n", "1:1", "key 'name' is missing"},
        BadText{"name: a\n", "1:1", "key 'sweeps' is missing"},
        BadText{"name: a\nsweep: [{}]\n", "2:1",
                "unknown key 'sweep' in the top level; did you mean 'sweeps'? allowed: name, seed, check, "
                "defaults, sweeps"},
        BadText{"{\"context\": {}, \"benchmarks\": []}\n", "1:1", "this is a results file, not a sweep"},
        BadText{"name: a\nhead_dim: 5\nsweeps: [{}]\n", "2:1", "head_dim belongs in a sweep or in defaults"},
        BadText{"name: a\nname: b\nsweeps: [{}]\n", "2:1",
                "key 'name' stands twice in the top level (first on line 1)"},
        BadText{"name:\nsweeps: [{}]\n", "1:1", "key 'name': got nothing, expected a text"},
        BadText{"name: \"\"\nsweeps: [{}]\n", "1:7", "expected a text"},
        BadText{"name: 12\nsweeps: [{}]\n", "1:7", "put it in quotes, \"12\""},
        BadText{"name: [a]\nsweeps: [{}]\n", "1:7", "got a list, expected a text"},
        BadText{"name: a\nseed: -1\nsweeps: [{}]\n", "2:7",
                "key 'seed': got '-1', expected an integer from 0"},
        BadText{"name: a\nseed: 18446744073709551616\nsweeps: [{}]\n", "2:7", "to 18446744073709551615"},
        BadText{"name: a\nseed: 1.5\nsweeps: [{}]\n", "2:7", "got '1.5'"},
        BadText{"name: a\nseed: '1'\nsweeps: [{}]\n", "2:7", "got the string '1', expected an integer"},
        BadText{"name: a\nseed: 0x10\nsweeps: [{}]\n", "2:7", "got '0x10'"},
        BadText{"name: a\ncheck: invariant\nsweeps: [{}]\n", "2:8",
                "key 'check': unknown word 'invariant'; did you mean 'invariants'?"},
        BadText{"name: a\ncheck: [full, sampled]\nsweeps: [{}]\n", "2:8",
                "'full' and 'sampled' exclude each other"},
        BadText{"name: a\ncheck: ['off', invariants]\nsweeps: [{}]\n", "2:8", "not 'off'"},
        BadText{"name: a\nsweeps: {op: attention}\n", "2:9", "key 'sweeps': got a mapping, expected a list"},
        BadText{"name: a\nsweeps: []\n", "2:9", "key 'sweeps': the list is empty"},
        BadText{"name: a\nsweeps:\n", "2:1", "key 'sweeps': got nothing, expected a list"},
        BadText{"name: a\nsweeps: [decode]\n", "2:10", "got 'decode', expected a mapping"},
        BadText{"name: a\ndefaults: 5\nsweeps: [{}]\n", "2:11", "defaults: got '5', expected a mapping"},
        BadText{"name: a\ndefaults: {zip: {}}\nsweeps: [{}]\n", "2:12", "zip belongs in a sweep"},
        BadText{"name: a\n5: 6\n? [b]\n: 7\nsweeps: [{}]\n", "3:3", "a key must be a word, got a list"}));

TEST(BadFile, AllItsMistakesAreNamedInOneGo) {
  const char* text =
      "name: a\n"
      "sede: 3\n"
      "defaults: {dtype: bf17, heds: 4/1}\n"
      "sweeps:\n"
      "  - batch: [4q1s2x, q5, q]\n"
      "    kv: pagd\n"
      "    exclude: [{foo: 1}, {dtype: fp17}]\n"
      "  - {batch: q5, block_sizes: 16}\n";
  try {
    parse_sweep_text(text, "a.yaml");
    FAIL() << "accepted";
  } catch (const ConfigError& e) {
    EXPECT_THAT(
        e.mistakes(),
        testing::ElementsAre(
            StartsWith("a.yaml:2:1: error: unknown key 'sede' in the top level; did you mean 'seed'?"),
            StartsWith("a.yaml:3:19: error: key 'dtype'"),
            StartsWith("a.yaml:3:25: error: unknown key 'heds' in defaults; did you mean 'heads'?"),
            StartsWith("a.yaml:5:"), StartsWith("a.yaml:5:"), StartsWith("a.yaml:6:9: error: key 'kv'"),
            StartsWith("a.yaml:7:16: error: unknown key 'foo'"),
            StartsWith("a.yaml:7:33: error: key 'dtype'"),
            StartsWith("a.yaml:8:17: error: unknown key 'block_sizes' in sweep 'sweep2'; did you mean "
                       "'block_size'?")));
    EXPECT_THAT(e.what(), HasSubstr("\na.yaml:3:25: error: "));
  }
}

TEST(BadFile, ManyMistakesAreCutShort) {
  std::string text = "name: a\nsweeps:\n";
  for (int i = 0; i < 50; ++i) text += "  - {batch: q5, nokey: 1}\n";
  try {
    parse_sweep_text(text, "a.yaml");
    FAIL() << "accepted";
  } catch (const ConfigError& e) {
    EXPECT_EQ(e.mistakes().size(), 20u);
  }
}

/// One sweep, on line 3 from column 5 on.
#define SWEEP(lines) "name: a\nsweeps:\n  - " lines "\n"

INSTANTIATE_TEST_SUITE_P(
    Sweeps, BadTexts,
    testing::Values(
        BadText{
            SWEEP("name: decode\n    blok_size: 16"), "4:5",
            "unknown key 'blok_size' in sweep 'decode'; did you mean 'block_size'? allowed: what `attnbench list --keys` "
            "prints"},
        BadText{SWEEP("qwertyuiop: 16"), "3:5",
                "unknown key 'qwertyuiop' in sweep 'sweep1'; allowed: op, kv, block_size, "},
        BadText{SWEEP("seed: 16"), "3:5", "seed belongs at the top level of the file, or in --seed"},
        BadText{SWEEP("op: attention\n    kv: paged\n    op: kv_append"), "5:5",
                "key 'op' stands twice in a sweep (first on line 3)"},
        BadText{SWEEP("name: a\n  - name: a"), "4:5", "sweep name 'a' is given twice"},
        BadText{SWEEP("name: ''"), "3:11", "key 'name': got the string '', expected a text"},
        BadText{SWEEP("head_dim: []"), "3:15", "key 'head_dim': the list is empty"},
        BadText{SWEEP("head_dim: [64, [128]]"), "3:20", "key 'head_dim': got a list, expected an integer"},
        BadText{SWEEP("head_dim: [64, , 128]"), "3:15", "key 'head_dim': got nothing"},
        BadText{SWEEP("head_dim:\n    kv: paged"), "3:5", "key 'head_dim': got nothing, expected an integer"},
        BadText{SWEEP("zip: [1]"), "3:10", "zip of sweep 'sweep1': got a list, expected a mapping"},
        BadText{SWEEP("zip: {}"), "3:10", "key 'zip': the mapping is empty"},
        BadText{SWEEP("zip: {head_dim: 64}"), "3:21", "key 'head_dim': got '64', expected a list"},
        BadText{SWEEP("zip: {head_dim: [64, 128], softcap: [1]}"), "3:41",
                "key 'softcap': has 1 values, but 'head_dim' in the same zip has 2"},
        BadText{SWEEP("zip: {hed_dim: [64]}"), "3:11", "in zip of sweep 'sweep1'; did you mean 'head_dim'?"},
        BadText{SWEEP("zip: {head_dim: [64]}\n    head_dim: 5"), "4:5",
                "key 'head_dim' of sweep 'sweep1' stands in its zip"},
        BadText{SWEEP("exclude: {head_dim: 64}"), "3:14", "expected a list of mappings"},
        BadText{SWEEP("exclude: []"), "3:14", "key 'exclude': the list is empty"},
        BadText{SWEEP("exclude: [{}]"), "3:15", "an empty mapping would exclude every case"},
        BadText{SWEEP("exclude: [head_dim]"), "3:15", "got 'head_dim', expected a mapping"},
        BadText{SWEEP("exclude: [{head_dim: x}]"), "3:26", "key 'head_dim': got 'x'"},
        BadText{SWEEP("exclude: [{headdim: 5}]"), "3:16",
                "in exclude of sweep 'sweep1'; did you mean 'head_dim'?"},
        BadText{SWEEP("<<: 5"), "3:9", "merge key '<<': got '5', expected a mapping"},
        BadText{SWEEP("&x\n    <<: *x"), "3:5", "merges nest too deep"}));

INSTANTIATE_TEST_SUITE_P(
    Values, BadTexts,
    testing::Values(
        BadText{SWEEP("mask: casual"), "3:11",
                "key 'mask': unknown value 'casual'; did you mean 'causal'? allowed: none, causal"},
        BadText{SWEEP("dtype: FP16"), "3:12", "did you mean 'fp16'? allowed: bf16, fp16, fp32"},
        BadText{SWEEP("dtype: e4m3"), "3:12", "unknown value 'e4m3'; allowed: bf16"},
        BadText{SWEEP("dtype: fp16,fp32"), "3:12", "a list is written [fp16,fp32]; allowed: bf16"},
        BadText{
            SWEEP("block_size: 16,64"), "3:17",
            "got '16,64', expected an integer from 1 to 65536 (1k: 1024, 1m: 1024^2); a list is written [16,64]"},
        BadText{SWEEP("page_layout: striped"), "3:18", "unknown value 'striped'"},
        BadText{SWEEP("op: {a: b}"), "3:9", "key 'op': got a mapping, expected one of: attention, kv_append"},
        BadText{SWEEP("op: ~"), "3:5", "key 'op': got nothing, expected one of"},
        BadText{SWEEP("head_dim: 16abc"), "3:15", "got '16abc', expected an integer from 1 to 576"},
        BadText{SWEEP("head_dim: 0"), "3:15", "got '0', expected an integer from 1 to 576"},
        BadText{SWEEP("head_dim_v: wide"), "3:17",
                "key 'head_dim_v': got 'wide', expected an integer from 1 to 512, or same (head_dim)"},
        BadText{SWEEP("head_dim_v: 513"), "3:17", "got '513'"},
        BadText{SWEEP("dropout: 1"), "3:14", "key 'dropout': got '1', expected a number from 0 (none) up to"},
        BadText{SWEEP("dropout: 0.99999999"), "3:14", "got '0.99999999'"},
        BadText{SWEEP("kv_dtype: int4"), "3:15", "unknown value 'int4'"},
        BadText{SWEEP("head_dim: 577"), "3:15", "got '577'"},
        BadText{SWEEP("head_dim: 064"), "3:15", "got '064'"},
        BadText{SWEEP("head_dim: +64"), "3:15", "got '+64'"},
        BadText{SWEEP("head_dim: 64.0"), "3:15", "got '64.0'"},
        BadText{SWEEP("head_dim: \"64\""), "3:15", "got the string '64'"},
        BadText{SWEEP("head_dim: 99999999999999999999"), "3:15",
                "got '99999999999999999999', expected an integer"},
        BadText{SWEEP("block_size: [16, 65537]"), "3:22", "expected an integer from 1 to 65536"},
        BadText{SWEEP("gap_tokens: 2m"), "3:17", "from 0 to 1048576"},
        BadText{SWEEP("padding_tokens: -1"), "3:21", "from 0 to 4096"},
        BadText{SWEEP("allow_short_kv: yes"), "3:21", "got 'yes', expected true or false"},
        BadText{SWEEP("allow_short_kv: 1"), "3:21", "expected true or false"},
        BadText{SWEEP("heads: 32/5"), "3:12", "query heads must be a multiple of the KV heads"},
        BadText{SWEEP("heads: 8/32"), "3:12", "query heads must be a multiple of the KV heads"},
        BadText{SWEEP("heads: 32/"), "3:12", "got '32/', expected \"Q/KV\" such as 32/8"},
        BadText{SWEEP("heads: 0"), "3:12", "each from 1 to 1024"},
        BadText{SWEEP("heads: 2048/8"), "3:12", "each from 1 to 1024"},
        BadText{SWEEP("heads: 32/8/2"), "3:12", "got '32/8/2'"},
        BadText{SWEEP("window: [4095, 0]"), "3:14", "write \"L,R\" and not [L, R]"},
        BadText{SWEEP("window: 4095"), "3:13", "got '4095', expected none, drawn, or a text \"left,right\""},
        BadText{SWEEP("window: 4095,-2"), "3:13", "got '4095,-2'"},
        BadText{SWEEP("window: 4095,0,1"), "3:13", "got '4095,0,1'"},
        BadText{SWEEP("softmax_scale: 0"), "3:20", "expected a number over 0"},
        BadText{SWEEP("softmax_scale: 1e-60"), "3:20", "that a float can hold, or default"},
        BadText{SWEEP("softmax_scale: .inf"), "3:20", "got '.inf'"},
        BadText{SWEEP("softmax_scale: '0.5'"), "3:20", "got the string '0.5'"},
        BadText{SWEEP("softcap: -1"), "3:14", "got '-1', expected a number from 0"},
        BadText{SWEEP("softcap: nan"), "3:14", "got 'nan'"},
        BadText{SWEEP("softcap: 1e999"), "3:14", "got '1e999'"},
        BadText{SWEEP("softcap: 5x"), "3:14", "got '5x'"},
        BadText{SWEEP("batch: 4x512"), "3:13", "key 'batch': batch spec '4x512' needs 'q' at character 2"},
        BadText{SWEEP("batch: \"4q512_Q1\""), "3:19", "did you mean 'q'?"},
        BadText{SWEEP("batch: [4q512, [q1]]"), "3:20", "got a list, expected a batch spec"},
        BadText{SWEEP("batch: {lengths: 5, count: 2, s: 3}"), "3:12", "expected either 'lengths'"},
        BadText{SWEEP("batch: {lengths: {uniform: [1, 2x]}, count: 2}"), "3:36",
                "got '2x', expected an integer"}));

std::string error_of(const std::function<void()>& parse) {
  try {
    parse();
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(OverrideErrors, NameTheOption) {
  const auto error = [](const std::string& set) {
    return error_of([&] { parse_sweep_text("name: a\nsweeps: [{}]", "a.yaml", {set}); });
  };
  EXPECT_THAT(error("blok_size=16"),
              StartsWith("--set blok_size=16: error: unknown key 'blok_size' in --set; did you "
                         "mean 'block_size'? allowed: what "));
  EXPECT_EQ(error("block_size=x"),
            "--set block_size=x: error: key 'block_size': got 'x', expected an integer from 1 to 65536 "
            "(1k: 1024, 1m: 1024^2)");
  EXPECT_EQ(error("seed=3"), "--set seed=3: error: the seed is set by --seed");
  EXPECT_EQ(error("block_size"), "--set block_size: error: expected key=value, such as dtype=fp16");
  EXPECT_THAT(error("block_size="), HasSubstr("got nothing, expected an integer"));
  EXPECT_THAT(error("=5"), HasSubstr("unknown key ''"));
  EXPECT_THAT(error("zip={}"), HasSubstr("zip belongs in a sweep"));
  EXPECT_THAT(error("block_size=[1"), StartsWith("--set block_size=[1: error: YAML syntax: "));
  EXPECT_THAT(error("block_size=[]"), HasSubstr("the list is empty"));
  EXPECT_THAT(error("window=[4095, 0]"), HasSubstr("write \"L,R\""));
  EXPECT_THAT(error("batch=4Q5"), HasSubstr("did you mean 'q'?"));
}

TEST(InlineCaseErrors, NameTheColumn) {
  const auto error = [](const std::string& text) { return error_of([&] { parse_inline_case(text); }); };
  EXPECT_THAT(error("{op: attention, blok_size: 4}"),
              StartsWith("--case:1:17: error: unknown key 'blok_size' in "));
  EXPECT_THAT(error("{batch: 4q512_x}"),
              StartsWith("--case:1:15: error: key 'batch': batch spec '4q512_x' needs"));
  EXPECT_THAT(error("4q512"), StartsWith("--case:1:1: error: holds '4q512', expected a mapping"));
  EXPECT_THAT(error(""), StartsWith("--case:1:1: error: is empty"));
  EXPECT_THAT(error("{op: attention"), StartsWith("--case:1:1: error: YAML syntax: "));
}

TEST(NearestWord, FindsTyposButNotOtherWords) {
  const std::vector<std::string> words = {"block_size", "bf16", "fp16", "kv", "head_dim", "heads"};
  EXPECT_EQ(nearest_word("blok_size", words), "block_size");
  EXPECT_EQ(nearest_word("block-size", words), "block_size");
  EXPECT_EQ(nearest_word("BLOCK_SIZE", words), "block_size");
  EXPECT_EQ(nearest_word("FP16", words), "fp16");
  EXPECT_EQ(nearest_word("BF16", words), "bf16");
  EXPECT_EQ(nearest_word("headdim", words), "head_dim");
  EXPECT_EQ(nearest_word("bacth", {"path", "batch"}), "batch") << "swapped letters are one mistake";
  EXPECT_EQ(nearest_word("page_size", words), "block_size");
  EXPECT_EQ(nearest_word("head", words), "heads");
  EXPECT_EQ(nearest_word("kw", words), "kv");
  EXPECT_EQ(nearest_word("window", words), std::nullopt);
  EXPECT_EQ(nearest_word("", words), std::nullopt);
  EXPECT_EQ(nearest_word("heads", {}), std::nullopt);
}

TEST(WordOfOthers, IsOursWhereItIsAllowed) {
  const std::vector<std::string> sweep = {"mask",   "block_size", "heads",  "head_dim",
                                          "window", "batch",      "softcap"};
  const std::vector<std::string> batch = {"lengths", "q", "s", "context", "count"};
  const struct {
    const char* theirs;
    std::vector<std::string> allowed;
    const char* ours;
  } words[] = {
      {"is_causal", sweep, "mask: causal"},
      {"pageSize", sweep, "block_size"},
      {"num-kv-heads", sweep, "heads: 32/8"},
      {"num_key_value_heads", sweep, "heads: 32/8"},
      {"headdim", sweep, "head_dim"},
      {"window_left", sweep, "window: \"4095,0\""},
      {"max_seqlen_k", sweep, "batch: 8q1s4k"},
      {"max_seqlen_k", batch, "s"},
      {"k", batch, "s"},
      {"batch_size", sweep, "batch: 8q1s4k"},
      {"batch_size", batch, "count"},
      {"attn_logit_softcapping", sweep, "softcap"},
      {"Float16", {"bf16", "fp16"}, "fp16"},
      {"causal", {"kv", "heads"}, "none"},
      {"heads", sweep, "none"},
      {"", sweep, "none"},
  };
  for (const auto& w : words)
    EXPECT_EQ(word_of_others(w.theirs, w.allowed).value_or("none"), w.ours) << w.theirs;
}

// For any text, parsing ends with a file or a ConfigError.
TEST(MutatedFiles, NeverDoAnythingElse) {
  const std::string good =
      "name: q\nseed: 1\ndefaults: {dtype: bf16, heads: 32/8, window: \"7,0\"}\nsweeps:\n  - &a\n    name: "
      "p\n"
      "    batch: [q1_q2, {lengths: {lognormal: {median: 8, sigma: 1.0}, clip: [1, 9]}, count: 3}]\n"
      "    zip: {softcap: [0, 30], head_dim: [64, 128]}\n    exclude: [{block_size: 256}]\n  - {<<: *a, "
      "name: b}\n";
  const std::string alphabet = "{}[],:-#&*!|>'\"%@`?~ \n\t<=.0159aqskm_/\\\xc3\xff";
  std::mt19937 random(11);
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (auto edits = 1 + random() % 4; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text.erase(at, 1 + random() % 4);
          break;
        case 1:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        default:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
      }
    }
    try {
      parse_sweep_text(text, "a.yaml");
      ++accepted;
    } catch (const ConfigError& e) {
      ASSERT_THAT(e.what(), StartsWith("a.yaml:")) << text;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 2000);
}

}  // namespace
}  // namespace attnbench
