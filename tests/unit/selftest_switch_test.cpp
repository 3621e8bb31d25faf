// Each feature has a switch: a fault of the selftest (each must be caught, cli_selftest_test.cpp) or a test
// in which a kernel accepts the feature and ignores it. The table has every key of the YAML format and each
// of its words.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "harness/config/keys.h"
#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

struct Switch {
  std::string key;
  std::string word;  ///< value of the key in the fault's case; empty: any
  std::vector<std::string> faults;
  std::vector<std::string> tests = {};  ///< "file: name"
};

const std::string kPaths = "tests/unit/session_paths_test.cpp: ";

const std::vector<Switch>& switches() {
  static const std::vector<Switch> all = {
      {"op", "kv_append", {"last_token_lost"}},
      {"op", "merge_states", {"state_skipped"}},
      {"kv", "packed", {"packed_boundary_one_early"}},
      {"kv", "paged", {"neighbours_page", "table_row_of_another_request", "pages_taken_in_order"}},
      {"kv", "contiguous", {"cache_batch_idx_ignored"}},
      {"batch", "", {"max_instead_of_actual", "first_query_row_dropped", "empty_sequence_shifts_tables"}},
      {"dtype", "bf16", {"bf16_read_as_fp16"}},
      {"dtype", "fp16", {"fp16_read_as_bf16"}},
      {"dtype", "fp32", {"fp32_output_in_16_bits"}},
      {"q_dtype", "e4m3", {"e4m3_q_descale_ignored"}},
      {"q_dtype", "int8", {"int8_q_descale_ignored", "int8_q_descale_of_head_0"}},
      {"kv_dtype",
       "e4m3",
       {"k_descale_ignored", "v_descale_ignored", "k_descale_of_sequence_0", "append_scale_ignored"}},
      {"kv_dtype",
       "int8",
       {"int8_k_descale_of_a_block", "int8_v_descale_of_channel_0", "append_scale_of_channel_0"}},
      {"kv_dtype", "int8_k", {"int8_k_descale_of_row_0", "int8_k_append_of_channel_0"}},
      {"heads", "", {"ratio_3_rounded", "ratio_7_rounded", "kv_head_modulo"}},
      {"head_dim", "", {"last_channels_left_out"}},
      {"head_dim_v", "", {"v_addressed_as_k", "scale_of_head_dim_v"}},
      {"v_is_k_view", "true", {"v_is_the_end_of_k"}},
      {"mask", "none", {"full_mask_taken_as_causal", "keys_as_many_as_queries"}},
      {"mask", "causal", {"causal_ignored", "causal_top_left", "window_from_last_draft_token"}},
      {"window", "", {"window_ignored", "window_right_ignored", "window_off_by_one"}},
      {"expired", "nan", {"expired_rows_times_zero"}},
      {"expired", "freed", {"freed_page_times_zero", "freed_page_taken_for_no_sequence"}},
      {"softmax_scale", "0.3", {"softmax_scale_ignored"}},
      {"softcap", "", {"softcap_ignored", "softcap_before_scale"}},
      {"alibi", "per_head", {"alibi_ignored", "alibi_from_key_0"}},
      {"alibi", "per_sequence", {"alibi_slopes_of_sequence_0"}},
      {"alibi_sqrt", "true", {"alibi_sqrt_ignored"}},
      {"sinks", "true", {"sink_ignored", "sink_in_every_split"}},
      {"num_splits", "", {"parts_past_the_planned_lost"}},
      {"probs", "true", {"probs_ignored", "probs_of_masked_keys_unwritten"}},
      {"dropout", "", {"dropout_ignored", "dropout_of_another_seed"}},
      {"block_size", "", {"other_block_size", "slot_of_another_block_size"}},
      {"kv_layout", "hnd", {"hnd_read_as_nhd"}},
      {"page_layout", "contiguous", {"pages_begin_at_block_0"}},
      {"page_layout", "shuffled", {"pages_taken_in_order"}},
      {"page_layout", "shared_prefix", {"shared_pages_of_one_sequence_alone"}},
      {"shared_prefix", "", {"shared_pages_of_one_sequence_alone"}, {kPaths + "CascadeOfAShorterPrefix"}},
      {"path", "cascade", {}, {kPaths + "CascadeWithoutItsPrefix", kPaths + "CascadeWithTwoSinks"}},
      {"path", "split_decode", {}, {kPaths + "SplitPacked"}},
      {"path", "dcp", {}, {kPaths + "DcpOneCacheForAll", kPaths + "DcpLocalLengths"}},
      {"decode_threshold", "", {}, {kPaths + "SplitPagedByThreshold"}},
      {"dcp_ranks", "", {}, {kPaths + "DcpLocalLengths"}},
      {"dcp_interleave", "", {}, {kPaths + "DcpInterleaveIgnored"}},
      {"gap_tokens", "", {"seqused_ignored"}},
      {"leftpad", "", {"leftpad_ignored", "in_call_leftpad_ignored"}},
      {"cache_batch_idx", "shuffled", {"cache_batch_idx_ignored"}},
      {"append", "in_call", {"in_call_attends_first", "in_call_new_tokens_not_attended"}},
      {"new_tokens", "", {"in_call_as_many_as_queries"}},
      {"rotary", "neox", {"rotation_ignored", "interleaved_for_neox", "in_call_queries_not_rotated"}},
      {"rotary", "interleaved", {"neox_for_interleaved"}},
      {"rotary_dim", "", {"rotary_dim_ignored"}},
      {"rotary_q", "diagonal", {"in_call_queries_from_cache_seqlens"}},
      {"rotary_q", "from_cache_seqlens", {"in_call_queries_on_the_diagonal"}},
      {"rotary_q", "at_cache_seqlens", {"in_call_queries_past_cache_seqlens"}},
      {"padding_tokens", "", {"padding_token_written"}},
      {"scales", "given", {"int8_k_append_of_channel_0"}},
      {"scales", "per_token", {"computed_scale_not_stored"}},
      {"scales", "per_token_k", {"computed_scale_of_unrotated_keys"}},
      {"states", "", {"state_skipped"}},
      {"empty_states", "", {"o_of_an_empty_state_used", "empty_states_merge_to_nan"}},
      {"lse_layout", "token_major", {"lse_strides_ignored"}},
      {"partial_dtype", "fp32", {"fp32_states_read_in_16_bits"}},
      {"partial_dtype", "same", {"states_of_16_bits_rounded_to_8"}},
      {"allow_short_kv", "true", {"rows_past_keys_not_empty"}},
      {"data", "large", {"finite_sentinel"}},
      {"data", "huge", {"maximum_starts_at_0", "maximum_starts_at_minus_5e4"}},
      // Faults that no key enables.
      {"", "", {"lse_in_log2", "lse_plus_infinity", "lse_finite", "mean_of_values", "output_not_written"}},
      {"", "", {"depends_on_batch_size", "depends_on_batch_order", "depends_on_page_numbers"}},
      {"", "", {"empty_merge_gets_lse_plus_infinity", "lse_padding_ignored", "states_averaged"}},
      {"", "", {"in_call_one_token_past_capacity", "in_call_to_batch_row_0"}},
      {"", "", {"old_lengths"}, {kPaths + "FindsAKernelThatKeepsTheLengthsOfItsFirstLaunch"}},
      {"", "", {"page_offset_overflow"}, {"tests/kernels/cpu_far_offsets_test.cpp: TEST(FarOffsets, Pages)"}},
      {"", "", {}, {"tests/kernels/cpu_append_test.cpp: SmallCachesAreRefusedBeforeAnythingIsWritten"}},
  };
  return all;
}

/// Words that request nothing, and kinds of values, which show what other keys request.
const std::set<std::string> kPlain = {
    "op: attention",  "q_dtype: same", "kv_dtype: same", "alibi: none",
    "path: one_call", "append: none",  "rotary: none",   "cache_batch_idx: identity",
    "data: normal",   "data: peaked",  "data: outlier",  "lse_layout: head_major",
    "kv_layout: nhd", "expired: kept"};

std::map<std::string, Fault> faults_by_name() {
  std::map<std::string, Fault> all;
  for (const FaultClass& group : all_faults()) {
    for (const Fault& f : group.faults) all.emplace(f.name, f);
  }
  return all;
}

/// Whether a mapping sets the key, and sets it to the word if one is given.
bool sets(const std::string& mapping, const std::string& key, const std::string& word) {
  for (const std::string before : {"{", " "}) {
    const std::size_t at = mapping.find(before + key + ": " + word);
    if (at == std::string::npos) continue;
    const std::size_t end = at + before.size() + key.size() + 2 + word.size();
    if (word.empty() || end == mapping.size() || mapping[end] == ',' || mapping[end] == '}') return true;
  }
  return false;
}

TEST(Switches, SetsFindsKeysAndWords) {
  EXPECT_TRUE(sets("{kv: paged, kv_dtype: int8_k}", "kv_dtype", "int8_k"));
  EXPECT_FALSE(sets("{kv: paged, kv_dtype: int8_k}", "kv_dtype", "int8"));
  EXPECT_FALSE(sets("{kv: paged, kv_dtype: int8_k}", "dtype", ""));
}

TEST(Switches, EveryFaultOfTheTableHasItsFeature) {
  const auto faults = faults_by_name();
  for (const Switch& s : switches()) {
    for (const std::string& name : s.faults) {
      const auto found = faults.find(name);
      ASSERT_NE(found, faults.end()) << "no fault of the selftest is called " << name;
      const auto& cases = found->second.cases;
      EXPECT_TRUE(s.key.empty() ||
                  std::any_of(cases.begin(), cases.end(),
                              [&](const auto& mapping) { return sets(mapping, s.key, s.word); }))
          << name << " has no case with " << s.key << ": " << s.word;
    }
    for (const std::string& test : s.tests) {
      const std::size_t colon = test.find(": ");
      std::ifstream file(std::string(ATTNBENCH_SOURCE_DIR "/") + test.substr(0, colon));
      std::stringstream text;
      text << file.rdbuf();
      EXPECT_NE(text.str().find(test.substr(colon + 2)), std::string::npos) << test << " is not there";
    }
    EXPECT_FALSE(s.faults.empty() && s.tests.empty()) << s.key << ": " << s.word;
  }
}

TEST(Switches, EveryKeyAndWordHasOne) {
  std::set<std::string> keys, words;
  for (const Switch& s : switches()) {
    keys.insert(s.key);
    words.insert(s.key + ": " + s.word);
  }
  for (const SweepKey& key : sweep_keys()) {
    EXPECT_TRUE(keys.count(key.name)) << "no switch for " << key.name << ": add a fault that ignores it";
    if (!key.schema.contains("enum")) continue;
    for (const auto& value : key.schema["enum"]) {
      const std::string word = key.name + ": " + value.get<std::string>();
      EXPECT_TRUE(words.count(word) || kPlain.count(word)) << "no switch for " << word;
    }
  }
}

}  // namespace
}  // namespace attnbench
