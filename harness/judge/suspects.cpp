#include "harness/judge/suspects.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "harness/cases/cost.h"
#include "harness/cases/seen_keys.h"
#include "harness/judge/misread.h"

namespace attnbench {
namespace {

/// Collects the suspects of a case.
class Suspects {
 public:
  Suspects(const Case& c, const reference::Problem& right, const reference::Inputs& inputs)
      : case_(c), p_(c.params), right_(right), inputs_(inputs) {}

  Suspect one_head(int kv_head) && {
    const auto head = [kv_head](int) { return kv_head; };
    misread(fmt::format("all query heads read KV head {}", kv_head), {.k_head = head, .v_head = head});
    return std::move(out_.front());
  }

  std::vector<Suspect> all() && {
    scale();
    mask();
    custom_mask();
    key_lists();
    key_range();
    border_keys();
    scores();
    heads_and_inputs();
    return std::move(out_);
  }

 private:
  /// `change` outlives this object: it holds copies.
  void problem(std::string text, std::function<void(reference::Problem&)> change) {
    add({std::move(text), std::move(change), right_,
         std::shared_ptr<const reference::Inputs>(std::shared_ptr<void>(), &inputs_)});
  }
  void misread(std::string text, Misread::How how) {
    const bool by_query_head = static_cast<bool>(how.k_head);
    add({std::move(text),
         [by_query_head](reference::Problem& x) {
           if (by_query_head) x.num_heads_kv = x.num_heads_q;
         },
         right_, std::make_shared<Misread>(case_, inputs_, std::move(how)), true});
  }
  void add(Suspect s) {
    s.change(s.problem);
    out_.push_back(std::move(s));
  }

  /// The wrong head of K and V, of V alone, and of K alone: "<who> KV head <which>" and so on.
  void wrong_head(const char* who, const std::string& which, const std::function<int(int)>& head) {
    const int group = p_.num_heads_q / p_.num_heads_kv;
    const auto right = [group](int h) { return h / group; };
    misread(fmt::format("{} KV head {}", who, which), {.k_head = head, .v_head = head});
    if (p_.v_is_k_view) return;  // one tensor, read once
    misread(fmt::format("{} V head {}; the K head is right", who, which), {.k_head = right, .v_head = head});
    misread(fmt::format("{} K head {}; the V head is right", who, which), {.k_head = head, .v_head = right});
  }

  void scale() {
    const double s = right_.softmax_scale, d = p_.head_dim;
    std::vector<double> tried = {s};
    const auto add = [&](double value, const std::string& text) {
      for (const double t : tried) {
        if (std::abs(value / t - 1) < 1e-3) return;
      }
      tried.push_back(value);
      problem(text, [value](reference::Problem& x) { x.softmax_scale = value; });
    };
    add(1, fmt::format("softmax_scale ({:.4g}) is not applied", s));
    add(1 / std::sqrt(d), fmt::format("1/sqrt(head_dim) is applied for softmax_scale ({:.4g})", s));
    add(s * std::numbers::log2e, "log2(e) is applied to scores of exp (or twice to those of exp2)");
    add(s * std::numbers::ln2, "log2(e) is missing in scores of exp2");
    add(1 / d, "1/head_dim is applied for softmax_scale");
    // With a scale of 1/sqrt(head_dim) both are the same. Cases with another scale tell which one it is.
    if (std::abs(s * s * d - 1) < 1e-3) tried.pop_back();
    add(s * s, "softmax_scale is applied twice");
  }

  void mask() {
    const auto change = [&](const std::string& text, auto&& how) { problem(text, how); };
    if (p_.causal) {
      change("the causal mask is not applied", [](reference::Problem& x) { x.causal = false; });
      change("the causal mask shows one key too many: keys j <= diag + 1 are seen, not j <= diag",
             [](reference::Problem& x) {
               x.causal = false;
               x.window_right = 1;
             });
      if (!p_.causal.top_left)
        change("the causal mask hides one key too many: keys j < diag are seen, not j <= diag",
               shorter_by_one);
      change(p_.causal.top_left
                 ? "the causal mask is aligned bottom-right, j <= i + len_k - len_q, not j <= i"
                 : "the causal mask is aligned top-left, j <= i, not j <= i + len_k - len_q",
             [](reference::Problem& x) { x.top_left = !x.top_left; });
      // With one query a sequence, the last key is the diagonal.
      if (std::any_of(p_.seqs.begin(), p_.seqs.end(), [](const SeqLen& s) { return s.q > 1; })) {
        change("the last key of each sequence is left out, but the diagonal is right",
               [](reference::Problem& x) {
                 x.k_ends = x.k_lens;
                 for (int& k : x.k_ends) k = std::max(0, k - 1);
               });
      }
    } else {
      if (p_.window_right < 0)
        change("a causal mask is applied, but the case has none",
               [](reference::Problem& x) { x.causal = true; });
      change("the last key of each sequence is left out", shorter_by_one);
    }
    const auto window = [&](int reference::Problem::*side, const char* name) {
      const int width = right_.*side;
      if (width < 0) return;
      change(fmt::format("{} is not applied", name), [side](reference::Problem& x) { x.*side = -1; });
      change(fmt::format("{} is one key too wide", name),
             [side, width](reference::Problem& x) { x.*side = width + 1; });
      if (width > 0) {
        change(fmt::format("{} is one key too narrow", name),
               [side, width](reference::Problem& x) { x.*side = width - 1; });
      }
    };
    if (p_.attention_chunk > 0) {
      change("attention_chunk is not applied", [](reference::Problem& x) { x.attention_chunk = 0; });
      change(
          "attention_chunk is applied as a window: the last attention_chunk keys are seen, not those of the chunk",
          [](reference::Problem& x) {
            x.window_left = x.attention_chunk - 1;
            x.attention_chunk = 0;
          });
      change("attention_chunk is one key too wide", [](reference::Problem& x) { ++x.attention_chunk; });
    }
    window(&reference::Problem::window_left, "window_left");
    if (!p_.causal) window(&reference::Problem::window_right, "window_right");
  }

  /// Bits that are not read, or found elsewhere. `at` says which bit a wrong kernel takes for bit n of a sequence, which
  /// are the bits of row n / len_k, key n % len_k.
  void custom_mask() {
    if (p_.custom_mask == CustomMask::kNone) return;
    const auto seen = std::make_shared<const SeenKeys>(case_);
    const auto bits = [&](const std::string& text, auto at) {
      problem(text, [seen, at](reference::Problem& x) {
        x.sees = [seen, at](int seq, int pos, int, int64_t key) {
          const auto [owner, n] = at(seq, pos, key, seen->bits(static_cast<std::size_t>(seq)).len().k);
          const MaskBits& of = seen->bits(static_cast<std::size_t>(owner));
          const SeqLen len = of.len();
          return n < int64_t{len.q} * len.k && of.sees(n / len.k, n % len.k);
        };
      });
    };
    problem("the custom mask is not applied", [](reference::Problem& x) { x.sees = nullptr; });
    problem("the custom mask hides what it shows", [seen](reference::Problem& x) {
      x.sees = [seen](int seq, int pos, int, int64_t key) {
        return !seen->in_no_gap(static_cast<std::size_t>(seq), pos, 0, key);
      };
    });
    bits("bits of the custom mask are counted from the highest of a byte",
         [](int seq, int pos, int64_t key, int64_t k) {
           const int64_t n = pos * k + key;
           return std::pair(seq, n / 8 * 8 + 7 - n % 8);
         });
    bits("rows of the custom mask are taken to begin a byte each",
         [](int seq, int pos, int64_t key, int64_t k) {
           return std::pair(seq, pos * ((k + 7) / 8 * 8) + key);
         });
    if (p_.seqs.size() > 1) {
      bits("the custom mask of sequence 0 is taken for all",
           [](int, int pos, int64_t key, int64_t k) { return std::pair(0, pos * k + key); });
    }
  }

  void key_lists() {
    if (p_.topk == 0) return;
    problem("the lists of keys are not read: all keys are seen",
            [](reference::Problem& x) { x.sees = nullptr; });
    if (p_.num_heads_kv == 1) return;
    const auto seen = std::make_shared<const SeenKeys>(case_);
    problem("the lists of KV head 0 are taken for all", [seen](reference::Problem& x) {
      x.sees = [seen](int seq, int pos, int, int64_t key) {
        return seen->in_no_gap(static_cast<std::size_t>(seq), pos, 0, key);
      };
    });
  }

  static void shorter_by_one(reference::Problem& x) {
    for (int& k : x.k_lens) k = std::max(0, k - 1);
  }

  /// A page, or a tile of keys that a kernel may take at once.
  struct KeyTile {
    int size;
    bool page;
    std::string text() const { return fmt::format("{} of {}", page ? "page or tile" : "tile", size); }
  };
  std::vector<KeyTile> key_tiles() const {
    std::vector<KeyTile> tiles;
    if (p_.kv == KvSource::kPaged) tiles.push_back({p_.block_size, true});
    for (const int t : {16, 32, 64, 128}) {
      if (tiles.empty() || !tiles.front().page || t != p_.block_size) tiles.push_back({t, false});
    }
    return tiles;
  }
  /// Tokens of sequence b before its first key, in its first page.
  static int before(const CaseParams& p, const KeyTile& t, std::size_t b) {
    return t.page ? leftpad_of(p, b) : 0;
  }

  /// The keys behind the last whole tile or page are left out. The diagonal stays where it is.
  void key_range() {
    for (const KeyTile& t : key_tiles()) {
      problem(fmt::format("keys behind the last whole {} are left out", t.text()),
              [t, &p = p_](reference::Problem& x) {
                x.k_ends = x.k_lens;
                for (std::size_t b = 0; b < x.k_ends.size(); ++b) {
                  const int first = before(p, t, b);
                  x.k_ends[b] = std::max(0, (first + x.k_ends[b]) / t.size * t.size - first);
                }
              });
      if (!t.page || t.size == 1) continue;
      problem(fmt::format("the last key of sequences that fill their last page of {} is left out", t.size),
              [t, &p = p_](reference::Problem& x) {
                x.k_ends = x.k_lens;
                for (std::size_t b = 0; b < x.k_ends.size(); ++b) {
                  const bool full = x.k_ends[b] > 0 && (before(p, t, b) + x.k_ends[b]) % t.size == 0;
                  x.k_ends[b] -= full ? 1 : 0;
                }
              });
    }
  }

  /// Keys at the borders of tiles or pages are left out, and the first key of all.
  void border_keys() {
    problem("the first key of each sequence is left out", [](reference::Problem& x) {
      x.sees = [right = x.sees](int seq, int pos, int head, int64_t key) {
        return key > 0 && (!right || right(seq, pos, head, key));
      };
    });
    enum class Except { kNone, kFirst, kLast };
    const auto left_out = [&](const char* which, const KeyTile& t, int place, Except except = Except::kNone) {
      const char* rest = except == Except::kFirst  ? " but the first"
                         : except == Except::kLast ? " but the last"
                                                   : "";
      problem(fmt::format("the {} key of each {}{} is left out", which, t.text(), rest),
              [t, place, except, &p = p_](reference::Problem& x) {
                x.sees = [t, place, except, &p, right = x.sees](int seq, int pos, int head, int64_t key) {
                  const auto b = static_cast<std::size_t>(seq);
                  const int64_t at = before(p, t, b) + key, last = before(p, t, b) + p.seqs[b].k - 1;
                  const bool kept = (except == Except::kFirst && at < t.size) ||
                                    (except == Except::kLast && at / t.size == last / t.size);
                  return (kept || at % t.size != place) && (!right || right(seq, pos, head, key));
                };
              });
      out_.back().in_pairs = false;  // too many
    };
    for (const KeyTile& t : key_tiles()) {
      int longest = 0;
      bool full = false;  // some last tile
      for (std::size_t b = 0; b < p_.seqs.size(); ++b) {
        const int end = p_.seqs[b].k == 0 ? 0 : before(p_, t, b) + p_.seqs[b].k;
        longest = std::max(longest, end);
        full = full || (end > 0 && end % t.size == 0);
      }
      if (t.size == 1 || longest <= t.size) continue;
      left_out("first", t, 0);
      left_out("first", t, 0, Except::kFirst);
      left_out("last", t, t.size - 1);
      if (full) left_out("last", t, t.size - 1, Except::kLast);
    }
  }

  void scores() {
    if (p_.softcap > 0) problem("the softcap is not applied", [](reference::Problem& x) { x.softcap = 0; });
    if (p_.alibi != Alibi::kNone) {
      problem("ALiBi is not applied", [](reference::Problem& x) { x.alibi_slopes.clear(); });
      problem("ALiBi has the wrong sign", [](reference::Problem& x) {
        for (double& slope : x.alibi_slopes) slope = -slope;
      });
      problem(
          p_.alibi_sqrt ? "ALiBi takes the distance, not its root" : "ALiBi takes the root of the distance",
          [](reference::Problem& x) { x.alibi_sqrt = !x.alibi_sqrt; });
    }
    if (p_.alibi == Alibi::kPerSequence) {
      problem("ALiBi's slopes of sequence 0 are taken for all",
              [](reference::Problem& x) { x.alibi_slopes.resize(static_cast<std::size_t>(x.num_heads_q)); });
    }
    if (p_.sinks) problem("the sinks are not applied", [](reference::Problem& x) { x.sinks.clear(); });
    if (p_.qv) {
      problem("qv is not applied", [](reference::Problem& x) { x.qv = false; });
      misread("qv.v is not multiplied by softmax_scale", {.qv_factor = 1 / right_.softmax_scale});
    }
    if (p_.dropout > 0) problem("dropout is not applied", [](reference::Problem& x) { x.p_dropout = 0; });
  }

  void heads_and_inputs() {
    const int hq = p_.num_heads_q, hkv = p_.num_heads_kv, group = hq / hkv;
    if (group > 1 && hkv > 1) {
      wrong_head("query head h reads", fmt::format("h % {}, not h / {}", hkv, group),
                 [=](int h) { return h % hkv; });
      wrong_head("query head h reads", fmt::format("min(h, {}), not h / {}", hkv - 1, group),
                 [=](int h) { return std::min(h, hkv - 1); });
    }
    if (hkv > 1) {
      wrong_head("all query heads read", "0", [](int) { return 0; });
      wrong_head("query head h reads", fmt::format("(h / {0} + 1) % {1}, not h / {0}", group, hkv),
                 [=](int h) { return (h / group + 1) % hkv; });
    }
    if (p_.head_dim == p_.dim_v() && !p_.v_is_k_view)
      misread("keys and values are exchanged", {.exchanged = true});
    packed_rows();
    if (p_.rotary_cached) misread("keys of the cache are not turned", {.not_turned = true});
    const auto descale = [&](Tensor tensor, DType type, const char* name) {
      if ((is_fp8(type) && p_.kv_dtype != KvDType::kDsMla) || type == DType::kInt8 || type == DType::kE2m1x2)
        misread(fmt::format("descales of {} are not applied", name), {.no_descale = tensor});
    };
    descale(Tensor::kQ, p_.type_of_q(), "Q");
    descale(Tensor::kK, p_.type_of_k(), "K");
    descale(Tensor::kV, p_.type_of_v(), "V");
    if (p_.scale_block() > 0) block_scales();
  }

  /// The rows of K and V of each sequence, found by the offsets of q.
  void packed_rows() {
    const auto longer = [](const SeqLen& s) { return s.k > s.q; };
    if (p_.kv != KvSource::kPacked || p_.gap_tokens > 0 || p_.gap_queries > 0 || p_.seqs.size() < 2) return;
    if (!std::any_of(p_.seqs.begin(), p_.seqs.end() - 1, longer)) return;
    if (std::any_of(p_.seqs.begin(), p_.seqs.end(), [](const SeqLen& s) { return s.q > s.k; })) return;
    misread("K and V of sequence b are read from row cu_seqlens_q[b] on, not cu_seqlens_k[b]",
            {.place = [&p = p_](int seq, int pos) {
              int64_t row = pos;
              for (int b = 0; b < seq; ++b) row += p.seqs[static_cast<std::size_t>(b)].q;
              int from = 0;
              for (; row >= p.seqs[static_cast<std::size_t>(from)].k; ++from)
                row -= p.seqs[static_cast<std::size_t>(from)].k;
              return std::pair(from, static_cast<int>(row));
            }});
  }

  void block_scales() {
    const int n = p_.scale_block();
    const auto scaled_by = [this, n](const std::string& text, auto factor, bool k, bool v) {
      misread(text, {.of_block =
                         [n, factor](const BlockScales& s, int dim, double* row) {
                           const int blocks = s.channels(dim) / n;
                           for (int c = 0; c < blocks * n; ++c) row[c] *= factor(s, c / n, blocks);
                         },
                     .of_k = k,
                     .of_v = v});
    };
    const auto none = [](const BlockScales& s, int block, int) { return 1 / s.of_block(block); };
    const auto next = [](const BlockScales& s, int block, int blocks) {
      return s.of_block((block + 1) % blocks) / s.of_block(block);
    };
    scaled_by("scales of blocks of channels are not applied", none, true, true);
    scaled_by("scales of blocks of channels are not applied to K", none, true, false);
    scaled_by("scales of blocks of channels are not applied to V", none, false, true);
    scaled_by("blocks of channels have the scales of their neighbours", next, true, true);
    if (p_.kv_dtype == KvDType::kNvfp4) {
      misread("the two numbers of a byte of K and V are exchanged",
              {.of_block = [](const BlockScales&, int dim, double* row) {
                for (int c = 0; c < dim; c += 2) std::swap(row[c], row[c + 1]);
              }});
    } else {
      misread("channels of K behind head_dim_v are left out",
              {.of_block = [](const BlockScales& s, int dim, double* row) {
                std::fill(row + s.channels(dim), row + dim, 0.0);
              }});
    }
  }

  const Case& case_;
  const CaseParams& p_;
  const reference::Problem& right_;
  const reference::Inputs& inputs_;
  std::vector<Suspect> out_;
};

}  // namespace

Suspect reads_kv_head(const Case& c, const reference::Problem& right, const reference::Inputs& inputs,
                      int kv_head) {
  return Suspects(c, right, inputs).one_head(kv_head);
}

std::vector<Suspect> suspects_of(const Case& c, const reference::Problem& right,
                                 const reference::Inputs& inputs) {
  return Suspects(c, right, inputs).all();
}

}  // namespace attnbench
