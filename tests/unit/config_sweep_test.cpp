// The meaning of a file: defaults, axes, zip, exclude, overrides, inline cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "harness/config/batch_spec.h"
#include "harness/config/sweep_file.h"

namespace attnbench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

SweepFile parse(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_sweep_text(text, "t.yaml", overrides);
}

/// A file with one sweep that consists of these lines.
Sweep sweep_of(const std::string& flow, const std::vector<std::string>& overrides = {}) {
  return parse("name: t\ndefaults: {dtype: fp16, block_size: [16, 32]}\nsweeps: [" + flow + "]\n", overrides)
      .sweeps.at(0);
}

std::vector<std::string> fixed_of(const Sweep& sweep) {
  std::vector<std::string> out;
  for (const Setting& s : sweep.fixed) out.push_back(s.key + "=" + s.text);
  return out;
}

/// "a=1,b=2|a=3,b=4" per axis.
std::vector<std::string> axes_of(const Sweep& sweep) {
  std::vector<std::string> out;
  for (const Axis& axis : sweep.axes) {
    std::string text;
    for (const auto& point : axis.points) {
      if (!text.empty()) text += "|";
      for (const Setting& s : point) {
        text += (&s == &point.front() ? "" : ",") + s.key + "=" + s.text;
      }
    }
    out.push_back(text);
  }
  return out;
}

/// The rule in sweep_file.h: a setting holds if applying it changes nothing.
bool excluded(const Sweep& sweep, const CaseParams& params) {
  const auto holds = [&](const Setting& s) {
    CaseParams with = params;
    s.apply(with);
    return with == params;
  };
  return std::any_of(sweep.exclude.begin(), sweep.exclude.end(), [&](const Exclusion& e) {
    return std::all_of(e.any_of_each.begin(), e.any_of_each.end(),
                       [&](const auto& values) { return std::any_of(values.begin(), values.end(), holds); });
  });
}

/// The cases of a sweep: fixed settings, then the product of the axes, without excluded cases.
std::vector<CaseParams> expand(const Sweep& sweep) {
  std::vector<CaseParams> cases(1);
  for (const Setting& s : sweep.fixed) s.apply(cases[0]);
  for (const Axis& axis : sweep.axes) {
    std::vector<CaseParams> next;
    for (const CaseParams& c : cases) {
      for (const auto& point : axis.points) {
        next.push_back(c);
        for (const Setting& s : point) s.apply(next.back());
      }
    }
    cases = std::move(next);
  }
  std::erase_if(cases, [&](const CaseParams& c) { return excluded(sweep, c); });
  return cases;
}

CaseParams case_of(const std::string& flow) {
  const std::vector<CaseParams> cases = expand(parse_inline_case(flow).sweeps.at(0));
  EXPECT_EQ(cases.size(), 1u);
  return cases.at(0);
}

TEST(SweepFile, ReadsTheExampleOfTheDocumentation) {
  const SweepFile file = parse(R"(name: quickstart
seed: 1
defaults: {dtype: bf16, head_dim: 128, heads: 32/8, mask: causal}
sweeps:
  - name: prefill
    kv: packed
    batch: [q1_q2_q3_q4, 4q512, {lengths: {lognormal: {median: 800, sigma: 1.0}, clip: [16, 8192]}, count: 16}]
  - name: decode
    kv: paged
    batch: [8q1s1k, 32q1s4k, 1q512s2k_31q1s1k]
    block_size: [16, 64, 256]        # every list is an axis; axes multiply
    page_layout: shuffled            # contiguous | shuffled
    zip: {heads: [32/8, 64/8], softcap: [0, 30]}     # zipped axes move together
    exclude: [{block_size: 256, heads: 64/8}]
)");
  EXPECT_EQ(file.name, "quickstart");
  EXPECT_EQ(file.seed, 1u);
  ASSERT_EQ(file.sweeps.size(), 2u);
  EXPECT_EQ(file.sweeps[0].place, "t.yaml:5:5");
  const std::vector<CaseParams> prefill = expand(file.sweeps[0]);
  ASSERT_EQ(prefill.size(), 3u);
  EXPECT_EQ(prefill[2].seqs.size(), 16u);
  EXPECT_TRUE(prefill[2].causal);

  const Sweep& decode = file.sweeps[1];
  EXPECT_THAT(fixed_of(decode),
              ElementsAre("dtype=bf16", "head_dim=128", "mask=causal", "kv=paged", "page_layout=shuffled"));
  EXPECT_THAT(axes_of(decode), ElementsAre("batch=8q1s1k|batch=32q1s4k|batch=q512s2k_31q1s1k",
                                           "block_size=16|block_size=64|block_size=256",
                                           "heads=32/8,softcap=0|heads=64/8,softcap=30"));
  const std::vector<CaseParams> cases = expand(decode);
  EXPECT_EQ(cases.size(), 3u * 3u * 2u - 3u);
  for (const CaseParams& c : cases) {
    EXPECT_EQ(c.softcap, c.num_heads_q == 64 ? 30 : 0);
    EXPECT_FALSE(c.block_size == 256 && c.num_heads_q == 64);
  }
}

TEST(SweepFile, EveryKeySetsItsField) {
  const CaseParams c = case_of(
      "{op: kv_append, kv: paged, batch: 2q3s5, dtype: fp32, heads: 6/3, head_dim: 96, mask: causal, "
      "window: \"7,-1\", softmax_scale: 0.25, softcap: 30, block_size: 48, kv_layout: hnd, "
      "page_layout: contiguous, gap_tokens: 3, padding_tokens: 9, append: in_call, new_tokens: 2, rotary: "
      "interleaved, rotary_dim: 32, rotary_q: at_cache_seqlens, data: "
      "outlier, allow_short_kv: true}");
  CaseParams want;
  want.op = Op::kKvAppend;
  want.kv = KvSource::kPaged;
  want.seqs = {{3, 5}, {3, 5}};
  want.dtype = DType::kFp32;
  want.num_heads_q = 6;
  want.num_heads_kv = 3;
  want.head_dim = 96;
  want.causal = true;
  want.window_left = 7;
  want.window_right = -1;
  want.softmax_scale = 0.25;
  want.softcap = 30;
  want.block_size = 48;
  want.kv_layout = KvLayout::kHnd;
  want.page_layout = PageLayout::kContiguous;
  want.gap_tokens = 3;
  want.padding_tokens = 9;
  want.append = true;
  want.new_tokens = 2;
  want.rotary = Rotary::kInterleaved;
  want.rotary_dim = 32;
  want.rotary_q = RotaryQ::kAtCacheSeqlens;
  want.data = Profile::kOutlier;
  want.allow_short_kv = true;
  EXPECT_EQ(c, want);
}

TEST(SweepFile, ValuesHaveOneSpelling) {
  const auto text_of = [](const std::string& key, const std::string& value) {
    return parse_inline_case("{" + key + ": " + value + "}").sweeps.at(0).fixed.at(0).text;
  };
  EXPECT_EQ(text_of("heads", "32"), "32/32");
  EXPECT_EQ(text_of("heads", "\"32\""), "32/32");
  EXPECT_EQ(text_of("softcap", "30.0"), "30");
  EXPECT_EQ(text_of("softcap", "3e1"), "30");
  EXPECT_EQ(text_of("softcap", "-0.0"), "0");
  EXPECT_EQ(text_of("softmax_scale", "default"), "default");
  EXPECT_EQ(text_of("softmax_scale", "0.1250"), "0.125");
  EXPECT_EQ(text_of("window", "\"4095, 0\""), "4095,0");
  EXPECT_EQ(text_of("window", "\"-1,-1\""), "none");
  EXPECT_EQ(text_of("batch", "1q1024_q1k"), "2q1k");
  EXPECT_EQ(text_of("allow_short_kv", "false"), "false");
  EXPECT_FALSE(case_of("{softmax_scale: default}").softmax_scale.has_value());
}

TEST(SweepFile, ASweepsKeyOverridesTheDefault) {
  EXPECT_THAT(fixed_of(sweep_of("{dtype: bf16}")), ElementsAre("dtype=bf16"));
  EXPECT_THAT(axes_of(sweep_of("{dtype: bf16}")), ElementsAre("block_size=16|block_size=32"));
  EXPECT_THAT(fixed_of(sweep_of("{block_size: 8}")), ElementsAre("dtype=fp16", "block_size=8"));
  EXPECT_THAT(axes_of(sweep_of("{block_size: 8}")), IsEmpty());
  const Sweep zipped = sweep_of("{zip: {block_size: [1, 2], dtype: [bf16, fp32]}}");
  EXPECT_THAT(fixed_of(zipped), IsEmpty());
  EXPECT_THAT(axes_of(zipped), ElementsAre("block_size=1,dtype=bf16|block_size=2,dtype=fp32"));
}

TEST(SweepFile, AxesStandInFileOrder) {
  EXPECT_THAT(axes_of(sweep_of("{softcap: [0, 5], zip: {head_dim: [64], heads: [8]}, mask: [none, causal]}")),
              ElementsAre("block_size=16|block_size=32", "softcap=0|softcap=5", "head_dim=64,heads=8/8",
                          "mask=none|mask=causal"));
  const std::vector<CaseParams> cases = expand(sweep_of("{mask: [none, causal]}"));
  ASSERT_EQ(cases.size(), 4u);  // the last axis varies fastest
  EXPECT_EQ(cases[1].block_size, 16);
  EXPECT_TRUE(cases[1].causal);
}

TEST(SweepFile, WindowsMayBeAnAxis) {
  EXPECT_THAT(axes_of(sweep_of("{block_size: 1, window: [\"4095,0\", none]}")),
              ElementsAre("window=4095,0|window=none"));
}

TEST(SweepFile, ExclusionNeedsAllKeysAndAnyValueOfEach) {
  const auto count = [](const std::string& exclude) {
    return expand(sweep_of("{head_dim: [64, 128], mask: [none, causal], exclude: " + exclude + "}")).size();
  };
  EXPECT_EQ(count("[{head_dim: 7}]"), 8u);
  EXPECT_EQ(count("[{head_dim: 64}]"), 4u);
  EXPECT_EQ(count("[{head_dim: 64, mask: causal}]"), 6u);
  EXPECT_EQ(count("[{head_dim: 64, mask: causal, block_size: 32}]"), 7u);
  EXPECT_EQ(count("[{head_dim: [64, 128], mask: causal}]"), 4u);
  EXPECT_EQ(count("[{head_dim: 64}, {mask: causal}]"), 2u);
  EXPECT_EQ(count("[{dtype: fp16, head_dim: 64}]"), 4u);  // from the defaults
  EXPECT_EQ(count("[{dtype: bf16, head_dim: 64}]"), 8u);
}

TEST(SweepFile, NamesDefaultToThePosition) {
  const SweepFile file = parse("name: t\nsweeps: [{name: a}, {}, {op: kv_append}]");
  EXPECT_EQ(file.sweeps[0].name, "a");
  EXPECT_EQ(file.sweeps[1].name, "sweep2");
  EXPECT_EQ(file.sweeps[2].name, "sweep3");
}

TEST(SweepFile, AnchorsAndMergeKeysWork) {
  const SweepFile file = parse(R"(name: t
sweeps:
  - &first {name: a, head_dim: 64, mask: causal}
  - {<<: *first, name: b, head_dim: &dims [32, 96]}
  - {<<: [{softcap: 5}, *first], name: c, head_dim: *dims}
)");
  EXPECT_THAT(fixed_of(file.sweeps[1]), ElementsAre("mask=causal"));
  EXPECT_THAT(axes_of(file.sweeps[1]), ElementsAre("head_dim=32|head_dim=96"));
  EXPECT_THAT(fixed_of(file.sweeps[2]), ElementsAre("softcap=5", "mask=causal"));
  EXPECT_THAT(axes_of(file.sweeps[2]), ElementsAre("head_dim=32|head_dim=96"));
}

TEST(SweepFile, TheSeedOfTheCommandLineWins) {
  const std::string text = "name: t\nseed: 18446744073709551615\nsweeps: [{}]";
  EXPECT_EQ(parse_sweep_text(text, "t").seed, UINT64_MAX);
  EXPECT_EQ(parse_sweep_text(text, "t", {}, 3).seed, 3u);
  EXPECT_EQ(parse_sweep_text("name: t\nsweeps: [{}]", "t").seed, std::nullopt);
}

TEST(SweepFile, WindowsLineEndsAndByteOrderMarksAreRead) {
  EXPECT_EQ(parse("\xef\xbb\xbfname: t\r\nsweeps:\r\n  - head_dim: 64\r\n").sweeps.at(0).fixed.at(0).text,
            "64");
}

TEST(Override, ReplacesTheKeyWhereverItStands) {
  const std::string sweep = "{dtype: bf16, zip: {head_dim: [64, 128], heads: [8, 4]}, mask: [none, causal]}";
  EXPECT_THAT(fixed_of(sweep_of(sweep, {"dtype=fp32"})), ElementsAre("dtype=fp32"));
  EXPECT_THAT(fixed_of(sweep_of(sweep, {"mask=none"})), ElementsAre("dtype=bf16", "mask=none"));
  EXPECT_THAT(axes_of(sweep_of(sweep, {"mask=none"})),
              ElementsAre("block_size=16|block_size=32", "head_dim=64,heads=8/8|head_dim=128,heads=4/4"));
  EXPECT_THAT(axes_of(sweep_of(sweep, {"head_dim=96"})),
              ElementsAre("block_size=16|block_size=32", "heads=8/8|heads=4/4", "mask=none|mask=causal"));
  EXPECT_THAT(axes_of(sweep_of(sweep, {"head_dim=96", "heads=2", "block_size=1"})),
              ElementsAre("mask=none|mask=causal"));
}

TEST(Override, TakesListsMappingsAndNewKeys) {
  EXPECT_THAT(axes_of(sweep_of("{}", {"block_size=[1, 2]", "data=[large]"})),
              ElementsAre("block_size=1|block_size=2", "data=large"));
  EXPECT_THAT(fixed_of(sweep_of("{block_size: 1}", {"batch={lengths: 5, count: 2}", "window=7,0"})),
              ElementsAre("dtype=fp16", "block_size=1", "batch=2q5", "window=7,0"));
  EXPECT_THAT(fixed_of(sweep_of("{block_size: 1}", {"softcap=1", "softcap=2"})),
              ElementsAre("dtype=fp16", "block_size=1", "softcap=2"));
}

TEST(Override, DrawsFromTheSeedOfTheCommandLine) {
  const std::string text = "name: t\nsweeps: [{}]";
  const std::vector<std::string> set = {"batch={lengths: {uniform: [1, 9999]}, count: 4}"};
  const auto drawn = [&](uint64_t seed) {
    return fixed_of(parse_sweep_text(text, "t", set, seed).sweeps[0]);
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

TEST(Override, AppliesToEverySweep) {
  for (const Sweep& sweep :
       parse("name: t\nsweeps: [{dtype: bf16}, {dtype: [fp16, fp32]}]", {"dtype=fp32"}).sweeps) {
    EXPECT_THAT(fixed_of(sweep), ElementsAre("dtype=fp32"));
    EXPECT_THAT(axes_of(sweep), IsEmpty());
  }
}

TEST(InlineCase, BecomesAFileWithOneSweep) {
  const SweepFile file =
      parse_inline_case("{op: attention, kv: paged, batch: 4q512, heads: 32/8}", {"heads=8"}, 7);
  EXPECT_EQ(file.path, "--case");
  EXPECT_EQ(file.seed, 7u);
  ASSERT_EQ(file.sweeps.size(), 1u);
  EXPECT_THAT(fixed_of(file.sweeps[0]), ElementsAre("op=attention", "kv=paged", "batch=4q512", "heads=8/8"));
  EXPECT_EQ(file.sweeps[0].fixed[1].place, "--case:1:21");
}

TEST(LoadSweepFile, ReadsAFileOrSaysWhyNot) {
  const std::string path =
      testing::TempDir() + "attnbench_config_sweep_test." + std::to_string(getpid()) + ".yaml";
  std::ofstream(path) << "name: t\nsweeps: [{head_dim: 64}]\n";
  const SweepFile file = load_sweep_file(path, {"head_dim=32"});
  EXPECT_EQ(file.path, path);
  EXPECT_THAT(fixed_of(file.sweeps.at(0)), ElementsAre("head_dim=32"));
  std::remove(path.c_str());

  const auto error_of = [](const std::string& p) -> std::string {
    try {
      load_sweep_file(p);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(error_of("no/such/file.yaml"),
            "no/such/file.yaml: error: cannot read: No such file or directory");
  EXPECT_EQ(error_of("/"), "/: error: this is a folder; a sweep file is required");
}

}  // namespace
}  // namespace attnbench
