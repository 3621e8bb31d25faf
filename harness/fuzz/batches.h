// Random batches and windows in which corners are likely: lengths that are aligned and one off, a sequence
// that is one shorter than the longest, none at all, and windows that begin in the middle of a tile.
#pragma once

#include <string>
#include <vector>

#include "harness/config/case_params.h"
#include "harness/fuzz/random.h"

namespace attnbench {

/// What sort of queries a batch has: kernels take some sorts and refuse others.
enum class BatchStyle { kDecode, kFewQueries, kPrefill, kChunk, kMixed, kShortKv };
inline constexpr BatchStyle kBatchStyles[] = {BatchStyle::kDecode,  BatchStyle::kFewQueries,
                                              BatchStyle::kPrefill, BatchStyle::kChunk,
                                              BatchStyle::kMixed,   BatchStyle::kShortKv};
constexpr const char* batch_style_name(BatchStyle s) {
  constexpr const char* names[] = {"decode", "few_queries", "prefill", "chunk", "mixed", "short_kv"};
  return names[static_cast<int>(s)];
}

/// A corner up to `most`, or now and then any length.
int32_t draw_length_up_to(Random& random, int32_t most);

/// Sequences of that sort. Only kShortKv has sequences with more queries than keys.
std::vector<SeqLen> draw_batch(Random& random, BatchStyle style);

/// Few queries on rows of whole units of 1,024 keys or about that, some shorter by one or a little: where a
/// window cuts the shorter ones into more tiles than the longest, by which schedules are sized.
void stretch_over_units(Random& random, std::vector<SeqLen>& seqs);

enum class WindowStyle { kNone, kLeft, kRight, kBoth };
inline constexpr const char* kWindowStyles[] = {"none", "left", "right", "both"};

/// "1023,0": limits near lengths of the batch, near tile sizes, or neither.
std::string draw_window(Random& random, WindowStyle style, const std::vector<SeqLen>& seqs);
/// The style of a value of the key `window`.
WindowStyle window_style(const std::string& value);

}  // namespace attnbench
