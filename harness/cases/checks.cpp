#include "harness/cases/checks.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnbench {
namespace {

/// Most channels of a row of V (kernels/contract/attention_params.h).
constexpr int32_t kMaxDimV = 512;

void check_shared_prefix(const CaseParams& p, const FailAt& fail) {
  refuse(fail, {{p.kv != KvSource::kPaged && p.does().forward(), "page_layout",
                 "page_layout: shared_prefix shares pages, which only paged KV has; set 'kv: paged'"},
                {p.does().appends || p.append, "page_layout",
                 "new tokens are written, and a page of several sequences must not be; drop page_layout: "
                 "shared_prefix"}});
  if (p.shared_prefix < 1 || p.shared_prefix % p.block_size != 0) {
    const int64_t near = (int64_t{p.shared_prefix} / p.block_size + 1) * p.block_size;
    fail(p.shared_prefix < 1 ? "page_layout" : "shared_prefix",
         fmt::format(
             "whole pages are shared: a shared_prefix that is a multiple of block_size {} is required, "
             "such as {}; given {}",
             p.block_size, near, p.shared_prefix));
  }
  const bool whole = std::ranges::any_of(p.seqs, [&](const SeqLen& s) { return s.k >= p.shared_prefix; });
  if (whole && p.does().forward() && p.path == Path::kOneCall) return;
  for (std::size_t i = 0; i < p.seqs.size(); ++i) {
    if (p.seqs[i].k >= p.shared_prefix) continue;
    fail("batch",
         fmt::format("sequence {} has {} KV tokens, fewer than the shared_prefix of {}{}", i, p.seqs[i].k,
                     p.shared_prefix, whole ? "; only attention with path: one_call allows that" : ""));
  }
}

/// Checks that the launch of the case has what bad_launch breaks.
void check_bad_launch(const CaseParams& p, const FailAt& fail) {
  const auto needs = [&](bool has, const char* what) {
    if (has) return;
    fail("bad_launch", fmt::format("bad_launch: {} needs {}; add it, or take another bad_launch",
                                   bad_launch_name(p.bad_launch), what));
  };
  const bool attention = p.does().forward();
  int64_t queries = 0, keys = 0;
  for (const SeqLen& s : p.seqs) {
    queries += s.q;
    keys += s.k;
  }
  switch (p.bad_launch) {
    case BadLaunch::kBlockSize:
      return needs(p.paged(), "blocks: 'kv: paged'");
    case BadLaunch::kBlockTable:
      return needs(attention && p.paged() && keys > 0, "op attention on 'kv: paged' with a key");
    case BadLaunch::kNumSplits:
      return needs(attention, "op attention");
    case BadLaunch::kPointer:
      return needs((p.does().moves ? keys : queries) > 0, "a token in its batch");
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
  if (p.does().appends) repeated("op", "and a new row has one");
  if (!p.does().forward() || p.kv != KvSource::kPaged) return;
  if (p.append) repeated("append", "and a new row has one");
  if (p.expired != Expired::kKept) repeated("expired", "some of which may be visible");
  if (p.path != Path::kOneCall) repeated("path", "which a part of the batch does not show");
  if (p.type_of_k() == DType::kInt8) repeated("kv_dtype", "and int8 keys have descales by place");
  for (const bool is_v : {false, true}) {
    if (p.descales_of(is_v) == DescalesPer::kToken)
      repeated(is_v && !p.v_is_k_view ? "v_descales" : "k_descales", "and descales per_token are by place");
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

void refuse(const FailAt& fail, std::initializer_list<Contradiction> rows, std::string_view word) {
  for (const Contradiction& row : rows) {
    if (row.holds) fail(row.key, fmt::format(fmt::runtime(row.message), word));
  }
}

void check_rotary(const CaseParams& p, const FailAt& fail) {
  if (p.rotary == Rotary::kNone) return;
  refuse(fail,
         {{!p.does().appends && !p.append && !p.rotary_cached, "rotary",
           "rotary turns keys as they enter the cache, and queries with them; set 'append: in_call', or "
           "'rotary_cached: true' for keys that turn when they are read, or drop rotary"},
          {!p.does().appends && p.q_dtype, "q_dtype",
           "rotary turns queries in the case's dtype, not quantised ones; drop q_dtype or rotary"}});
  if (p.rotary_width() % 2 != 0 || p.rotary_width() > p.head_dim) {
    fail((p.rotary_dim > 0 ? "rotary_dim" : "head_dim"),
         fmt::format(
             "rotary turns pairs of channels: an even rotary_dim up to head_dim {} is required, given {}",
             p.head_dim, p.rotary_width()));
  }
}

void check_widths(const CaseParams& p, const FailAt& fail) {
  const bool no_v = p.does().moves && p.v_is_k_view;
  if (!no_v && p.dim_v() > kMaxDimV) {
    fail("head_dim",
         fmt::format("head_dim {} is past the widest values, {}; set head_dim_v", p.head_dim, kMaxDimV));
  }
  if (!no_v && p.v_is_k_view && p.dim_v() > p.head_dim) {
    fail("v_is_k_view",
         fmt::format("values that are a view of the keys have no more than their {} channels, but head_dim_v "
                     "is {}; lower head_dim_v or drop v_is_k_view",
                     p.head_dim, p.dim_v()));
  }
  refuse(
      fail,
      {{p.v_is_k_view && p.qv, "qv",
        "one query is enough for values that are a part of the keys; drop qv or v_is_k_view"},
       {p.v_is_k_view && p.type_of_k() == DType::kInt8, "v_is_k_view",
        "int8 keys have a descale per row and int8 values one per channel: one tensor cannot be both; drop "
        "v_is_k_view, or take kv_dtype e4m3, e5m2 or same"}});
}

void check_no_block_scales(const CaseParams& p, const FailAt& fail) {
  if (p.scale_block() == 0) return;
  fail("kv_dtype",
       fmt::format(
           "op {} has no rows of {}, which attention reads; write 'op: attention' or take another kv_dtype",
           op_name(p.op), kv_dtype_name(p.kv_dtype)));
}

void check_launch(const CaseParams& p, const FailAt& fail) {
  if (p.causal.top_left) check_top_left(p, fail);
  check_bad_launch(p, fail);
  check_pages(p, fail);
  const bool has_pages = p.does().forward() || p.does().copies();
  if (p.page_layout == PageLayout::kSharedPrefix && has_pages) check_shared_prefix(p, fail);
}

void check_lengths(const CaseParams& p, const FailAt& fail) {
  for (std::size_t i = 0; i < p.seqs.size(); ++i) {
    const SeqLen& s = p.seqs[i];
    if (s.k >= s.q || p.does().merges || p.does().moves) continue;
    if (p.does().appends || p.new_len(s) > s.k) {
      fail("batch",
           fmt::format("sequence {} appends {} tokens to reach {} in all: the total (s) must be at least the "
                       "new tokens (q)",
                       i, s.q, s.k));
    }
    if (p.rotary != Rotary::kNone && p.rotary_q == RotaryQ::kDiagonal) {
      fail("batch", fmt::format("sequence {} has {} queries but {} keys: rotary needs a "
                                "position from 0 on for every query; set rotary_q",
                                i, s.q, s.k));
    }
    if (p.causal && !p.causal.top_left && !p.allow_short_kv) {
      fail("batch", fmt::format("sequence {} has {} query tokens but {} KV tokens: under mask causal "
                                "its first {} queries see no "
                                "key; if that is meant, set 'allow_short_kv: true'",
                                i, s.q, s.k, s.q - s.k));
    }
  }
}

}  // namespace attnbench
