#include "harness/judge/mistakes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <numbers>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/cases/cost.h"
#include "harness/judge/case_inputs.h"
#include "harness/judge/misread.h"
#include "harness/judge/mistake_table.h"
#include "harness/tensors/descales.h"
#include "reference/plan.h"

namespace attnbench {
namespace {

/// A page, or a tile of keys that a kernel may take at once.
struct KeyTile {
  int size;
  bool page;
  std::vector<int> leftpad;  ///< of each sequence

  std::string text() const { return fmt::format("{} of {}", page ? "page or tile" : "tile", size); }
  /// Tokens of sequence b before its first key, in its first page.
  int before(std::size_t b) const { return page && !leftpad.empty() ? leftpad[b] : 0; }
};

/// Collects the mistakes of a problem.
class Mistakes : MistakeTable {
 public:
  Mistakes(const P& right, const Layout& layout, const reference::Inputs& inputs)
      : MistakeTable(right, inputs), layout_(layout) {}

  std::vector<Mistake> one_head(int kv_head) && {
    const auto head = [kv_head](int) { return kv_head; };
    misread("", fmt::format("all query heads read KV head {}", kv_head), {.k_head = head, .v_head = head});
    return std::move(out_);
  }
  std::vector<Mistake> all() && {
    scale();
    mask();
    window();
    if (layout_.custom_mask) custom_mask();
    if (layout_.key_lists) key_lists();
    tiles();
    scores();
    heads();
    cut_indices();
    return std::move(out_);
  }

 private:
  void scale() {
    const double s = p_.softmax_scale, d = p_.head_dim;
    std::vector<double> tried = {s};
    const auto add = [&](double value, const std::string& text, const std::string& fault = "") {
      for (const double t : tried) {
        if (std::abs(value / t - 1) < 1e-3) return;
      }
      tried.push_back(value);
      rows({{true, fault, text, [value](P& x) { x.softmax_scale = value; }}});
    };
    add(1, fmt::format("softmax_scale ({:.4g}) is not applied", s));
    add(1 / std::sqrt(d), fmt::format("1/sqrt(head_dim) is applied for softmax_scale ({:.4g})", s),
        "softmax_scale_ignored");
    add(s * std::numbers::log2e, "log2(e) is applied to scores of exp (or twice to those of exp2)");
    add(s * std::numbers::ln2, "log2(e) is missing in scores of exp2");
    add(1 / d, "1/head_dim is applied for softmax_scale");
    // With a scale of 1/sqrt(head_dim) both are the same. Cases with another scale tell which one it is.
    if (std::abs(s * s * d - 1) < 1e-3) tried.pop_back();
    add(s * s, "softmax_scale is applied twice");
  }

  void mask() {
    const int right = p_.causal ? -1 : p_.window_right;
    const bool chunks = p_.attention_chunk > 0;
    // With one query a sequence, the last key is the diagonal.
    const bool several = std::ranges::any_of(p_.q_lens, [](int q) { return q > 1; });
    rows({
        {p_.causal, "causal_ignored", "the causal mask is not applied", [](P& x) { x.causal = false; }},
        {p_.causal, "causal_one_ahead",
         "the causal mask shows one key too many: keys j <= diag + 1 are seen, not j <= diag",
         [](P& x) { x.causal = false, x.window_right = 1; }},
        {p_.causal && !p_.top_left, "causal_without_diagonal",
         "the causal mask hides one key too many: keys j < diag are seen, not j <= diag", shorter_by_one},
        {p_.causal && !p_.top_left, "causal_top_left",
         "the causal mask is aligned top-left, j <= i, not j <= i + len_k - len_q",
         [](P& x) { x.top_left = true; }},
        {p_.causal && p_.top_left, "top_left_taken_as_bottom_right",
         "the causal mask is aligned bottom-right, j <= i + len_k - len_q, not j <= i",
         [](P& x) { x.top_left = false; }},
        {p_.causal && !p_.top_left && p_.q_lens.size() > 1, "causal_of_longest",
         "the causal mask is aligned by the longest lengths, j <= i + max_seqlen_k - max_seqlen_q",
         range([ahead = std::ranges::max(p_.k_lens) - std::ranges::max(p_.q_lens)](int, int pos,
                                                                                   reference::KeyRange r) {
           return reference::KeyRange{r.begin, pos + ahead + 1};
         }),
         false},
        {p_.causal && several, "",
         "no query sees the last key of its sequence; other keys are masked as they should be",
         cut([](std::size_t, int k) { return k - 1; })},
        {!p_.causal && right < 0, "full_mask_taken_as_causal",
         "a causal mask is applied, but the case has none", [](P& x) { x.causal = true; }},
        {!p_.causal, "last_key_dropped", "the last key of each sequence is left out", shorter_by_one},
        {!p_.causal, "keys_as_many_as_queries", "sequences see no more keys than they have queries",
         [](P& x) {
           for (std::size_t b = 0; b < x.k_lens.size(); ++b) x.k_lens[b] = std::min(x.k_lens[b], x.q_lens[b]);
         }},
        {chunks, "chunk_ignored", "attention_chunk is not applied", with(&P::attention_chunk, 0)},
        {chunks, "chunk_as_a_window",
         "attention_chunk is applied as a window: the last attention_chunk keys are seen, not those of the chunk",
         [](P& x) { x.window_left = std::exchange(x.attention_chunk, 0) - 1; }},
        {chunks, "", "attention_chunk is one key too wide", [](P& x) { ++x.attention_chunk; }},
        {chunks && !p_.causal, "chunk_ends_one_key_late",
         "chunks end one key late: queries see the first key of the next one",
         range([](int, int, reference::KeyRange r) {
           return reference::KeyRange{r.begin, r.end + 1};
         }),
         false},
        {chunks, "chunk_of_the_query_index",
         "chunks count from a sequence's first query, not from its first key",
         [](P& x) {
           if (x.attention_chunk == 0) return;  // another mistake of a pair has ignored them
           x.sees = [chunk = x.attention_chunk, right = x.sees, q = x.q_lens, k = x.k_lens](
                        int seq, int pos, int head, int64_t key) {
             const auto b = static_cast<std::size_t>(seq);
             const int64_t first = pos / chunk * chunk + k[b] - q[b];
             return key >= first && key < first + chunk && (!right || right(seq, pos, head, key));
           };
           x.attention_chunk = 0;
         }},
    });
  }

  void window() {
    const int left = p_.window_left, right = p_.causal ? -1 : p_.window_right;
    const bool several = std::ranges::any_of(p_.q_lens, [](int q) { return q > 1; });
    rows({
        {left >= 0, "window_ignored", "window_left is not applied", with(&P::window_left, -1)},
        {left >= 0, "", "window_left is one key too wide", with(&P::window_left, left + 1)},
        {left > 0, "window_off_by_one", "window_left is one key too narrow", with(&P::window_left, left - 1)},
        {left >= 0 && several, "window_from_last_draft_token",
         "window_left is that of the last query of a sequence for all of its queries",
         range([left, k_lens = p_.k_lens](int seq, int, reference::KeyRange r) {
           const int64_t last = k_lens[static_cast<std::size_t>(seq)] - 1;
           return reference::KeyRange{std::max(r.begin, last - left), r.end};
         }),
         false},
        {left >= 0 && !p_.top_left && p_.q_lens != p_.k_lens, "",
         "window_left counts from query i, not from its diagonal i + len_k - len_q",
         range([left](int, int pos, reference::KeyRange r) {
           return reference::KeyRange{pos - left, r.end};
         }),
         false},
        {right >= 0, "window_right_ignored", "window_right is not applied", with(&P::window_right, -1)},
        {right >= 0, "", "window_right is one key too wide", with(&P::window_right, right + 1)},
        {right > 0, "", "window_right is one key too narrow", with(&P::window_right, right - 1)},
    });
    for (const int t : {16, 32, 64, 128}) {
      const auto up = [t](int64_t key) { return (key + t - 1) / t * t; };
      rows({{left >= 0, t == 16 ? "window_start_rounded_to_split" : "",
             fmt::format("keys of window_left before the first whole tile of {} are left out", t),
             range([up](int, int, reference::KeyRange r) {
               return reference::KeyRange{up(r.begin), r.end};
             }),
             false},
            {p_.causal, t == 16 ? "right_mask_missing_on_last_tile" : "",
             fmt::format("the causal mask ends with a tile of {}: all keys of the diagonal's tile are seen",
                         t),
             range([up](int, int, reference::KeyRange r) {
               return reference::KeyRange{r.begin, up(r.end)};
             }),
             false},
            {p_.causal && several, "",
             fmt::format("the causal mask is that of the last query of a tile of {} for all of its queries",
                         t),
             range([t, q_lens = p_.q_lens](int seq, int pos, reference::KeyRange r) {
               const int last = std::min(pos / t * t + t, q_lens[static_cast<std::size_t>(seq)]) - 1;
               return reference::KeyRange{r.begin, r.end + last - pos};
             }),
             false}});
    }
  }

  /// Each row sees the keys `to(seq, pos, those that it must see)`.
  template <class To>
  std::function<void(P&)> range(To to) const {
    return [to, right = p_](P& x) {
      x.causal = false;
      x.window_left = x.window_right = -1;
      x.attention_chunk = 0;
      x.sees = [=](int seq, int pos, int head, int64_t key) {
        const reference::KeyRange r = to(seq, pos, reference::visible_keys(right, seq, pos));
        return key >= r.begin && key < r.end && (!right.sees || right.sees(seq, pos, head, key));
      };
    };
  }

  /// Bits that are not read, or found elsewhere.
  void custom_mask() {
    // at(seq, n, len_k): which sequence's bit a wrong kernel takes for bit n, that of row n / len_k, key n % len_k.
    const auto bits = [this](auto at) {
      return see([at, right = p_.sees, q_lens = p_.q_lens, k_lens = p_.k_lens](int seq, int pos, int head,
                                                                               int64_t key) {
        const int64_t len = k_lens[static_cast<std::size_t>(seq)];
        const auto [owner, n] = at(seq, pos * len + key, len);
        const int64_t q = q_lens[static_cast<std::size_t>(owner)],
                      k = k_lens[static_cast<std::size_t>(owner)];
        return n < q * k && right(owner, static_cast<int>(n / k), head, n % k);
      });
    };
    const auto other = [right = p_.sees](int seq, int pos, int head, int64_t key) {
      return !right(seq, pos, head, key);
    };
    rows({
        {true, "custom_mask_ignored", "the custom mask is not applied", see(nullptr)},
        {true, "", "the custom mask hides what it shows", see(other)},
        {true, "custom_mask_from_the_highest_bit",
         "bits of the custom mask are counted from the highest of a byte",
         bits([](int seq, int64_t n, int64_t) { return std::pair(seq, n / 8 * 8 + 7 - n % 8); })},
        {true, "custom_mask_rows_padded", "rows of the custom mask are taken to begin a byte each",
         bits([](int seq, int64_t n, int64_t k) {
           return std::pair(seq, n / k * ((k + 7) / 8 * 8) + n % k);
         })},
        {p_.q_lens.size() > 1, "custom_mask_of_sequence_0", "the custom mask of sequence 0 is taken for all",
         bits([](int, int64_t n, int64_t) { return std::pair(0, n); })},
    });
  }

  void key_lists() {
    const auto of_head_0 = [right = p_.sees](int seq, int pos, int, int64_t key) {
      return right(seq, pos, 0, key);
    };
    rows({{true, "", "the lists of keys are not read: all keys are seen", see(nullptr)},
          {p_.num_heads_kv > 1, "", "the lists of KV head 0 are taken for all", see(of_head_0)}});
  }

  /// Keys are left out behind the last whole tile or page, or at the borders of tiles or pages; and the first key of all.
  void tiles() {
    std::vector<KeyTile> tiles;
    if (layout_.page_size > 0) tiles.push_back({layout_.page_size, true, layout_.leftpad});
    for (const int t : {16, 32, 64, 128}) {
      if (t != layout_.page_size) tiles.push_back({t, false, {}});
    }
    for (const KeyTile& t : tiles) {
      rows({
          {true, "", fmt::format("keys behind the last whole {} are left out", t.text()),
           cut([t](std::size_t b, int k) { return (t.before(b) + k) / t.size * t.size - t.before(b); })},
          {t.page && t.size > 1, "",
           fmt::format("the last key of sequences that fill their last page of {} is left out", t.size),
           cut([t](std::size_t b, int k) { return k - ((t.before(b) + k) % t.size == 0 ? 1 : 0); })},
      });
    }
    rows({{true, "", "the first key of each sequence is left out",
           keep([](int, int, int64_t key) { return key > 0; })}});
    for (const KeyTile& t : tiles) borders(t);
  }

  void borders(const KeyTile& t) {
    int longest = 0;
    bool full = false;  // some last tile
    for (std::size_t b = 0; b < p_.k_lens.size(); ++b) {
      const int end = p_.k_lens[b] == 0 ? 0 : t.before(b) + p_.k_lens[b];
      longest = std::max(longest, end);
      full = full || (end > 0 && end % t.size == 0);
    }
    if (t.size == 1 || longest <= t.size) return;
    const auto no_tile = [&](int which) {  // -1: the last one
      return keep([=, k_lens = p_.k_lens](int seq, int, int64_t key) {
        const auto b = static_cast<std::size_t>(seq);
        const int64_t at = t.before(b) + key, last = (t.before(b) + k_lens[b] - 1) / t.size;
        return last == 0 || at / t.size != (which < 0 ? last : which);
      });
    };
    const auto not_at = [&](int place, bool first_kept, bool last_kept) {
      return keep([=, k_lens = p_.k_lens](int seq, int, int64_t key) {
        const auto b = static_cast<std::size_t>(seq);
        const int64_t at = t.before(b) + key, last = t.before(b) + k_lens[b] - 1;
        return (first_kept && at < t.size) || (last_kept && at / t.size == last / t.size) ||
               at % t.size != place;
      });
    };
    const auto text = [&](const char* key, const char* rest) {
      return fmt::format("the {} key of each {}{} is left out", key, t.text(), rest);
    };
    const int end = t.size - 1;
    rows({
        {true, "", text("first", ""), not_at(0, false, false), false},  // too many for pairs
        {true, "", text("first", " but the first"), not_at(0, true, false), false},
        {true, "", text("last", ""), not_at(end, false, false), false},
        {full, "", text("last", " but the last"), not_at(end, false, true), false},
        {true, "", fmt::format("the first {} of several is left out", t.text()), no_tile(0), false, true},
        {true, "", fmt::format("the second {} is left out", t.text()), no_tile(1), false, true},
        {true, "", fmt::format("the last {} of several is left out", t.text()), no_tile(-1), false, true},
    });
  }

  void scores() {
    const bool alibi = !p_.alibi_slopes.empty();
    const auto heads = static_cast<std::size_t>(p_.num_heads_q);
    const auto from_query_index = [same_mask =
                                       range([](int, int, reference::KeyRange r) { return r; })](P& x) {
      same_mask(x);
      x.top_left = true;
    };
    const auto negate = [](P& x) {
      for (double& slope : x.alibi_slopes) slope = -slope;
    };
    rows({
        {p_.softcap > 0, "softcap_ignored", "the softcap is not applied", [](P& x) { x.softcap = 0; }},
        {p_.softcap > 0, "softcap_before_scale", "the softcap is applied before softmax_scale",
         [](P& x) { x.softcap *= x.softmax_scale; }},
        {alibi, "alibi_ignored", "ALiBi is not applied", [](P& x) { x.alibi_slopes.clear(); }},
        {alibi, "alibi_sign", "ALiBi has the wrong sign", negate},
        {alibi && p_.q_lens != p_.k_lens, "",
         "ALiBi takes the distance of key j and query i for |i - j|, without len_k - len_q",
         from_query_index},
        {alibi && p_.alibi_sqrt, "alibi_sqrt_ignored", "ALiBi takes the distance, not its root",
         [](P& x) { x.alibi_sqrt = false; }},
        {alibi && !p_.alibi_sqrt, "", "ALiBi takes the root of the distance",
         [](P& x) { x.alibi_sqrt = true; }},
        {p_.alibi_slopes.size() > heads, "alibi_slopes_of_sequence_0",
         "ALiBi's slopes of sequence 0 are taken for all", [heads](P& x) { x.alibi_slopes.resize(heads); }},
        {alibi && p_.alibi_slopes.size() == heads && heads > 1, "alibi_slope_of_another_head",
         "query head h has the ALiBi slope of head h + 1",
         [](P& x) {
           // Empty where ALiBi is not applied, the first of two mistakes.
           if (x.alibi_slopes.size() > 1)
             std::rotate(x.alibi_slopes.begin(), x.alibi_slopes.begin() + 1, x.alibi_slopes.end());
         }},
        {p_.sinks.size() > 1, "sink_of_another_head", "query head h has the sink of head h + 1",
         [](P& x) { std::rotate(x.sinks.begin(), x.sinks.begin() + 1, x.sinks.end()); }},
        {p_.sinks.size() > 1 && p_.num_heads_kv < p_.num_heads_q, "sink_of_kv_head",
         "query head h has the sink of its KV head, sinks[h / (Hq / Hkv)]",
         [](P& x) {
           const std::size_t group =
               x.sinks.empty() ? 1 : static_cast<std::size_t>(x.num_heads_q / x.num_heads_kv);
           for (std::size_t h = x.sinks.size(); h-- > 0;) x.sinks[h] = x.sinks[h / group];
         }},
        {!p_.sinks.empty(), "sink_ignored", "the sinks are not applied", [](P& x) { x.sinks.clear(); }},
        {p_.qv, "qv_ignored", "qv is not applied", [](P& x) { x.qv = false; }},
    });
    const auto unscaled = [scale = p_.softmax_scale](Tensor tensor, int, int, int, std::span<double> row) {
      for (double& x : row) x /= tensor == Tensor::kQv ? scale : 1;
    };
    if (p_.qv) misread("qv_unscaled", "qv.v is not multiplied by softmax_scale", {.change = unscaled});
    dropout();
  }

  void dropout() {
    constexpr uint64_t kLow = 0xffffffff;
    const bool any = p_.p_dropout > 0;
    const uint64_t seed = p_.dropout_seed, offset = p_.dropout_offset;
    const auto drawn = [](uint64_t s, uint64_t o) {
      return [s, o](P& x) { x.dropout_seed = s, x.dropout_offset = o; };
    };
    rows({{any, "dropout_ignored", "dropout is not applied", [](P& x) { x.p_dropout = 0; }},
          {any, "", "the mask of dropout has another seed: seed + 1", drawn(seed + 1, offset)},
          {any && seed > kLow, "", "the seed of dropout is cut to 32 bits", drawn(seed & kLow, offset)},
          {any && offset != 0, "", "the offset of dropout is not applied", drawn(seed, 0)},
          {any && offset > kLow, "", "the offset of dropout is cut to 32 bits", drawn(seed, offset & kLow)},
          {any, "", "seed and offset of dropout are exchanged", drawn(offset, seed)},
          {any, "", "rows of dropout count from 0 in each sequence",
           [](P& x) { x.q_begins.assign(x.q_lens.size(), 0); }}});
  }

  /// The wrong head of K and V, of V alone, and of K alone: "<who> KV head <which>" and so on. `fault`, `v_fault`: the
  /// selftest's faults of the first two.
  void wrong_head(const char* who, const std::string& which, const std::function<int(int)>& head,
                  const std::string& fault = "", const std::string& v_fault = "") {
    const int group = p_.num_heads_q / p_.num_heads_kv;
    const auto right = [group](int h) { return h / group; };
    misread(fault, fmt::format("{} KV head {}", who, which), {.k_head = head, .v_head = head});
    if (layout_.v_is_k_view) return;  // one tensor, read once
    misread(v_fault, fmt::format("{} V head {}; the K head is right", who, which),
            {.k_head = right, .v_head = head});
    misread("", fmt::format("{} K head {}; the V head is right", who, which),
            {.k_head = head, .v_head = right});
  }

  void heads() {
    const int hkv = p_.num_heads_kv, group = p_.num_heads_q / hkv;
    const auto modulo = [=](int h) { return h % hkv; };
    const auto first = [=](int h) { return std::min(h, hkv - 1); };
    const auto next = [=](int h) { return (h / group + 1) % hkv; };
    const auto ratio = static_cast<int>(std::bit_ceil(static_cast<unsigned>(group)));
    const auto rounded = [=](int h) { return std::min(h / ratio, hkv - 1); };
    constexpr const char* kHeadH = "query head h reads";
    if (group > 1 && hkv > 1) {
      wrong_head(kHeadH, fmt::format("h % {}, not h / {}", hkv, group), modulo, "kv_head_modulo");
      wrong_head(kHeadH, fmt::format("min(h, {}), not h / {}", hkv - 1, group), first);
    }
    if (ratio != group && hkv > 1) {
      wrong_head(kHeadH, fmt::format("min(h / {}, {}), not h / {}", ratio, hkv - 1, group), rounded,
                 fmt::format("ratio_{}_rounded", group));
    }
    if (hkv > 1) {
      wrong_head("all query heads read", "0", [](int) { return 0; });
      wrong_head(kHeadH, fmt::format("(h / {0} + 1) % {1}, not h / {0}", group, hkv), next, "",
                 "v_head_behind");
    }
    if (p_.head_dim != p_.value_dim() || layout_.v_is_k_view) return;
    misread("", "keys and values are exchanged", {.k = Tensor::kV, .v = Tensor::kK});
    misread("", "K is read in the place of V, too", {.v = Tensor::kK});
    misread("", "V is read in the place of K, too", {.k = Tensor::kV});
  }

  /// Indices in 8 or 16 bits.
  void cut_indices() {
    constexpr int kBits16 = 1 << 16, kBits8 = 1 << 8;
    const int longest = p_.k_lens.empty() ? 0 : *std::ranges::max_element(p_.k_lens);
    if (p_.k_lens.size() > kBits16)
      misread("", "indices of sequences are cut to 16 bits: sequence 65537 reads K and V of sequence 1",
              {.place = [](Tensor, int seq, int pos) { return std::pair(seq % kBits16, pos); }});
    if (longest > kBits16)
      misread("", "indices of keys are cut to 16 bits: key 1 is read for key 65537",
              {.place = [](Tensor, int seq, int pos) { return std::pair(seq, pos % kBits16); }});
    const auto head = [group = p_.num_heads_q / p_.num_heads_kv](int h) { return h % kBits8 / group; };
    if (p_.num_heads_q > kBits8 && p_.num_heads_kv > 1)
      misread("", "indices of heads are cut to 8 bits: query head 257 reads the KV head of head 1",
              {.k_head = head, .v_head = head});
  }

  const Layout& layout_;
};

Layout layout_of(const CaseParams& p) {
  Layout layout;
  layout.custom_mask = p.custom_mask != CustomMask::kNone;
  layout.key_lists = p.topk > 0;
  layout.v_is_k_view = p.v_is_k_view;
  if (p.kv != KvSource::kPaged) return layout;
  layout.page_size = p.block_size;
  for (std::size_t b = 0; b < p.seqs.size(); ++b) layout.leftpad.push_back(leftpad_of(p, b));
  return layout;
}

}  // namespace

Mistake misread_mistake(const P& right, const reference::Inputs& inputs, std::string fault, std::string text,
                        Misread::How how) {
  const bool by_query_head = static_cast<bool>(how.k_head);
  Mistake m{std::move(text),
            [by_query_head](P& x) {
              if (by_query_head) x.num_heads_kv = x.num_heads_q;
            },
            right,
            std::make_shared<Misread>(right, inputs, std::move(how)),
            true,
            true,
            std::move(fault)};
  m.change(m.problem);
  return m;
}

Mistake reads_kv_head(const P& right, const reference::Inputs& inputs, int kv_head) {
  return Mistakes(right, {}, inputs).one_head(kv_head).front();
}

std::vector<Mistake> mistakes_of(const P& right, const Layout& layout, const reference::Inputs& inputs) {
  return Mistakes(right, layout, inputs).all();
}

std::vector<Mistake> mistakes_of(const Case& c, const P& right, const reference::Inputs& inputs) {
  std::vector<Mistake> all = mistakes_of(right, layout_of(c.params), inputs);
  for (const auto& more : {stored_mistakes, place_mistakes, input_mistakes}) {
    for (Mistake& m : more(c, right, inputs)) all.push_back(std::move(m));
  }
  return all;
}

}  // namespace attnbench
