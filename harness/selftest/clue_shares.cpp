#include "harness/selftest/clue_shares.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "harness/judge/case_inputs.h"
#include "harness/judge/sample.h"
#include "harness/selftest/fault.h"
#include "harness/session/session.h"

namespace attnbench {
namespace {

/// True of every fault that reads other memory, and its name only where nothing else is wrong.
constexpr std::string_view kRead = "must not be read";
constexpr std::string_view kPlaces = "rows change places", kUnwritten = "are not written";

/// Words of clues about faults whose name is not in the table of mistakes (mistakes.h).
constexpr std::pair<std::string_view, std::string_view> kWords[] = {
    {"lengths/max_instead_of_actual", kRead},
    {"lengths/rounded_to_page", kRead},
    {"lengths/padding_in_denominator", "count as keys of score 0"},
    {"lengths/last_partial_page_dropped", "keys behind the last whole page"},
    {"lengths/rows_past_keys_not_empty", "division by a softmax denominator of 0"},
    {"empty rows/nan_from_two_empty_states", "division by a softmax denominator of 0"},
    {"empty rows/output_not_written", "not written when the launch ended"},
    {"paging/table_read_past_its_end", kRead},
    {"paging/page_offset_overflow", kRead},
    {"paging/block_ids_of_15_bits", kRead},
    {"paging/neighbours_page", "page"},
    {"paging/v_from_the_wrong_page", "page"},
    {"NaN/page_tail_times_zero", kRead},
    {"NaN/expired_rows_times_zero", kRead},
    {"NaN/freed_page_times_zero", kRead},
    {"NaN/neighbours_packed_rows", kRead},
    {"heads/lse_transposed", "(total_q, Hq)"},
    {"split and merge/lse_in_log2", "base 2"},
    {"split and merge/maximum_not_rescaled", "rescaled"},
    {"scores/scale_off_0_1_percent", "logits times 1.001"},
    {"scores/scale_of_another_head_dim", "logits times 0.9923"},
    {"scores/maximum_starts_at_0", "a running maximum starts at 0"},
    {"scores/maximum_starts_at_minus_5e4", "a running maximum starts at -50000"},
    {"quantised/k_descale_ignored", "descales of K are not applied"},
    {"quantised/v_descale_ignored", "descales of V are not applied"},
    {"quantised/v_descale_of_head_0", "V has the descale of head 0"},
    {"quantised/k_descale_of_sequence_0", "K has the descale of sequence 0"},
    {"quantised/k_and_v_descales_swapped", "descales of K and V are exchanged"},
    {"8-bit inputs/int8_q_descale_ignored", "descales of Q are not applied"},
    {"8-bit inputs/int8_q_descale_of_head_0", "Q has the descale of head 0"},
    {"8-bit inputs/int8_k_descale_of_kv_head_0", "K has the descale of head 0"},
    {"8-bit inputs/int8_v_descale_of_channel_0", "V has the descale of channel 0"},
    {"8-bit inputs/e4m3_q_descale_ignored", "descales of Q are not applied"},
    {"widths/v_addressed_as_k", kRead},
    {"widths/scale_of_head_dim_v", "1/sqrt(head_dim_v)"},
    {"append in the call/in_call_attends_first", kRead},
    {"append in the call/in_call_one_row_early", kRead},
    {"memory/row_written_into_next_sequence", "rows change places"},
    {"memory/output_row_unwritten", "not written when the launch ended"},
    {"memory/lse_unwritten", "not written when the launch ended"},
    {"ignored/fp32_output_in_16_bits", "O is rounded to bf16"},
    {"ignored/seqused_ignored", kRead},
    {"ignored/leftpad_ignored", kRead},
    {"scales and rows/out_without_saturation", "leave the range of a type"},
    {"scales and rows/e5m2_k_descale_ignored", "descales of K are not applied"},
    {"scales and rows/e5m2_v_descale_ignored", "descales of V are not applied"},
    {"scales and rows/e4m3_v_descale_of_channel_0", "V has the descale of channel 0"},
    {"scales of blocks/fp4_scales_ignored", "scales of blocks of channels are not applied"},
    {"scales of blocks/fp4_scale_of_the_next_block", "the scales of their neighbours"},
    {"scales of blocks/fp4_nibbles_exchanged", "the two numbers of a byte of K and V are exchanged"},
    {"scales of blocks/fp4_k_descale_ignored", "descales of K are not applied"},
    {"scales of blocks/fp4_v_descale_ignored", "descales of V are not applied"},
    {"scales of blocks/ds_mla_scales_ignored", "scales of blocks of channels are not applied"},
    {"scales of blocks/ds_mla_scale_of_the_next_block", "the scales of their neighbours"},
    {"scales of blocks/ds_mla_tail_left_out", "channels of K behind head_dim_v are left out"},
    {"lists of keys/lists_ignored", "the lists of keys are not read"},
    {"lists of keys/list_of_kv_head_0", "the lists of KV head 0 are taken for all"},
    {"lists of keys/topk_length_ignored", kRead},
    {"lists of keys/topk_length_0_means_all", kRead},
    {"keys that turn when read/cached_keys_not_turned", "keys of the cache are not turned"},
    {"append/appended_to_batch_row_0", kPlaces},
    {"append/slots_of_a_block_follow_each_other", kPlaces},
    {"append/position_off_by_one", "written to slot s + 1"},
    {"append/slot_of_another_block_size", kPlaces},
    {"append/padding_token_written", "by a padding token"},
    {"append/last_token_lost", kUnwritten},
    {"append/heads_swapped", "belongs to head h + 1"},
    {"append/value_written_as_key", "belongs to the other tensor"},
    {"rotary/neox_for_interleaved", "in other pairs"},
    {"rotary/interleaved_for_neox", "in other pairs"},
    {"rotary/position_without_cache_length", "count from the first new token"},
    {"rotary/rotary_position_off_by_one", "at the position before"},
    {"rotary/rotation_inverted", "the other way"},
    {"rotary/rotation_ignored", "are not rotated"},
    {"quantised append/append_scale_ignored", "scales of K are not applied"},
    {"quantised append/append_scale_inverted", "multiplied by their scales"},
    {"quantised append/append_scales_swapped", "scale of the other tensor"},
    {"quantised append/append_scale_of_another_head", "the scale of head"},
    {"quantised append/append_scale_of_channel_0", "the scale of channel 0"},
    {"ignored/int8_k_append_of_channel_0", "the scale of channel 0"},
    {"scales and rows/append_e4m3_scale_of_channel_0", "the scale of channel 0"},
    {"append in the call/in_call_to_batch_row_0", kPlaces},
    {"append in the call/in_call_k_and_v_swapped", "belongs to the other tensor"},
    {"append in the call/in_call_neox_for_interleaved", "in other pairs"},
    {"append in the call/in_call_interleaved_for_neox", "in other pairs"},
    {"append in the call/in_call_position_off_by_the_cache_length", "count from the first new token"},
    {"8-bit inputs/int8_k_descale_of_a_block", "the first token of its page"},
    {"8-bit inputs/e4m3_q_descale_of_k", "Q has the descale of K"},
    {"ignored/int8_k_descale_of_row_0", "the first token of its page"},
    {"scales of blocks/fp4_scales_of_32_channels", "share a scale"},
    {"scales of blocks/fp4_scales_of_row_0", "the first token of their page"},
    {"scales of blocks/ds_mla_scales_of_row_0", "the first token of their page"},
    {"scales of blocks/fp4_scales_of_head_0", "the scales of head 0"},
    {"scales of blocks/ds_mla_one_scale_for_the_row", "the scale of the first"},
    {"append/one_token_too_many", "one token too many"},
    {"append in the call/in_call_leftpad_ignored", kPlaces},
    {"ignored/in_call_as_many_as_queries", kPlaces},
    {"lengths/rows_past_keys_not_empty", "see no key, so O must be 0"},
    {"empty rows/mean_of_values", "see no key, so O must be 0"},
    {"empty rows/lse_finite", "see no key"},
    {"empty rows/lse_plus_infinity", "see no key"},
    {"LSE/lse_written_in_natural_log", "of base e, where base 2"},
    {"LSE/lse_written_by_head", "where (total_q, Hq) is required"},
    {"training/dropout_not_rescaled", "not divided by 1 - dropout"},
    {"paging/table_row_of_another_request", "of block_table of sequence"},
    {"ignored/table_row_of_another_sequence", "of block_table of sequence"},
    {"ignored/pages_taken_in_order", kRead},
    {"ignored/pages_begin_at_block_0", kRead},
    {"ignored/shared_pages_of_one_sequence_alone", kRead},
    {"ignored/padded_pages_begin_at_row_0", kRead},
    {"ignored/cache_batch_idx_ignored", kRead},
    {"ignored/hnd_read_as_nhd", kRead},
    {"paging/nhd_read_as_hnd", kRead},
    {"paging/repeated_block_read_once", kRead},
    {"lengths/first_query_row_dropped", "not computed, or not stored"},
    {"scales of blocks/fp4_scales_of_k_for_v", "V have the scales of K"},
    {"move/last_block_not_copied", kUnwritten},
    {"move/pair_behind_the_last", kPlaces},
    {"move/neighbour_overwritten", kPlaces},
    {"move/second_child_forgotten", kUnwritten},
    {"move/values_not_copied", kUnwritten},
    {"move/gathered_in_pool_order", kPlaces},
    {"move/gathered_values_missing", kUnwritten},
    {"move/descale_ignored", "scales of K and V are not applied"},
    {"move/descale_of_keys_for_values", "V have the scale of the other tensor"},
    {"move/starts_ignored", kPlaces},
    {"move/starts_rounded_to_blocks", kPlaces},
};

bool proven(const std::string& clue) {
  return clue.find("perhaps") == clue.npos &&
         (clue.find("looks like") != clue.npos || clue.find("(checked by") != clue.npos);
}

Record run(const Case& c, const Kernel& kernel, Device& device) {
  SessionOptions o;
  o.check = CheckMode::kFull;
  o.time = false;
  bool lost = false;
  Record r = run_item({&c, &kernel}, device, o, lost);
  if (lost) throw DeviceError(r.reason, true);
  return r;
}

/// The texts of a clue that is right for a fault on a case.
std::vector<std::string> right_words(const std::string& name, const Fault& fault, const Case& c) {
  std::vector<std::string> words;
  for (const auto& [of, text] : kWords) {
    if (of == name) words.emplace_back(text);
  }
  const std::vector<unsigned char> none;
  const CaseInputs inputs(c, none);
  for (const Mistake& m : mistakes_of(c, problem_of(c), inputs)) {
    if (m.fault == fault.name) words.push_back(m.text);
  }
  return words;
}

/// Counts what the clues say of a fault on a case.
void count(const Record& r, const std::vector<std::string>& words, ClueShare& share) {
  constexpr std::size_t kKept = 3;
  ++share.cases;
  bool named = false;
  bool wrong = false;
  for (const std::string& clue : r.check->clues) {
    const bool right =
        std::ranges::any_of(words, [&](const std::string& w) { return clue.find(w) != clue.npos; });
    named = named || right;
    wrong = wrong || (!right && proven(clue) && clue.find(kRead) == clue.npos);
  }
  share.named += named;
  share.misnamed += !named && wrong;
  if (!named && (wrong || share.seen.size() < kKept))
    share.seen.push_back(fmt::format("{}", fmt::join(r.check->clues, " | ")));
}

}  // namespace

std::vector<ClueShare> measure_clues(KernelTable table, Device& device, const SelftestOptions& options) {
  std::vector<ClueShare> shares;
  std::vector<const Kernel*> kernels;
  for (const Op op : {Op::kAttention, Op::kKvAppend, Op::kKvMove}) {
    const auto of_op = select_kernels(table, op, device.info().kind, options.kernels);
    kernels.insert(kernels.end(), of_op.begin(), of_op.end());
  }
  for (const Kernel* kernel : kernels) {
    for (const FaultClass& group : all_faults()) {
      for (const Fault& fault : group.faults) {
        const std::string name = group.name + "/" + fault.name;
        if (options.chosen && !options.chosen(name)) continue;
        if (((fault.breaks & ~kernel->flags) | (fault.shows_with & ~kernel->features)) != 0) continue;
        ClueShare share{name, kernel->name};
        for (const std::string& yaml : fault.cases) {
          for (uint64_t seed = 1; seed <= static_cast<uint64_t>(options.seeds); ++seed) {
            if (options.stop && options.stop()) return shares;
            const Case c = fault_case(fault.about_types() ? yaml : in_type_of(*kernel, yaml), seed);
            if (c.params.op != kernel->op || c.params.expect_refused) continue;
            Tamper tamper(*kernel, device);
            const Record r = run(c, tamper.armed(fault.launch), device);
            if (r.status != Status::kFail || !r.check) continue;
            count(r, right_words(name, fault, c), share);
          }
        }
        if (share.cases == 0) continue;
        if (options.progress) {
          options.progress(fmt::format("{} on {}: named {}, misnamed {} of {}{}", name, kernel->name,
                                       share.named, share.misnamed, share.cases,
                                       share.seen.empty() ? "" : ": " + share.seen.front()));
        }
        shares.push_back(std::move(share));
      }
    }
  }
  return shares;
}

std::string clue_summary(const std::vector<ClueShare>& shares) {
  int64_t named = 0, misnamed = 0, cases = 0;
  for (const ClueShare& s : shares) {
    named += s.named > 0;
    misnamed += s.misnamed;
    cases += s.cases;
  }
  const auto percent = [](int64_t part, std::size_t of) {
    return of == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(of);
  };
  return fmt::format(
      "clues name {} of {} faults ({:.0f} %) in some case, and something else in {} of {} cases ({:.1f} %)",
      named, shares.size(), percent(named, shares.size()), misnamed, cases,
      percent(misnamed, static_cast<std::size_t>(cases)));
}

}  // namespace attnbench
