#include "harness/ops/merge_states/tensors_states.h"

#include <cmath>
#include <limits>

#include "harness/error.h"
#include "kernels/contract/philox.h"

namespace attnbench {
namespace {

constexpr uint32_t kLseStream = 0x9u << 24;  // differs from every Tensor's (values.h)
constexpr uint32_t kCountStream = 0xcu << 24;
constexpr int64_t kLsePad = 3;

}  // namespace

int64_t merge_rows(const CaseParams& p) {
  int64_t rows = 0;
  for (const SeqLen& s : p.seqs) rows += s.q;
  return rows;
}

int32_t states_of_row(const Case& c, int64_t row) {
  const int32_t most = c.params.states;
  if (!c.params.ragged_states || row == 0) return most;
  const uint64_t r = philox4x32(kCountStream, 0, static_cast<uint32_t>(row), 0, c.seed).x[0];
  return static_cast<int32_t>((r * (static_cast<uint64_t>(most) + 1)) >> 32);
}

std::vector<int32_t> state_indptr_of(const Case& c) {
  std::vector<int32_t> indptr = {0};
  int64_t all = 0;
  for (int64_t t = 0; t < merge_rows(c.params); ++t) {
    all += states_of_row(c, t);
    if (all > std::numeric_limits<int32_t>::max())
      throw TooLarge("the number of states of all rows is past the 32-bit limit of state_indptr");
    indptr.push_back(static_cast<int32_t>(all));
  }
  return indptr;
}

float partial_lse_of(const Case& c, int state, int64_t row, int head) {
  const Philox4 r = philox4x32(kLseStream | static_cast<uint32_t>(state), static_cast<uint32_t>(head),
                               static_cast<uint32_t>(row), 0, c.seed);
  if (r.x[0] < c.params.empty_states * 0x1p32) {
    const EmptyLse how = c.params.empty_lse;
    const bool plus = how == EmptyLse::kPlusInf || (how == EmptyLse::kBoth && r.x[2] % 2 == 0);
    return plus ? std::numeric_limits<float>::infinity() : -std::numeric_limits<float>::infinity();
  }
  const Profile data = c.params.data;
  const bool wide = data == Profile::kPeaked || data == Profile::kLarge;
  return bell(r.x[1]) * (data == Profile::kHuge ? 32768.0f : wide ? 32.0f : 4.0f);
}

LseStrides partial_lse_strides(const CaseParams& p, bool padded) {
  const int64_t rows = merge_rows(p);
  const int64_t heads = p.num_heads_q;
  const int64_t pad = p.lse_dense && !padded ? 0 : kLsePad;
  if (p.ragged_states) return {heads + pad, 0, 1};
  if (p.lse_token_major) return {rows * (heads + pad) + pad, heads + pad, 1};
  return {heads * (rows + pad) + pad, 1, rows + pad};
}

std::vector<float> partial_lse_tensor(const Case& c, bool padded) {
  const LseStrides stride = partial_lse_strides(c.params, padded);
  const int64_t rows = merge_rows(c.params);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  if (c.params.ragged_states) {
    const std::vector<int32_t> indptr = state_indptr_of(c);
    std::vector<float> lse(static_cast<std::size_t>(stride.state * indptr.back()), nan);
    for (int64_t t = 0; t < rows; ++t) {
      for (int s = 0; s < states_of_row(c, t); ++s) {
        for (int h = 0; h < c.params.num_heads_q; ++h) {
          const int64_t state = indptr[static_cast<std::size_t>(t)] + s;
          lse[static_cast<std::size_t>(state * stride.state + h * stride.head)] = partial_lse_of(c, s, t, h);
        }
      }
    }
    return lse;
  }
  std::vector<float> lse(static_cast<std::size_t>(stride.state * c.params.states), nan);
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
  const auto add = [&](int s, int64_t t) {
    for (int h = 0; h < heads; ++h) {
      const bool empty = std::isinf(partial_lse_of(c, s, t, h));
      owners.push_back(empty ? RowOwner{-1, -1} : RowOwner{s, static_cast<int32_t>(t * heads + h)});
    }
  };
  if (c.params.ragged_states) {
    for (int64_t t = 0; t < rows; ++t) {
      for (int s = 0; s < states_of_row(c, t); ++s) add(s, t);
    }
    return owners;
  }
  owners.reserve(static_cast<std::size_t>(rows * heads * c.params.states));
  for (int s = 0; s < c.params.states; ++s) {
    for (int64_t t = 0; t < rows; ++t) add(s, t);
  }
  return owners;
}

}  // namespace attnbench
