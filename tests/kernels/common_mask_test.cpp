// Key ranges compared with the mask's definition, key by key.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/common/mask.h"
#include "kernels/contract/attention_backward_params.h"

namespace attnbench {
namespace {

constexpr int32_t kMax = std::numeric_limits<int32_t>::max();

bool visible(const AttentionParams& p, int64_t i, int64_t j, int64_t q_len, int64_t k_len) {
  const int64_t diagonal = p.features & kTopLeft ? i : i + k_len - q_len;
  const int64_t right = p.causal ? 0 : p.window_right;
  if (p.attention_chunk > 0 && (diagonal < 0 || j / p.attention_chunk != diagonal / p.attention_chunk))
    return false;
  return (p.window_left < 0 || j >= diagonal - p.window_left) && (right < 0 || j <= diagonal + right);
}

TEST(CommonMask, RangesMatchTheDefinition) {
  AttentionParams p{};
  for (const int32_t q_len : {1, 2, 5, 9}) {
    for (const int32_t k_len : {0, 1, 4, 5, 6, 12}) {
      for (const int32_t causal : {0, 1, 2}) {  // 2: from the top left
        for (const int32_t left : {-1, 0, 1, 3, 100, kMax}) {
          for (const int32_t right : {-1, 0, 2, 100, kMax}) {
            p.causal = causal;
            p.features = causal == 2 ? uint64_t{kTopLeft} : 0;
            p.window_left = left;
            p.window_right = right;
            for (int32_t i = 0; i < q_len; ++i) {
              const KeyBounds b = visible_keys(p, i, q_len, k_len);
              ASSERT_LE(0, b.begin);
              ASSERT_LE(b.begin, b.end);
              ASSERT_LE(b.end, k_len);
              for (int32_t j = 0; j < k_len; ++j) {
                ASSERT_EQ(visible(p, i, j, q_len, k_len), j >= b.begin && j < b.end)
                    << "q " << q_len << " k " << k_len << " causal " << causal << " window " << left << ","
                    << right << " i " << i << " j " << j;
              }
            }
          }
        }
      }
    }
  }
}

TEST(CommonMask, ChunksMatchTheDefinition) {
  AttentionParams p{};
  p.features = kAttentionChunk;
  for (const int32_t chunk : {1, 2, 3, 7, kMax}) {
    for (const int32_t causal : {0, 1}) {
      for (const int32_t left : {-1, 0, 3}) {
        for (const int32_t right : {-1, 0, 2}) {
          for (const int32_t q_len : {1, 5, 9}) {
            for (const int32_t k_len : {0, 1, 4, 6, 14}) {
              p.attention_chunk = chunk;
              p.causal = causal;
              p.window_left = left;
              p.window_right = right;
              for (int32_t first = 0; first < q_len; ++first) {
                for (int32_t last = first; last < q_len; ++last) {
                  KeyBounds want{k_len, 0};
                  for (int32_t j = 0; j < k_len; ++j) {
                    bool any = false;
                    for (int32_t i = first; i <= last; ++i) any = any || visible(p, i, j, q_len, k_len);
                    if (any) want = {std::min(want.begin, j), j + 1};
                  }
                  const KeyBounds got = visible_keys_of_rows(p, first, last, q_len, k_len);
                  if (want.begin >= want.end) {
                    ASSERT_EQ(got.begin, got.end) << "chunk " << chunk << " rows " << first << ".." << last;
                    continue;
                  }
                  ASSERT_EQ(got.begin, want.begin) << "chunk " << chunk << " rows " << first << ".." << last;
                  ASSERT_EQ(got.end, want.end) << "chunk " << chunk << " rows " << first << ".." << last;
                }
              }
            }
          }
        }
      }
    }
  }
}

/// The rows of a tile of keys: all that see one of them, and no row outside of the first and the last such.
TEST(CommonMask, RowsThatSeeATileOfKeys) {
  AttentionBackwardParams p{};
  for (const int32_t causal : {0, 1, 2}) {  // 2: from the top left
    p.features = causal == 2 ? uint64_t{kTopLeft} : 0;
    for (const int32_t left : {-1, 0, 3, kMax}) {
      for (const int32_t right : {-1, 0, 2, kMax}) {
        for (const int32_t q_len : {1, 6, 15}) {
          for (const int32_t k_len : {1, 4, 10, 40}) {
            p.causal = causal;
            p.window_left = left;
            p.window_right = right;
            for (int32_t first = 0; first < k_len; ++first) {
              for (int32_t last = first; last < k_len; ++last) {
                RowBounds want{q_len, 0};
                for (int32_t i = 0; i < q_len; ++i) {
                  const KeyBounds seen = visible_keys(p, i, q_len, k_len);
                  if (seen.begin > last || seen.end <= first) continue;
                  want = {std::min(want.begin, i), std::max(want.end, i + 1)};
                }
                const RowBounds got = rows_that_see(p, first, last, q_len, k_len);
                if (want.begin >= want.end) {
                  ASSERT_EQ(got.begin, got.end) << "keys " << first << ".." << last;
                  continue;
                }
                ASSERT_EQ(got.begin, want.begin)
                    << "keys " << first << ".." << last << " q " << q_len << " k " << k_len;
                ASSERT_EQ(got.end, want.end)
                    << "keys " << first << ".." << last << " q " << q_len << " k " << k_len;
              }
            }
          }
        }
      }
    }
  }
}

TEST(CommonMask, RangeOfATileHoldsEveryRowsAndIsTight) {
  AttentionParams p{};
  for (const int32_t left : {-1, 0, 3, kMax}) {
    for (const int32_t right : {-1, 0, 2, kMax}) {
      for (const int32_t q_len : {6, 15}) {
        for (const int32_t k_len : {0, 4, 10, 40}) {
          p.window_left = left;
          p.window_right = right;
          for (int32_t first = 0; first < q_len; ++first) {
            for (int32_t last = first; last < q_len; ++last) {
              int32_t begin = k_len;
              int32_t end = 0;
              for (int32_t i = first; i <= last; ++i) {
                const KeyBounds row = visible_keys(p, i, q_len, k_len);
                if (row.begin == row.end) continue;
                begin = std::min(begin, row.begin);
                end = std::max(end, row.end);
              }
              const KeyBounds tile = visible_keys_of_rows(p, first, last, q_len, k_len);
              if (begin >= end) {
                EXPECT_EQ(tile.begin, tile.end);
              } else {
                EXPECT_EQ(tile.begin, begin);
                EXPECT_EQ(tile.end, end);
              }
            }
          }
        }
      }
    }
  }
}

TEST(CommonMask, RangeOfASequenceIsThatOfAllItsQueries) {
  AttentionParams p{};
  for (const int32_t left : {-1, 0, 1, 3, 100}) {
    for (const int32_t right : {-1, 0, 2}) {
      p.window_left = left;
      p.window_right = right;
      for (int32_t q_len = 1; q_len < 9; ++q_len) {
        for (int32_t k_len = 0; k_len < 14; ++k_len) {
          const KeyBounds rows = visible_keys_of_rows(p, 0, q_len - 1, q_len, k_len);
          const KeyBounds all = visible_keys_of_sequence(left, q_len, k_len);
          EXPECT_EQ(all.begin, rows.begin) << left << " " << right << " " << q_len << " " << k_len;
          EXPECT_EQ(all.end, rows.end) << left << " " << right << " " << q_len << " " << k_len;
        }
      }
    }
  }
}

TEST(CommonMask, LargestLengthsDoNotOverflow) {
  AttentionParams p{};
  p.window_left = kMax;
  p.window_right = kMax;
  const KeyBounds all = visible_keys(p, kMax - 1, kMax, kMax);
  EXPECT_EQ(all.begin, 0);
  EXPECT_EQ(all.end, kMax);
  p.causal = 1;
  const KeyBounds none = visible_keys(p, 0, kMax, 1);
  EXPECT_EQ(none.begin, none.end);
}

}  // namespace
}  // namespace attnbench
