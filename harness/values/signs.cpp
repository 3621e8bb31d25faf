#include "harness/values/signs.h"

#include <algorithm>
#include <vector>

namespace attnbench {
namespace {

/// The changed signs of floats as masks, one per table row, so that loops over a row vectorise.
template <class Bits>
struct SignMasks {
  explicit SignMasks(const SignedTensor& tensor)
      : t(tensor),
        masks(static_cast<std::size_t>(t.heads / t.group) * static_cast<std::size_t>(t.dim)),
        any(static_cast<std::size_t>(t.heads / t.group)) {
    if (t.table == nullptr) return;
    for (std::size_t r = 0, i = 0; r < any.size(); ++r) {
      const uint8_t* row = t.table + static_cast<int64_t>(r) * t.table_dim;
      for (int32_t c = 0; c < t.dim; ++c, ++i) {
        if (row[sign_entry(t, c)] == 0) continue;
        masks[i] = static_cast<Bits>(negated(t.dtype, 0));
        any[r] = 1;
      }
    }
  }
  /// That of a row of the tensor; null if it changes nothing.
  const Bits* of_row(int64_t row) const {
    const auto r = static_cast<std::size_t>(row / t.head_rows % t.heads / t.group);
    return any[r] ? masks.data() + r * static_cast<std::size_t>(t.dim) : nullptr;
  }

  const SignedTensor& t;
  std::vector<Bits> masks;
  std::vector<char> any;
};

template <class Bits>
void change_floats(const SignedTensor& t) {
  const SignMasks<Bits> masks(t);
  auto* data = static_cast<Bits*>(t.data);
  const int64_t rows = t.elements / t.dim;
#pragma omp parallel for schedule(static) if (t.elements > kWorthThreads)
  for (int64_t row = 0; row < rows; ++row) {
    const Bits* mask = masks.of_row(row);
    if (mask == nullptr) continue;  // leaves the caches alone
    Bits* at = data + row * t.dim;
    for (int32_t c = 0; c < t.dim; ++c) at[c] ^= mask[c];
  }
}

/// unsigned_digest_host for floats whose rows are whole words: as unsigned_word, but vectorised.
template <class Bits>
uint64_t digest_of_rows(const SignedTensor& t, uint64_t first) {
  constexpr int32_t kPart = 64;  // elements: whole words
  const SignMasks<Bits> masks(t);
  const auto sign = static_cast<Bits>(negated(t.dtype, 0));
  const auto most = static_cast<Bits>(largest_magnitude(t.dtype));
  const Bits zeros[kPart] = {};
  const int64_t rows = t.elements / t.dim, words = int64_t{t.dim} * static_cast<int64_t>(sizeof(Bits)) / 8;
  const auto start = static_cast<int64_t>(first % static_cast<uint64_t>(rows));
  uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum) if (t.elements > kWorthThreads)
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = i + start < rows ? i + start : i + start - rows;
    const Bits* in = static_cast<const Bits*>(t.data) + row * t.dim;
    const Bits* mask = masks.of_row(row);
    auto index = static_cast<uint64_t>(row * words);
    for (int32_t c = 0; c < t.dim; c += kPart) {
      const int32_t count = std::min(kPart, t.dim - c);
      const Bits* part_mask = mask != nullptr ? mask + c : zeros;
      alignas(8) Bits plain[kPart];
      for (int32_t e = 0; e < count; ++e) {  // without_sign
        const auto bits = in[c + e], magnitude = static_cast<Bits>(bits & ~sign);
        const auto changed = static_cast<Bits>(bits ^ part_mask[e]);
        const auto number = magnitude > most ? static_cast<Bits>(bits | sign) : changed;
        plain[e] = magnitude == 0 ? Bits{0} : number;
      }
      for (int32_t e = 0; e < count; e += 8 / static_cast<int32_t>(sizeof(Bits)))
        sum += digest_word(aligned_word<uint64_t>(plain + e), index++);
    }
  }
  return sum;
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
    if (t.dtype != DType::kInt8 && has_whole_words<decltype(bits)>(t))
      return digest_of_rows<decltype(bits)>(t, first);
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
