// Signs of stored numbers, changed in place. If K and q change sign in the same channels, every product q.k
// keeps its bits; if V changes sign in some channels, so does O, and nothing else changes. So a launch can be
// given numbers that no launch has seen, and its outputs are known bit by bit. harness/device/cuda/signs.cu
// does the same on the GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "harness/values/fill.h"
#include "kernels/contract/dtype.h"

namespace attnbench {

/// A dense tensor whose rows have `dim` elements. Row r belongs to head r / head_rows % heads: head_rows is 1
/// for (tokens, heads, dim) and block_size for (blocks, heads, block_size, dim).
struct SignedTensor {
  void* data = nullptr;
  DType dtype = DType::kFp32;
  int64_t elements = 0;
  int32_t dim = 1;
  int32_t head_rows = 1;
  int32_t heads = 1;
  int32_t group = 1;  ///< heads that share a row of the table
  /// (heads / group, table_dim), in memory of the device: 1 where the sign is changed. Null: nowhere.
  const uint8_t* table = nullptr;
  int32_t table_dim = 1;
};

/// Entry of the table's row for element c of a row. Both numbers of an element of e2m1x2 change, or neither.
ATTNBENCH_HD inline int32_t sign_entry(const SignedTensor& t, int32_t c) {
  return c * numbers_per_element(t.dtype);
}

/// The row of token (or slot) `token` and head `head`.
ATTNBENCH_HD inline int64_t row_of(const SignedTensor& t, int64_t token, int32_t head) {
  return (token / t.head_rows * t.heads + head) * t.head_rows + token % t.head_rows;
}

/// The table's row for tensor row `row`; null without a table. `Index`: see unsigned_word.
template <class Index>
ATTNBENCH_HD const uint8_t* signs_of_row(const SignedTensor& t, Index row) {
  if (t.table == nullptr) return nullptr;
  const Index of_head = t.head_rows == 1 ? row : row / static_cast<Index>(t.head_rows);
  const auto head = static_cast<int32_t>(of_head % static_cast<Index>(t.heads));
  return t.table + static_cast<int64_t>(head / t.group) * t.table_dim;
}

/// `bits` with the other sign. The poison of int8, -128, stays.
ATTNBENCH_HD inline uint32_t negated(DType dtype, uint32_t bits) {
  switch (dtype) {
    case DType::kFp32:
      return bits ^ 0x80000000u;
    case DType::kE4m3:
    case DType::kE5m2:
      return bits ^ 0x80u;
    case DType::kE2m1x2:
      return bits ^ 0x88u;
    case DType::kInt8:
      return (0u - bits) & 0xffu;
    default:
      return bits ^ 0x8000u;
  }
}

/// Poison is all ones, and -128 in int8.
ATTNBENCH_HD inline uint32_t poison_bits(DType dtype) {
  switch (dtype) {
    case DType::kFp32:
      return 0xffffffffu;
    case DType::kE4m3:
    case DType::kE5m2:
    case DType::kE2m1x2:
      return 0xffu;
    case DType::kInt8:
      return 0x80u;
    default:
      return 0xffffu;
  }
}

/// Whether the bits are poison, whose sign may have been changed.
ATTNBENCH_HD inline bool is_poison(DType dtype, uint32_t bits) {
  return bits == poison_bits(dtype) || (dtype != DType::kInt8 && negated(dtype, bits) == poison_bits(dtype));
}

/// The magnitude of a float beyond which it is NaN.
ATTNBENCH_HD inline uint32_t largest_magnitude(DType dtype) {
  return dtype == DType::kFp32   ? 0x7f800000u
         : dtype == DType::kBf16 ? 0x7f80u
         : dtype == DType::kFp16 ? 0x7c00u
         : dtype == DType::kE5m2 ? 0x7cu
                                 : 0x7eu;  // e4m3 has no infinity
}

/// An output's bits as they would be without the changed signs. -0 becomes 0, because x - x is +0 whatever the
/// sign of x, and NaN becomes the NaN of poison, whose sign may have been changed.
ATTNBENCH_HD inline uint32_t without_sign(DType dtype, uint32_t bits, bool changed) {
  if (dtype == DType::kInt8) return changed ? negated(dtype, bits) : bits;
  const uint32_t sign = negated(dtype, 0);
  const uint32_t magnitude = bits & ~sign;
  if (magnitude == 0) return 0;
  if (magnitude > largest_magnitude(dtype)) return bits | sign;
  return changed ? bits ^ sign : bits;
}

/// Whether 32 bits index the elements. GPUs divide them several times faster than 64.
inline bool is_short(const SignedTensor& t) { return t.elements < (int64_t{1} << 32) - 8; }

/// Whether no word of 8 bytes has elements of two rows, and words of the tensor and of the table are aligned.
/// Most tensors are so, and a GPU then reads a word at once.
template <class Bits>
ATTNBENCH_HD bool has_whole_words(const SignedTensor& t) {
  constexpr int kPerWord = 8 / static_cast<int>(sizeof(Bits));
  const bool table = t.table == nullptr ||
                     (t.table_dim % kPerWord == 0 && reinterpret_cast<uintptr_t>(t.table) % kPerWord == 0);
  return table && t.dtype != DType::kE2m1x2 && t.dim % kPerWord == 0 && t.elements % kPerWord == 0 &&
         reinterpret_cast<uintptr_t>(t.data) % 8 == 0;
}

/// The Word at `from`, which is aligned to its size.
template <class Word>
ATTNBENCH_HD Word aligned_word(const void* from) {
  Word word;
  std::memcpy(&word, __builtin_assume_aligned(from, sizeof(Word)), sizeof(Word));
  return word;
}

/// The table's bytes for the elements of word `w`, the first one lowest. Needs a table and has_whole_words().
template <class Bits, class Index>
ATTNBENCH_HD uint64_t signs_of_word(const SignedTensor& t, Index w) {
  constexpr int kPerWord = 8 / static_cast<int>(sizeof(Bits));
  const Index e = w * kPerWord, row = e / static_cast<Index>(t.dim);
  const uint8_t* signs = signs_of_row(t, row) + (e - row * static_cast<Index>(t.dim));
  if constexpr (sizeof(Bits) == 1) return aligned_word<uint64_t>(signs);
  if constexpr (sizeof(Bits) == 2) return aligned_word<uint32_t>(signs);
  return aligned_word<uint16_t>(signs);
}

/// A word of 8 bytes without the changed signs. `signs`: as of signs_of_word.
template <class Bits>
ATTNBENCH_HD uint64_t without_signs(DType dtype, uint64_t word, uint64_t signs) {
  uint64_t plain = 0;
  for (int i = 0; i < 8 / static_cast<int>(sizeof(Bits)); ++i) {
    const int at = 8 * static_cast<int>(sizeof(Bits)) * i;
    const bool changed = (signs >> (8 * i) & 0xff) != 0;
    plain |= static_cast<uint64_t>(without_sign(dtype, static_cast<Bits>(word >> at), changed)) << at;
  }
  return plain;
}

/// Word `w` of 8 bytes of the tensor, as digest_word takes it, without the changed signs. `Bits`: unsigned
/// integer of an element's size; `Index`: unsigned integer that indexes the elements.
template <class Bits, class Index>
ATTNBENCH_HD uint64_t unsigned_word(const SignedTensor& t, Index w) {
  if (has_whole_words<Bits>(t)) {
    return without_signs<Bits>(t.dtype, aligned_word<uint64_t>(static_cast<const uint64_t*>(t.data) + w),
                               t.table == nullptr ? 0 : signs_of_word<Bits>(t, w));
  }
  constexpr int kPerWord = 8 / static_cast<int>(sizeof(Bits));
  const auto* in = static_cast<const Bits*>(t.data);
  Index e = w * kPerWord;
  Index row = e / static_cast<Index>(t.dim);
  auto c = static_cast<int32_t>(e - row * static_cast<Index>(t.dim));
  const uint8_t* signs = signs_of_row(t, row);
  uint64_t word = 0;
  for (int i = 0; i < kPerWord && e < static_cast<Index>(t.elements); ++i, ++e) {
    const bool changed = signs != nullptr && signs[sign_entry(t, c)] != 0;
    word |= static_cast<uint64_t>(without_sign(t.dtype, in[e], changed)) << (8 * sizeof(Bits) * i);
    if (++c == t.dim) {
      c = 0;
      signs = signs_of_row(t, ++row);
    }
  }
  return word;
}

/// Signs that change at the last moment before a launch: channels [first, first + count) of the heads that use
/// row `table_row` of the table, in all tokens.
struct LateSigns {
  SignedTensor tensor;
  int32_t table_row = 0, first = 0, count = 0;
};

/// Rows of the tensor that change.
ATTNBENCH_HD inline int64_t late_rows(const LateSigns& s) {
  return s.tensor.elements / s.tensor.dim / s.tensor.heads * s.tensor.group;
}

/// Element of the tensor at which the i-th of these rows begins.
ATTNBENCH_HD inline int64_t late_row(const LateSigns& s, int64_t i) {
  const int32_t group = s.tensor.group;
  return row_of(s.tensor, i / group, s.table_row * group + static_cast<int32_t>(i % group)) * s.tensor.dim;
}

/// An output of a launch that is watched.
struct WatchedOutput {
  SignedTensor tensor;
  /// Tokens (or slots) that the launch writes, in memory of the device; null: all.
  const int64_t* tokens = nullptr;
  int64_t num_tokens = 0;
  bool poisoned = true;  ///< what the launch writes holds poison before it
};

/// Number of elements that the launch writes.
ATTNBENCH_HD inline int64_t written_elements(const WatchedOutput& o) {
  return o.tokens == nullptr ? o.tensor.elements : o.num_tokens * o.tensor.heads * o.tensor.dim;
}

/// Index in the tensor of the i-th element that the launch writes.
ATTNBENCH_HD inline int64_t written_element(const WatchedOutput& o, int64_t i) {
  if (o.tokens == nullptr) return i;
  const int64_t row = i / o.tensor.dim;
  const auto head = static_cast<int32_t>(row % o.tensor.heads);
  return row_of(o.tensor, o.tokens[row / o.tensor.heads], head) * o.tensor.dim + i % o.tensor.dim;
}

/// Elements of each output that are looked at just before a launch.
inline constexpr int kProbes = 64;

/// The place of probe `i` among `count` elements; `seed` is drawn anew for each launch.
ATTNBENCH_HD inline int64_t probed_element(uint64_t seed, int i, int64_t count) {
  return static_cast<int64_t>(digest_word(seed, static_cast<uint64_t>(i)) % static_cast<uint64_t>(count));
}

/// Calls `f` with an unsigned integer of the type's size, and returns what it returns.
template <class Function>
auto with_bits(DType dtype, Function&& f) {
  switch (dtype_size(dtype)) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    default:
      return f(uint32_t{});
  }
}

/// Calls f for the parts of a tensor on the host that lie between the holes: whole tokens, or blocks of them.
template <class F>
void for_each_part(const SignedTensor& t, std::span<const Hole> holes, const F& f) {
  const int64_t unit = int64_t{t.dim} * t.head_rows * t.heads,
                size = static_cast<int64_t>(dtype_size(t.dtype));
  char* const data = static_cast<char*>(t.data);
  int64_t done = 0;  // elements
  for_each_part(data, t.elements * size, holes, [&](const char* at, int64_t bytes) {
    const int64_t begin = std::max(done, (at - data) / size / unit * unit);
    done = std::min(t.elements, ((at - data + bytes) / size + unit - 1) / unit * unit);
    SignedTensor part = t;
    part.data = data + begin * size;
    part.elements = done - begin;
    if (part.elements > 0) f(part);
  });
}

/// Changes the signs that the table names.
void change_signs_host(const SignedTensor& t);
void change_late_signs_host(const LateSigns& s);
/// Digest of the tensor without the changed signs. It reads from word `first` on, and the words before
/// `first` last, so that a kernel cannot know which part is read late.
uint64_t unsigned_digest_host(const SignedTensor& t, uint64_t first);
/// Sets what the launch writes to poison.
void poison_host(const WatchedOutput& o);

}  // namespace attnbench
