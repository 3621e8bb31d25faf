// Traces of FlashInfer as cases, and results as their evaluations. tests/traces/flashinfer is a small trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/interop/flashinfer_trace.h"
#include "harness/interop/safetensors.h"
#include "harness/tensors/plan.h"
#include "tests/unit/temp_folder.h"

namespace attnbench {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

const std::string kTrace = ATTNBENCH_SOURCE_DIR "/tests/traces/flashinfer";

const Case& case_of(const FlashinferTrace& trace, const std::string& definition) {
  for (const Case& c : trace.cases) {
    if (c.sweep == definition) return c;
  }
  throw std::runtime_error("no case of " + definition);
}

TEST(FlashinferTraces, LengthsPagesAndShapesComeFromTheFiles) {
  const FlashinferTrace trace = read_flashinfer_trace(kTrace, 1);
  EXPECT_EQ(trace.workloads.size(), 5u);
  ASSERT_EQ(trace.cases.size(), 5u);
  EXPECT_EQ(trace.skipped, (std::map<std::string, int64_t>{{"op_type rmsnorm", 1}}));

  const CaseParams& decode = case_of(trace, "gqa_paged_decode_h8_kv2_d64_ps1").params;
  EXPECT_EQ(decode.seqs, (std::vector<SeqLen>{{1, 7}, {1, 5}, {1, 2}}));
  EXPECT_EQ(decode.blocks->ids(), (GivenBlocks::Ids{{7, 3, 9, 4, 20, 21, 22}, {7, 3, 9, 4, 11}, {30, 0}}));
  EXPECT_EQ(decode.blocks->shared(), 4);
  EXPECT_EQ(decode.block_size, 1);
  EXPECT_EQ(decode.num_heads_q, 8);
  EXPECT_EQ(decode.num_heads_kv, 2);
  EXPECT_EQ(decode.head_dim, 64);
  EXPECT_FALSE(decode.causal);
  EXPECT_EQ(decode.dtype, DType::kBf16);
  EXPECT_EQ(softmax_scale_of(decode), 0.125f);

  const CaseParams& prefill = case_of(trace, "gqa_paged_prefill_causal_h8_kv2_d64_ps16").params;
  EXPECT_EQ(prefill.seqs, (std::vector<SeqLen>{{20, 39}, {5, 32}}));  // last pages hold 7 and 16
  EXPECT_TRUE(prefill.causal);
  EXPECT_EQ(prefill.block_size, 16);

  const CaseParams& ragged = case_of(trace, "gqa_ragged_prefill_causal_h8_kv2_d64").params;
  EXPECT_EQ(ragged.kv, KvSource::kPacked);
  EXPECT_EQ(ragged.seqs, (std::vector<SeqLen>{{4, 32}, {8, 8}}));

  const CaseParams& mla = case_of(trace, "mla_paged_decode_h4_ckv512_kpe64_ps1").params;
  EXPECT_EQ(mla.head_dim, 576);
  EXPECT_EQ(mla.dim_v(), 512);
  EXPECT_TRUE(mla.v_is_k_view);
  EXPECT_EQ(mla.num_heads_kv, 1);
  EXPECT_EQ(softmax_scale_of(mla), 0.1352337788608801f);
}

TEST(FlashinferTraces, GivenBlocksAreThoseOfTheLaunch) {
  const FlashinferTrace trace = read_flashinfer_trace(kTrace, 1);
  const Case& c = case_of(trace, "gqa_paged_decode_h8_kv2_d64_ps1");
  const WorkloadPlan plan = plan_workload(c);
  EXPECT_EQ(plan.block_table_stride, 8);
  const std::vector<int32_t> first(plan.block_table.begin(), plan.block_table.begin() + 7);
  EXPECT_EQ(first, c.params.blocks->ids()[0]);
  EXPECT_EQ(plan.block_table[8 + 4], 11);
  EXPECT_EQ(plan.block_table[8 + 5], kJunkBlocks[0]);
  // Blocks of both sequences hold keys of the first; blocks of none hold poison.
  EXPECT_EQ(plan.kv_owners[9].seq, 0);
  EXPECT_EQ(plan.kv_owners[9].pos, 2);
  EXPECT_EQ(plan.kv_owners[11].seq, 1);
  EXPECT_EQ(plan.kv_owners[5].seq, -1);
  // Elsewhere in memory, but shared in the same way.
  const WorkloadPlan moved = plan_workload(c, {.salt = 7});
  EXPECT_NE(moved.block_table, plan.block_table);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(moved.block_table[i], moved.block_table[8 + i]);
}

/// A copy of the trace whose files a test changes.
class ChangedTrace : public ::testing::Test {
 protected:
  ChangedTrace() { fs::copy(kTrace, dir_.path(), fs::copy_options::recursive); }
  fs::path definition(const std::string& name) const {
    return dir_ / "definitions" / op(name) / (name + ".json");
  }
  fs::path workloads(const std::string& name) const {
    return dir_ / "workloads" / op(name) / (name + ".jsonl");
  }
  static std::string op(const std::string& name) {
    return name.starts_with("gqa_ragged") ? "gqa_ragged"
           : name.starts_with("mla")      ? "mla_paged"
                                          : "gqa_paged";
  }
  template <class Change>
  void change_definition(const std::string& name, const Change& change) {
    json j = json::parse(std::ifstream(definition(name)));
    change(j);
    std::ofstream(definition(name)) << j;
  }
  /// Changes the first workload.
  template <class Change>
  void change_workload(const std::string& name, const Change& change) {
    std::ifstream in(workloads(name));
    std::string first, rest;
    std::getline(in, first);
    std::getline(in, rest, '\0');
    in.close();
    json j = json::parse(first);
    change(j["workload"], j);
    std::ofstream(workloads(name)) << j << "\n" << rest;
  }
  /// Replaces the index tensors of the first workload.
  void change_tensors(const std::string& name, const std::map<std::string, std::vector<int32_t>>& changes) {
    std::string blob;
    change_workload(name,
                    [&](json& w, json&) { blob = w["inputs"]["kv_indptr"]["path"].get<std::string>(); });
    std::map<std::string, std::vector<int32_t>> data = changes;
    {
      SafetensorsFile file((dir_ / blob).string());
      for (const auto& [key, e] : file.entries()) {
        const auto old = file.read_integers(key);
        data.emplace(key, std::vector<int32_t>(old.begin(), old.end()));
      }
    }
    std::vector<TensorView> tensors;
    for (const auto& [key, values] : data) {
      tensors.push_back({key, Element::kI32, {static_cast<int64_t>(values.size())}, values.data()});
    }
    write_safetensors((dir_ / blob).string(), {}, tensors);
  }
  std::string error() const {
    const std::vector<std::string> errors = read_flashinfer_trace(dir_.string(), 1).errors;
    return errors.empty() ? "no error" : errors.front();
  }
  std::map<std::string, int64_t> skipped() const { return read_flashinfer_trace(dir_.string(), 1).skipped; }

  const std::string decode_ = "gqa_paged_decode_h8_kv2_d64_ps1";
  const std::string prefill_ = "gqa_paged_prefill_causal_h8_kv2_d64_ps16";
  const std::string ragged_ = "gqa_ragged_prefill_causal_h8_kv2_d64";
  const test::TempFolder dir_;
};

TEST_F(ChangedTrace, WhatIsUnknownIsSkippedWithItsCount) {
  change_definition(decode_, [](json& j) { j["axes"]["num_sinks"] = {{"type", "const"}, {"value", 4}}; });
  change_definition(prefill_, [](json& j) {
    j["inputs"]["mask"] = {{"shape", {"total_q"}}, {"dtype", "bool"}};
  });
  change_definition(ragged_, [](json& j) { j["inputs"]["q"]["dtype"] = "float8_e5m2"; });
  change_workload("mla_paged_decode_h4_ckv512_kpe64_ps1", [](json& w, json&) {
    w["inputs"]["kv_indptr"] = {{"type", "random"}};
  });
  EXPECT_EQ(skipped(), (std::map<std::string, int64_t>{
                           {"gqa_paged with the axis num_sinks", 2},
                           {"gqa_paged with the input mask", 1},
                           {"q, K and V have different dtypes", 1},
                           {"kv_indptr is random: lengths and pages are unknown", 1},
                           {"op_type rmsnorm", 1},
                       }));
}

/// The mask that the words and the code of a definition make, or why there is none.
TEST_F(ChangedTrace, MasksFollowFromWhatDefinitionsSay) {
  const auto mask = [&](const json& description, const std::string& reference,
                        const char* name = "prefill_h8") {
    fs::remove_all(dir_ / "definitions" / "gqa_ragged");
    fs::copy(kTrace + "/definitions/gqa_ragged", dir_ / "definitions" / "gqa_ragged");
    change_definition(ragged_, [&](json& j) {
      j["name"] = name;
      j["description"] = description;
      j["reference"] = reference;
    });
    change_workload(ragged_, [&](json&, json& j) { j["definition"] = name; });
    const FlashinferTrace trace = read_flashinfer_trace(dir_.string(), 1);
    for (const Case& c : trace.cases) {
      if (c.sweep == name)
        return std::string(c.params.causal.top_left ? "causal_top_left"
                           : c.params.causal        ? "causal"
                                                    : "none");
    }
    for (const auto& [reason, n] : trace.skipped) {
      if (reason.find("op_type") == reason.npos) return reason;
    }
    return std::string("nothing");
  };
  const std::string stub = "def run(*inputs):\n    raise NotImplementedError\n";
  // The first lines of FlashInfer's own reference: no word of it says causal.
  const std::string bound =
      "        delta = num_kv_tokens - num_q_tokens\n        for q_idx in range(num_q_tokens):\n"
      "            max_kv = min(q_idx + 1 + delta, num_kv_tokens)\n";
  EXPECT_EQ(mask("Prefill, causal. Attention over packed keys", stub), "causal");
  EXPECT_EQ(mask("Batched GQA prefill (causal) with contiguous K/V tensors", stub), "causal");
  EXPECT_EQ(mask("Attention", "def run(*x):\n    \"\"\"softmax(q k^T, bottom-right causal mask) v\"\"\"\n"),
            "causal");
  EXPECT_EQ(mask(nullptr, bound), "causal");
  EXPECT_EQ(mask(nullptr, "causal_mask = torch.arange(n) > query_abs_pos\n"), "causal");
  EXPECT_EQ(mask("Prefill, non-causal", stub), "none");
  EXPECT_EQ(mask("Prefill without a causal mask", stub), "none");
  EXPECT_EQ(mask("Bidirectional attention", stub), "none");
  EXPECT_EQ(mask("Attention", "wrapper.plan(qo_indptr, kv_indptr, causal=False)\n"), "none");
  EXPECT_EQ(mask("Prefill, non-causal", stub, "gqa_ragged_prefill_causal_h8"), "none")
      << "a name decides nothing";
  const std::string unknown =
      "the mask is unknown: neither description nor reference of the definition says it; write "
      "'causal' or 'no mask' into its description";
  EXPECT_EQ(mask("Attention over packed keys", stub, "gqa_ragged_prefill_causal_h8"), unknown);
  EXPECT_EQ(mask("Attention with an optional causal mask", "if causal:\n    pass\n"), unknown);
  EXPECT_THAT(mask("Prefill, causal", "# non-causal\n"),
              HasSubstr("contradict each other on the causal mask"));
  EXPECT_THAT(mask("Causal prefill with a sliding window of 128", bound),
              HasSubstr("names a mask that is not read"));
  EXPECT_EQ(mask("Causal prefill, no sliding window", bound), "causal");
  // One sequence has 4 queries on 32 keys.
  EXPECT_EQ(mask(nullptr, "scaled_dot_product_attention(q, k, v, is_causal=True)\n"), "causal_top_left");
}

/// Definitions as FlashInfer dumps them: inputs of plan() are optional and of unknown type.
TEST_F(ChangedTrace, OptionalInputsThatAreNotBoundRefuseNoCase) {
  const std::string mla = "mla_paged_decode_h4_ckv512_kpe64_ps1";
  change_definition(mla, [](json& j) {
    j["axes"]["ckv_scale_groups"] = {{"type", "var"}};
    j["inputs"]["ckv_scale_arr"] = {{"shape", {"num_pages", "page_size", "ckv_scale_groups"}},
                                    {"dtype", "float8_e4m3fn"},
                                    {"optional", true}};
    j["inputs"]["return_lse"] = {{"shape", nullptr}, {"dtype", "int32"}, {"optional", true}};
    for (const char* index : {"kv_indptr", "kv_indices"})
      j["inputs"][index].update({{"dtype", "unknown"}, {"optional", true}});
  });
  const std::map<std::string, int64_t> only_rmsnorm = {{"op_type rmsnorm", 1}};
  EXPECT_EQ(skipped(), only_rmsnorm);
  change_workload(mla, [](json& w, json&) {
    w["inputs"]["return_lse"] = {{"type", "scalar"}, {"value", 1}};
    w["inputs"]["ckv_scale_arr"] = nullptr;
    w["axes"]["ckv_scale_groups"] = 1;
  });
  EXPECT_EQ(skipped(), only_rmsnorm);
  change_workload(mla, [](json& w, json&) { w["inputs"]["ckv_scale_arr"] = {{"type", "random"}}; });
  EXPECT_EQ(skipped().count("mla_paged with the input ckv_scale_arr"), 1u);
  // FlashInfer's default scale is 1/sqrt(head_dim); an index tensor has no default.
  change_definition(decode_, [](json& j) {
    j["inputs"]["sm_scale"]["optional"] = true;
    j["inputs"]["kv_indices"]["optional"] = true;
  });
  change_workload(decode_, [](json& w, json&) { w["inputs"].erase("sm_scale"); });
  const FlashinferTrace trace = read_flashinfer_trace(dir_.string(), 1);
  EXPECT_EQ(softmax_scale_of(case_of(trace, decode_).params), 0.125f);
  change_workload(decode_, [](json& w, json&) { w["inputs"].erase("kv_indices"); });
  EXPECT_EQ(skipped().count("kv_indices is not bound: lengths and pages are unknown"), 1u);
}

TEST_F(ChangedTrace, AFileThatCannotBeReadStopsNoOther) {
  std::ofstream(dir_ / "definitions" / "broken.json") << "{";
  fs::create_symlink("nowhere", dir_ / "workloads" / "gone.jsonl");
  std::ofstream(workloads(decode_), std::ios::app) << "{\"definition\": \n";
  fs::remove_all(dir_ / "blob" / "workloads" / "gqa_ragged");
  const FlashinferTrace trace = read_flashinfer_trace(dir_.string(), 1);
  EXPECT_EQ(trace.cases.size(), 4u);
  EXPECT_THAT(trace.errors, ::testing::UnorderedElementsAre(
                                HasSubstr("broken.json: error: no valid JSON"),
                                HasSubstr("gone.jsonl: error: cannot read: "),
                                HasSubstr(decode_ + ".jsonl:3: error: no valid JSON"),
                                HasSubstr(ragged_ + ".jsonl:1: error: field 'workload.inputs.")));
}

TEST_F(ChangedTrace, MissingDefinitionsAreSkipped) {
  fs::remove(definition(ragged_));
  EXPECT_EQ(skipped().at("definition gqa_ragged_prefill_causal_h8_kv2_d64 is missing"), 1);
}

TEST_F(ChangedTrace, ErrorsNameFileLineAndField) {
  const auto wrong_workload = [&](const std::string& name, auto&& change) {
    const std::string before = [&] {
      std::ostringstream s;
      s << std::ifstream(workloads(name)).rdbuf();
      return s.str();
    }();
    change_workload(name, change);
    std::string e = error();
    std::ofstream(workloads(name)) << before;
    EXPECT_EQ(error(), "no error");
    return e;
  };
  EXPECT_THAT(wrong_workload(decode_, [](json& w, json&) { w["axes"]["batch_size"] = 4; }),
              AllOf(HasSubstr(decode_ + ".jsonl:1: error: field 'workload.axes.batch_size'"),
                    HasSubstr("it is 4, and the index tensors say 3")));
  EXPECT_THAT(wrong_workload(decode_, [](json& w, json&) { w["axes"]["batch_size"] = -1; }),
              HasSubstr("a whole number from 0"));
  EXPECT_THAT(wrong_workload(decode_, [](json& w, json&) { w.erase("axes"); }),
              HasSubstr(":1: error: field 'workload.axes': it is missing"));
  EXPECT_THAT(wrong_workload(decode_, [](json& w, json&) { w["uuid"] = ""; }),
              HasSubstr("field 'workload.uuid': a text is required"));
  EXPECT_THAT(wrong_workload(decode_, [](json&, json& j) { j["definition"] = 3; }),
              HasSubstr("field 'definition': a text"));
  EXPECT_THAT(wrong_workload(decode_,
                             [](json& w, json&) {
                               w["inputs"]["sm_scale"] = {{"type", "random"}};
                             }),
              HasSubstr("field 'workload.inputs.sm_scale.value': it is missing"));
  EXPECT_THAT(wrong_workload(decode_, [](json& w, json&) { w["inputs"]["sm_scale"]["value"] = -1; }),
              HasSubstr("field 'workload': "));
  EXPECT_THAT(
      wrong_workload(decode_, [](json& w, json&) { w["inputs"]["kv_indices"]["tensor_key"] = "other"; }),
      AllOf(HasSubstr("field 'workload.inputs.kv_indices'"),
            HasSubstr("no tensor 'other', only kv_indices, kv_indptr")));
  EXPECT_THAT(wrong_workload(decode_, [](json& w, json&) { w["inputs"]["kv_indices"]["type"] = "scalar"; }),
              HasSubstr("safetensors is required here"));
  for (const char* path : {"/etc/passwd", "../x.safetensors", "blob/../../x.safetensors"}) {
    EXPECT_THAT(wrong_workload(decode_, [&](json& w, json&) { w["inputs"]["kv_indptr"]["path"] = path; }),
                HasSubstr("a path within the trace's folder is required"));
  }
  std::ofstream(workloads(decode_), std::ios::app) << "\n{\"definition\": \n";
  EXPECT_THAT(error(), HasSubstr(decode_ + ".jsonl:4: error: no valid JSON"));
}

TEST_F(ChangedTrace, WrongIndexTensorsNameTheirField) {
  const auto wrong = [&](const std::string& name,
                         const std::map<std::string, std::vector<int32_t>>& tensors) {
    const fs::path copy = dir_.string() + "-before";
    fs::copy(dir_ / "blob", copy, fs::copy_options::recursive);
    change_tensors(name, tensors);
    std::string e = error();
    fs::remove_all(dir_ / "blob");
    fs::rename(copy, dir_ / "blob");
    return e;
  };
  EXPECT_THAT(wrong(decode_, {{"kv_indptr", {1, 7, 12, 14}}}),
              HasSubstr("field 'workload.inputs.kv_indptr': it must begin with 0"));
  EXPECT_THAT(wrong(decode_, {{"kv_indptr", {0, 12, 7, 14}}}), HasSubstr("entry 2 is 7 after 12"));
  EXPECT_THAT(wrong(decode_, {{"kv_indptr", {}}}), HasSubstr("it must begin with 0"));
  EXPECT_THAT(wrong(decode_, {{"kv_indices", {1, 2, 3}}}),
              HasSubstr("it has 3 entries, and kv_indptr ends with 14"));
  EXPECT_THAT(wrong(decode_, {{"kv_indices", std::vector<int32_t>(14, -1)}}),
              HasSubstr("entry 0 is -1; a page from 0 on"));
  EXPECT_THAT(wrong(prefill_, {{"kv_last_page_len", {7, 17}}}),
              HasSubstr("entry 1 is 17; 1 to page_size 16"));
  EXPECT_THAT(wrong(prefill_, {{"kv_last_page_len", {7}}}), HasSubstr("it has 1 entries for 2 sequences"));
  EXPECT_THAT(wrong(prefill_, {{"qo_indptr", {0, 25}}}), HasSubstr("it has 2 entries, and kv_indptr 3"));
}

TEST_F(ChangedTrace, WrongDefinitionsNameTheirField) {
  change_definition(decode_, [](json& j) { j["axes"]["head_dim"] = {{"type", "var"}}; });
  EXPECT_THAT(error(), AllOf(HasSubstr(decode_ + ".json: error: field 'axes.head_dim'"),
                             HasSubstr("a constant axis is required")));
  change_definition(decode_, [](json& j) { j["axes"].erase("head_dim"); });
  EXPECT_THAT(error(), HasSubstr("field 'axes.head_dim': it is missing"));
  fs::copy(definition(prefill_), definition(decode_), fs::copy_options::overwrite_existing);
  EXPECT_THAT(error(), HasSubstr("error: field 'name': another file defines '" + prefill_ + "' too"));
  std::ofstream(definition(decode_)) << "{";
  EXPECT_THAT(error(), HasSubstr(decode_ + ".json: error: no valid JSON"));
}

TEST(FlashinferTraces, EvaluationsFollowTheSchema) {
  const FlashinferTrace trace = read_flashinfer_trace(kTrace, 1);
  std::vector<Record> records(4);
  for (std::size_t i = 0; i < records.size(); ++i) {
    records[i].item = trace.cases[i];
    records[i].kernel = "mine";
    records[i].check.emplace();
    records[i].check->rows = 1;
    records[i].check->max_abs = i == 2 ? NAN : 0.25;
    records[i].check->max_rel = INFINITY;
  }
  records[0].end(Status::kPass, "");
  records[0].time.emplace();
  records[0].time->median_us = 1500;
  records[1].end(Status::kPass, "");  // without a time
  records[2].end(Status::kFail, "O of seq 0");
  records[3].end(Status::kError, "signal 11");
  RunContext context;
  context.device.kind = DeviceKind::kCuda;
  context.device.model = "NVIDIA H100";
  context.device.runtime = "12.6";
  context.version = "1";
  context.date = "2026-01-01T00:00:00+00:00";
  const Evaluations e = evaluations_of(trace, records, context);
  EXPECT_EQ(e.written, 3);
  EXPECT_EQ(e.untimed, 1);
  std::istringstream lines(e.lines);
  std::vector<json> all;
  for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["definition"], trace.workloads[0].definition);
  EXPECT_EQ(all[0]["workload"], json::parse(trace.workloads[0].workload));
  EXPECT_EQ(all[0]["solution"], "mine");
  const json& passed = all[0]["evaluation"];
  EXPECT_EQ(passed["status"], "PASSED");
  EXPECT_EQ(passed["performance"]["latency_ms"], 1.5);
  EXPECT_EQ(passed["correctness"]["max_absolute_error"], 0.25);
  EXPECT_EQ(passed["correctness"]["max_relative_error"], "Infinity");
  EXPECT_EQ(passed["environment"]["hardware"], "NVIDIA_H100");
  EXPECT_EQ(passed["environment"]["libs"]["cuda"], "12.6");
  EXPECT_EQ(passed["timestamp"], context.date);
  EXPECT_EQ(all[1]["evaluation"]["status"], "INCORRECT_NUMERICAL");
  EXPECT_TRUE(all[1]["evaluation"]["performance"].is_null());
  EXPECT_EQ(all[1]["evaluation"]["correctness"]["max_absolute_error"], "NaN");
  EXPECT_THAT(all[1]["evaluation"]["log"].get<std::string>(), HasSubstr("O of seq 0"));
  EXPECT_EQ(all[2]["evaluation"]["status"], "RUNTIME_ERROR");
  EXPECT_TRUE(all[2]["evaluation"]["correctness"].is_null());
  records.resize(1);
  records[0].check.reset();  // --check off: no error is known
  const Evaluations unchecked = evaluations_of(trace, records, context);
  EXPECT_EQ(json::parse(unchecked.lines)["evaluation"]["correctness"]["max_relative_error"], "NaN");
}

}  // namespace
}  // namespace attnbench
