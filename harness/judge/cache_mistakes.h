// Known mistakes of kernels that write to caches: which row, head, tensor and scale they write.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/values/fill.h"

namespace attnbench {

/// A row of a cache, of one KV head: `row` is its slot, or its place in what is gathered.
struct CacheRow {
  int64_t row;
  int32_t head;
};

/// Which scale divides, or multiplies, a row. kAgain: that of a row that comes divided.
enum class RowScale { kRight, kNone, kInverse, kHead0, kNextHead, kChannel0, kOtherTensor, kAgain };
/// How a number of 8 bits is made: of the other float, towards zero, without saturation.
enum class RowNumber { kRight, kOtherFloat, kTruncated, kWraps };
/// How a row is rotated.
enum class RowTurn { kRight, kNone, kPositionBefore, kPositionAfter, kFromFirstNew, kOtherPairs, kInverse };

/// What a kernel with one mistake writes.
struct CacheMistake {
  const char* text;  ///< "{}" is "K", "V" or "K and V"
  int slots = 0;     ///< slot s has what belongs to slot s - slots
  int blocks = 0;    ///< the same in blocks
  int heads = 0;     ///< head h has what belongs to head h + heads
  bool head_0 = false;
  bool other_tensor = false;
  bool kept = false;  ///< nothing is written
  RowScale scale = RowScale::kRight;
  RowTurn turn = RowTurn::kRight;
  RowNumber number = RowNumber::kRight;

  int32_t head_of(int32_t head, int32_t all) const { return head_0 ? 0 : (head + heads + all) % all; }
};

/// What is wrong in K or V.
struct CacheFindings {
  int64_t rows = 0, wrong = 0;
  std::vector<CacheRow> tried;                ///< wrong rows, at most 64, spread evenly
  std::vector<const CacheMistake*> mistakes;  ///< each gives all of them
  std::string other;                          ///< else a clue about one of them; may be empty
};

/// What a judge can say of a row.
struct CacheJudge {
  std::function<bool(const CacheRow&)> wrong;
  std::function<bool(const CacheRow&)> written;  ///< by a right kernel
  /// Whether the row is what a kernel with this mistake leaves there.
  std::function<bool(const CacheMistake&, const CacheRow&)> gives;
  /// A clue about one row that no mistake gives; may be empty.
  std::function<std::string(const CacheRow&)> other;
};

CacheFindings find_in_cache(int64_t rows, int32_t heads, const CacheJudge& judge);

/// "channels 64 to 127 of K are not written", if a row is right up to some channel, and from there on as before. All three
/// have channels of this type; empty if it is not so.
std::string unwritten_channels(const unsigned char* got, const unsigned char* right,
                               const unsigned char* before, int32_t channels, DType type, const char* name);

/// The bytes that a row with this owner has in a cache, the heads one after the other.
std::vector<unsigned char> filled_row(FillJob job, RowOwner owner);

/// The clues of K and V together.
std::vector<std::string> cache_clues(const std::array<CacheFindings, 2>& of);

}  // namespace attnbench
