// What the profiles of values promise about scores, computed with the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/judge/case_inputs.h"
#include "harness/judge/sample.h"

namespace attnbench {
namespace {

struct RowScores {
  reference::RowId id;
  double least, greatest, lse;
};

/// The scores and the LSE of every row of a small causal case.
std::vector<RowScores> scores_of(Profile profile, DType dtype, int head_dim) {
  Case c;
  c.params.dtype = dtype;
  c.params.data = profile;
  c.params.num_heads_q = 4;
  c.params.num_heads_kv = 2;
  c.params.head_dim = head_dim;
  c.params.causal = true;
  c.params.seqs = {{4, 200}, {70, 70}};
  const std::vector<unsigned char> none;
  const CaseInputs inputs(c, none);
  const reference::Problem problem = problem_of(c);
  std::vector<RowScores> out;
  const auto d = static_cast<std::size_t>(head_dim);
  reference::attend(problem, inputs, reference::all_rows(problem), 1, [&](const reference::RowBlock& block) {
    for (std::size_t r = 0; r < block.rows.size(); ++r) {
      const reference::RowId id = block.rows[r];
      const int keys = static_cast<int>(block.keys[r]);
      std::vector<double> q(d), k(d * static_cast<std::size_t>(keys));
      inputs.load_q(id.seq, id.head, id.pos, id.pos + 1, q.data());
      inputs.load_k(id.seq, id.head / 2, 0, keys, k.data());
      RowScores row{id, INFINITY, -INFINITY, block.lse[r]};
      for (std::size_t j = 0; j < static_cast<std::size_t>(keys); ++j) {
        double dot = 0;
        for (std::size_t ch = 0; ch < d; ++ch) dot += q[ch] * k[j * d + ch];
        row.least = std::min(row.least, dot * problem.softmax_scale);
        row.greatest = std::max(row.greatest, dot * problem.softmax_scale);
      }
      out.push_back(row);
    }
  });
  return out;
}

TEST(Profiles, LargeHasLogitsOfSomeHundreds) {
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    for (const int head_dim : {64, 128, 256}) {
      double least = 0, greatest = 0;
      for (const RowScores& row : scores_of(Profile::kLarge, dtype, head_dim)) {
        least = std::min(least, row.least);
        greatest = std::max(greatest, row.greatest);
      }
      EXPECT_GT(greatest, 300) << dtype_name(dtype) << " " << head_dim;
      EXPECT_LT(greatest, 1000) << dtype_name(dtype) << " " << head_dim;
      EXPECT_LT(least, -300) << dtype_name(dtype) << " " << head_dim;
    }
  }
}

TEST(Profiles, HugeHasRowsOfEachKind) {
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    for (const int head_dim : {40, 64, 128, 256}) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + std::to_string(head_dim));
      const double unit = std::sqrt(head_dim);
      for (const RowScores& row : scores_of(Profile::kHuge, dtype, head_dim)) {
        switch ((row.id.seq + row.id.pos + row.id.head) % 4) {
          case 0:  // a maximum that starts at or above -5e4 is wrong
            EXPECT_LT(row.greatest, -5e4 - 104);
            EXPECT_LT(row.lse, -5e4 - 104);
            EXPECT_LT(row.greatest - row.least, 40) << "several keys carry the row";
            break;
          case 1:
            EXPECT_NEAR(row.least, 8192 * unit, 40);
            break;
          case 2: {
            EXPECT_NEAR(row.least, -4096 * unit, 40);
            const int last = row.id.seq == 0 ? 196 + row.id.pos : row.id.pos;  // last key that the row sees
            EXPECT_NEAR(row.greatest, (last >= 37 ? 4096 : -4096) * unit, 40) << "one key far ahead";
            break;
          }
          default:
            EXPECT_LT(std::max(row.greatest, -row.least), 20);
        }
      }
    }
  }
}

}  // namespace
}  // namespace attnbench
