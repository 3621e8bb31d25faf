#include "harness/judge/clues.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <numbers>
#include <optional>
#include <set>
#include <tuple>

#include "harness/cases/cost.h"
#include "harness/judge/case_inputs.h"
#include "harness/judge/group_factors.h"
#include "harness/judge/logit_factor.h"
#include "harness/judge/misread_heads.h"
#include "harness/judge/misread_page.h"
#include "harness/judge/missing_rescale.h"
#include "harness/judge/mistakes.h"
#include "harness/judge/padding_keys.h"
#include "harness/judge/rounded_part.h"
#include "harness/judge/row_count.h"
#include "harness/judge/row_pattern.h"
#include "harness/judge/rows_of_others.h"
#include "harness/judge/sample.h"
#include "harness/judge/stored_out.h"
#include "harness/judge/two_mistakes.h"
#include "harness/judge/wrong_sums.h"

namespace attnbench {
namespace {

constexpr double kAllRowsFlop = 1e9;     ///< up to this, all rows are judged where few were compared
constexpr double kNearlyAll = 1.0 / 16;  ///< share of an error that a mistake may leave unexplained
constexpr int64_t kLeastTried = 4, kMostTried = 64;  ///< wrong rows that a mistake must explain
constexpr int64_t kValuesTried = 1 << 23;            ///< values of K and V to read for these rows, at most

/// At most `count` of the ids, spread evenly. The distance varies a little, so that they have different
/// places in their sequences and different heads.
std::vector<reference::RowId> spread(const std::vector<reference::RowId>& ids, std::size_t count) {
  if (ids.size() <= count) return ids;
  std::vector<reference::RowId> out;
  const std::size_t step = ids.size() / count;
  for (std::size_t i = 0; i < count; ++i) out.push_back(ids[i * step + i % step]);
  return out;
}

/// At most `count` of the ids: first of every distinct (q_len, k_len) a row of a first and of a last token, as
/// mistakes about lengths differ there, then others, spread evenly.
std::vector<reference::RowId> spread_with_ends(const CaseParams& p, const std::vector<reference::RowId>& ids,
                                               std::size_t count) {
  if (ids.size() <= count) return ids;
  std::map<std::tuple<int, int, bool>, std::vector<std::size_t>> ends;  // q_len, k_len, last token
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const SeqLen& s = p.seqs[static_cast<std::size_t>(ids[i].seq)];
    const bool last = ids[i].pos == s.q - 1;
    if (last || ids[i].pos == 0) ends[{s.q, s.k, last}].push_back(i);
  }
  std::set<std::size_t> chosen;
  for (const auto& [at, of] : ends) chosen.insert(of[chosen.size() * of.size() / ends.size()]);
  std::vector<reference::RowId> first, others;
  for (std::size_t i = 0; i < ids.size(); ++i) (chosen.count(i) > 0 ? first : others).push_back(ids[i]);
  first = spread(first, count);
  if (first.size() == count) return first;
  const auto more = spread(others, count - first.size());
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

class Clues {
 public:
  Clues(const Launched& launched, int num_threads)
      : launched_(launched),
        p_(launched.item.params),
        threads_(num_threads),
        problem_(problem_of(launched.item)),
        inputs_(launched.item, launched.outputs.new_k, &launched.outputs.new_v) {}

  std::vector<std::string> all() && {
    const bool every = launched_.rows_seed == 0 || cost_of(launched_.item).flop <= kAllRowsFlop;
    rows_ = find_rows(
        launched_, problem_, inputs_,
        every ? reference::all_rows(problem_) : sample_rows(launched_.item, launched_.rows_seed), threads_);
    for (const RowFinding& r : rows_) {
      if (!r.wrong()) right_.push_back(r.id);
      if (r.wrong_o && !r.nan) wrong_o_.push_back(r.id);
    }
    if (right_.size() == rows_.size()) return {};
    out_.emplace_back();  // row_count_text, when it is known whether the others name a cause
    add(row_pattern(p_, rows_));
    add(nan_source(p_, rows_));
    add(lse_base());
    if (!launched_.outputs.no_lse) add(lse_order(p_, rows_, launched_.outputs.lse));
    const std::size_t before = out_.size();
    add(integers());
    add(flushed());
    if (wrong_o_.empty()) {
      if (out_.size() == before && !launched_.outputs.no_lse) add(wrong_sums(problem_, rows_));
      if (out_.size() == before) rounding();
    } else {
      const Tried tried = rows_to_try();
      mistakes_ = mistakes_of(launched_.item, problem_, inputs_);
      bool lse_too = mistakes(tried);
      // A page that was read in place of another holds no NaN.
      const bool nan = std::ranges::any_of(rows_, [](const RowFinding& r) { return r.wrong() && r.nan; });
      if ((out_.size() == before || !lse_too) && !nan) page(tried, before);
      if (out_.size() == before && !launched_.outputs.no_lse) add(padding_keys(p_, rows_));
      if (out_.size() == before && !launched_.outputs.no_lse) add(wrong_sums(problem_, rows_));
      if (out_.size() == before) rounding();
      if (out_.size() == before) add(scale(tried));
      if (out_.size() == before) add(rescale());
      if (out_.size() == before && !nan) add(heads(tried));
      if (out_.size() == before) add(out_scale());
      if (out_.size() == before && !nan) add(group_factors(launched_, problem_, inputs_, rows_, threads_));
      if (out_.size() == before) in_part(tried);
      if (out_.size() == before && !nan) add(page_in_a_part(tried));
      if (out_.size() == before && !nan) one_page(tried);
      if (out_.size() == before && !nan) pairs(tried);
      if (out_.size() == before) add(nearly(tried));
    }
    if (out_.size() == before) add(other_row());
    const bool named = out_.size() > before;
    if (!named) add(factor());
    out_.front() = row_count_text(p_, rows_, every, !launched_.outputs.no_lse, named);
    return std::move(out_);
  }

 private:
  void add(std::string text) {
    if (!text.empty()) out_.push_back(std::move(text));
  }

  std::string lse_base() const {
    bool any = false;
    for (const RowFinding& r : rows_) {
      if (!r.wrong_lse || !std::isfinite(r.expected_lse)) continue;
      if (!std::isfinite(r.lse)) return "";
      any = true;
      // An LSE of base 2 was converted when it was read.
      const double other =
          p_.lse_base2 ? r.expected_lse * std::numbers::ln2 : r.expected_lse * std::numbers::log2e;
      if (!(std::abs(r.lse - other) <= 1e-4 * (1 + std::abs(r.lse)))) return "";
    }
    return !any           ? ""
           : p_.lse_base2 ? "looks like: the LSE is of base e, where base 2 is required"
                          : "looks like: the LSE is of base 2, where base e is required";
  }

  /// Says whether the results lost their fractions. NumPy has no bf16, so a kernel that assigns floats to an
  /// array of its bits converts them to integers.
  std::string integers() const {
    bool any = false, some = false, zero = true, blank = true, integers = true;
    for (const RowFinding& r : rows_) {
      if (!r.wrong_o || r.blank || (r.nan && r.keys == 0)) continue;  // all bits one are -1, too
      any = true;
      // With a wrong LSE too no score was seen, which other clues tell.
      zero = zero && r.zero && !r.wrong_lse;
      blank = blank && r.zero && r.wrong_lse && r.lse == 0;
      integers = integers && r.integers;
      some = some || !r.zero;
    }
    if (any && blank && !launched_.outputs.no_lse)
      return "O and LSE are 0 in all wrong rows: perhaps not computed, or not stored";
    if (!any || !(zero || (integers && some))) return "";
    const std::string mend = fmt::format("results converted to integers, where the bits of {} are required",
                                         dtype_name(p_.type_of_out()));
    if (!zero) return "looks like: " + mend;
    const bool by_a_neighbour = !right_.empty() && p_.seqs.size() > 1;
    return "O is 0 in all wrong rows" +
           (integers
                ? fmt::format(": perhaps {}not computed, or not stored, or {}",
                              by_a_neighbour ? "written by a tile that reaches past its sequence, or " : "",
                              mend)
                : std::string());
  }

  /// Says that exactly the elements of O below a bound are 0 where they should not be.
  std::string flushed() const {
    double zeros = 0, others = INFINITY;
    for (const RowFinding& r : rows_) {
      if (r.wrong_not_zero > 0 || r.wrong_lse || r.nan) return "";
      zeros = std::max(zeros, r.largest_wrong_zero);
      others = std::min(others, r.least_not_zero);
    }
    if (zeros == 0 || !(zeros <= others) || std::isinf(others)) return "";
    return fmt::format(
        "all wrong elements of O are 0, and all elements of more than {:.3g} are right: perhaps small numbers are flushed "
        "to 0, such as subnormals",
        zeros);
  }

  /// Wrong rows that a mistake must explain, then right ones that it must leave right.
  struct Tried {
    std::vector<reference::RowId> rows;
    std::size_t wrong = 0;
    /// "looks like: <mistake> (all 64 wrong rows tried match this mistake)". `guess`: others may give the same rows.
    std::string match(const Explanation& mistake, const char* it = "this mistake", bool guess = false) const {
      const std::string tried =
          wrong == 1 ? "the wrong row tried matches" : fmt::format("all {} wrong rows tried match", wrong);
      return fmt::format("looks like: {} ({}{} {}{})", mistake.text,
                         guess || !mistake.lse_too ? "perhaps: " : "", tried, it,
                         mistake.lse_too ? "" : ", but not in their LSE");
    }
  };

  Tried rows_to_try() const {
    int64_t longest = 1;
    for (const SeqLen& seq : p_.seqs) longest = std::max<int64_t>(longest, seq.k);
    const int64_t fit = kValuesTried / (longest * (p_.head_dim + p_.dim_v()));
    const auto count = static_cast<std::size_t>(std::clamp<int64_t>(fit, kLeastTried, kMostTried));
    Tried tried{spread_with_ends(p_, wrong_o_, count), 0};
    tried.wrong = tried.rows.size();
    const std::size_t right = count + count / 4 - tried.wrong;  // few wrong rows leave room for right ones
    for (const auto& id : spread_with_ends(p_, right_, right)) tried.rows.push_back(id);
    return tried;
  }

  /// Names the mistakes that explain all rows tried. Returns whether they explain their LSE, too.
  bool mistakes(const Tried& tried) {
    std::vector<Explanation> matches, rare;
    const std::span few(tried.rows.data(), std::min<std::size_t>(tried.wrong, kLeastTried));
    const auto wrong = [](const RowFinding& r) { return r.wrong_o; };
    for (const Mistake& m : mistakes_) {
      // Most mistakes fail in the first rows.
      const auto first = rows_with(m, few);
      if (std::ranges::any_of(first, wrong)) {
        note_near(m, first);
        continue;
      }
      const auto rows = rows_with(m, tried.rows);
      if (const auto broken = std::ranges::count_if(rows, wrong); broken > 0) {
        if (explains_wrong_rows(tried, rows)) partials_.emplace_back(broken, m.text);
        continue;
      }
      if (match_by_zeros(launched_, rows) || !comes_nearer(rows)) continue;
      if (std::string shift = launched_.outputs.no_lse ? "" : alibi_shift(m.problem, rows); !shift.empty()) {
        add(std::move(shift));
        return true;
      }
      (m.rare ? rare : matches).push_back({m.text, std::ranges::none_of(rows, [](const RowFinding& r) {
                                             return r.wrong_lse;
                                           })});
    }
    if (matches.empty()) matches = rare;
    // What explains O alone is a guess beside what explains both.
    const bool lse_too = std::ranges::any_of(matches, [](const Explanation& e) { return e.lse_too; });
    if (lse_too) std::erase_if(matches, [](const Explanation& e) { return !e.lse_too; });
    for (const Explanation& match : matches) out_.push_back(tried.match(match));
    const auto of_scale = [](const Explanation& e) {
      return e.text.find("softmax_scale") != std::string::npos;
    };
    const bool scale = std::ranges::all_of(matches, of_scale);
    tell_apart(matches.size(), "mistakes", scale ? "another softmax_scale" : "other lengths or heads");
    return lse_too;
  }

  std::vector<RowFinding> rows_with(const Mistake& m, std::span<const reference::RowId> ids) const {
    const Launched of{m.item ? *m.item : launched_.item, launched_.outputs, launched_.numerics,
                      launched_.rows_seed};
    return find_rows(of, m.problem, *m.inputs, ids, threads_);
  }

  const RowFinding& finding(const reference::RowId& id) const {
    const auto place = [](const RowFinding& r) { return std::tuple(r.id.seq, r.id.pos, r.id.head); };
    return *std::ranges::lower_bound(rows_, std::tuple(id.seq, id.pos, id.head), {}, place);
  }

  /// Whether a mistake leaves less than half of each large error. Where scores leave their range, all limits are wide.
  bool comes_nearer(std::span<const RowFinding> rows) const {
    constexpr double kLarge = 0.05;
    return std::ranges::all_of(rows, [&](const RowFinding& r) {
      const RowFinding& was = finding(r.id);
      return !was.wrong_o || was.nan || was.relative < kLarge || r.relative < 0.5 * was.relative;
    });
  }

  /// What a mistake leaves of the errors of wrong rows, at most, as a share; infinite if it moves right rows as far.
  double error_left(std::span<const RowFinding> rows) const {
    double left = 0, of_wrong = 0, of_right = 0;
    for (const RowFinding& r : rows) {
      const RowFinding& was = finding(r.id);
      // Of a row that is expected to be 0, no relative error is known.
      const bool known = was.relative > 0 && r.relative > 0;
      if (was.wrong_o) left = std::max(left, known ? r.relative / was.relative : INFINITY);
      double& most = was.wrong_o ? of_wrong : of_right;
      most = std::max(most, r.relative);
    }
    return of_right > 2 * of_wrong ? INFINITY : left;
  }
  void note_near(const Mistake& m, std::span<const RowFinding> first) {
    const double left = error_left(first);
    if (!(left < near_left_)) return;
    near_ = &m;
    near_left_ = left;
  }

  /// A mistake that explains nearly all of the error of all rows tried.
  std::string nearly(const Tried& tried) const {
    if (near_ == nullptr || tried.wrong < static_cast<std::size_t>(kLeastTried)) return "";
    const double left = error_left(rows_with(*near_, tried.rows));
    if (!(left < kNearlyAll)) return "";
    return fmt::format(
        "looks like: {} (perhaps: it explains all but {:.2g} % of the error of {} wrong rows tried)",
        near_->text, 100 * left, tried.wrong);
  }

  void pairs(const Tried& tried) {
    const auto found = two_mistakes(launched_, problem_, mistakes_, tried.rows, tried.wrong, threads_);
    for (const Explanation& match : found) out_.push_back(tried.match(match, "both", true));
    tell_apart(found.size(), "pairs", "other lengths or heads");
  }

  /// Says that `matching` mistakes or pairs of them explain the same rows, if they are several.
  void tell_apart(std::size_t matching, const char* what, const char* with) {
    if (matching < 2) return;
    out_.push_back(fmt::format("these {} {} cannot be told apart on these rows; a case with {} may tell",
                               matching, what, with));
  }

  /// Whether a mistake makes the wrong rows what they are. `rows`: what it makes of the rows that were tried.
  static bool explains_wrong_rows(const Tried& tried, const std::vector<RowFinding>& rows) {
    constexpr std::size_t kFewest = 4;  // fewer may match by chance
    const std::span wrong(tried.rows.data(), tried.wrong);
    bool any_key = false;  // rows that lose all keys are 0 by any mistake that hides keys
    for (const RowFinding& r : rows) {
      if (std::ranges::find(wrong, r.id) == wrong.end()) continue;
      if (r.wrong_o) return false;
      any_key = any_key || r.keys > 0;
    }
    return tried.wrong >= kFewest && any_key;
  }

  /// Mistakes that the kernel makes in the wrong rows alone: that which fewest right ones are without, and others.
  void in_part(const Tried& tried) {
    if (partials_.empty()) return;
    std::ranges::stable_sort(partials_, {}, &std::pair<std::ptrdiff_t, std::string>::first);
    add(fmt::format(
        "looks like: {}{} (perhaps: all {} wrong rows tried match this mistake, and {} right rows tried are without it)",
        partials_[0].second, kInAPart, tried.wrong, partials_[0].first));
    if (partials_.size() > 1) add("these wrong rows match as well: " + partials_[1].second);
  }

  /// Names a misread page. It takes the place of mistakes, from clue `before` on, that explain no LSE, if it does.
  void page(const Tried& tried, std::size_t before) {
    const auto found = misread_page(launched_, problem_, inputs_, tried.rows, threads_);
    if (!found || (out_.size() > before && !found->lse_too)) return;
    out_.resize(before);
    out_.push_back(tried.match(*found));
  }

  void one_page(const Tried& tried) {
    const bool lse = std::ranges::any_of(rows_, [](const RowFinding& r) { return r.wrong_lse; });
    const auto found = misread_one_page(launched_, problem_, inputs_, tried.rows, tried.wrong, lse, threads_);
    if (found) out_.push_back(tried.match(*found));
  }

  std::string page_in_a_part(const Tried& tried) const {
    if (tried.wrong < static_cast<std::size_t>(kLeastTried)) return "";
    const auto found =
        misread_page(launched_, problem_, inputs_, std::span(tried.rows).first(tried.wrong), threads_);
    return found ? tried.match({fmt::format("{}{}", found->text, kInAPart), found->lse_too}, "this mistake",
                               true)
                 : "";
  }

  std::string heads(const Tried& tried) const {
    const auto found =
        misread_heads(launched_, problem_, inputs_, std::span(tried.rows).first(tried.wrong), threads_);
    return found ? tried.match(*found) : "";
  }

  std::string scale(const Tried& tried) const {
    const auto found = logit_factor(launched_, problem_, inputs_, rows_, tried.rows, threads_);
    if (!found) return "";
    return tried.match({logit_factor_text(p_, problem_.softmax_scale, found->value), found->lse_too});
  }

  /// Some of the rows, that have `most_values` values of V together.
  std::vector<WrongRow> wrong_rows(const std::vector<reference::RowId>& of, std::size_t count,
                                   int64_t most_values) const {
    int64_t values = 0;
    std::vector<WrongRow> wrong;
    for (const reference::RowId& id : spread(of, count)) {
      const auto row = std::ranges::find_if(rows_, [&](const RowFinding& r) { return r.id == id; });
      values += row->keys * p_.dim_v();
      if (values > most_values) break;
      wrong.push_back({id, row_of(id), row->lse});
    }
    return wrong;
  }

  /// Names what rounding in the reference gives the same error. A single key has the weight 1, whatever is rounded.
  void rounding() {
    std::vector<reference::RowId> ids;
    bool in_o = false, in_lse = false;
    for (const RowFinding& r : rows_) {
      if (!r.wrong() || r.nan || r.keys < 2 || !std::isfinite(r.lse)) continue;
      ids.push_back(r.id);
      in_o = in_o || r.wrong_o;
      in_lse = in_lse || r.wrong_lse;
    }
    const std::vector<WrongRow> wrong = wrong_rows(ids, 16, kValuesTried / 8);
    const auto found = rounded_parts(launched_, problem_, inputs_, wrong, in_o, in_lse, threads_);
    for (const std::string& what : found) {
      add(fmt::format(
          "looks like: {} (checked by rounding it in the reference: it gives the error of {} wrong rows tried)",
          what, wrong.size()));
    }
    tell_apart(found.size(), "mistakes", "other data or lengths");
  }

  std::string out_scale() const {
    if (p_.type_of_out() != DType::kE4m3) return "";
    const double scale = StoredOut(launched_.item).scale;
    std::vector<std::pair<double, double>> of;  // stored numbers, and the right O
    std::mutex mutex;
    reference::attend(problem_, inputs_, spread(wrong_o_, 16), threads_, [&](const reference::RowBlock& b) {
      const std::lock_guard lock(mutex);
      for (std::size_t r = 0; r < b.rows.size(); ++r) {
        const std::vector<double> got = row_of(b.rows[r]);
        for (std::size_t c = 0; c < got.size(); ++c) of.emplace_back(got[c] / scale, b.o[r * got.size() + c]);
      }
    });
    return out_scale_clue(launched_.item, of);
  }

  std::string rescale() const {
    const std::vector<WrongRow> wrong = wrong_rows(wrong_o_, 8, kValuesTried);
    const auto found = missing_rescale(p_, problem_, inputs_, wrong, threads_);
    return found ? Tried{{}, wrong.size()}.match({*found, true}) : "";
  }

  std::string other_row() const {
    constexpr std::size_t kMostRows = 4096, kTried = 8;
    if (cost_of(launched_.item).flop > kAllRowsFlop || rows_.size() > kMostRows) return "";
    std::vector<WrongRow> wrong;
    for (const reference::RowId& id : spread(wrong_o_, kTried)) wrong.push_back({id, row_of(id), 0});
    std::vector<reference::RowId> ids;
    for (const RowFinding& r : rows_) {
      if (r.keys > 1) ids.push_back(r.id);
    }
    return rows_of_others(p_, problem_, inputs_, wrong, ids, threads_);
  }

  std::vector<double> row_of(const reference::RowId& id) const {
    int64_t token = id.pos;
    for (int b = 0; b < id.seq; ++b) token += p_.seqs[static_cast<std::size_t>(b)].q;
    std::vector<double> out;
    for (int c = 0; c < p_.dim_v(); ++c) {
      out.push_back(StoredOut(launched_.item)
                        .value(launched_.outputs.out, (token * p_.num_heads_q + id.head) * p_.dim_v() + c));
    }
    return out;
  }

  std::string factor() const {
    double least = INFINITY, most = -INFINITY;
    for (const RowFinding& r : rows_) {
      if (!r.wrong_o || r.nan) continue;
      if (r.factor == 0) return "";
      least = std::min(least, r.factor);
      most = std::max(most, r.factor);
    }
    // Rounded scores make factors, too.
    if (!std::isfinite(least) || (least > 0.99 && most < 1.01)) return "";
    if (const double kept = 1 - p_.dropout;
        p_.dropout > 0 && std::max(most - kept, kept - least) < 0.01 * kept)
      return "looks like: the weights that dropout keeps are not divided by 1 - dropout (O is right but for this factor)";
    const std::string low = fmt::format("{:.4g}", least), high = fmt::format("{:.4g}", most);
    return fmt::format(
        "O is right but for a factor of each row ({}): perhaps the softmax denominator, or how O is rescaled",
        low == high ? low : low + " to " + high);
  }

  const Launched& launched_;
  const CaseParams& p_;
  int threads_;
  reference::Problem problem_;
  CaseInputs inputs_;
  std::vector<Mistake> mistakes_;
  std::vector<RowFinding> rows_;
  std::vector<reference::RowId> right_, wrong_o_;  ///< wrong_o_: rows without NaN only
  /// The mistake that explains the wrong rows and breaks the fewest right ones, and how many it breaks.
  std::vector<std::pair<std::ptrdiff_t, std::string>>
      partials_;                   ///< right rows that a mistake breaks, its text
  const Mistake* near_ = nullptr;  ///< leaves the least of the error of the first wrong rows
  double near_left_ = kNearlyAll;
  std::vector<std::string> out_;
};

}  // namespace

std::vector<std::string> clues_of(const Launched& launched, int num_threads) {
  return Clues(launched, num_threads).all();
}

}  // namespace attnbench
