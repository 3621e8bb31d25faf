#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "harness/cases/cost.h"
#include "harness/cases/visible_keys.h"

namespace attnbench {
namespace {

int64_t brute_pairs(int q, int k, bool causal, int wl, int wr, int64_t* keys_seen) {
  int64_t pairs = 0;
  std::vector<bool> seen(static_cast<std::size_t>(k), false);
  for (int i = 0; i < q; ++i) {
    for (int j = 0; j < k; ++j) {
      const int diag = i + k - q;
      if (causal && j > diag) continue;
      if (!causal && wr >= 0 && j > diag + wr) continue;
      if (wl >= 0 && j < diag - wl) continue;
      ++pairs;
      seen[static_cast<std::size_t>(j)] = true;
    }
  }
  *keys_seen = std::count(seen.begin(), seen.end(), true);
  return pairs;
}

TEST(Cost, PairsAreExactForEveryMaskAndWindow) {
  for (int q = 0; q <= 9; ++q) {
    for (int k = 0; k <= 9; ++k) {
      for (const bool causal : {false, true}) {
        for (int wl = -1; wl <= 10; ++wl) {
          for (int wr = -1; wr <= 10; ++wr) {
            int64_t seen = 0;
            const int64_t pairs = brute_pairs(q, k, causal, wl, wr, &seen);
            EXPECT_EQ(visible_pairs({causal, wl, wr}, q, k), pairs)
                << q << " " << k << " " << causal << " " << wl << " " << wr;
            EXPECT_EQ(visible_keys_union({causal, wl, wr}, q, k).size(), seen)
                << q << " " << k << " " << causal << " " << wl << " " << wr;
          }
        }
      }
    }
  }
}

TEST(Cost, KeysOfAQueryAreThoseThatTheMaskLetsThrough) {
  for (const Mask& m :
       {Mask{}, Mask{true}, Mask{true, 2}, Mask{false, 3, 0}, Mask{false, -1, 2}, Mask{false, 0, 0},
        Mask{false, -1, -1, 1}, Mask{false, -1, -1, 4}, Mask{true, -1, -1, 3}, Mask{true, 1, -1, 4},
        Mask{false, 2, 1, 3}, Mask{true, -1, -1, 0, true}, Mask{true, 3, -1, 0, true}}) {
    for (const auto& [q, k] : {std::pair{1, 9}, std::pair{5, 5}, std::pair{9, 2}, std::pair{4, 0},
                               std::pair{7, 20}, std::pair{20, 20}}) {
      int64_t pairs = 0;
      for (int i = 0; i < q; ++i) {
        const KeyRange seen = visible_keys(m, q, k, i);
        pairs += seen.size();
        EXPECT_LE(seen.begin, seen.end);
        for (int j = 0; j < k; ++j) {
          const int diag = m.top_left ? i : i + k - q;
          const int distance = j - diag;
          const bool right = m.causal ? distance <= 0 : m.window_right < 0 || distance <= m.window_right;
          const bool left = m.window_left < 0 || -distance <= m.window_left;
          const bool chunk = m.chunk == 0 || (diag >= 0 && j / m.chunk == diag / m.chunk);
          EXPECT_EQ(seen.contains(j), left && right && chunk) << q << " " << k << " " << i << " " << j;
        }
      }
      EXPECT_EQ(visible_keys_union(m, q, k).end, q == 0 ? k : visible_keys(m, q, k, q - 1).end);
      EXPECT_EQ(visible_pairs(m, q, k), pairs) << q << " " << k << " chunk " << m.chunk;
    }
  }
  EXPECT_EQ(visible_keys_union({}, 0, 7).begin, 7) << "no query: nothing is seen";
}

/// Row-key products of one head, counted pair by pair. A block of a tile counts whole if one of its pairs is
/// visible.
int64_t brute_executed(const SeqLen& s, const CaseParams& p, const Tile& t) {
  std::set<std::pair<int64_t, int64_t>> touched;
  for (int64_t i = 0; i < s.q; ++i) {
    for (int64_t j = 0; j < s.k; ++j) {
      const int64_t diagonal = p.causal.top_left ? i : i + s.k - s.q;
      const int64_t right = p.causal ? 0 : p.window_right;
      if (right >= 0 && j > diagonal + right) continue;
      if (p.window_left >= 0 && j < diagonal - p.window_left) continue;
      touched.emplace(i / t.tokens, j / t.keys);
    }
  }
  return static_cast<int64_t>(touched.size()) * t.rows * t.keys;
}

TEST(Cost, ExecutedFlopMatchesBruteForce) {
  for (const Tile& t : {Tile{4, 2, 8, 5}, Tile{3, 1, 4, 4}, Tile{1, 1, 1, 1}}) {
    for (const CausalMask causal : {CausalMask(false), CausalMask(true), CausalMask(true, true)}) {
      for (const int left : {-1, 0, 3, 11}) {
        for (const int right : {-1, 0, 2}) {
          CaseParams p;
          p.num_heads_q = 4;
          p.num_heads_kv = 2;
          p.head_dim = 8;
          p.head_dim_v = 6;
          p.causal = causal;
          p.window_left = left;
          p.window_right = right;
          int64_t products = 0;
          for (const SeqLen s : {SeqLen{1, 9}, SeqLen{13, 13}, SeqLen{9, 2}, SeqLen{5, 30}, SeqLen{0, 7}}) {
            p.seqs.push_back(s);
            products += brute_executed(s, p, t);
          }
          EXPECT_EQ(executed_flop(p, t), 2.0 * (8 + 6) * 4 / t.heads * static_cast<double>(products))
              << t.tokens << " " << causal.on << causal.top_left << " " << left << " " << right;
          EXPECT_GE(executed_flop(p, t), cost_of(p).flop);
        }
      }
    }
  }
  CaseParams p;
  p.seqs = {{4, 4}};
  EXPECT_EQ(executed_flop(p, {}), 0) << "a kernel that does not tell";
  p.op = Op::kKvAppend;
  EXPECT_EQ(executed_flop(p, {1, 1, 1, 1}), 0);
}

TEST(Cost, CausalMatchesTheTextbookFormula) {
  const int64_t q = 3000, k = 70000;
  EXPECT_EQ(visible_pairs({.causal = true}, q, k), q * k - q * (q - 1) / 2);
}

TEST(Cost, AttentionCountsTrueLengths) {
  CaseParams p;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.head_dim = 8;
  p.seqs = {{3, 3}, {1, 5}};
  const CaseCost c = cost_of(p);
  EXPECT_EQ(c.total_q, 4);
  EXPECT_EQ(c.total_k, 8);
  EXPECT_EQ(c.pairs, 9 + 5);
  EXPECT_EQ(c.flop, 4.0 * 4 * 8 * 14);
  // q and o: 2 * 2 B * 4 * 8 * 4 tokens; k and v: 2 * 2 B * 2 * 8 * 8 tokens; lse: 4 B * 4 * 4 tokens.
  EXPECT_EQ(c.bytes, 512 + 512 + 64);
}

TEST(Cost, WidthsOfValuesCount) {
  CaseParams p;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.head_dim = 8;
  p.head_dim_v = 6;
  p.seqs = {{3, 3}, {1, 5}};
  CaseCost c = cost_of(p);
  EXPECT_EQ(c.flop, 2.0 * 4 * (8 + 6) * 14);
  // q and o: 2 B * 4 * (8 + 6) * 4 tokens; k and v: 2 B * 2 * (8 + 6) * 8 tokens; lse as above.
  EXPECT_EQ(c.bytes, 448 + 448 + 64);
  EXPECT_EQ(c.device_bytes, c.bytes);
  p.v_is_k_view = true;
  c = cost_of(p);
  EXPECT_EQ(c.flop, 2.0 * 4 * (8 + 6) * 14);
  EXPECT_EQ(c.bytes, 448 + 256 + 64) << "the keys once";
}

TEST(Cost, QuantisedInputsAndProbabilities) {
  CaseParams p;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.head_dim = 8;
  p.seqs = {{3, 3}, {1, 5}};
  p.q_dtype = DType::kInt8;
  p.kv_dtype = KvDType::kInt8;
  // For 4 heads and 4 tokens, q takes (8 + 4) B, o 16 B and lse 4 B. For 2 heads and 8 tokens, k takes
  // (8 + 4) B and v 8 B. Descales of v take 4 B for each of 2 heads and 8 channels.
  EXPECT_EQ(cost_of(p).bytes, 16 * (12 + 16 + 4) + 16 * (12 + 8) + 64);
  p.kv_dtype = KvDType::kInt8K;
  EXPECT_EQ(cost_of(p).bytes, 16 * (12 + 16 + 4) + 16 * (12 + 16));
  p.q_dtype = DType::kE4m3;
  p.kv_dtype = KvDType::kE4m3;
  const double e4m3 = 16 * (8 + 16 + 4) + 16 * (8 + 8) + 4 * 3 * 2 * 2;
  EXPECT_EQ(cost_of(p).bytes, e4m3);
  EXPECT_EQ(cost_of(p).written, 16 * (16 + 4));
  p.probs = true;  // for 4 heads, 4 tokens and 5 keys
  EXPECT_EQ(cost_of(p).bytes, e4m3 + 4.0 * 4 * 4 * 5);
  EXPECT_EQ(cost_of(p).written, 16 * (16 + 4) + 4.0 * 4 * 4 * 5);
}

TEST(Cost, AppendReadsAndWritesEachNewRowOnce) {
  CaseParams p;
  p.op = Op::kKvAppend;
  p.kv = KvSource::kPaged;
  p.num_heads_kv = 2;
  p.head_dim = 8;
  p.padding_tokens = 3;
  p.seqs = {{2, 10}};
  EXPECT_EQ(cost_of(p).bytes,
            2 /*tokens*/ * 2 /*heads*/ * 8 * 2 /*bytes*/ * 2 /*k, v*/ * 2 /*read, write*/ + 8 * 5);
}

TEST(Cost, QuantisingAppendCountsItsTypesAndScales) {
  CaseParams p;
  p.op = Op::kKvAppend;
  p.kv = KvSource::kPaged;
  p.num_heads_kv = 2;
  p.head_dim = 8;
  p.padding_tokens = 3;
  p.seqs = {{2, 10}};
  const double elements = 2 /*tokens*/ * 2 /*heads*/ * 8;
  const double read = 2 * 2 * elements + 8 * 5;
  p.kv_dtype = KvDType::kE4m3;
  EXPECT_EQ(cost_of(p).written, 2 * elements);
  EXPECT_EQ(cost_of(p).bytes, read + 2 * elements + 2 * 4 * 2) << "a scale per head of K and of V";
  p.kv_dtype = KvDType::kInt8;
  EXPECT_EQ(cost_of(p).bytes, read + 2 * elements + 2 * 4 * 2 * 8) << "and per channel";
  p.scales = Scales::kPerTokenK;
  EXPECT_EQ(cost_of(p).written, 2 * elements + 4 * 2 * 2);
  EXPECT_EQ(cost_of(p).bytes, read + cost_of(p).written + 4 * 2 * 8);
  p.scales = Scales::kPerToken;
  EXPECT_EQ(cost_of(p).written, 2 * elements + 2 * 4 * 2 * 2);
  EXPECT_EQ(cost_of(p).bytes, read + cost_of(p).written);
  p.kv_dtype = KvDType::kInt8K;
  EXPECT_EQ(cost_of(p).written, elements + 2 * elements + 4 * 2 * 2);
  EXPECT_EQ(cost_of(p).bytes, read + cost_of(p).written);
  EXPECT_EQ(cost_of(p).device_bytes, 16 * 2 * (8 + 2 * 8 + 4) + 2 * 2 * 2 * 8 * 5)
      << "a block of 16 slots, and five tokens";
}

TEST(Cost, ReturnedQueriesAreReadAndWritten) {
  CaseParams p;
  p.op = Op::kKvAppend;
  p.kv = KvSource::kPaged;
  p.num_heads_q = 6;
  p.num_heads_kv = 2;
  p.head_dim = 8;
  p.padding_tokens = 3;
  p.seqs = {{2, 10}};
  p.rotary = Rotary::kNeox;
  const CaseCost plain = cost_of(p);
  p.positions64 = true;
  EXPECT_EQ(cost_of(p).bytes, plain.bytes + 4 * 2);
  p.positions64 = false;
  const double elements = 2 /*tokens*/ * 6 /*heads*/ * 8;
  p.query_out = QueryOut::kSame;
  EXPECT_EQ(cost_of(p).written, plain.written + 2 * elements);
  EXPECT_EQ(cost_of(p).bytes, plain.bytes + 2 * 2 * elements);
  EXPECT_EQ(cost_of(p).device_bytes, plain.device_bytes + 2 * 2 * elements / 2 * 5) << "padding, too";
  p.query_out = QueryOut::kE4m3;
  EXPECT_EQ(cost_of(p).written, plain.written + elements);
  EXPECT_EQ(cost_of(p).bytes, plain.bytes + 3 * elements);
}

TEST(Cost, BlocksAreThoseThatHoldAVisibleKey) {
  CaseParams p;
  p.kv = KvSource::kPaged;
  p.num_heads_q = p.num_heads_kv = 1;
  p.head_dim = 8;
  for (const int block_size : {1, 3, 16}) {
    for (int q = 0; q <= 5; ++q) {
      for (int k = 0; k <= 40; ++k) {
        for (const bool causal : {false, true}) {
          for (const int wl : {-1, 0, 2, 7, 50}) {
            p.block_size = block_size;
            p.seqs = {{q, k}};
            p.causal = causal;
            p.window_left = wl;
            std::set<int> blocks;
            int64_t keys = 0;
            for (int j = 0; j < k; ++j) {
              bool seen = false;
              for (int i = 0; i < q; ++i) {
                const int diag = i + k - q;
                seen = seen || ((!causal || j <= diag) && (wl < 0 || j >= diag - wl));
              }
              keys += seen;
              if (seen) blocks.insert(j / block_size);
            }
            const double expected = 2 * 2 * 8 * q + 2 * 2 * 8 * static_cast<double>(keys) + 4 * q +
                                    4 * static_cast<double>(blocks.size());
            ASSERT_EQ(cost_of(p).bytes, expected)
                << q << " " << k << " " << causal << " " << wl << " " << block_size;
            ASSERT_EQ(cost_of(p).written, (2 * 8 + 4) * q);
          }
        }
      }
    }
  }
}

TEST(Cost, ASecondQueryIsReadAndMultipliedWithV) {
  CaseParams p;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.head_dim = 8;
  p.head_dim_v = 32;
  p.seqs = {{3, 20}, {1, 5}};
  const CaseCost plain = cost_of(p);
  p.qv = true;
  const CaseCost with = cost_of(p);
  EXPECT_EQ(with.pairs, plain.pairs);
  EXPECT_EQ(with.flop - plain.flop, 2 * 4 * 32 * plain.pairs);
  EXPECT_EQ(with.bytes - plain.bytes, 4 * 4 * 32 * 2);
  EXPECT_EQ(executed_flop(p, {1, 1, 1, 1}), with.flop);
}

TEST(Cost, EveryKvSourceAndQuantisationCountsItsOwnBytes) {
  CaseParams p;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.head_dim = 8;
  p.seqs = {{3, 20}, {1, 5}};
  const double kv = 2 * 2 * 8 * 25,
               rest = 2 * 4 * 8 * 4 * 2 + 4 * 4 * 4;  // elements of K and V; bytes of Q, O, LSE
  EXPECT_EQ(cost_of(p).bytes, 2 * kv + rest);
  p.gap_tokens = 7;  // unused rows are no traffic
  EXPECT_EQ(cost_of(p).bytes, 2 * kv + rest);
  p.gap_tokens = 0;
  const double dense = cost_of(p).device_bytes;
  p.gap_queries = 5;
  EXPECT_EQ(cost_of(p).bytes, 2 * kv + rest);
  EXPECT_EQ(cost_of(p).total_q, 4);
  EXPECT_GT(cost_of(p).device_bytes, dense);
  p.gap_queries = 0;
  p.kv = KvSource::kContiguous;
  p.leftpad = 9;
  EXPECT_EQ(cost_of(p).bytes, 2 * kv + rest);
  p.kv = KvSource::kPaged;
  p.block_size = 16;
  EXPECT_EQ(cost_of(p).bytes, 2 * kv + rest + 4 * (2 + 1));
  p.leftpad = 15;
  EXPECT_EQ(cost_of(p).bytes, 2 * kv + rest + 4 * (3 + 2)) << "rows 15 to 34 and 14 to 18 of blocks of 16";
  p.leftpad = 9;
  p.kv_dtype = KvDType::kE4m3;
  EXPECT_EQ(cost_of(p).bytes, kv + rest + 4 * (2 + 1) + 2 * 4 * 2 * 2)
      << "and a descale per sequence and head";
  p.q_dtype = DType::kE4m3;
  EXPECT_EQ(cost_of(p).bytes, kv + rest - 4 * 8 * 4 + 4 * (2 + 1) + 3 * 4 * 2 * 2);
  p.dtype = DType::kFp32;
  p.q_dtype.reset();
  p.kv_dtype = KvDType::kSame;
  EXPECT_EQ(cost_of(p).bytes, 4 * kv + 4 * 4 * 8 * 4 * 2 + 4 * 4 * 4 + 4 * (2 + 1));
}

TEST(Cost, AppendInTheCallReadsAndWritesNewRowsAndReadsThemNoSecondTime) {
  CaseParams p;
  p.kv = KvSource::kPaged;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.head_dim = 8;
  p.causal = true;
  p.seqs = {{2, 10}, {1, 40}, {0, 7}};
  const double row = 2 /*k, v*/ * 2 /*heads*/ * 8 * 2 /*bytes*/;
  const CaseCost plain = cost_of(p);
  p.append = true;
  EXPECT_EQ(cost_of(p).bytes, plain.bytes + 3 * row)
      << "read from the new tensors in place of the cache; written";
  EXPECT_EQ(cost_of(p).written, plain.written + 3 * row);
  EXPECT_EQ(cost_of(p).device_bytes, plain.device_bytes + 3 * row);
  EXPECT_EQ(cost_of(p).flop, plain.flop);
  p.new_tokens = 9;  // 9, 9 and 7 new rows; no query sees those of the last sequence
  EXPECT_EQ(cost_of(p).bytes, plain.bytes + (25 + 7) * row);
  const double before = cost_of(p).bytes;
  p.rotary = Rotary::kNeox;  // positions 1 to 9, 31 to 39, 0 to 6: 19 different ones
  EXPECT_EQ(cost_of(p).bytes, before + 19 * 2 * 4 * 4);
  p.new_tokens = 1;
  p.rotary_q = RotaryQ::kFromCacheSeqlens;  // positions 9 and 10, 39, 6
  const double turned = cost_of(p).bytes;
  p.rotary = Rotary::kNone;
  EXPECT_EQ(turned, cost_of(p).bytes + 4 * 2 * 4 * 4);
}

TEST(Cost, RotaryReadsAPositionPerTokenAndATableRowPerPosition) {
  CaseParams p;
  p.op = Op::kKvAppend;
  p.kv = KvSource::kPaged;
  p.num_heads_kv = 2;
  p.head_dim = 8;
  p.seqs = {{2, 10}, {3, 11}, {0, 50}, {4, 4}};  // positions 8 and 9, 8 to 10, none, 0 to 3: 7 different ones
  const double plain = cost_of(p).bytes;
  const double plain_memory = cost_of(p).device_bytes;
  p.rotary = Rotary::kNeox;
  p.rotary_dim = 6;
  EXPECT_EQ(cost_of(p).bytes, plain + 4 * 9 /*tokens*/ + 7 * 2 /*tables*/ * 3 /*pairs*/ * 4 /*bytes*/);
  EXPECT_EQ(cost_of(p).device_bytes, plain_memory + 50 * 2 * 3 * 4);
}

TEST(Cost, ScalesOfBlocksAreReadWithTheirRows) {
  CaseParams p;
  p.num_heads_q = 4;
  p.num_heads_kv = 2;
  p.head_dim = 64;
  p.causal = true;
  p.seqs = {{2, 10}, {1, 40}};
  const double q_and_o = 3 * 4 * (2 * 64 * 2 + 4);
  const double rows = 50 * 2 /*heads*/;
  EXPECT_EQ(cost_of(p).bytes, q_and_o + rows * 2 * 64 * 2);
  p.kv_dtype = KvDType::kNvfp4;
  EXPECT_EQ(cost_of(p).bytes, q_and_o + rows * 2 * (32 + 4) + 2 * 4 /*descales*/);
  EXPECT_EQ(cost_of(p).device_bytes, q_and_o + rows * 2 * (32 + 4));
  EXPECT_NE(cost_of(p).formula.find(" + 9/16*(D+Dv)*Hkv*Kvis"), std::string::npos);
  p.head_dim_v = 32;
  EXPECT_EQ(cost_of(p).bytes, 3 * 4 * (2 * (64 + 32) + 4) + rows * (32 + 4 + 16 + 2) + 2 * 4);
  p.v_is_k_view = true;
  EXPECT_EQ(cost_of(p).bytes, 3 * 4 * (2 * (64 + 32) + 4) + rows * (32 + 4) + 2 * 4);

  p.kv_dtype = KvDType::kDsMla;
  p.head_dim = 576;
  p.head_dim_v = 512;
  p.num_heads_kv = 1;
  EXPECT_EQ(cost_of(p).bytes, 3 * 4 * (2 * (576 + 512) + 4) + 50 * 656);
  EXPECT_EQ(cost_of(p).device_bytes, cost_of(p).bytes);
  EXPECT_NE(cost_of(p).formula.find(" + (33/32*Dv+2*(D-Dv))*Hkv*Kvis"), std::string::npos);
}

}  // namespace
}  // namespace attnbench
