// "Did you mean": the edit distance of V. I. Levenshtein, "Binary codes capable of correcting deletions,
// insertions, and reversals", 1966, with the swapped neighbours of F. J. Damerau, "A technique for computer
// detection and correction of spelling errors", 1964.
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// What other programs and configs of models call a word of ours; hyphens, underscores and case aside. A word in
/// several rows stands for the first whose `ours` is allowed.
struct Elsewhere {
  std::string_view ours;
  std::string_view written;  ///< how it is used, where the word alone would not do
  std::string_view theirs;   ///< separated by blanks
};
constexpr Elsewhere kElsewhere[] = {
    {"mask", "mask: causal", "causal is_causal use_causal_mask"},
    {"block_size", "", "page_size page_len block_len kv_block_size page_block_size tokens_per_page"},
    {"heads", "heads: 32/8",
     "num_heads nheads n_heads h hq num_q_heads num_query_heads num_qo_heads num_heads_q nheads_q q_heads qo_heads "
     "num_attention_heads hkv num_kv_heads num_k_heads num_heads_k num_heads_kv num_key_value_heads n_kv_heads "
     "nheads_k nheads_kv kv_heads gqa gqa_ratio gqa_group_size group_size num_groups"},
    {"head_dim", "", "head_size headdim hdim d dim size_per_head d_head dim_head head_dim_qk qk_head_dim"},
    {"head_dim_v", "", "head_dim_vo head_size_v headdim_v v_head_dim dv value_dim d_v"},
    {"softmax_scale", "", "sm_scale scale scaling attn_scale attention_scale"},
    {"softcap", "", "logits_soft_cap logit_cap logit_soft_cap attn_logit_softcapping tanh_cap"},
    {"window", "window: \"4095,0\"",
     "sliding_window window_size window_left window_right left_window local local_window attention_window"},
    {"attention_chunk", "", "chunk_size attention_chunk_size"},
    {"batch", "batch: 8q1s4k",
     "seqlen seqlens seq_len seq_lens seq_length sequence_length batch_size bs b num_seqs n_ctx ctx ctx_len s q t q_len "
     "qlen len_q seqlen_q seqlens_q max_seqlen_q qo_len kv_len k_len len_k len_kv seqlen_k seqlens_k seqlen_kv "
     "max_seqlen_k max_seqlen_kv cu_seqlens cu_seqlens_q cu_seqlens_k context context_len context_lens lengths shape"},
    {"q", "", "q_len qlen len_q query queries query_len seqlen_q seqlens_q max_seqlen_q qo_len new_tokens"},
    {"s", "",
     "k kv k_len kv_len len_k len_kv keys key_len seqlen_k seqlens_k seqlen_kv max_seqlen_k max_seqlen_kv cache_len "
     "cache_seqlens"},
    {"context", "", "ctx ctx_len context_len context_lens past past_len prefix prefix_len"},
    {"lengths", "", "len length seqlen seqlens seq_len seq_lens seq_length sequence_length"},
    {"count", "", "batch_size bs b n num num_seqs batch"},
    {"dtype", "", "data_type precision torch_dtype type"},
    {"kv_dtype", "", "kv_cache_dtype cache_dtype kv_data_type"},
    {"kv_layout", "", "layout"},
    {"alibi", "alibi: per_head", "alibi_slopes use_alibi has_alibi"},
    {"sinks", "sinks: true", "sink s_aux attention_sink attention_sinks has_sinks"},
    {"num_splits", "", "splits split_kv num_kv_splits"},
    {"dropout", "", "dropout_p p_dropout attention_dropout"},
    {"causal", "", "bottom_right lower_right causal_bottom_right causal_lower_right"},
    {"causal_top_left", "", "top_left upper_left causal_upper_left"},
    {"none", "", "full bidirectional no_mask"},
    {"fp16", "", "float16 half f16"},
    {"bf16", "", "bfloat16"},
    {"fp32", "", "float32 float f32"},
    {"e4m3", "", "fp8 float8 fp8_e4m3 float8_e4m3 float8_e4m3fn"},
    {"e5m2", "", "fp8_e5m2 float8_e5m2"},
    {"attention", "", "decode prefill forward"},
    {"attention_backward", "", "backward bwd"},
    {"kv_append", "", "append reshape_and_cache"},
    {"packed", "", "ragged varlen thd"},
    // Commands.
    {"run", "", "test verify bench benchmark time measure exec"},
    {"list", "", "ls show cases expand"},
    {"compare", "", "diff"},
    {"report", "", "plot html summary"},
    {"gate", "", "ci regress regression"},
    {"doctor", "", "info env system"},
    {"new-kernel", "", "new template scaffold"},
    {"serve-sim", "", "sim simulate serve"},
};

/// Whether one of the `words`, which blanks separate, is `word`, hyphens, underscores and case aside.
bool holds_word(std::string_view words, std::string_view word) {
  const auto plain = [](std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c != '_' && c != '-') out += lower(c);
    }
    return out;
  };
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (plain(words.substr(0, end)) == plain(word)) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

const Elsewhere* find_elsewhere(std::string_view word, const std::vector<std::string>& candidates) {
  const auto found = std::find_if(std::begin(kElsewhere), std::end(kElsewhere), [&](const Elsewhere& e) {
    return holds_word(e.theirs, word) && std::ranges::find(candidates, e.ours) != candidates.end();
  });
  return found == std::end(kElsewhere) ? nullptr : found;
}

}  // namespace

std::optional<std::string> nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > 64) return std::nullopt;  // no misspelt key is that long
  if (const Elsewhere* e = find_elsewhere(word, candidates)) return std::string(e->ours);
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

std::optional<std::string> word_of_others(std::string_view word, const std::vector<std::string>& candidates) {
  const Elsewhere* e = find_elsewhere(word, candidates);
  if (e == nullptr) return std::nullopt;
  return std::string(e->written.empty() ? e->ours : e->written);
}

}  // namespace attnbench
