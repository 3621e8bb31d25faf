// Cases as files: the inputs by the names and shapes of the contract, and the judgement of outputs by them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "harness/config/sweep_file.h"
#include "harness/interop/outputs.h"
#include "harness/launch/launcher.h"
#include "kernels/registry.h"
#include "tests/unit/temp_folder.h"

namespace attnbench {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

const Numerics kExact = {DType::kFp32, DType::kFp32, 0x1p-22};

Case case_of_text(const std::string& mapping) { return expand(parse_inline_case(mapping)).cases.at(0); }

class CaseFiles : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (dir_ / name).string(); }

  void write(const std::string& mapping, bool zeros = false) {
    item_ = case_of_text(mapping);
    Workload workload(*device_, item_, layout_for(*kernel()));
    expected_ = expected_outputs(workload, {}, kExact, {CheckMode::kFull, item_.seed});
    write_case_file(path("case.safetensors"), workload, expected_, {kExact, zeros}, "a test");
  }
  const Kernel* kernel() const {
    return select_kernels(builtin_kernels(), item_.params.op, DeviceKind::kCpu, {}).at(0);
  }
  const ExpectedOutput& expected(const std::string& name) const {
    return *std::find_if(expected_.tensors.begin(), expected_.tensors.end(),
                         [&](const auto& e) { return e.name == name; });
  }
  /// The file's own expected outputs, times a factor. Caches are those of a right launch.
  void write_outputs(double factor = 1, bool lse = true) {
    SafetensorsFile file(path("case.safetensors"));
    std::map<std::string, std::vector<double>> values;
    std::vector<TensorView> tensors;
    for (const auto& [name, e] : file.entries()) {
      if (!name.starts_with("expected_") || (name == "expected_lse" && !lse)) continue;
      const std::vector<unsigned char> bytes = file.read(name);
      std::vector<double>& out = values[name];
      out.resize(bytes.size() / sizeof(double));
      if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
      for (double& x : out) x *= name == "expected_lse" ? 1 : factor;
      tensors.push_back({name.substr(9), Element::kF64, e.shape, out.data()});
    }
    Workload launched(*device_, item_);
    if (item_.params.append) {
      launched.reset_outputs();
      Launcher(*kernel(), builtin_kernels(), *device_, launched).launch();
      for (const OutputTensor& o : output_tensors(launched)) {
        if (o.name.ends_with("_cache")) tensors.push_back({o.name, element_for(o.type), o.shape, o.data});
      }
    }
    write_safetensors(path("out.safetensors"), {}, tensors);
  }
  Verdict judged() {
    CaseFile file(path("case.safetensors"));
    EXPECT_EQ(file.item.id, item_.id);
    Workload workload(*device_, file.item);
    file.check_inputs(workload);
    return judge_outputs({path("out.safetensors"), ""}, workload, file.options.numerics, CheckMode::kFull);
  }
  /// The error of opening the case and of judging these outputs.
  std::string error_of(const OutputFiles& outputs) {
    try {
      CaseFile file(path("case.safetensors"));
      Workload workload(*device_, file.item);
      file.check_inputs(workload);
      judge_outputs(outputs, workload, kExact, CheckMode::kFull);
    } catch (const TensorFileError& e) {
      return e.message();
    }
    return "no error";
  }

  std::unique_ptr<Device> device_ = open_device("cpu");
  Case item_;
  ExpectedOutputs expected_;
  const test::TempFolder dir_;
};

constexpr const char* kMappings[] = {
    "{kv: packed, batch: 2q3s9_q1s4, heads: 4/2, head_dim: 32, mask: causal, dtype: fp32}",
    "{kv: packed, batch: 2q3s9, heads: 2, head_dim: 32, gap_tokens: 3, alibi: per_sequence, dtype: fp32}",
    ("{kv: paged, batch: 2q3s9_q5s2, heads: 4/2, head_dim: 32, block_size: 4, mask: causal, allow_short_kv: true, "
     "dtype: fp32, softcap: 20, sinks: true}"),
    "{kv: paged, kv_layout: hnd, batch: q2s9_q1s17, heads: 4/1, head_dim: 32, kv_dtype: e4m3, dtype: bf16}",
    "{kv: paged, batch: q2s9_q1s17, heads: 4/2, head_dim: 32, kv_dtype: e5m2, dtype: bf16}",
    "{kv: paged, batch: q2s9_q1s17, heads: 4/2, head_dim: 32, kv_dtype: int8, dtype: bf16}",
    "{kv: contiguous, batch: 2q2s9, heads: 4/2, head_dim: 32, leftpad: 5, dtype: fp16}",
    ("{kv: paged, batch: 2q3s9_q5s12, heads: 4/2, head_dim: 32, head_dim_v: 48, qv: true, gap_queries: 3, leftpad: 5, "
     "block_table_rows: shuffled, dtype: fp32}"),
    "{kv: paged, batch: q1s9_q2s17, heads: 4/1, head_dim: 48, head_dim_v: 32, v_is_k_view: true, dtype: bf16}",
};

TEST_F(CaseFiles, OutputsAsExpectedPassAndOthersFail) {
  for (const char* mapping : kMappings) {
    SCOPED_TRACE(mapping);
    write(mapping);
    write_outputs();
    Verdict v = judged();
    EXPECT_TRUE(v.pass) << v.reason;
    EXPECT_EQ(v.declared->waived, 0u);
    EXPECT_EQ(v.rows, v.rows_total);
    write_outputs(1.05);
    v = judged();
    EXPECT_FALSE(v.pass);
    EXPECT_THAT(v.failed_by, Contains(detector::kMaxZ));
    EXPECT_FALSE(v.clues.empty());
  }
}

/// Every op, type, layout and convention of an LSE that can be written comes back by what its own file expects.
TEST_F(CaseFiles, WhatAFileExpectsPassesAndATenthMoreFails) {
  std::vector<std::string> mappings;
  for (const char* kv : {"kv: packed", "kv: paged, block_size: 4", "kv: paged, block_size: 4, kv_layout: hnd",
                         "kv: contiguous"}) {
    for (const char* more : {"dtype: bf16", "dtype: fp16", "dtype: fp32", "dtype: fp32, lse_log: base2",
                             "out_lse_layout: token_major", "lse_log: base2, out_lse_layout: token_major"}) {
      mappings.push_back(fmt::format(
          "{{{}, {}, batch: 2q3s9_q5s2, heads: 4/2, head_dim: 16, mask: causal, allow_short_kv: true}}", kv,
          more));
    }
  }
  const std::string paged = "{kv: paged, block_size: 4, batch: q3s9_q1s17, heads: 4/2, head_dim: 32, ";
  for (const char* types : {"kv_dtype: e4m3",
                            "kv_dtype: e5m2",
                            "kv_dtype: int8",
                            "kv_dtype: int8_k",
                            "kv_dtype: nvfp4",
                            "kv_dtype: nvfp4, dtype: fp32",
                            "kv_dtype: e4m3, q_dtype: e4m3",
                            "kv_dtype: int8, q_dtype: int8",
                            "kv_dtype: e4m3, v_descales: per_channel",
                            "kv_dtype: e5m2, k_descales: per_token, v_descales: per_token",
                            "kv_dtype: int8, v_descales: per_token",
                            "kv_dtype: int8, q_dtype: int8, q_descale_rows: 2, k_descale_rows: 4",
                            "out_dtype: e4m3",
                            "kv_dtype: e4m3, out_dtype: e4m3, sinks: true",
                            "out_dtype: e4m3, lse_log: base2, out_lse_layout: token_major",
                            "append: in_call",
                            "append: in_call, kv_dtype: e4m3",
                            "append: in_call, kv_dtype: e5m2, new_dtype: cache",
                            "append: in_call, kv_dtype: int8",
                            "probs: true",
                            "mask: causal_top_left",
                            "mask: causal_top_left, window: \"2,0\""})
    mappings.push_back(paged + types + "}");
  mappings.push_back(
      "{kv: paged, block_size: 4, batch: q3s9, heads: 4/1, head_dim: 144, head_dim_v: 128, kv_dtype: fp8_ds_mla, v_is_k_view: true}");
  for (const char* dtype : {"bf16", "fp16", "fp32"})
    for (const char* more : {"mask: causal, allow_short_kv: true", "mask: causal_top_left",
                             "sinks: true, mask: causal, allow_short_kv: true", "alibi: per_sequence",
                             "dropout: 0.2", "head_dim_v: 24, window: \"2,1\"", "softcap: 5"})
      mappings.push_back(fmt::format(
          "{{op: attention_backward, dtype: {}, batch: 2q3s9_q5s2_q0s3, heads: 4/2, head_dim: 16, {}}}",
          dtype, more));
  for (const std::string& mapping : mappings) {
    SCOPED_TRACE(mapping);
    for (const bool zeros : {false, true}) {
      if (zeros && (mapping.find("append") != mapping.npos || mapping.find("_dtype") == mapping.npos))
        continue;
      write(mapping, zeros);
      write_outputs();
      const Verdict v = judged();
      EXPECT_TRUE(v.pass) << v.reason;
      EXPECT_EQ(v.rows, v.rows_total);
    }
    write_outputs(1.1);
    EXPECT_FALSE(judged().pass);
  }
}

/// The convention of FlashAttention is said, not guessed.
TEST_F(CaseFiles, AnLseOfPlusInfIsThatOfARowWithoutKeysWhereItIsSaid) {
  write("{kv: packed, batch: q5s2, heads: 2, head_dim: 16, mask: causal, allow_short_kv: true, dtype: fp32}");
  std::vector<double> lse = expected("lse").value;
  for (double& x : lse) x = std::isinf(x) ? INFINITY : x;
  const ExpectedOutput& out = expected("out");
  const std::vector<TensorView> tensors = {{"out", Element::kF64, out.shape, out.value.data()},
                                           {"lse", Element::kF64, expected("lse").shape, lse.data()}};
  write_safetensors(path("out.safetensors"), {}, tensors);
  const auto verdict = [&](bool plus_inf) {
    Workload workload(*device_, item_);
    return judge_outputs({path("out.safetensors"), "", plus_inf}, workload, kExact, CheckMode::kFull);
  };
  EXPECT_TRUE(verdict(true).pass);
  EXPECT_THAT(verdict(false).reason, HasSubstr("is inf, expected -inf (the row sees no key)"));
  write_outputs();
  EXPECT_THAT(verdict(true).reason, HasSubstr("is -inf, expected inf (the row sees no key)"));
}

TEST_F(CaseFiles, WithoutLseOIsJudgedAlone) {
  write(kMappings[2]);  // some rows see no key
  write_outputs(1, false);
  Verdict v = judged();
  EXPECT_TRUE(v.pass);
  EXPECT_EQ(v.declared->waived, uint32_t{kNoLse});
  write_outputs(1.05, false);
  v = judged();
  EXPECT_FALSE(v.pass);
  EXPECT_THAT(v.clues, Contains(HasSubstr("in O (no LSE is given)")));
}

TEST_F(CaseFiles, ExpectedRowsHaveTheTolerance) {
  write(kMappings[2]);
  const auto d = static_cast<std::size_t>(item_.params.dim_v());
  int empty = 0;
  const ExpectedOutput& out = expected("out");
  for (const double x : expected("lse").value) EXPECT_FALSE(std::isnan(x));
  for (std::size_t r = 0; r < out.value.size() / d; ++r) {
    empty += out.sigma[r * d] == 0;
    EXPECT_TRUE(out.sigma[r * d] > 0 || out.value[r * d] == 0);
  }
  EXPECT_EQ(empty, 3 * 4);  // 3 of the 5 queries on 2 keys, 4 heads
}

TEST_F(CaseFiles, ZerosStandWherePoisonWould) {
  for (const char* mapping : kMappings) {
    for (const bool zeros : {false, true}) {
      SCOPED_TRACE(mapping);
      write(mapping, zeros);
      SafetensorsFile file(path("case.safetensors"));
      bool nan = false;
      for (const char* name : {"q", "k", "v", "k_descale", "alibi_slopes"}) {
        if (!file.has(name)) continue;
        const Element type = file.entry(name).type;
        const auto bytes = file.read(name);
        for (std::size_t i = 0; i < bytes.size() / static_cast<std::size_t>(element_size(type)); ++i) {
          const auto at = static_cast<int64_t>(i);
          const DType t = type == Element::kBf16   ? DType::kBf16
                          : type == Element::kF16  ? DType::kFp16
                          : type == Element::kE4m3 ? DType::kE4m3
                          : type == Element::kE5m2 ? DType::kE5m2
                          : type == Element::kI8   ? DType::kInt8
                                                   : DType::kFp32;
          nan = nan || std::isnan(load_float(t, bytes.data(), at));
        }
      }
      const bool has_padding = std::string(mapping) != kMappings[0];
      EXPECT_EQ(nan, has_padding && !zeros);
      if (file.has("block_table")) {
        const auto table = file.read_integers("block_table");
        const bool junk =
            std::any_of(table.begin(), table.end(), [](int64_t id) { return id < 0 || id > 1000; });
        EXPECT_EQ(junk, !zeros);
      }
      write_outputs();
      EXPECT_TRUE(judged().pass);
    }
  }
}

TEST_F(CaseFiles, AppendingCasesAreJudgedWithTheirCaches) {
  write(
      "{kv: paged, append: in_call, batch: 2q2s9, heads: 4/2, head_dim: 32, block_size: 4, mask: causal, dtype: fp32}");
  Workload after(*device_, item_);  // the caches as a right launch leaves them
  after.reset_outputs();
  const AttentionParams a = after.params().attention;
  const auto row = static_cast<std::size_t>(a.num_heads_kv * a.head_dim);
  const WorkloadPlan& plan = after.plan();
  for (std::size_t t = 0; t < plan.slot_mapping.size(); ++t) {
    const auto slot = static_cast<std::size_t>(plan.slot_mapping[t]);
    std::memcpy(static_cast<float*>(a.k_cache) + slot * row, static_cast<const float*>(a.k_new) + t * row,
                row * 4);
    std::memcpy(static_cast<float*>(a.v_cache) + slot * row, static_cast<const float*>(a.v_new) + t * row,
                row * 4);
  }
  const std::vector<double>&out = expected("out").value, &lse = expected("lse").value;
  const std::vector<int64_t> cache = {a.num_blocks, a.block_size, a.num_heads_kv, a.head_dim};
  std::vector<TensorView> tensors = {
      {"out", Element::kF64, {a.total_q, a.num_heads_q, a.head_dim}, out.data()},
      {"lse", Element::kF64, {a.num_heads_q, a.total_q}, lse.data()},
      {"k_cache", Element::kF32, cache, a.k_cache},
      {"v_cache", Element::kF32, cache, a.v_cache}};
  write_safetensors(path("out.safetensors"), {}, tensors);
  Verdict v = judged();
  EXPECT_TRUE(v.pass) << v.reason;
  static_cast<float*>(a.v_cache)[static_cast<std::size_t>(plan.slot_mapping[1]) * row] += 1;
  write_safetensors(path("out.safetensors"), {}, tensors);
  v = judged();
  EXPECT_FALSE(v.pass);
  EXPECT_THAT(v.failed_by, Contains(detector::kCacheBits));
  tensors.pop_back();
  write_safetensors(path("out.safetensors"), {}, tensors);
  EXPECT_THAT(error_of({path("out.safetensors"), ""}), HasSubstr("it has no tensor 'v_cache'"));
}

TEST_F(CaseFiles, SayWhichCasesCannotBeWritten) {
  EXPECT_THAT(why_not_exported(case_of_text("{op: kv_append, kv: paged, batch: q1s9}"), {}),
              HasSubstr("kv_append"));
  EXPECT_THAT(why_not_exported(case_of_text("{kv: paged, batch: 2q1s9, path: split_decode}"), {}),
              HasSubstr("split_decode"));
  EXPECT_EQ(why_not_exported(case_of_text("{kv: paged, append: in_call, batch: q1s9}"), {}), "");
  EXPECT_THAT(why_not_exported(case_of_text("{kv: paged, append: in_call, batch: q1s9}"), {kExact, true}),
              HasSubstr("padding"));
}

TEST_F(CaseFiles, WrongOutputsNameFileTensorAndShape) {
  write(kMappings[0]);
  write_outputs();
  EXPECT_EQ(error_of({path("out.safetensors"), ""}), "no error");
  const std::vector<float> x(7 * 4 * 32);
  const auto error = [&](std::vector<TensorView> tensors) {
    write_safetensors(path("out.safetensors"), {}, tensors);
    return error_of({path("out.safetensors"), ""});
  };
  EXPECT_THAT(error({{"out", Element::kF32, {7, 128}, x.data()}}),
              AllOf(HasSubstr("out.safetensors: tensor 'out': error"),
                    HasSubstr("(7, 128); (7, 4, 32) is required")));
  EXPECT_THAT(error({{"out", Element::kF32, {7, 4, 32}, x.data()}, {"lse", Element::kF32, {7, 4}, x.data()}}),
              AllOf(HasSubstr("tensor 'lse'"), HasSubstr("(4, 7) is required: transpose it")));
  EXPECT_THAT(error({{"o", Element::kF32, {7, 4, 32}, x.data()}}),
              HasSubstr("unknown tensor 'o'; this case has out, lse"));
  EXPECT_THAT(error({{"out", Element::kI32, {7, 4, 32}, x.data()}}),
              HasSubstr("'out' is I32; fp32 is required"));
  EXPECT_THAT(error({{"out", Element::kU16, {7, 4, 32}, x.data()}}),
              HasSubstr("uint16 stands for the bits of bf16"));
  EXPECT_THAT(error({{"lse", Element::kF32, {4, 7}, x.data()}}),
              HasSubstr("it has no tensor 'out', of fp32 and shape (7, 4, 32)"));
  EXPECT_THAT(error_of({path("out.txt"), ""}), HasSubstr("must end in .npy or .safetensors"));
}

TEST_F(CaseFiles, InputsThatAreNotThoseOfTheCaseAreRefused) {
  write(kMappings[0]);
  const auto rewritten = [&](const std::string& tensor, const Metadata& changes) {
    SafetensorsFile file(path("case.safetensors"));
    std::map<std::string, std::vector<unsigned char>> data;
    std::vector<TensorView> tensors;
    for (const auto& [name, e] : file.entries()) {
      data[name] = file.read(name);
      if (name == tensor) data[name].front() ^= 1;
      tensors.push_back({name, e.type, e.shape, data[name].data()});
    }
    Metadata metadata = file.metadata();
    for (const auto& [key, value] : changes) metadata[key] = value;
    write_safetensors(path("case.safetensors"), metadata, tensors);
    std::string error = error_of({path("none.npy"), ""});
    write(kMappings[0]);
    return error;
  };
  EXPECT_THAT(
      rewritten("k", {}),
      AllOf(HasSubstr("case.safetensors: error: tensor 'k' is not that of its case: its values differ"),
            HasSubstr("a test")));
  EXPECT_THAT(rewritten("", {{"seed", "2"}}), HasSubstr("tensor 'q' is not that of its case"));
  EXPECT_THAT(rewritten("", {{"seed", "x"}}), HasSubstr("'seed' in its __metadata__ is 'x', no number"));
  EXPECT_THAT(rewritten("", {{"attnbench", "9"}}), HasSubstr("it has format '9', and this program reads 1"));
  EXPECT_THAT(rewritten("", {{"id", "other"}}), HasSubstr("not as other"));
  EXPECT_THAT(rewritten("", {{"case", "{batch: 4z}"}}), HasSubstr("the case in its __metadata__ is wrong"));
  EXPECT_THAT(rewritten("", {{"padding", "?"}}), HasSubstr("poison or zeros is required"));
  EXPECT_THAT(rewritten("", {{"p", "fp8"}}), HasSubstr("fp32, fp16, bf16 or e4m3 is required"));
  EXPECT_THAT(rewritten("", {{"exp_rel_err", "nan"}}),
              HasSubstr("exp_rel_err is nan, and 0 to 2^-7 is allowed"));
  write_outputs();
  std::filesystem::copy(path("out.safetensors"), path("case.safetensors"),
                        std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(error_of({path("out.safetensors"), ""}),
              HasSubstr("its __metadata__ lacks 'attnbench'; 'attnbench export' writes such files"));
}

TEST_F(CaseFiles, ADrawnStepOfATraceNeedsNoTrace) {
  const std::string trace = path("t.csv");
  std::ofstream(trace) << "arrival,prompt,output\n0,9,9\n0,8,8\n0,7,7\n";
  for (const char* layout : {"served", "shuffled"}) {
    write(fmt::format(
        "{{kv: paged, page_layout: {}, heads: 2, head_dim: 8, batch: {{serving: {{trace: {}, step: {{spread: "
        "2}}, steps: 4, warmup: 1}}}}}}",
        layout, trace));
    EXPECT_THAT(item_.id, HasSubstr("x2-step"));
    std::filesystem::rename(trace, trace + ".away");
    write_outputs();
    EXPECT_TRUE(judged().pass) << layout;
    std::filesystem::rename(trace + ".away", trace);
  }
}

}  // namespace
}  // namespace attnbench
