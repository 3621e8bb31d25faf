// Checks of the keys for pages, paths and bad launches, against each other and against the batch.
#include <fmt/format.h>

#include "harness/cases/paths.h"

namespace attnbench {
namespace {

void check_shared_prefix(const CaseParams& p, const FailAt& fail) {
  if (p.kv != KvSource::kPaged && p.op == Op::kAttention) {
    fail("page_layout", "page_layout: shared_prefix shares pages, which only paged KV has; set 'kv: paged'");
  }
  if (p.op == Op::kKvAppend || p.append) {
    fail("page_layout",
         "new tokens are written, and a page of several sequences must not be; drop page_layout: "
         "shared_prefix");
  }
  if (p.shared_prefix < 1 || p.shared_prefix % p.block_size != 0) {
    const int64_t near = (int64_t{p.shared_prefix} / p.block_size + 1) * p.block_size;
    fail(p.shared_prefix < 1 ? "page_layout" : "shared_prefix",
         fmt::format(
             "whole pages are shared: a shared_prefix that is a multiple of block_size {} is required, "
             "such as {}; given {}",
             p.block_size, near, p.shared_prefix));
  }
  for (std::size_t i = 0; i < p.seqs.size(); ++i) {
    if (p.seqs[i].k >= p.shared_prefix) continue;
    fail("batch", fmt::format("sequence {} has {} KV tokens, fewer than the shared_prefix of {}", i,
                              p.seqs[i].k, p.shared_prefix));
  }
}

/// Refuses windows and ALiBi: a launch on a part of the keys cannot know its distance from the diagonal.
void check_no_distances(const CaseParams& p, const FailAt& fail) {
  if (p.window_left >= 0 || p.window_right >= 0) {
    fail("window",
         fmt::format(
             "a window counts from the diagonal, which a part of the keys does not show; drop it or path: {}",
             path_name(p.path)));
  }
  if (p.attention_chunk > 0) {
    fail("attention_chunk",
         fmt::format(
             "a chunk counts from a sequence's first key, which a part of the keys does not show; drop "
             "attention_chunk or path: {}",
             path_name(p.path)));
  }
  if (p.alibi != Alibi::kNone) {
    fail("alibi",
         fmt::format(
             "ALiBi counts from the diagonal, which a part of the keys does not show; drop it or path: {}",
             path_name(p.path)));
  }
}

void check_path(const CaseParams& p, const FailAt& fail) {
  if (p.expect_refused) {
    fail("path",
         fmt::format("one launch is refused, and path: {} has several; drop path, or expect and bad_launch",
                     path_name(p.path)));
  }
  if ((p.lse_base2 || p.out_lse_token_major) && p.path != Path::kSplitDecode) {
    fail(p.lse_base2 ? "lse_log" : "out_lse_layout",
         fmt::format("path: {} has partial states of its own, with natural LSEs (head, token); drop path, or "
                     "lse_log and out_lse_layout",
                     path_name(p.path)));
  }
  if (p.append) {
    fail("append",
         fmt::format("append: in_call is written by one call, not by the launches of path: {}; drop one",
                     path_name(p.path)));
  }
  if (p.e4m3_out) {
    fail("out_dtype",
         fmt::format("out_dtype: e4m3 is stored by one call, and path: {} merges states in dtype; drop one",
                     path_name(p.path)));
  }
  if (p.qv) {
    fail("qv",
         fmt::format("qv is of one launch, and path: {} has several; drop qv or path", path_name(p.path)));
  }
  if (p.gap_queries > 0) {
    fail("gap_queries",
         fmt::format(
             "rows of several launches stand end to end, and path: {} has several; drop gap_queries or path",
             path_name(p.path)));
  }
  if (p.probs || p.dropout > 0) {
    fail(p.probs ? "probs" : "dropout",
         fmt::format(
             "probabilities and dropout go by the keys of one launch, and path: {} has several; drop one",
             path_name(p.path)));
  }
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

/// Checks that the launch of the case has what bad_launch breaks.
void check_bad_launch(const CaseParams& p, const FailAt& fail) {
  const auto needs = [&](bool has, const char* what) {
    if (has) return;
    fail("bad_launch", fmt::format("bad_launch: {} needs {}; add it, or take another bad_launch",
                                   bad_launch_name(p.bad_launch), what));
  };
  const bool attention = p.op == Op::kAttention;
  const bool paged = p.op == Op::kKvAppend || (attention && p.kv == KvSource::kPaged);
  int64_t queries = 0, keys = 0;
  for (const SeqLen& s : p.seqs) {
    queries += s.q;
    keys += s.k;
  }
  switch (p.bad_launch) {
    case BadLaunch::kBlockSize:
      return needs(paged, "blocks: 'kv: paged'");
    case BadLaunch::kBlockTable:
      return needs(attention && paged && keys > 0, "op attention on 'kv: paged' with a key");
    case BadLaunch::kNumSplits:
      return needs(attention, "op attention");
    case BadLaunch::kPointer:
      return needs(queries > 0, "a token in its batch");
    default:
      return;
  }
}

/// Checks page_layout: repeated.
void check_pages(const CaseParams& p, const FailAt& fail) {
  const auto repeated = [&](const char* key, const char* why) {
    fail(key, fmt::format("page_layout: repeated has blocks in several places, {}; drop {} or page_layout",
                          why, key));
  };
  if (p.page_layout != PageLayout::kRepeated) return;
  if (p.op == Op::kKvAppend) repeated("op", "and a new row has one");
  if (p.op != Op::kAttention || p.kv != KvSource::kPaged) return;
  if (p.append) repeated("append", "and a new row has one");
  if (p.expired != Expired::kKept) repeated("expired", "some of which may be visible");
  if (p.path != Path::kOneCall) repeated("path", "which a part of the batch does not show");
  if (p.type_of_k() == DType::kInt8) repeated("kv_dtype", "and int8 keys have descales by place");
}

/// Checks left padding and rows of block_table in pages.
void check_places(const CaseParams& p, const FailAt& fail) {
  if (p.op != Op::kAttention || p.kv != KvSource::kPaged) return;
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

}  // namespace

void check_paths(const CaseParams& p, const FailAt& fail) {
  check_bad_launch(p, fail);
  check_pages(p, fail);
  check_places(p, fail);
  const bool has_pages = p.op == Op::kAttention || p.op == Op::kKvAppend;
  if (p.page_layout == PageLayout::kSharedPrefix && has_pages) check_shared_prefix(p, fail);
  if (p.path != Path::kOneCall && p.op == Op::kAttention) check_path(p, fail);
}

}  // namespace attnbench
