#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/cases/case.h"
#include "harness/config/batch_spec.h"

namespace attnbench {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Expansion expand_text(const std::string& yaml) { return expand(parse_sweep_text(yaml, "t.yaml")); }

std::string expand_error(const std::string& yaml) {
  try {
    expand_text(yaml);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Expand, AxesMultiplyAndTheLastVariesFastest) {
  const Expansion e =
      expand_text("name: t\nsweeps:\n  - kv: paged\n    batch: [1q16, 2q16]\n    block_size: [16, 64]\n");
  ASSERT_EQ(e.cases.size(), 4u);
  EXPECT_THAT(e.cases[0].id, HasSubstr("paged16"));
  EXPECT_THAT(e.cases[1].id, HasSubstr("paged64"));
  EXPECT_THAT(e.cases[2].id, HasSubstr("2q16"));
}

TEST(Expand, ZipMovesTogetherAndExcludeDrops) {
  const Expansion e = expand_text(
      "name: t\nsweeps:\n  - batch: q16\n    mask: [none, causal]\n    zip: {heads: [8/2, 4/4], softcap: [0, "
      "30]}\n"
      "    exclude: [{heads: 4/4, mask: none}]\n");
  ASSERT_EQ(e.cases.size(), 3u);
  EXPECT_EQ(e.excluded, 1);
  for (const Case& c : e.cases) EXPECT_EQ(c.params.softcap > 0, c.params.num_heads_q == 4);
}

TEST(Expand, EqualProblemsAreOneCase) {
  // Block size has no meaning for packed KV.
  const Expansion e =
      expand_text("name: t\nsweeps:\n  - kv: packed\n    batch: q16\n    block_size: [16, 64]\n");
  EXPECT_EQ(e.cases.size(), 1u);
  EXPECT_THAT(e.duplicates, testing::ElementsAre(e.cases[0].id));
}

TEST(Expand, IdDoesNotDependOnOrderInTheFile) {
  const Expansion a = expand_text("name: t\nsweeps:\n  - batch: [q16, q32]\n    dtype: [bf16, fp16]\n");
  const Expansion b = expand_text("name: u\nsweeps:\n  - dtype: [fp16, bf16]\n    batch: [q32, q16]\n");
  std::vector<std::string> x, y;
  for (const Case& c : a.cases) x.push_back(c.id);
  for (const Case& c : b.cases) y.push_back(c.id);
  EXPECT_THAT(x, ::testing::UnorderedElementsAreArray(y));
}

TEST(Expand, ShortKeysUnderCausalAreRefusedUnlessAllowed) {
  const std::string base = "name: t\nsweeps:\n  - batch: q100s40\n    mask: causal\n";
  EXPECT_THAT(expand_error(base), HasSubstr("t.yaml:3:"));
  EXPECT_THAT(expand_error(base), HasSubstr("allow_short_kv"));
  EXPECT_EQ(expand_text(base + "    allow_short_kv: true\n").cases.size(), 1u);
  EXPECT_EQ(expand_text("name: t\nsweeps:\n  - batch: q100s40\n    mask: none\n").cases.size(), 1u);
}

TEST(Expand, AppendNeedsAPagedCacheWithRoom) {
  EXPECT_THAT(expand_error("name: t\nsweeps:\n  - {op: kv_append, kv: packed, batch: q4}\n"),
              HasSubstr("paged"));
  EXPECT_THAT(expand_error("name: t\nsweeps:\n  - {op: kv_append, batch: q40s4}\n"), HasSubstr("appends"));
  const std::string rows = "kv: paged, kv_dtype: e4m3, v_descales: per_token, batch: q4}\n";
  EXPECT_THAT(expand_error("name: t\nsweeps:\n  - {op: kv_append, " + rows),
              HasSubstr("'scales: per_token'"));
  EXPECT_THAT(expand_error("name: t\nsweeps:\n  - {page_layout: repeated, " + rows),
              HasSubstr("are by place"));
  EXPECT_EQ(expand_text("name: t\nsweeps:\n  - {op: kv_append, batch: q4s40}\n").cases.size(), 1u);
}

TEST(Expand, AppendInTheCallIsRefusedWhereItCannotBe) {
  const auto with = [](const std::string& keys) {
    return "name: t\nsweeps:\n  - {append: in_call, " + keys + "}\n";
  };
  EXPECT_THAT(expand_error(with("batch: q4")), HasSubstr("packed keys are none"));
  EXPECT_THAT(expand_error(with("batch: q4, kv: paged, kv_dtype: e4m3, new_dtype: cache, rotary: neox")),
              HasSubstr("write 'new_dtype: dtype' or drop rotary"));
  EXPECT_THAT(expand_error(with("batch: q4s3, kv: paged")), HasSubstr("appends 4 tokens to reach 3"));
  EXPECT_THAT(expand_error(with("batch: q4s3, kv: paged, new_tokens: 2, rotary: neox")),
              HasSubstr("position from 0 on"));
  EXPECT_THAT(expand_error(with("batch: q4, kv: paged, q_dtype: e4m3, rotary: neox")),
              HasSubstr("drop q_dtype"));
  EXPECT_EQ(expand_text(with("batch: q4s3, kv: paged, new_tokens: 2")).cases.size(), 1u);
  EXPECT_EQ(expand_text(with("op: kv_append, batch: q4")).cases.at(0).params.append, false);
}

TEST(Expand, RotaryIsRefusedWhereNothingCouldTurn) {
  EXPECT_THAT(expand_error("name: t\nsweeps:\n  - {rotary: neox, batch: q4}\n"),
              HasSubstr("set 'append: in_call'"));
  const auto append = [](const std::string& keys) {
    return "name: t\nsweeps:\n  - {op: kv_append, batch: q4, rotary: neox, " + keys + "}\n";
  };
  EXPECT_THAT(expand_error(append("head_dim: 65")), HasSubstr("up to head_dim 65 is required, given 65"));
  EXPECT_THAT(expand_error(append("rotary_dim: 7")), HasSubstr("an even rotary_dim"));
  EXPECT_THAT(expand_error(append("head_dim: 64, rotary_dim: 66")), HasSubstr("given 66"));
  const Expansion e = expand_text(append("head_dim: 64, rotary_dim: [0, 32, 64]"));
  EXPECT_EQ(e.cases.size(), 2u) << "0 stands for the whole head";
}

TEST(Expand, ExpiredNeedsAWindowAndFreedNeedsBlocks) {
  const auto expired = [](const std::string& keys) {
    return "name: t\nsweeps:\n  - {batch: 2q3s90, mask: causal, " + keys + "}\n";
  };
  EXPECT_THAT(expand_error(expired("expired: nan")), HasSubstr("neither bounds the left side"));
  EXPECT_THAT(expand_error(expired("expired: nan, window: \"-1,5\"")), HasSubstr("bounds the left side"));
  EXPECT_THAT(expand_error(expired("expired: freed, window: \"5,0\"")), HasSubstr("only paged KV has"));
  EXPECT_THAT(expand_error(expired("expired: freed, window: \"5,0\", kv: contiguous")),
              HasSubstr("only paged KV has"));
  const Expansion e = expand_text(expired("expired: [kept, nan, freed], window: \"5,0\", kv: paged"));
  ASSERT_EQ(e.cases.size(), 3u);
  EXPECT_THAT(e.cases[2].id, HasSubstr("/window5,-1/expired-freed/"));
  CaseParams packed = e.cases[2].params;
  packed.kv = KvSource::kPacked;
  EXPECT_EQ(normalised(packed).expired, Expired::kNan) << "there is no block to free";
}

TEST(Expand, PositionsOfQueriesCountWhereQueriesTurn) {
  const auto cases = [](const std::string& keys) {
    return expand_text("name: t\nsweeps:\n  - {kv: paged, " + keys +
                       ", rotary_q: [diagonal, from_cache_seqlens, at_cache_seqlens]}\n")
        .cases;
  };
  EXPECT_EQ(cases("batch: q4, append: in_call").size(), 1u);
  EXPECT_EQ(cases("batch: q4, op: kv_append, rotary: neox").size(), 1u) << "it has no queries";
  const std::vector<Case> all = cases("batch: q2s9, append: in_call, rotary: neox, rotary_dim: 32");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_THAT(all[0].id, HasSubstr("/neox32/"));
  EXPECT_THAT(all[1].id, HasSubstr("/neox32-from_cache_seqlens/"));
  EXPECT_THAT(case_yaml(all[2].params), HasSubstr("rotary_q: at_cache_seqlens"));
  const Expansion past = expand_text(
      "name: t\nsweeps:\n  - {append: in_call, kv: paged, rotary: neox, batch: q8s3_q2s5_q1s0, new_tokens: "
      "2, "
      "rotary_q: from_cache_seqlens}\n");
  EXPECT_EQ(past.cases.at(0).params.rotary_positions(), 9) << "queries 1 to 8, of more keys than there are";
}

TEST(Expand, CoversKeepValuesBesideAxesThatMakeNoDifference) {
  const auto cases = [](const std::string& keys) {
    return expand_text("name: t\nsweeps:\n  - {batch: 2q8s40, " + keys + "}\n").cases.size();
  };
  EXPECT_EQ(cases("cover: pairwise, block_size: [16, 32], head_dim: [32, 64]"), 2u);
  EXPECT_EQ(cases("cover: 3, block_size: [16, 32]"), 1u);
}

TEST(Expand, ACoverWithoutALegalCaseSaysWhy) {
  EXPECT_THAT(expand_error("name: t\nsweeps:\n  - {batch: 2q8, cover: pairwise, expired: [nan, freed]}\n"),
              HasSubstr("neither bounds the left side"));
  EXPECT_THAT(expand_error("name: t\nsweeps:\n  - {batch: 2q8, cover: pairwise, head_dim: [32, 64], exclude: "
                           "[{head_dim: [32, 64]}]}\n"),
              HasSubstr("no legal case that 'exclude' leaves"));
}

TEST(Expand, ScalesCountWhereSomethingIsQuantised) {
  const auto cases = [](const std::string& keys) {
    return expand_text("name: t\nsweeps:\n  - {batch: q4, scales: [given, per_token, per_token_k], " + keys +
                       "}\n")
        .cases;
  };
  EXPECT_EQ(cases("op: kv_append").size(), 1u);
  EXPECT_EQ(cases("kv_dtype: int8").size(), 1u) << "attention takes what it is given";
  EXPECT_EQ(cases("op: kv_append, kv_dtype: e4m3").size(), 3u);
  EXPECT_EQ(cases("op: kv_append, kv_dtype: int8").size(), 3u);
  const std::vector<Case> mixed = cases("op: kv_append, kv_dtype: int8_k");
  ASSERT_EQ(mixed.size(), 2u) << "values have no scales";
  EXPECT_THAT(mixed[0].id, HasSubstr("/bf16-kv_int8_k/"));
  EXPECT_THAT(mixed[1].id, HasSubstr("/bf16-kv_int8_k-per_token/"));
  EXPECT_THAT(case_yaml(mixed[1].params), HasSubstr("kv_dtype: int8_k, scales: per_token"));
}

TEST(Expand, WidthsOfValues) {
  const auto sweep = [](const std::string& keys) {
    return "name: t\nsweeps:\n  - {batch: q4, " + keys + "}\n";
  };
  const auto id = [&](const std::string& keys) { return expand_text(sweep(keys)).cases.at(0).id; };
  EXPECT_THAT(id("head_dim: 192, head_dim_v: 128"), HasSubstr("/d192-128/"));
  EXPECT_THAT(id("head_dim: 64, head_dim_v: 64"), HasSubstr("/d64/")) << "no other case";
  EXPECT_THAT(id("head_dim: 576, head_dim_v: 512, v_is_k_view: true, heads: 16/1"),
              HasSubstr("/d576-512-v_is_k/"));
  EXPECT_THAT(expand_error(sweep("head_dim: 576")), HasSubstr("past the widest values, 512; set head_dim_v"));
  EXPECT_THAT(expand_error(sweep("head_dim: 64, head_dim_v: 65, v_is_k_view: true")),
              HasSubstr("no more than their 64 channels, but head_dim_v is 65"));
  EXPECT_THAT(expand_error(sweep("op: kv_append, head_dim: 64, kv_dtype: int8, one_row: true")),
              HasSubstr("take kv_dtype e4m3, e5m2 or same"));
  EXPECT_THAT(expand_error(sweep("op: kv_append, kv_dtype: e4m3, scales: per_token, one_row: true")),
              HasSubstr("write 'scales: given' or drop one_row"));
  EXPECT_THAT(expand_error(sweep("op: kv_append, head_dim: 257")), HasSubstr("keys of up to 256 channels"));
  EXPECT_THAT(expand_error(sweep("op: kv_append, v_is_k_view: true")), HasSubstr("drop v_is_k_view"));
}

TEST(Expand, TypesThatGoTogether) {
  const auto sweep = [](const std::string& keys) {
    return "name: t\nsweeps:\n  - {batch: q4, " + keys + "}\n";
  };
  const auto id = [&](const std::string& keys) { return expand_text(sweep(keys)).cases.at(0).id; };
  EXPECT_THAT(id("q_dtype: int8, kv_dtype: int8"), HasSubstr("/bf16-q_int8-kv_int8/"));
  EXPECT_THAT(id("q_dtype: int8, kv_dtype: int8_k"), HasSubstr("/bf16-q_int8-kv_int8_k/"));
  EXPECT_THAT(id("kv_dtype: int8_k"), HasSubstr("/bf16-kv_int8_k/"));
  EXPECT_THAT(id("q_dtype: e4m3, kv_dtype: e4m3"), HasSubstr("/bf16-q_e4m3-kv_e4m3/"));
  EXPECT_THAT(id("probs: true, dropout: 0.1"), HasSubstr("/probs/dropout0.1/"));
  EXPECT_THAT(expand_error(sweep("q_dtype: int8")), HasSubstr("keys in int8: write 'kv_dtype: int8'"));
  EXPECT_THAT(expand_error(sweep("q_dtype: int8, kv_dtype: e4m3")), HasSubstr("keys in int8"));
  EXPECT_THAT(expand_error(sweep("q_dtype: e4m3, kv_dtype: int8")), HasSubstr("keys in e4m3"));
  EXPECT_THAT(expand_error(sweep("v_is_k_view: true, kv_dtype: int8")),
              HasSubstr("one tensor cannot be both"));
}

TEST(Expand, HugeSweepsAndCasesAreRefusedInWords) {
  std::string axis = "[1";
  for (int i = 2; i <= 256; ++i) axis += "," + std::to_string(i);
  axis += "]";
  std::string batches = "[q1";
  for (int i = 2; i <= 5000; ++i) batches += ",q" + std::to_string(i);
  batches += "]";
  EXPECT_THAT(expand_error("name: t\nsweeps:\n  - {head_dim: " + axis + ", batch: " + batches + "}\n"),
              HasSubstr("1000000 cases"));
  EXPECT_THAT(
      expand_error(
          "name: t\nsweeps:\n  - {batch: 1000q1s1m, dtype: fp32, heads: 1024, head_dim: 256, mask: none}\n"),
      HasSubstr("address"));
}

TEST(CaseId, YamlReadsBackToTheSameCase) {
  const Expansion e = expand_text(
      "name: t\nsweeps:\n"
      "  - {kv: paged, kv_layout: [nhd, hnd], page_layout: [contiguous, shuffled], block_size: [1, 256], "
      "dtype: [bf16, fp32],\n"
      "     batch: [8q1s1k_q512, {lengths: {lognormal: {median: 100, sigma: 1}}, count: 40}], softcap: [0, "
      "30.5],\n"
      "     window: [none, '128,0'], softmax_scale: [default, 0.17], mask: [none, causal], data: [normal, "
      "outlier]}\n"
      "  - {kv: paged, window: '5,0', expired: [kept, nan, freed], batch: 2q3s90}\n"
      "  - {kv: packed, gap_tokens: [0, 3], batch: 0q0_3q7, heads: 7/1, head_dim: 72}\n"
      "  - {kv: contiguous, leftpad: [0, 4], cache_batch_idx: [identity, shuffled], alibi: [none, per_head, "
      "per_sequence],\n"
      "     alibi_sqrt: [true, false], sinks: [true, false], batch: 2q3s9}\n"
      "  - {head_dim: [64, 192], head_dim_v: [same, 64, 40], v_is_k_view: [true, false], batch: 2q3s9}\n"
      "  - {zip: {q_dtype: [int8, int8, same, same, e4m3], kv_dtype: [int8, int8_k, int8_k, int8, e4m3]},\n"
      "     batch: 2q3s9, probs: [true, false], dropout: [0, 0.15]}\n"
      "  - {op: kv_append, batch: 4q2s9, padding_tokens: [0, 5], block_size: 16}\n");
  for (const Case& c : e.cases) {
    const Expansion again = expand(parse_inline_case(case_yaml(c.params)));
    ASSERT_EQ(again.cases.size(), 1u) << case_yaml(c.params);
    EXPECT_EQ(again.cases[0].params, c.params) << case_yaml(c.params);
    EXPECT_EQ(again.cases[0].id, c.id);
  }
}

TEST(CaseId, LongBatchesAreNamedByCountsAndDigest) {
  std::vector<SeqLen> seqs;
  for (int i = 1; i <= 40; ++i) seqs.push_back({i * 7, i * 7});
  const std::string label = batch_label(seqs);
  EXPECT_THAT(label, HasSubstr("40seqs"));
  std::swap(seqs[3], seqs[9]);
  EXPECT_NE(batch_label(seqs), label);
}

TEST(Expand, CachesWithScalesForBlocks) {
  const auto sweep = [](const std::string& keys) {
    return "name: t\nsweeps:\n  - {batch: q4, " + keys + "}\n";
  };
  EXPECT_THAT(
      expand_error(sweep("kv_dtype: nvfp4, head_dim: 72")),
      HasSubstr(
          "16 channels of kv_dtype: nvfp4 share a scale: a head_dim that is a multiple of it is required, given 72"));
  EXPECT_THAT(expand_error(sweep("kv_dtype: nvfp4, head_dim: 64, head_dim_v: 24")),
              HasSubstr("a head_dim_v that is"));
  EXPECT_THAT(expand_error(sweep("op: kv_append, kv_dtype: nvfp4")),
              HasSubstr("op kv_append has no rows of nvfp4"));
  EXPECT_THAT(expand_error(sweep("op: kv_move, kv_dtype: fp8_ds_mla")),
              HasSubstr("op kv_move has no rows of fp8_ds_mla"));
  EXPECT_THAT(expand_error(sweep("kv: paged, kv_dtype: nvfp4, append: in_call")),
              HasSubstr("append: in_call writes no rows of kv_dtype: nvfp4"));
  EXPECT_THAT(expand_error(sweep("kv: paged, kv_dtype: nvfp4, path: split_decode")),
              HasSubstr("is for one launch"));
  const std::string latent = "kv_dtype: fp8_ds_mla, v_is_k_view: true, ";
  EXPECT_THAT(expand_error(sweep("kv_dtype: fp8_ds_mla")), HasSubstr("'v_is_k_view: true'"));
  EXPECT_THAT(expand_error(sweep(latent + "head_dim: 576, head_dim_v: 512, dtype: fp16")),
              HasSubstr("'dtype: bf16'"));
  for (const char* widths :
       {"head_dim: 128", "head_dim: 160, head_dim_v: 64", "head_dim: 131, head_dim_v: 128"})
    EXPECT_THAT(expand_error(sweep(latent + widths)),
                HasSubstr("a row of fp8_ds_mla has head_dim_v channels"));
  EXPECT_EQ(expand_error(sweep(latent + "head_dim: 130, head_dim_v: 128")), "no error");
  EXPECT_EQ(expand_error(sweep("kv_dtype: nvfp4, head_dim: 48, head_dim_v: 16")), "no error");
}

TEST(Expand, SetLeavesOutTheCasesThatItContradicts) {
  const std::string latent = "kv_dtype: fp8_ds_mla, v_is_k_view: true, head_dim: 576, head_dim_v: 512";
  const std::string yaml =
      "name: t\nsweeps:\n  - {name: plain, batch: q4, head_dim: 64}\n  - {name: latent, batch: q4, " +
      latent + "}\n  - {name: cover, cover: pairwise, heads: [4/1, 8/1], batch: [q4, q5], " + latent + "}\n";
  const Expansion e = expand(parse_sweep_text(yaml, "t.yaml", {"dtype=fp16"}));
  ASSERT_EQ(e.cases.size(), 1u);
  EXPECT_EQ(e.cases[0].params.dtype, DType::kFp16);
  EXPECT_THAT(e.notes, ElementsAre(AllOf(HasSubstr("note: --set leaves out 1 case of sweep 'latent': "),
                                         HasSubstr("write 'dtype: bf16'")),
                                   AllOf(HasSubstr("note: --set leaves out all of sweep 'cover': "),
                                         HasSubstr("write 'dtype: bf16'"))));
  // Nothing is left: an error.
  const std::string alone = "name: t\nsweeps:\n  - {batch: q4, " + latent + "}\n";
  EXPECT_THROW(expand(parse_sweep_text(alone, "t.yaml", {"dtype=fp16"})), ConfigError);
}

}  // namespace
}  // namespace attnbench
