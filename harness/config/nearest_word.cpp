// "Did you mean": the edit distance of V. I. Levenshtein, "Binary codes capable of correcting deletions,
// insertions, and reversals", 1966.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "harness/config/sweep_file.h"

namespace attnbench {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Number of insertions, deletions and replacements of a letter that turn a into b, ignoring case.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // distances of a's first i letters to every prefix of b
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
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
