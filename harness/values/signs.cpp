#include "harness/values/signs.h"

#include <algorithm>
#include <vector>

namespace attnbench {
namespace {

/// Changes signs by masks, one per table row, so that the loop over a row vectorises.
template <class Bits>
void change_floats(const SignedTensor& t) {
  const int32_t table_rows = t.heads / t.group;
  const auto dim = static_cast<std::size_t>(t.dim);
  std::vector<Bits> masks(static_cast<std::size_t>(table_rows) * dim);
  std::vector<char> any(static_cast<std::size_t>(table_rows));
  for (int32_t r = 0; r < table_rows; ++r) {
    for (int32_t c = 0; c < t.dim; ++c) {
      const bool changed = t.table[static_cast<int64_t>(r) * t.table_dim + sign_entry(t, c)] != 0;
      masks[static_cast<std::size_t>(r) * dim + static_cast<std::size_t>(c)] =
          changed ? static_cast<Bits>(negated(t.dtype, 0)) : Bits{0};
      if (changed) any[static_cast<std::size_t>(r)] = 1;
    }
  }
  auto* data = static_cast<Bits*>(t.data);
  const int64_t rows = t.elements / t.dim;
#pragma omp parallel for schedule(static) if (t.elements > kWorthThreads)
  for (int64_t row = 0; row < rows; ++row) {
    const auto r = static_cast<std::size_t>(row / t.head_rows % t.heads / t.group);
    if (!any[r]) continue;  // leaves the caches alone
    const Bits* mask = masks.data() + r * dim;
    Bits* at = data + row * t.dim;
    for (std::size_t c = 0; c < dim; ++c) at[c] ^= mask[c];
  }
}

void change_int8(const SignedTensor& t) {
  auto* data = static_cast<uint8_t*>(t.data);
  const int64_t rows = t.elements / t.dim;
#pragma omp parallel for schedule(static) if (t.elements > kWorthThreads)
  for (int64_t row = 0; row < rows; ++row) {
    const uint8_t* signs = signs_of_row(t, row);
    uint8_t* at = data + row * t.dim;
    for (int32_t c = 0; c < t.dim; ++c) at[c] = static_cast<uint8_t>(signs[c] != 0 ? -at[c] : at[c]);
  }
}

}  // namespace

void change_signs_host(const SignedTensor& t) {
  if (t.table == nullptr || t.elements == 0) return;
  if (t.dtype == DType::kInt8) return change_int8(t);
  with_bits(t.dtype, [&](auto bits) { change_floats<decltype(bits)>(t); });
}

void change_late_signs_host(const LateSigns& s) {
  with_bits(s.tensor.dtype, [&](auto bits) {
    auto* data = static_cast<decltype(bits)*>(s.tensor.data);
    for (int64_t i = 0; i < late_rows(s); ++i) {
      const int64_t at = late_row(s, i) + s.first;
      for (int32_t c = 0; c < s.count; ++c)
        data[at + c] = static_cast<decltype(bits)>(negated(s.tensor.dtype, data[at + c]));
    }
  });
}

uint64_t unsigned_digest_host(const SignedTensor& t, uint64_t first) {
  if (t.elements == 0) return 0;
  return with_bits(t.dtype, [&](auto bits) {
    const auto words = static_cast<int64_t>((t.elements * static_cast<int64_t>(sizeof bits) + 7) / 8);
    const auto start = static_cast<int64_t>(first % static_cast<uint64_t>(words));
    uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum) if (t.elements > kWorthThreads)
    for (int64_t i = 0; i < words; ++i) {
      const int64_t w = i + start < words ? i + start : i + start - words;
      sum +=
          digest_word(unsigned_word<decltype(bits)>(t, static_cast<uint64_t>(w)), static_cast<uint64_t>(w));
    }
    return sum;
  });
}

void poison_host(const WatchedOutput& o) {
  with_bits(o.tensor.dtype, [&](auto bits) {
    auto* data = static_cast<decltype(bits)*>(o.tensor.data);
    const auto poison = static_cast<decltype(bits)>(poison_bits(o.tensor.dtype));
    if (o.tokens == nullptr) {
      std::fill_n(data, o.tensor.elements, poison);
      return;
    }
    for (int64_t i = 0; i < o.num_tokens; ++i) {
      for (int32_t h = 0; h < o.tensor.heads; ++h) {
        std::fill_n(data + row_of(o.tensor, o.tokens[i], h) * o.tensor.dim, o.tensor.dim, poison);
      }
    }
  });
}

}  // namespace attnbench
