// Random batches and windows in which corners are likely. Corners are aligned lengths and lengths one off, a
// sequence one shorter than the longest, an empty batch, and windows that begin in the middle of a tile.
#pragma once

#include <string>
#include <vector>

#include "harness/config/case_params.h"
#include "harness/fuzz/random.h"

namespace attnbench {

/// Kind of batch, by its query lengths. Kernels accept some kinds and refuse others.
enum class BatchStyle { kDecode, kFewQueries, kPrefill, kChunk, kMixed, kShortKv };
inline constexpr BatchStyle kBatchStyles[] = {BatchStyle::kDecode,  BatchStyle::kFewQueries,
                                              BatchStyle::kPrefill, BatchStyle::kChunk,
                                              BatchStyle::kMixed,   BatchStyle::kShortKv};
constexpr const char* batch_style_name(BatchStyle s) {
  constexpr const char* names[] = {"decode", "few_queries", "prefill", "chunk", "mixed", "short_kv"};
  return names[static_cast<int>(s)];
}

/// A corner up to `most`; sometimes any length up to `most`.
int32_t draw_length_up_to(Random& random, int32_t most);

/// Sequences of that kind. Only kShortKv has sequences with more queries than keys.
std::vector<SeqLen> draw_batch(Random& random, BatchStyle style);

/// Gives sequences few queries and about a multiple of 1,024 keys, some of them slightly fewer. A window may
/// then cut a shorter sequence into more tiles than the longest one, for which schedules are sized.
void stretch_over_units(Random& random, std::vector<SeqLen>& seqs);

enum class WindowStyle { kNone, kLeft, kRight, kBoth };
inline constexpr const char* kWindowStyles[] = {"none", "left", "right", "both"};

/// A window such as "1023,0". Its limits are near lengths of the batch, near tile sizes, or anything.
std::string draw_window(Random& random, WindowStyle style, const std::vector<SeqLen>& seqs);
/// The style of a value of the key `window`.
WindowStyle window_style(const std::string& value);

}  // namespace attnbench
