#include "harness/selftest/clue_shares.h"

#include <fmt/format.h>

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
  std::string wrong;
  for (const std::string& clue : r.check->clues) {
    const bool right =
        std::ranges::any_of(words, [&](const std::string& w) { return clue.find(w) != clue.npos; });
    named = named || right;
    if (wrong.empty() && !right && proven(clue) && clue.find(kRead) == clue.npos) wrong = clue;
  }
  share.named += named;
  share.misnamed += !named && !wrong.empty();
  if (!named && share.seen.size() < kKept) share.seen.push_back(wrong);
}

}  // namespace

std::vector<ClueShare> measure_clues(KernelTable table, Device& device, const SelftestOptions& options) {
  std::vector<ClueShare> shares;
  for (const Kernel* kernel : select_kernels(table, Op::kAttention, device.info().kind, options.kernels)) {
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
