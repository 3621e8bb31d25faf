#include "harness/judge/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numbers>
#include <numeric>
#include <optional>

namespace attnbench {
namespace {

constexpr double kLeastShare = 1e-4;  ///< of the row's largest weight: smaller ones are not looked at

/// ln(weight / what it should be) of the keys of a row that are looked at.
struct RowError {
  const WeighedRow* row;
  std::vector<int> keys;
  std::vector<double> error;  ///< (keys)

  std::size_t size() const { return keys.size(); }
  double score(std::size_t i) const { return row->score[static_cast<std::size_t>(keys[i])]; }
  double median() const {
    std::vector<double> of = error;
    const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
    std::nth_element(of.begin(), middle, of.end());
    return *middle;
  }
};

class Weights {
 public:
  Weights(const CaseParams& p, std::span<const WeighedRow> rows, const KeyCounts& counts, double tolerance)
      : p_(p), rows_(rows), tolerance_(tolerance) {
    for (std::size_t r = 0; r < rows.size(); ++r) add(rows[r], counts.of[r]);
    for (const RowError& e : errors_) {
      for (std::size_t i = 1; i < e.size(); ++i) {
        if (e.keys[i] == e.keys[i - 1] + 1 && std::abs(e.error[i] - e.error[i - 1]) > 2 * tolerance_)
          part_ = std::gcd(part_, e.keys[i]);
      }
    }
  }

  std::string text() const {
    if (errors_.empty() || largest() <= tolerance_) return "";
    for (const auto& find :
         {&Weights::of_rows, &Weights::of_scores, &Weights::of_distance, &Weights::of_other_keys,
          &Weights::of_blocks, &Weights::of_each_score, &Weights::of_some_keys}) {
      if (std::string found = (this->*find)(); !found.empty()) return found;
    }
    return "";
  }

 private:
  void add(const WeighedRow& row, const std::vector<double>& count) {
    double sum = 0, most = 0;
    std::vector<double> expected(row.seen.size(), 0.0);
    const double shift = row.lse;
    for (std::size_t j = 0; j < expected.size(); ++j) {
      if (count[j] > 0) expected[j] = count[j] * std::exp(row.score[j] - shift);
      sum += expected[j];
      most = std::max(most, expected[j]);
    }
    // What a sink adds to the right denominator.
    double right = 0;
    for (std::size_t j = 0; j < expected.size(); ++j) {
      if (row.seen[j] != 0) right += std::exp(row.score[j] - shift);
    }
    sum += std::max(0.0, 1 - right);
    RowError error{&row, {}, {}};
    for (std::size_t j = 0; j < expected.size(); ++j) {
      if (!(expected[j] > kLeastShare * most) || !(row.weight[j] > 0)) continue;
      error.keys.push_back(static_cast<int>(j));
      error.error.push_back(std::log(row.weight[j] * sum / expected[j]));
    }
    if (error.size() >= 2) errors_.push_back(std::move(error));
  }

  double largest() const {
    double most = 0;
    for (const RowError& e : errors_) {
      for (const double x : e.error) most = std::max(most, std::abs(x));
    }
    return most;
  }

  /// The largest difference between errors of a row, if `key` is taken from each.
  double spread(const std::function<double(const RowError&, std::size_t)>& less) const {
    double most = 0;
    for (const RowError& e : errors_) {
      double lo = INFINITY, hi = -INFINITY;
      for (std::size_t i = 0; i < e.size(); ++i) {
        const double x = e.error[i] - less(e, i);
        lo = std::min(lo, x);
        hi = std::max(hi, x);
      }
      most = std::max(most, hi - lo);
    }
    return most;
  }

  /// Slopes of the error on a figure of a key, by query head or one for all, if they explain the weights but for a factor of each row.
  std::optional<std::map<int, double>> slopes(
      const std::function<double(const RowError&, std::size_t)>& figure, bool each_head = true) const {
    std::map<int, std::pair<double, double>> sums;  // by head
    for (const RowError& e : errors_) {
      double mean_x = 0, mean_y = 0;
      for (std::size_t i = 0; i < e.size(); ++i) {
        mean_x += figure(e, i) / static_cast<double>(e.size());
        mean_y += e.error[i] / static_cast<double>(e.size());
      }
      auto& [xx, xy] = sums[each_head ? e.row->id.head : 0];
      for (std::size_t i = 0; i < e.size(); ++i) {
        const double x = figure(e, i) - mean_x;
        xx += x * x;
        xy += x * (e.error[i] - mean_y);
      }
    }
    std::map<int, double> found;
    for (const auto& [head, of] : sums) found[head] = of.first > 0 ? of.second / of.first : 0;
    if (spread([&](const RowError& e, std::size_t i) {
          return found.at(each_head ? e.row->id.head : 0) * figure(e, i);
        }) > 2 * tolerance_)
      return std::nullopt;
    return found;
  }

  /// "0.5" where all heads have it, or "0.5 (head 0), 0.25 (head 1)".
  static std::string by_head(const std::map<int, double>& of) {
    const auto [lo, hi] = std::ranges::minmax_element(of, {}, [](const auto& x) { return x.second; });
    if (hi->second - lo->second <= 0.01 * std::max(std::abs(lo->second), std::abs(hi->second)))
      return fmt::format("{:.3g}", lo->second);
    constexpr std::size_t kShown = 4;
    std::string text;
    std::size_t shown = 0;
    for (const auto& [head, x] : of) {
      if (++shown > kShown) return text + ", ...";
      text += fmt::format("{}{:.3g} (head {})", text.empty() ? "" : ", ", x, head);
    }
    return text;
  }

  std::string lse_text(const char* if_right) const {
    for (const RowError& e : errors_) {
      if (!(std::abs(e.row->got_lse - e.row->lse) <= 1e-3)) return "";
    }
    return if_right;
  }

  /// Errors that are one factor of each row.
  std::string of_rows() const {
    if (spread([](const RowError&, std::size_t) { return 0.0; }) > 2 * tolerance_) return "";
    double least = INFINITY, most = 0;
    for (const RowError& e : errors_) {
      least = std::min(least, std::exp(e.median()));
      most = std::max(most, std::exp(e.median()));
    }
    std::string why = denominator();
    const std::string low = fmt::format("{:.3g}", least), high = fmt::format("{:.3g}", most);
    return fmt::format(
        "the weights of a row are right among each other, but have the factor {}, as if O is divided by "
        "another sum{}{}{}",
        low == high ? low : low + " to " + high,
        dtype_size(p_.type_of_v()) == 1 ? ", or V has other descales" : "",
        lse_text(", while the LSE is right"), why.empty() ? "" : "; " + why);
  }

  /// What the wrong denominators of of_rows() are, if it is known.
  std::string denominator() const {
    for (const int block : blocks()) {
      const bool fits = std::ranges::all_of(errors_, [&](const RowError& e) {
        const std::vector<double> running = running_maximum(*e.row, block);
        double sum = 0, right = 0, last = -INFINITY;
        for (std::size_t j = 0; j < running.size(); ++j) {
          if (e.row->seen[j] != 0) last = running[j];
        }
        for (std::size_t j = 0; j < running.size(); ++j) {
          if (e.row->seen[j] == 0) continue;
          sum += std::exp(e.row->score[j] - running[j]);
          right += std::exp(e.row->score[j] - last);
        }
        return std::abs(e.median() + std::log(sum / right)) <= 2 * tolerance_;
      });
      if (fits)
        return fmt::format(
            "these are the sums if the sum is not rescaled when a later block of {} keys raises the "
            "maximum (O is)",
            block);
    }
    if (!p_.sinks) return "";
    // The sink's share of each denominator, as a score.
    const auto sink_is = [&](double times_max) {
      return std::ranges::all_of(errors_, [&](const RowError& e) {
        double keys = 0, top = -INFINITY;
        for (std::size_t j = 0; j < e.row->seen.size(); ++j) {
          if (e.row->seen[j] == 0) continue;
          keys += std::exp(e.row->score[j] - e.row->lse);
          top = std::max(top, e.row->score[j]);
        }
        if (keys >= 1) return false;
        const double sum = std::exp(-e.median()), sink = (1 - keys) * std::exp(times_max * top);
        return std::abs(sum - keys - sink) <= 2 * tolerance_ * sum;
      });
    };
    if (sink_is(1)) return "these are the sums if the row's maximum is not subtracted from the sink";
    if (sink_is(-1)) return "these are the sums if the row's maximum is subtracted twice from the sink";
    return "";
  }

  std::string of_scores() const {
    const auto found = slopes([](const RowError& e, std::size_t i) { return e.score(i); });
    if (!found) return "";
    std::map<int, double> factor;
    for (const auto& [head, slope] : *found) factor[head] = 1 + slope;
    return fmt::format("scores have the factor {} (the final ones, after biases)", by_head(factor));
  }

  std::string of_distance() const {
    const auto found = slopes([this](const RowError& e, std::size_t i) {
      const SeqLen& s = p_.seqs[static_cast<std::size_t>(e.row->id.seq)];
      const int diag = e.row->id.pos + (p_.causal.top_left ? 0 : s.k - s.q);
      return static_cast<double>(-std::abs(diag - e.keys[i]));
    });
    if (!found) return "";
    return fmt::format(
        "scores fall with the distance of query and key by {} per key more than they should, as with other ALiBi "
        "slopes",
        by_head(*found));
  }

  /// Scores that belong to other keys of the sequence: a constant distance away.
  std::string of_other_keys() const {
    constexpr int kLeastRows = 8;  ///< with fewer, scores may be alike by chance
    if (!lse_text("right").empty()) return "";
    std::map<int, std::vector<const RowError*>> by_seq_head;
    std::map<int, int> from;  // key -> the key whose score it has
    for (const RowError& e : errors_)
      by_seq_head[e.row->id.seq * p_.num_heads_kv + e.row->id.head / (p_.num_heads_q / p_.num_heads_kv)]
          .push_back(&e);
    for (const auto& group : by_seq_head) {
      const auto& rows = group.second;
      for (int j = 0; j < rows.front()->row->keys(); ++j) {
        const auto error_at = [&](const RowError& e, int key) -> std::optional<double> {
          const auto at = std::ranges::find(e.keys, key);
          if (at == e.keys.end()) return std::nullopt;
          return e.error[static_cast<std::size_t>(at - e.keys.begin())];
        };
        // The score that the weight shows, up to what all keys of a row share.
        const auto shown = [&](const RowError& e, int key) -> std::optional<double> {
          const auto error = error_at(e, key);
          if (!error) return std::nullopt;
          const double offset = std::isfinite(e.row->got_lse) ? e.row->got_lse - e.row->lse : -e.median();
          return e.row->score[static_cast<std::size_t>(key)] + *error + offset;
        };
        const auto matches = [&](int other) {
          int with = 0;
          for (const RowError* e : rows) {
            const auto s = shown(*e, j);
            if (!s) continue;
            ++with;
            if (std::abs(*s - e->row->score[static_cast<std::size_t>(other)]) > 2 * tolerance_) return false;
          }
          return with >= kLeastRows;
        };
        if (matches(j)) continue;
        for (int other = 0; other < rows.front()->row->keys(); ++other) {
          if (!matches(other)) continue;
          const auto [known, added] = from.try_emplace(j, other);
          if (!added && known->second != other) return "";
          break;
        }
      }
    }
    if (from.size() < 2) return "";
    return "keys have the scores of other keys, as if K is read in other places than V: keys " +
           pairs_text(from, "those of");
  }

  std::vector<int> blocks() const {
    std::vector<int> sizes = {8, 16, 32, 64, 128, 256};
    for (const int size : {p_.paged() ? p_.block_size : 1, part_}) {
      if (size > 1 && std::ranges::find(sizes, size) == sizes.end()) sizes.push_back(size);
    }
    return sizes;
  }

  /// (keys) The largest score of a visible key up to the end of the key's block.
  static std::vector<double> running_maximum(const WeighedRow& row, int block) {
    std::vector<double> running(row.seen.size(), -INFINITY);
    double top = -INFINITY;
    for (std::size_t begin = 0; begin < running.size(); begin += static_cast<std::size_t>(block)) {
      const std::size_t end = std::min(running.size(), begin + static_cast<std::size_t>(block));
      for (std::size_t j = begin; j < end; ++j) {
        if (row.seen[j] != 0) top = std::max(top, row.score[j]);
      }
      std::fill(running.begin() + static_cast<std::ptrdiff_t>(begin),
                running.begin() + static_cast<std::ptrdiff_t>(end), top);
    }
    return running;
  }

  /// (keys) A figure of each block's visible scores: their maximum, or their LSE.
  static std::vector<double> figure_of_blocks(const WeighedRow& row, int block, bool lse) {
    std::vector<double> of(row.seen.size(), -INFINITY);
    for (std::size_t begin = 0; begin < of.size(); begin += static_cast<std::size_t>(block)) {
      const std::size_t end = std::min(of.size(), begin + static_cast<std::size_t>(block));
      double top = -INFINITY, sum = 0;
      for (std::size_t j = begin; j < end; ++j) {
        if (row.seen[j] != 0) top = std::max(top, row.score[j]);
      }
      for (std::size_t j = begin; j < end; ++j) {
        if (row.seen[j] != 0) sum += std::exp(row.score[j] - top);
      }
      std::fill(of.begin() + static_cast<std::ptrdiff_t>(begin),
                of.begin() + static_cast<std::ptrdiff_t>(end), lse ? top + std::log(sum) : top);
    }
    return of;
  }

  /// Factors of blocks of keys, and what they are.
  std::string of_blocks() const {
    int found = 0;
    for (const int block : blocks()) {
      bool several = false;
      double most = 0;
      for (const RowError& e : errors_) {
        std::map<int, std::pair<double, double>> of;  // least and largest error of each block
        for (std::size_t i = 0; i < e.size(); ++i) {
          auto& [lo, hi] = of.try_emplace(e.keys[i] / block, INFINITY, -INFINITY).first->second;
          lo = std::min(lo, e.error[i]);
          hi = std::max(hi, e.error[i]);
        }
        for (const auto& [b, x] : of) most = std::max(most, x.second - x.first);
        several = several || (of.size() > 1 && of.size() < e.size());
      }
      if (most <= 2 * tolerance_ && several) found = std::max(found, block);
    }
    if (found == 0) return "";
    std::string text = fmt::format(
        "weights are right among the keys of a block of {}, but blocks have wrong factors among each "
        "other{}",
        found, lse_text(", while the LSE is right"));
    for (const int block : blocks()) {
      if (const std::string why = factors_of_blocks(block); !why.empty())
        return text.append(": ").append(why);
    }
    return text +
           ": perhaps what is summed so far is rescaled by a wrong factor, or parts of the keys are merged by wrong weights";
  }

  /// What the factors of blocks are.
  std::string factors_of_blocks(int block) const {
    std::map<const WeighedRow*, std::vector<double>> running, own, sums;
    for (const RowError& e : errors_) {
      running[e.row] = running_maximum(*e.row, block);
      own[e.row] = figure_of_blocks(*e.row, block, false);
      sums[e.row] = figure_of_blocks(*e.row, block, true);
    }
    const auto at = [](const auto& of, const RowError& e, std::size_t i) {
      return of.at(e.row)[static_cast<std::size_t>(e.keys[i])];
    };
    const auto slope = [&](const auto& figure) -> std::optional<double> {
      const auto found = slopes(figure, false);
      return found ? std::optional(found->begin()->second) : std::nullopt;
    };
    const auto is = [](const std::optional<double>& x, double value) {
      return x && std::abs(*x - value) < 0.03;
    };
    constexpr double kExp2 = std::numbers::ln2 - 1;  ///< exp2(x) = exp(x + kExp2 x)
    const auto kept = slope([&](const RowError& e, std::size_t i) { return -at(running, e, i); });
    if (is(kept, 1))
      return fmt::format(
          "what is summed in O is not rescaled when a later block of {} keys raises the maximum", block);
    if (is(kept, -kExp2))
      return fmt::format(
          "what is summed so far is rescaled by exp2 of a natural difference when a later block of {} keys raises "
          "the maximum",
          block);
    if (is(kept, -1))
      return fmt::format(
          "what is summed so far is rescaled twice when a later block of {} keys raises the maximum", block);
    if (is(slope([&](const RowError& e, std::size_t i) { return at(running, e, i) - at(own, e, i); }), 1))
      return fmt::format(
          "the weights of a block of {} keys are relative to its own maximum, not to the running one", block);
    const auto merged = slope([&](const RowError& e, std::size_t i) { return at(sums, e, i); });
    const auto own_sums =
        slope([&](const RowError& e, std::size_t i) { return at(sums, e, i) - at(own, e, i); });
    const char* wrong = is(own_sums, -1)    ? "are merged by exp of their maxima, without their sums"
                        : is(merged, -1)    ? "count the same, whatever their LSEs are"
                        : is(merged, kExp2) ? "are merged by exp2 of their natural LSEs"
                        : is(merged, std::numbers::log2e - 1) ? "are merged by exp of their LSEs of base 2"
                                                              : nullptr;
    return wrong == nullptr ? "" : fmt::format("parts of {} keys {}", block, wrong);
  }

  /// Scores that are a function of the right ones, such as a cap.
  std::string of_each_score() const {
    std::vector<std::pair<double, double>> points;
    for (const RowError& e : errors_) {
      if (!std::isfinite(e.row->got_lse)) return "";
      for (std::size_t i = 0; i < e.size(); ++i)
        points.emplace_back(e.score(i), e.score(i) + e.error[i] + e.row->got_lse - e.row->lse);
    }
    std::ranges::sort(points);
    constexpr std::size_t kFewestPoints = 64;
    if (points.size() < kFewestPoints) return "";
    for (std::size_t i = 1; i < points.size(); ++i) {
      const double step = points[i].first - points[i - 1].first;
      if (std::abs(points[i].second - points[i - 1].second) > 2 * tolerance_ + 2 * step) return "";
    }
    std::string text;
    for (const double share : {0.02, 0.5, 0.9, 0.98, 0.9999}) {
      const auto& [right, got] =
          points[static_cast<std::size_t>(share * static_cast<double>(points.size() - 1))];
      text += fmt::format("{}{:.3g} in place of {:.3g}", text.empty() ? "" : ", ", got, right);
    }
    return "scores are changed by a function of the score alone, such as a cap: they are " + text;
  }

  /// Which keys have wrong weights.
  std::string of_some_keys() const {
    std::vector<WeighedRow> rows;
    std::vector<std::vector<char>> in, may;
    std::string example;
    for (const RowError& e : errors_) {
      const double middle = e.median();
      rows.push_back(*e.row);
      in.emplace_back(e.row->seen.size(), 0);
      may.emplace_back(e.row->seen.size(), 0);
      std::vector<int> wrong;
      for (std::size_t i = 0; i < e.size(); ++i) {
        const auto j = static_cast<std::size_t>(e.keys[i]);
        const double off = std::abs(e.error[i] - middle);
        may.back()[j] = off <= tolerance_ || off > 3 * tolerance_;  // a change may be too small to see
        in.back()[j] = off > 3 * tolerance_;
        if (in.back()[j] != 0) wrong.push_back(e.keys[i]);
      }
      if (4 * wrong.size() > e.size()) return "";
      if (example.empty() && !wrong.empty())
        example = fmt::format("seq {} pos {} head {}: {}", e.row->id.seq, e.row->id.pos, e.row->id.head,
                              ranges_text(wrong));
    }
    if (example.empty()) return "";
    // A change of a score may be small in some rows, so a key is a member if it is one in any row.
    std::map<int, bool> any;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (int j = 0; j < rows[r].keys(); ++j) any[j] = any[j] || in[r][static_cast<std::size_t>(j)] != 0;
    }
    const std::string rule = rule_of_keys(p_, rows, in, may);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (int j = 0; j < rows[r].keys(); ++j) {
        const auto at = static_cast<std::size_t>(j);
        if (may[r][at] != 0) in[r][at] = any[j];
      }
    }
    const std::string wide = rule.empty() ? rule_of_keys(p_, rows, in, may) : rule;
    return fmt::format("few keys of a row have wrong weights, the others are right among each other: {}; {}",
                       wide.empty() ? "some" : wide, example);
  }

  const CaseParams& p_;
  std::span<const WeighedRow> rows_;
  double tolerance_;
  int part_ = 0;  ///< factors of keys change at its multiples only; 0: nowhere
  std::vector<RowError> errors_;
};

}  // namespace

std::string pairs_text(const std::map<int, int>& of, const char* verb) {
  constexpr std::size_t kMost = 3;
  std::map<int, std::vector<int>> by_distance;
  for (const auto& [key, other] : of) by_distance[key - other].push_back(key);
  std::string text;
  std::size_t shown = 0;
  for (const auto& [distance, keys] : by_distance) {
    if (++shown > kMost) return text + ", ...";
    std::vector<int> others;
    for (const int key : keys) others.push_back(key - distance);
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", ranges_text(keys), verb, ranges_text(others));
  }
  return text;
}

std::string weights_clue(const CaseParams& p, std::span<const WeighedRow> rows, const KeyCounts& counts,
                         double tolerance) {
  return Weights(p, rows, counts, tolerance).text();
}

}  // namespace attnbench
