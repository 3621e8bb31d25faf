#include "harness/launch/served.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

#include "harness/cases/seen_keys.h"
#include "harness/ops/merge_states/tensors_states.h"

namespace attnbench {
namespace {

struct Phase {
  KernelFlag flag;
  const char* name;
  const char* requires_;
  bool (*fits)(const SeqLen&);
};
constexpr Phase kPhases[] = {
    {kServesDecode, "decode", "one query per sequence", [](const SeqLen& s) { return s.q == 1; }},
    {kServesPrefill, "prefill", "as many queries as keys", [](const SeqLen& s) { return s.q == s.k; }},
    {kServesAppend, "append", "no more queries than keys", [](const SeqLen& s) { return s.q <= s.k; }}};
constexpr uint32_t kServes = kServesDecode | kServesPrefill | kServesAppend;

/// "decode: one query per sequence required, given 17 queries of 40 keys (sequence 3)"; empty if each sequence fits
/// one of the phases.
std::string other_phase(uint32_t flags, const CaseParams& p) {
  std::string names, required;
  for (const Phase& phase : kPhases) {
    if ((flags & phase.flag) == 0) continue;
    names += (names.empty() ? "" : ", ") + std::string(phase.name);
    required += (required.empty() ? "" : " or ") + std::string(phase.requires_);
  }
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const auto fits = [&](const Phase& phase) { return (flags & phase.flag) != 0 && phase.fits(p.seqs[b]); };
    if (std::ranges::any_of(kPhases, fits)) continue;
    return fmt::format("serves {}: {} required, given {} queries of {} keys (sequence {})", names, required,
                       p.seqs[b].q, p.seqs[b].k, b);
  }
  return "";
}

/// "sequence 3 pos 0": the first row without a key; empty if each has one.
std::string row_without_keys(const Case& c) {
  const CaseParams& p = c.params;
  if (p.does().merges) {
    for (int64_t row = 0; row < merge_rows(p); ++row) {
      for (int head = 0; head < p.num_heads_q; ++head) {
        int state = states_of_row(c, row);
        while (state > 0 && std::isinf(partial_lse_of(c, state - 1, row, head))) --state;
        if (state == 0) return fmt::format("row {} head {}", row, head);
      }
    }
    return "";
  }
  const Mask mask = mask_of(p);
  const std::optional<SeenKeys> seen = has_gaps(p) ? std::optional<SeenKeys>(c) : std::nullopt;
  const int32_t heads = p.topk > 0 ? p.num_heads_kv : 1;  // that have lists of their own
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    for (int64_t i = 0; i < p.seqs[b].q; ++i) {
      bool empty = visible_keys(mask, p.seqs[b].q, p.seqs[b].k, i).empty();
      for (int32_t h = 0; seen && !empty && h < heads; ++h) empty = seen->count(b, i, h) == 0;
      if (empty) return fmt::format("sequence {} pos {}", b, i);
    }
  }
  return "";
}

std::string unserved(uint32_t flags, const Case& c, bool padded_strides) {
  const CaseParams& p = c.params;
  const bool serves = (flags & kServes) != 0;
  if (p.does().attends && (serves || (flags & kNoIdleSequences) != 0)) {
    if (p.seqs.empty()) return "sequences with queries required, given an empty batch";
    for (std::size_t b = 0; b < p.seqs.size(); ++b)
      if (p.seqs[b].q == 0) return fmt::format("sequences with queries required; sequence {} has none", b);
  }
  if (serves) {
    if (std::string why = other_phase(flags, p); !why.empty()) return why;
  }
  if ((flags & kNoShortKv) != 0) {
    for (std::size_t b = 0; b < p.seqs.size(); ++b) {
      if (p.seqs[b].q <= p.seqs[b].k) continue;
      return fmt::format("no more queries than keys required, given {} queries of {} keys (sequence {})",
                         p.seqs[b].q, p.seqs[b].k, b);
    }
  }
  if (serves || (flags & kNoEmptyRows) != 0) {
    if (const std::string row = row_without_keys(c); !row.empty())
      return fmt::format("rows with {} required; {} has none", p.does().merges ? "states" : "keys", row);
  }
  if ((flags & kDenseInputs) != 0) {
    if (padded_strides) return "dense inputs required, given gaps between rows and heads";
    if (p.does().merges && !p.lse_dense) return "partial_lse: dense required, given strided";
  }
  return "";
}

}  // namespace

std::optional<SkipReason> not_served(const Kernel& kernel, const Case& item, bool padded_strides) {
  const CaseParams& p = item.params;
  constexpr uint32_t kLengths = kServes | kNoEmptyRows | kNoIdleSequences | kNoShortKv;
  if ((kernel.flags & (kLengths | kDenseInputs)) == 0) return std::nullopt;
  if (p.does().forward() && p.path != Path::kOneCall && (kernel.flags & kLengths) != 0) {
    return SkipReason{
        fmt::format("{}: path {} divides the keys, and a part may be none that the kernel serves",
                    kernel.name, path_name(p.path))};
  }
  const std::string why = unserved(kernel.flags, item, padded_strides);
  return why.empty() ? std::nullopt : std::optional(SkipReason{fmt::format("{}: {}", kernel.name, why)});
}

}  // namespace attnbench
