// kv_move: what is planned, what it costs, and how its result is judged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "harness/cases/cost.h"
#include "harness/config/keys.h"
#include "harness/judge/verify.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;

Case move_case(const std::string& keys) {
  const std::string type = keys.find(", dtype:") == std::string::npos ? "dtype: fp32, " : "";
  return expand(parse_inline_case("{op: kv_move, heads: 2, head_dim: 8, block_size: 4, " + type + keys + "}"))
      .cases.at(0);
}

/// Does what the contract says, element by element.
void move(const OpParams& op) {
  const KvMoveParams& p = op.kv_move;
  const bool gather = (p.features & kGather) != 0;
  const auto row = [&](int64_t block, int64_t r, int64_t to_block, int64_t to_row) {
    for (const bool is_v : {false, true}) {
      if (is_v && (p.features & kVIsK)) continue;
      const DType from = is_v ? p.dtype_v : p.dtype_k, to = gather ? p.dtype_out : from;
      for (int h = 0; h < p.num_heads_kv; ++h) {
        for (int c = 0; c < (is_v ? p.head_dim_v : p.head_dim); ++c) {
          const int64_t i =
              is_v ? block * p.v_src_stride_block + r * p.v_src_stride_token + h * p.v_src_stride_head
                   : block * p.k_src_stride_block + r * p.k_src_stride_token + h * p.k_src_stride_head;
          const int64_t j =
              is_v
                  ? to_block * p.v_dst_stride_block + to_row * p.v_dst_stride_token + h * p.v_dst_stride_head
                  : to_block * p.k_dst_stride_block + to_row * p.k_dst_stride_token + h * p.k_dst_stride_head;
          const float x = load_float(from, is_v ? p.v_src : p.k_src, i + c);
          const float scale = p.features & kE4m3Kv && gather ? *(is_v ? p.v_descale : p.k_descale) : 1.0f;
          store_float(to, is_v ? p.v_dst : p.k_dst, j + c, x * scale);
        }
      }
    }
  };
  for (int64_t i = 0; i < p.num_pairs && !gather; ++i) {
    for (int r = 0; r < p.block_size; ++r) row(p.block_pairs[2 * i], r, p.block_pairs[2 * i + 1], r);
  }
  for (int b = 0; b < p.batch && gather; ++b) {
    for (int32_t i = 0; i < p.cu_seqlens[b + 1] - p.cu_seqlens[b]; ++i) {
      const int32_t r = i + (p.seq_starts ? p.seq_starts[b] : 0);
      row(p.block_table[b * p.block_table_stride + r / p.block_size], r % p.block_size, 0,
          p.cu_seqlens[b] + i);
    }
  }
}

Verdict judged(const Case& c, const std::function<void(OpParams&)>& launch, bool padded = false) {
  const auto device = open_device("cpu", 1);
  LayoutVariant layout;
  layout.padded_strides = padded;
  Workload w(*device, c, layout);
  w.reset_outputs();
  OpParams op = w.params();
  launch(op);
  EXPECT_FALSE(w.guard_damage()) << *w.guard_damage();
  Verdict v = verify(w, w.download_outputs(), {}, CheckMode::kFull);
  if (const auto damage = w.input_damage()) v.fail(detector::kInputDigest, *damage);
  return v;
}

const char* const kMoves[] = {
    "move: blocks, batch: q0s5_q0s0_q0s9",
    "move: blocks, pools: two, batch: q0s5_q0s0_q0s9",
    "move: blocks, pools: two, kv_layout: hnd, kv_dtype: int8_k, batch: q0s5_q0s0_q0s9",
    "move: blocks, page_layout: shared_prefix, shared_prefix: 8, batch: q0s9_q0s8_q0s21",
    "move: blocks, page_layout: repeated, batch: q0s5_q0s30_q0s9",
    "move: gather, batch: q0s5_q0s0_q0s9",
    "move: gather, starts: any, kv_dtype: e4m3, batch: q0s5_q0s0_q0s9",
    "move: gather, starts: blocks, kv_layout: hnd, head_dim_v: 12, batch: q0s50_q0s0_q0s9",
    "move: gather, page_layout: repeated, starts: any, batch: q0s50_q0s0_q0s9",
    "move: gather, page_layout: shared_prefix, shared_prefix: 8, starts: any, batch: q0s9_q0s8_q0s21",
    "move: gather, v_is_k_view: true, dtype: bf16, kv_dtype: e4m3, batch: q0s5",
};

TEST(KvMove, WhatTheContractSaysPassesWithAnyStrides) {
  for (const char* keys : kMoves) {
    for (const bool padded : {false, true}) {
      const Verdict v = judged(
          move_case(keys), [](OpParams& op) { move(op); }, padded);
      EXPECT_TRUE(v.pass) << keys << ": " << v.reason;
      EXPECT_FALSE(judged(
                       move_case(keys), [](OpParams&) {}, padded)
                       .pass)
          << keys << ", and nothing was done";
    }
  }
}

TEST(KvMove, CluesNameTheMistake) {
  const auto named = [](const char* keys, const std::function<void(OpParams&)>& launch) {
    const auto clues = judged(move_case(keys), launch).clues;
    return clues.empty() ? "" : clues.back();
  };
  EXPECT_THAT(named(kMoves[0], [](OpParams&) {}), HasSubstr("looks like: rows of K and V are not written ("));
  const char* gather = "move: gather, kv_dtype: e4m3, batch: q0s5_q0s0_q0s9";
  EXPECT_THAT(named(gather,
                    [](OpParams& op) {
                      op.kv_move.v_descale = op.kv_move.k_descale;
                      move(op);
                    }),
              HasSubstr("looks like: rows of V have the scale of the other tensor ("));
  EXPECT_THAT(named("move: gather, batch: q0s5_q0s9",
                    [](OpParams& op) {
                      op.kv_move.k_dst =
                          static_cast<float*>(op.kv_move.k_dst) + op.kv_move.k_dst_stride_token;
                      op.kv_move.total_k -= 1;
                      static std::vector<int32_t> cu;
                      cu = {0, 5, 13};
                      op.kv_move.cu_seqlens = cu.data();
                      move(op);
                    }),
              HasSubstr("looks like: rows of K for slot s are written to slot s + 1 ("));
}

TEST(KvMove, WrongPlacesAreNamed) {
  const auto reason = [](const char* keys, const std::function<void(OpParams&)>& after) {
    const Verdict v = judged(move_case(keys), [&](OpParams& op) {
      move(op);
      after(op);
    });
    EXPECT_FALSE(v.pass) << keys;
    return v.reason;
  };
  EXPECT_THAT(reason(kMoves[0],
                     [](OpParams& op) {
                       const KvMoveParams& p = op.kv_move;
                       static_cast<float*>(p.k_dst)[p.block_pairs[1] * p.k_dst_stride_block + 16 + 8 + 3] = 7;
                     }),
              HasSubstr("row 1 head 1 channel 3: got 7, expected"));
  EXPECT_THAT(reason(kMoves[0],
                     [](OpParams& op) {  // a source
                       const KvMoveParams& p = op.kv_move;
                       static_cast<float*>(p.v_dst)[p.block_pairs[0] * p.v_dst_stride_block] = 7;
                     }),
              HasSubstr("must stay"));
  EXPECT_THAT(reason(kMoves[1],
                     [](OpParams& op) {  // the other pool
                       static_cast<float*>(const_cast<void*>(op.kv_move.k_src))[0] = 7;
                     }),
              HasSubstr("input k_src was overwritten"));
  EXPECT_THAT(reason(kMoves[5],
                     [](OpParams& op) {  // behind the last row
                       const KvMoveParams& p = op.kv_move;
                       static_cast<float*>(p.k_dst)[p.total_k * p.k_dst_stride_token] = 7;
                     }),
              HasSubstr("k_dst row 14 head 0 channel 0: got 7"));
  EXPECT_THAT(reason(kMoves[6],
                     [](OpParams& op) {  // a number next to the right one
                       auto* v = static_cast<uint32_t*>(op.kv_move.v_dst);
                       v[0] ^= 1;
                     }),
              HasSubstr("v_dst row 0 head 0 channel 0"));
}

TEST(KvMove, DestinationsAreOthersThanSourcesAndEachIsWrittenOnce) {
  for (const char* keys : {kMoves[0], kMoves[3], kMoves[4]}) {
    const Case c = move_case(keys);
    const WorkloadPlan p = plan_workload(c);
    std::set<int64_t> sources, destinations;
    for (std::size_t i = 0; i < p.block_pairs.size(); i += 2) {
      sources.insert(p.block_pairs[i]);
      EXPECT_TRUE(destinations.insert(p.block_pairs[i + 1]).second);
    }
    for (const int64_t d : destinations) EXPECT_EQ(sources.count(d), 0u);
    EXPECT_LT(sources.size(), destinations.size()) << "the last block of a sequence has two copies";
    EXPECT_EQ(std::ssize(p.block_pairs) / 2, Workload::shape_params(c).kv_move.num_pairs);
    EXPECT_EQ(destinations.count(p.stale_pair[1]), 0u);
    EXPECT_EQ(sources.count(p.stale_pair[1]), 0u);
    for (const int64_t source : sources) {
      for (int64_t r = 0; r < 4; ++r) EXPECT_GE(p.kv_owners[static_cast<std::size_t>(4 * source + r)].seq, 0);
    }
  }
}

/// Bytes that a launch of the case touches at least, counted one by one.
double counted_bytes(const Case& c) {
  const CaseParams& p = c.params;
  const WorkloadPlan plan = plan_workload(c);
  const double in =
      static_cast<double>(p.num_heads_kv) *
      static_cast<double>(p.head_dim * static_cast<int>(dtype_size(p.type_of_k())) +
                          (p.v_is_k_view ? 0 : p.dim_v() * static_cast<int>(dtype_size(p.type_of_v()))));
  std::set<int64_t> read;
  double tables = 0;
  for (std::size_t i = 0; i < plan.block_pairs.size(); i += 2) {
    for (int r = 0; r < p.block_size; ++r) read.insert(plan.block_pairs[i] * p.block_size + r);
    tables += 16;
  }
  for (std::size_t b = 0; p.gathers() && b < p.seqs.size(); ++b) {
    std::set<int32_t> entries;
    for (int32_t r = p.start_of(b); r < p.seqs[b].k; ++r) {
      const int64_t at = static_cast<int64_t>(b) * plan.block_table_stride + r / p.block_size;
      entries.insert(r / p.block_size);
      read.insert(int64_t{plan.block_table[static_cast<std::size_t>(at)]} * p.block_size + r % p.block_size);
    }
    tables += 4.0 * static_cast<double>(entries.size()) + (p.starts == Starts::kNone ? 4 : 8);
  }
  const double out = p.gathers() ? static_cast<double>(dtype_size(p.dtype)) * p.num_heads_kv *
                                       (p.head_dim + (p.v_is_k_view ? 0 : p.dim_v()))
                                 : in;
  return in * static_cast<double>(read.size()) + out * static_cast<double>(plan.slot_mapping.size()) + tables;
}

TEST(KvMove, CostsAreWhatIsReadAndWritten) {
  for (const char* keys : kMoves) {
    const Case c = move_case(keys);
    const CaseCost cost = cost_of(c.params);
    EXPECT_EQ(cost.bytes, counted_bytes(c)) << keys;
    EXPECT_EQ(cost.flop, 0);
    EXPECT_GE(cost.device_bytes, cost.written) << keys;
  }
}

TEST(KvMove, KeysThatContradictEachOtherAreRefused) {
  const auto refused = [](const std::string& keys) {
    try {
      move_case(keys);
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused("move: gather, kv_dtype: int8, batch: q0s5"), HasSubstr("write 'move: blocks'"));
  EXPECT_THAT(refused("kv: packed, batch: q0s5"), HasSubstr("write 'kv: paged'"));
  EXPECT_THAT(refused("v_is_k_view: true, kv_dtype: int8_k, batch: q0s5"), HasSubstr("v_is_k_view"));
  EXPECT_THAT(refused("page_layout: repeated, kv_dtype: int8, batch: q0s5"), HasSubstr("no int8 keys"));
  EXPECT_EQ(refused("move: blocks, kv_dtype: int8, batch: q7s5"), "");
  EXPECT_EQ(move_case("move: blocks, batch: q7s5").id, move_case("move: blocks, batch: q0s5").id);
}

}  // namespace
}  // namespace attnbench
