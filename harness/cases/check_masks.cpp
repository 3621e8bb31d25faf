// Checks of masks with gaps against the other keys and the batch.
#include <fmt/format.h>

#include "harness/cases/paths.h"
#include "harness/cases/visible_keys.h"

namespace attnbench {
namespace {

/// Most bytes of a packed custom mask.
constexpr int64_t kMaxMaskBytes = int64_t{1} << 28;
/// Most entries of all lists of keys.
constexpr int64_t kMaxEntries = int64_t{1} << 26;

void check_custom_mask(const CaseParams& p, const FailAt& fail) {
  if (p.path != Path::kOneCall) {
    fail("custom_mask",
         fmt::format("the bits of a custom_mask are of one launch, and path: {} has several; drop one",
                     path_name(p.path)));
  }
  int64_t bytes = 0;
  for (const SeqLen& s : p.seqs) bytes += (int64_t{s.q} * s.k + 7) / 8;
  if (bytes > kMaxMaskBytes) {
    fail("batch",
         fmt::format("a custom_mask of this batch has {} bytes, more than {}; shorten the batch or drop "
                     "custom_mask",
                     bytes, kMaxMaskBytes));
  }
}

void check_lists(const CaseParams& p, const FailAt& fail) {
  const auto refuse = [&](bool holds, const char* key, const std::string& what) {
    if (holds) fail(key, fmt::format("topk does not go with {}; drop one", what));
  };
  if (p.kv == KvSource::kContiguous) {
    fail("kv",
         "topk names rows of packed keys or of blocks; write 'kv: packed' or 'kv: paged', or drop topk");
  }
  refuse(p.custom_mask != CustomMask::kNone, "custom_mask", "custom_mask: a list is the mask");
  refuse(p.append, "append", "append: a list names rows that are there before the launch");
  refuse(p.path != Path::kOneCall, "path",
         fmt::format("path: {}, whose launches see parts of the keys", path_name(p.path)));
  refuse(p.expired != Expired::kKept, "expired", "expired: rows on no list hold NaN already");
  refuse(p.alibi != Alibi::kNone, "alibi", "alibi, which counts positions that an entry does not show");
  refuse(p.dropout > 0, "dropout", "dropout, which counts positions that an entry does not show");
  refuse(p.probs, "probs", "probs, which are by position");
  refuse(p.qv, "qv", "qv");
  refuse(p.rotary_cached, "rotary_cached", "rotary_cached: an entry does not show the position of its key");
  refuse(p.type_of_k() == DType::kInt8, "kv_dtype", fmt::format("kv_dtype: {}", kv_dtype_name(p.kv_dtype)));
  refuse(p.kv == KvSource::kPaged && p.page_layout == PageLayout::kRepeated, "page_layout",
         "page_layout: repeated, where two keys may be one row");
  double entries = 0;
  for (const SeqLen& s : p.seqs) entries += static_cast<double>(s.q) * p.num_heads_kv * p.topk;
  if (entries > static_cast<double>(kMaxEntries)) {
    fail("batch",
         fmt::format(
             "the lists of this batch have {:.0f} entries, more than {}; shorten the batch or lower topk",
             entries, kMaxEntries));
  }
}

/// A diagonal that begins at the first key is that of one mask, and of nothing else that counts from a diagonal.
void check_top_left(const CaseParams& p, const FailAt& fail) {
  const auto refuse = [&](bool holds, const char* key, const char* what) {
    if (holds)
      fail(key,
           fmt::format("mask: causal_top_left does not go with {}; drop one, or write 'mask: causal'", what));
  };
  refuse(p.attention_chunk > 0, "attention_chunk", "attention_chunk, which counts from the last key");
  refuse(p.alibi != Alibi::kNone, "alibi", "alibi, which counts from the last key");
  refuse(p.rotary != Rotary::kNone, "rotary",
         "rotary, which turns queries to positions from the last key on");
  refuse(p.append, "append", "append: the first query would not see the new keys");
  refuse(p.path != Path::kOneCall, "path", "a path of several launches, which see parts of the keys");
}

}  // namespace

void check_masks(const CaseParams& p, const FailAt& fail) {
  if (p.causal.top_left) check_top_left(p, fail);
  if (p.op != Op::kAttention) return;
  if (p.topk > 0) check_lists(p, fail);
  if (p.custom_mask != CustomMask::kNone) check_custom_mask(p, fail);
}

}  // namespace attnbench
