// Checks of the keys of attention against each other and against the batch.
#include <fmt/format.h>

#include "harness/cases/paths.h"
#include "harness/config/keys.h"
#include "harness/ops/attention/case_cost.h"

namespace attnbench::ops::attention {
namespace {

/// Most bytes of a packed custom mask.
constexpr int64_t kMaxMaskBytes = int64_t{1} << 28;
/// Most entries of all lists of keys.
constexpr int64_t kMaxEntries = int64_t{1} << 26;

/// Checks that the types of q and KV go together.
void check_types(const CaseParams& p, const FailAt& fail) {
  if (p.qv && (p.q_dtype || p.kv_dtype != KvDType::kSame)) {
    const char* key = p.q_dtype ? "q_dtype" : "kv_dtype";
    fail(key, fmt::format("qv and the values that it is multiplied with are in dtype; drop {} or qv", key));
  }
  refuse(
      fail,
      {{p.q_dtype == DType::kE4m3 && p.kv_dtype != KvDType::kE4m3, "q_dtype",
        "queries in e4m3 are multiplied with keys in e4m3: write 'kv_dtype: e4m3' or drop q_dtype"},
       {p.q_dtype == DType::kInt8 && p.type_of_k() != DType::kInt8, "q_dtype",
        "queries in int8 are multiplied with keys in int8: write 'kv_dtype: int8', or int8_k for values in "
        "dtype, or drop q_dtype"}});
}

/// Checks that blocks of rows with a descale lie as they are counted, from a sequence's first row on.
void check_descale_rows(const CaseParams& p, const FailAt& fail) {
  const int32_t rows = p.k_descale_rows;
  if (p.path != Path::kOneCall && (p.q_descale_rows > 1 || rows > 1)) {
    fail(
        rows > 1 ? "k_descale_rows" : "q_descale_rows",
        fmt::format("rows that share a descale are counted in one launch, and path: {} has several; drop one",
                    path_name(p.path)));
  }
  if (rows > 1 && p.leftpad > 0 && p.kv != KvSource::kPacked)
    fail("k_descale_rows",
         "rows that share a descale begin where a block does; drop leftpad or k_descale_rows");
  if (p.kv == KvSource::kPaged && p.block_size % rows != 0) {
    fail("k_descale_rows",
         fmt::format("a divisor of block_size {} is required, given {}", p.block_size, rows));
  }
}

/// Checks that the case can have expired rows.
void check_expired(const CaseParams& p, const FailAt& fail) {
  if (p.expired == Expired::kKept) return;
  refuse(
      fail,
      {{p.window_left < 0 && p.attention_chunk == 0, "expired",
        "expired: {} is about rows left of a window or chunk, but neither bounds the left side; set one such "
        "as 'window: \"100,0\"' or 'attention_chunk: 64', or drop expired"},
       {p.expired == Expired::kFreed && p.kv != KvSource::kPaged, "expired",
        "expired: freed takes blocks from a sequence, which only paged KV has; set 'kv: paged', or write "
        "'expired: nan'"}},
      expired_name(p.expired));
}

void check_ds_mla(const CaseParams& p, const FailAt& fail) {
  refuse(
      fail,
      {{p.dtype != DType::kBf16, "dtype",
        "the last channels of a row of kv_dtype: fp8_ds_mla are in bf16, as queries are; write 'dtype: bf16' "
        "or drop kv_dtype"},
       {!p.v_is_k_view, "kv_dtype",
        "values of fp8_ds_mla are the first channels of the keys; write 'v_is_k_view: true', 'head_dim: "
        "576', 'head_dim_v: 512', or drop kv_dtype"}});
  if (p.dim_v() % p.scale_block() != 0 || p.k_tail() <= 0 || p.k_tail() % 2 != 0) {
    fail(
        "kv_dtype",
        fmt::format(
            "a row of fp8_ds_mla has head_dim_v channels with a scale for {} each, then an even number of "
            "others, but head_dim is {} and head_dim_v {}; write 'head_dim: 576', 'head_dim_v: 512', or drop "
            "kv_dtype",
            p.scale_block(), p.head_dim, p.dim_v()));
  }
}

void check_block_scales(const CaseParams& p, const FailAt& fail) {
  if (p.scale_block() == 0) return;
  const char* type = kv_dtype_name(p.kv_dtype);
  if (p.append) {
    fail("append", fmt::format("append: in_call writes no rows of kv_dtype: {}; drop one", type));
  }
  if (p.path != Path::kOneCall) {
    fail("path", fmt::format("kv_dtype: {} is for one launch, and path: {} has several; drop one", type,
                             path_name(p.path)));
  }
  if (p.kv_dtype == KvDType::kDsMla) return check_ds_mla(p, fail);
  for (const bool is_v : {false, true}) {
    if (p.dim_of_kv(is_v) % p.scale_block() == 0) continue;
    const char* key = is_v && p.head_dim_v > 0 ? "head_dim_v" : "head_dim";
    fail(key,
         fmt::format(
             "{} channels of kv_dtype: {} share a scale: a {} that is a multiple of it is required, given {}",
             p.scale_block(), type, key, p.dim_of_kv(is_v)));
  }
}

void check_in_call(const CaseParams& p, const FailAt& fail) {
  refuse(
      fail,
      {{p.kv == KvSource::kPacked, "append",
        "append: in_call writes into a cache, and packed keys are none; set 'kv: paged' or 'kv: contiguous'"},
       {p.head_dim > kMaxWrittenKey || p.dim_v() != p.head_dim || p.v_is_k_view, "append",
        "append: in_call writes new keys and values of one width, up to {} channels; drop head_dim_v and "
        "v_is_k_view, or append"},
       {p.new_as_stored && p.kv_dtype != KvDType::kSame && p.rotary != Rotary::kNone, "new_dtype",
        "rotary turns new keys in dtype; write 'new_dtype: dtype' or drop rotary"}},
      std::to_string(kMaxWrittenKey));
}

void check_rotary_cached(const CaseParams& p, const FailAt& fail) {
  refuse(
      fail,
      {{p.append, "rotary_cached",
        "append: in_call writes keys that have turned, beside which keys of the cache cannot turn when they "
        "are read; drop append or rotary_cached"},
       {p.kv_dtype != KvDType::kSame, "kv_dtype",
        "rotary_cached turns keys in dtype, not quantised ones; drop kv_dtype or rotary_cached"},
       {p.v_is_k_view, "v_is_k_view",
        "values that are a view of the keys would turn with them; drop v_is_k_view or rotary_cached"}});
  if (p.head_dim > kMaxWrittenKey) {
    fail("head_dim", fmt::format("rotary_cached turns keys of up to {} channels; lower head_dim {}",
                                 kMaxWrittenKey, p.head_dim));
  }
  if (p.path != Path::kOneCall) {
    fail("path",
         fmt::format(
             "rotary_cached counts from a sequence's first key, which a part of the keys does not show; "
             "drop it or path: {}",
             path_name(p.path)));
  }
}

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
  for (const bool is_v : {false, true})
    refuse(p.row_descales(is_v), is_v && !p.v_is_k_view ? "v_descales" : "k_descales",
           "descales per_token: a list is read without positions");
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

/// Refuses windows and ALiBi: a launch on a part of the keys cannot know its distance from the diagonal.
void check_no_distances(const CaseParams& p, const FailAt& fail) {
  refuse(fail,
         {{p.window_left >= 0 || p.window_right >= 0, "window",
           "a window counts from the diagonal, which a part of the keys does not show; drop it or path: {}"},
          {p.attention_chunk > 0, "attention_chunk",
           "a chunk counts from a sequence's first key, which a part of the keys does not show; drop "
           "attention_chunk or path: {}"},
          {p.alibi != Alibi::kNone, "alibi",
           "ALiBi counts from the diagonal, which a part of the keys does not show; drop it or path: {}"}},
         path_name(p.path));
}

void check_path(const CaseParams& p, const FailAt& fail) {
  refuse(
      fail,
      {{p.expect_refused, "path",
        "one launch is refused, and path: {} has several; drop path, or expect and bad_launch"},
       {(p.lse_base2 || p.out_lse_token_major) && p.path != Path::kSplitDecode,
        p.lse_base2 ? "lse_log" : "out_lse_layout",
        "path: {} has partial states of its own, with natural LSEs (head, token); drop path, or lse_log and "
        "out_lse_layout"},
       {p.append, "append",
        "append: in_call is written by one call, not by the launches of path: {}; drop one"},
       {p.e4m3_out, "out_dtype",
        "out_dtype: e4m3 is stored by one call, and path: {} merges states in dtype; drop one"},
       {p.qv, "qv", "qv is of one launch, and path: {} has several; drop qv or path"},
       {p.gap_queries > 0, "gap_queries",
        "rows of several launches stand end to end, and path: {} has several; drop gap_queries or path"},
       {p.probs || p.dropout > 0, p.probs ? "probs" : "dropout",
        "probabilities and dropout go by the keys of one launch, and path: {} has several; drop one"}},
      path_name(p.path));
  switch (p.path) {
    case Path::kOneCall:
      break;
    case Path::kCascade:
      if (p.shared_tokens() == 0) {
        fail("path", "path: cascade attends a shared prefix once; set 'page_layout: shared_prefix'");
      }
      check_no_distances(p, fail);
      for (std::size_t i = 0; p.causal && i < p.seqs.size(); ++i) {
        const SeqLen& s = p.seqs[i];
        if (s.q == 0 || s.k - s.q >= p.shared_prefix) continue;
        fail("batch", fmt::format("path: cascade attends the prefix without a mask, but the first query of "
                                  "sequence {} stands at {}, within the shared_prefix of {}",
                                  i, s.k - s.q, p.shared_prefix));
      }
      break;
    case Path::kSplitDecode:
      for (std::size_t i = leading_decodes(p); i < p.seqs.size(); ++i) {
        if (p.seqs[i].q > p.decode_threshold) continue;
        fail("batch",
             fmt::format("path: split_decode takes the decodes from the front of the batch, but sequence {} "
                         "with {} queries stands behind longer ones; put decodes first",
                         i, p.seqs[i].q));
      }
      break;
    case Path::kDcp:
      if (p.kv != KvSource::kPaged || p.shared_tokens() > 0) {
        fail(p.kv != KvSource::kPaged ? "kv" : "page_layout",
             "path: dcp gives each rank a paged cache of its own; set 'kv: paged' with page_layout "
             "contiguous or "
             "shuffled");
      }
      check_no_distances(p, fail);
      if (p.num_heads_q % p.devices() != 0) {
        fail("heads",
             fmt::format("dcp_combine: {} leaves each rank an equal share of the query heads: a multiple "
                         "of dcp_ranks {} is required, given {}",
                         combine_name(p.dcp_combine), p.dcp_ranks, p.num_heads_q));
      }
      for (std::size_t i = 0; p.causal && i < p.seqs.size(); ++i) {
        if (p.seqs[i].q <= 1) continue;
        fail("batch",
             fmt::format("sequence {} has {} queries: under mask causal the first ones see keys that are no "
                         "prefix of a rank's keys, so that no launch of path: dcp can say which; set 'mask: "
                         "none' or one query",
                         i, p.seqs[i].q));
      }
      break;
  }
}

/// Checks left padding and rows of block_table in pages.
void check_places(const CaseParams& p, const FailAt& fail) {
  if (p.kv != KvSource::kPaged) return;
  if (p.leftpad > 0 && (p.page_layout == PageLayout::kSharedPrefix || p.page_layout == PageLayout::kServed ||
                        p.page_layout == PageLayout::kRepeated)) {
    fail("leftpad",
         fmt::format(
             "left padding differs by sequence, and page_layout: {} has blocks of several; drop leftpad or "
             "page_layout",
             page_layout_name(p.page_layout)));
  }
  if (p.path == Path::kDcp && (p.leftpad > 0 || p.shuffled_table)) {
    const char* key = p.leftpad > 0 ? "leftpad" : "block_table_rows";
    fail(key, fmt::format("path: dcp has a block_table of its own for each rank; drop {} or path", key));
  }
}

void check(const CaseParams& p, const GivenKeys&, const FailAt& fail) {
  check_widths(p, fail);
  check_types(p, fail);
  check_descale_rows(p, fail);
  check_expired(p, fail);
  if (p.scale_block() > 0) check_block_scales(p, fail);
  if (p.append) check_in_call(p, fail);
  if (p.rotary != Rotary::kNone && p.rotary_cached) check_rotary_cached(p, fail);
  if (p.topk > 0) check_lists(p, fail);
  if (p.custom_mask != CustomMask::kNone) check_custom_mask(p, fail);
  check_places(p, fail);
  if (p.path != Path::kOneCall) check_path(p, fail);
}

}  // namespace

const CaseOps kCaseOps = {check, set_cost};

}  // namespace attnbench::ops::attention
