#include "harness/workload/merge_inputs.h"

#include <cmath>
#include <limits>
#include <stdexcept>

#include "harness/error.h"
#include "kernels/contract/philox.h"

namespace attnbench {
namespace {

constexpr uint32_t kLseStream = 0x9u << 24;  // differs from every Tensor's (values.h)
constexpr int64_t kLsePad = 3;

}  // namespace

int64_t merge_rows(const CaseParams& p) {
  int64_t rows = 0;
  for (const SeqLen& s : p.seqs) rows += s.q;
  return rows;
}

float partial_lse_of(const Case& c, int state, int64_t row, int head) {
  const Philox4 r = philox4x32(kLseStream | static_cast<uint32_t>(state), static_cast<uint32_t>(head),
                               static_cast<uint32_t>(row), 0, c.seed);
  if (r.x[0] < c.params.empty_states * 0x1p32) return -std::numeric_limits<float>::infinity();
  const Profile data = c.params.data;
  const bool wide = data == Profile::kPeaked || data == Profile::kLarge;
  return bell(r.x[1]) * (data == Profile::kHuge ? 32768.0f : wide ? 32.0f : 4.0f);
}

LseStrides partial_lse_strides(const CaseParams& p) {
  const int64_t rows = merge_rows(p);
  const int64_t heads = p.num_heads_q;
  if (p.lse_token_major) return {rows * (heads + kLsePad) + kLsePad, heads + kLsePad, 1};
  return {heads * (rows + kLsePad) + kLsePad, 1, rows + kLsePad};
}

std::vector<float> partial_lse_tensor(const Case& c) {
  const LseStrides stride = partial_lse_strides(c.params);
  const int64_t rows = merge_rows(c.params);
  std::vector<float> lse(static_cast<std::size_t>(stride.state * c.params.states),
                         std::numeric_limits<float>::quiet_NaN());
  for (int s = 0; s < c.params.states; ++s) {
    for (int64_t t = 0; t < rows; ++t) {
      for (int h = 0; h < c.params.num_heads_q; ++h) {
        lse[static_cast<std::size_t>(s * stride.state + t * stride.token + h * stride.head)] =
            partial_lse_of(c, s, t, h);
      }
    }
  }
  return lse;
}

std::vector<RowOwner> partial_out_owners(const Case& c) {
  const int64_t rows = merge_rows(c.params);
  const int64_t heads = c.params.num_heads_q;
  if (rows * heads > std::numeric_limits<int32_t>::max()) {
    throw TooLarge("rows * heads of the states are past the 32-bit limit of a row's number");
  }
  std::vector<RowOwner> owners;
  owners.reserve(static_cast<std::size_t>(rows * heads * c.params.states));
  for (int s = 0; s < c.params.states; ++s) {
    for (int64_t t = 0; t < rows; ++t) {
      for (int h = 0; h < heads; ++h) {
        const bool empty = std::isinf(partial_lse_of(c, s, t, h));
        owners.push_back(empty ? RowOwner{-1, -1} : RowOwner{s, static_cast<int32_t>(t * heads + h)});
      }
    }
  }
  return owners;
}

}  // namespace attnbench
