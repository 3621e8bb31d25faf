// "Did you mean": the edit distance of V. I. Levenshtein, "Binary codes capable of correcting deletions,
// insertions, and reversals", 1966, with the swapped neighbours of F. J. Damerau, "A technique for computer
// detection and correction of spelling errors", 1964.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "harness/config/sweep_file.h"

namespace attnbench {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Number of insertions, deletions, replacements of a letter and swaps of two neighbours that turn a into b, ignoring
/// case. No letter changes twice.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Distances of a's first i letters to every prefix of b, and the same for i - 1 and i - 2.
  std::vector<std::size_t> row(b.size() + 1), one_before(row), two_before(row);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(two_before, one_before);
    std::swap(one_before, row);
    row[0] = i;
    const auto same = [&](std::size_t in_a, std::size_t in_b) {
      return lower(a[in_a - 1]) == lower(b[in_b - 1]);
    };
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({one_before[j - 1] + (same(i, j) ? 0 : 1), one_before[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && same(i, j - 1) && same(i - 1, j))
        row[j] = std::min(row[j], two_before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

/// Names that other programs use, and the key that means the same here.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"causal", "mask"},
    {"is_causal", "mask"},
    {"page_size", "block_size"},
    {"num_heads", "heads"},
    {"nheads", "heads"},
    {"head_size", "head_dim"},
    {"sm_scale", "softmax_scale"},
    {"scale", "softmax_scale"},
    {"logits_soft_cap", "softcap"},
    {"sliding_window", "window"},
    {"window_size", "window"},
    {"seqlen", "batch"},
    {"seqlens", "batch"},
    {"seq_len", "batch"},
    {"seq_lens", "batch"},
    {"batch_size", "batch"},
    {"float16", "fp16"},
    {"half", "fp16"},
    {"bfloat16", "bf16"},
    {"float32", "fp32"},
    {"float", "fp32"},
    {"fp8", "e4m3"},
    {"float8_e4m3fn", "e4m3"},
    {"float8_e5m2", "e5m2"},
    {"dropout_p", "dropout"},
    {"decode", "attention"},
    {"prefill", "attention"},
    {"append", "kv_append"},
    {"layout", "kv_layout"},
    {"ragged", "packed"},
    {"varlen", "packed"},
};

}  // namespace

std::optional<std::string> nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > 64) return std::nullopt;  // no misspelt key is that long
  for (const auto& [theirs, ours] : kElsewhere) {
    if (edit_distance(word, theirs) == 0 &&
        std::find(candidates.begin(), candidates.end(), ours) != candidates.end())
      return std::string(ours);
  }
  std::size_t best = 1 + word.size() / 4 + 1;
  std::optional<std::string> nearest;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace attnbench
