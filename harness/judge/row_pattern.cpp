#include "harness/judge/row_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "harness/cases/visible_keys.h"
#include "harness/judge/clues.h"
#include "harness/judge/trait.h"

namespace attnbench {
namespace {

using RowTrait = Trait<RowFinding>;

class Traits {
 public:
  Traits(const CaseParams& p, std::span<const RowFinding> rows) : p_(p), rows_(rows) {}

  /// All traits, the plainest first: of two that separate the rows equally well, the earlier one is named.
  std::vector<RowTrait> all() {
    const bool all_nan = std::ranges::all_of(rows_, [](const RowFinding& r) { return r.nan || !r.wrong(); });
    set_of("head", [](const RowFinding& r) { return r.id.head; });
    const bool interval = !has_gaps(p_);      // without gaps, a row's last key is known
    if (interval && all_nan) ends_of_keys();  // poison lies behind them
    out_.push_back({"see a key", [](const RowFinding& r) { return r.keys > 0; }});
    positions();
    if (interval && !all_nan) ends_of_keys();
    keys_seen();
    residues();
    low_scores();
    set_of("sequence", [](const RowFinding& r) { return r.id.seq; });
    std::erase_if(out_, [this](const RowTrait& t) { return rows_by_chance(t.has); });
    return std::move(out_);
  }

  /// Names the places of the wrong rows, if these are few ranges of positions in few sequences.
  std::string places() const {
    constexpr std::size_t kMostSequences = 3, kMostCommas = 8;
    std::map<int, std::set<int>> wrong;
    int64_t count = 0;
    for (const RowFinding& r : rows_) {
      if (!r.wrong()) continue;
      wrong[r.id.seq].insert(r.id.pos);
      ++count;
    }
    if (count < 2 || 2 * count > std::ssize(rows_)) return "";  // the failure's first line names one
    if (wrong.size() > kMostSequences) return "";
    std::string text;
    for (const auto& [seq, positions] : wrong) {
      const std::vector<int> list(positions.begin(), positions.end());
      text += fmt::format("{}{}pos {} of seq {}", text.empty() ? "" : "; ",
                          text.empty() ? "the wrong rows are of " : "", ranges_text(list), seq);
    }
    if (std::ranges::count(text, ',') > std::ptrdiff_t{kMostCommas}) return "";
    return text;
  }

  /// Names the fewest keys that a wrong row sees, if more than one block of keys may have, and wrong rows are not among
  /// longer ones by chance. Many longer rows may be right: for instance those whose greatest score comes first, in a
  /// kernel that does not rescale.
  std::string longer_rows() const {
    constexpr int64_t kSmallestBlock = 8;
    int64_t least = INT64_MAX, wrong = 0;
    for (const RowFinding& r : rows_) {
      if (!r.wrong()) continue;
      if (r.nan) return "";  // read from somewhere, so not a question of arithmetic
      least = std::min(least, r.keys);
      ++wrong;
    }
    if (least <= kSmallestBlock || least == INT64_MAX) return "";
    const auto longer = [least](const RowFinding& r) { return r.keys >= least; };
    if (by_chance(longer) || 4 * wrong < std::ranges::count_if(rows_, longer)) return "";
    return fmt::format(
        "all wrong rows see {} keys or more, and rows with fewer keys are right: perhaps what happens from one block of "
        "keys to the next, such as rescaling O and the sum when the maximum grows",
        least);
  }

 private:
  SeqLen lens(const RowFinding& r) const { return p_.seqs[static_cast<std::size_t>(r.id.seq)]; }

  template <typename Number>
  void set_of(const char* what, const Number& number) {
    std::set<int> wrong;
    for (const RowFinding& r : rows_) {
      if (r.wrong()) wrong.insert(number(r));
    }
    std::set<int> all;
    for (const RowFinding& r : rows_) all.insert(number(r));
    const auto has = [wrong, number](const RowFinding& r) { return wrong.contains(number(r)); };
    if (rows_by_chance(has, sets_of(wrong.size(), all.size()))) return;
    const std::vector<int> list(wrong.begin(), wrong.end());
    out_.push_back(
        {fmt::format("are of {}{} {}", what, list.size() == 1 ? "" : "s", ranges_text(list)), has});
  }

  void positions() {
    out_.push_back({"are the last query of their sequence",
                    [this](const RowFinding& r) { return r.id.pos == lens(r).q - 1; }});
    out_.push_back(
        {"are the first query of their sequence", [](const RowFinding& r) { return r.id.pos == 0; }});
    out_.push_back({"are of sequences with more keys than queries",
                    [this](const RowFinding& r) { return lens(r).k > lens(r).q; }});
    for (const int tile : {16, 32, 64, 128}) {
      out_.push_back({fmt::format("are queries {} or later of their sequence", tile),
                      [tile](const RowFinding& r) { return r.id.pos >= tile; }});
    }
  }

  bool sees_last_key(const RowFinding& r) const {
    const SeqLen s = lens(r);
    return r.keys > 0 && visible_keys(mask_of(p_), s.q, s.k, r.id.pos).end == s.k;
  }

  void ends_of_keys() {
    const bool paged = p_.kv == KvSource::kPaged;
    std::vector<int> tiles = {16, 32, 64, 128};
    if (paged) {
      std::erase(tiles, p_.block_size);
      tiles.insert(tiles.begin(), p_.block_size);
    }
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      const int t = tiles[i];
      const std::string where = i == 0 && paged ? "whose last page is not full"
                                                : fmt::format("whose length is no multiple of {}", t);
      out_.push_back({"see the last key of a sequence " + where,
                      [this, t](const RowFinding& r) { return lens(r).k % t != 0 && sees_last_key(r); }});
      out_.push_back(
          {"are of sequences " + where, [this, t](const RowFinding& r) { return lens(r).k % t != 0; }});
    }
    if (paged) pages_seen();
    out_.push_back({"do not see the last key of their sequence",
                    [this](const RowFinding& r) { return r.keys > 0 && !sees_last_key(r); }});
    out_.push_back(
        {"see the last key of their sequence", [this](const RowFinding& r) { return sees_last_key(r); }});
    out_.push_back({"see no key", [](const RowFinding& r) { return r.keys == 0; }});
  }

  void pages_seen() {
    const int t = p_.block_size;
    const auto end = [this](const RowFinding& r) {
      const SeqLen s = lens(r);
      return r.keys > 0 ? visible_keys(mask_of(p_), s.q, s.k, r.id.pos).end : 0;
    };
    out_.push_back({"see keys of the last page of their sequence",
                    [this, t, end](const RowFinding& r) { return end(r) > (lens(r).k - 1) / t * t; }});
    out_.push_back(
        {"see their last page only in part", [t, end](const RowFinding& r) { return end(r) % t != 0; }});
    out_.push_back({"see keys of more than one page", [t, end](const RowFinding& r) { return end(r) > t; }});
  }

  void keys_seen() {
    int64_t least = INT64_MAX, most = 0;
    for (const RowFinding& r : rows_) {
      if (!r.wrong()) continue;
      least = std::min(least, r.keys);
      most = std::max(most, r.keys);
    }
    const auto offer = [this](std::string text, std::function<bool(const RowFinding&)> has, bool fitted) {
      if (!fitted || !by_chance(has)) out_.push_back({std::move(text), std::move(has)});
    };
    if (least > 1) {
      offer(
          fmt::format("see {} keys or more", least), [least](const RowFinding& r) { return r.keys >= least; },
          true);
    }
    if (most == 0 && !has_gaps(p_)) return;  // ends_of_keys() has it
    offer(
        most == 0 ? "see no key" : fmt::format("see {} keys or fewer", most),
        [most](const RowFinding& r) { return r.keys <= most; }, most > 0);
  }

  /// Rows by their query, or by how many keys they see, modulo the size of a tile or page.
  void residues() {
    for (const int t : {16, 32, 64, 128})
      residues_of(
          t, [](const RowFinding& r) { return int64_t{r.id.pos}; }, "are query {0} of every {1}");
    std::set<int> tiles = {16, 32, 64, 128};
    if (p_.kv == KvSource::kPaged && p_.block_size > 1) tiles.insert(p_.block_size);
    for (const int t : tiles)
      residues_of(
          t, [](const RowFinding& r) { return r.keys; }, "see a number of keys that is {0} modulo {1}");
  }

  template <typename Number>
  void residues_of(int modulus, const Number& number, const char* text) {
    std::set<int> wrong;
    int64_t greatest = 0;
    for (const RowFinding& r : rows_) {
      greatest = std::max(greatest, number(r));
      if (r.wrong()) wrong.insert(static_cast<int>(number(r) % modulus));
    }
    if (greatest + 1 < 2 * modulus) return;  // a period that comes only once is none
    const auto has = [wrong, number, modulus](const RowFinding& r) {
      return wrong.contains(static_cast<int>(number(r) % modulus));
    };
    const auto residues = static_cast<std::size_t>(modulus);
    if (2 * wrong.size() > residues || by_chance(has, sets_of(wrong.size(), residues))) return;
    const std::vector<int> list(wrong.begin(), wrong.end());
    const auto as_before = [&](const RowFinding& r) { return out_.back().has(r) == has(r); };
    if (!out_.empty() && std::ranges::all_of(rows_, as_before)) return;  // of a smaller modulus
    out_.push_back({fmt::format(fmt::runtime(text), ranges_text(list), modulus), has});
  }

  static constexpr double kMostChance = 1e-4;

  /// There are so many sets of `some` numbers to choose from `all`.
  static double sets_of(std::size_t some, std::size_t all) {
    double sets = 1;
    for (std::size_t i = 0; i < some; ++i) sets *= static_cast<double>(all - i) / static_cast<double>(i + 1);
    return sets;
  }

  /// The chance that `wrong` of `all` things are among the `with_trait`, one of so many `ways`, is no small one.
  static bool is_chance(std::size_t wrong, std::size_t with_trait, std::size_t all, double ways) {
    for (std::size_t i = 0; i < wrong && ways > 0; ++i)
      ways *= (static_cast<double>(with_trait) - static_cast<double>(i)) / static_cast<double>(all - i);
    return ways > kMostChance;
  }

  /// Whether as many wrong rows in random places may all have this trait, one of so many `ways`.
  bool rows_by_chance(const std::function<bool(const RowFinding&)>& has, double ways = 1) const {
    const auto wrong = std::ranges::count_if(rows_, [](const RowFinding& r) { return r.wrong(); });
    const auto with_trait = std::ranges::count_if(rows_, has);
    return is_chance(static_cast<std::size_t>(wrong), static_cast<std::size_t>(with_trait), rows_.size(),
                     ways);
  }

  /// True if wrong rows in random places may all have this trait, whose bound or set was taken from the wrong rows, one
  /// of so many `ways`. The heads of a token have it alike, so tokens are counted. A mistake that has nothing to do
  /// with the trait puts w wrong tokens of n among the w + r that have it with the probability
  /// (w + r choose w) / (n choose w) for each way.
  bool by_chance(const std::function<bool(const RowFinding&)>& has, double ways = 2) const {
    std::set<std::pair<int, int>> wrong, with_trait, all;
    for (const RowFinding& r : rows_) {
      const std::pair token(r.id.seq, r.id.pos);
      all.insert(token);
      if (r.wrong()) wrong.insert(token);
      if (has(r)) with_trait.insert(token);
    }
    return is_chance(wrong.size(), with_trait.size(), all.size(), ways);
  }

  /// Rows whose weights are all 0 in float32 if the running maximum starts too high.
  void low_scores() {
    double highest = -INFINITY;
    for (const RowFinding& r : rows_) {
      if (r.wrong() && r.keys > 0) highest = std::max(highest, r.expected_lse);
    }
    for (const double start : {-5e4, 0.0}) {
      const double bound = start - 85;
      if (!(highest < bound)) continue;
      out_.push_back({fmt::format("have only scores below {}, as where a running maximum starts at {}{}",
                                  bound, start, start < 0 ? ", or masked scores are that" : ""),
                      [bound](const RowFinding& r) { return r.keys > 0 && r.expected_lse < bound; }});
    }
  }

  const CaseParams& p_;
  std::span<const RowFinding> rows_;
  std::vector<RowTrait> out_;
};

/// Says that exponentials left their range, if no NaN can come from elsewhere: NaN that was read makes an LSE NaN.
std::string overflow(std::span<const RowFinding> rows) {
  std::ptrdiff_t too_large = 0, none = 0;
  for (const RowFinding& r : rows) {
    if (!r.wrong() || !r.nan || r.keys == 0) continue;
    if (!std::isinf(r.lse)) return "";
    ++(r.lse > 0 ? too_large : none);
  }
  const char* first = "where the row's greatest score is not subtracted first";
  if (too_large > 0)
    return fmt::format("the LSE of {} of them is inf: perhaps exp overflows {}", too_large, first);
  return none > 0 ? fmt::format("their weights sum to 0: perhaps exp underflows {}, or no key is seen", first)
                  : "";
}

}  // namespace

std::string ranges_text(std::span<const int> numbers) {
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1) ++j;
    if (!out.empty()) out += ", ";
    out += j < i + 2 ? std::to_string(numbers[i]) : fmt::format("{} to {}", numbers[i], numbers[j]);
    i = j < i + 2 ? i + 1 : j + 1;
  }
  return out;
}

std::string row_pattern(const CaseParams& p, std::span<const RowFinding> rows) {
  Traits traits(p, rows);
  std::string told =
      telling_trait<RowFinding>(traits.all(), rows, "rows", [](const RowFinding& r) { return r.wrong(); });
  if (!told.empty()) return told;
  std::string longer = traits.longer_rows();
  return longer.empty() ? traits.places() : longer;
}

std::string row_text(const reference::RowId& id) {
  return fmt::format("seq {} pos {} head {}", id.seq, id.pos, id.head);
}

std::string lse_order(const CaseParams& p, std::span<const RowFinding> rows, std::span<const float> lse) {
  std::vector<int64_t> first = {0};
  for (const SeqLen& s : p.seqs) first.push_back(first.back() + s.q);
  const int64_t total_q = first.back(), heads = p.num_heads_q;
  if (total_q < 2 || heads < 2 || static_cast<int64_t>(lse.size()) != total_q * heads) return "";
  bool any = false;
  for (const RowFinding& r : rows) {
    if (!r.wrong_lse) continue;
    const int64_t token = first[static_cast<std::size_t>(r.id.seq)] + r.id.pos;
    // Where the kernel wrote what belongs here, if it took the one order for the other.
    const int64_t at = r.id.head * total_q + token;
    const int64_t to = p.out_lse_token_major ? at % heads * total_q + at / heads : token * heads + r.id.head;
    const double there = static_cast<double>(lse[static_cast<std::size_t>(to)]);
    const bool same = there == r.expected_lse || (std::isfinite(there) && std::abs(there - r.expected_lse) <=
                                                                              1e-4 * (1 + std::abs(there)));
    if (!same) return "";
    any = any || std::isfinite(there);  // -inf of rows without keys may stand anywhere
  }
  if (!any) return "";
  return p.out_lse_token_major
             ? "looks like: the LSE is written as (Hq, total_q), where (total_q, Hq) is required"
             : "looks like: the LSE is written as (total_q, Hq), where (Hq, total_q) is required: "
               "lse_stride_head elements from head to head";
}

std::string nan_source(const CaseParams& p, std::span<const RowFinding> rows) {
  const auto nan = std::ranges::find_if(rows, [](const RowFinding& r) { return r.wrong() && r.nan; });
  if (nan == rows.end()) return "";
  if (std::string text = overflow(rows); !text.empty()) return text;
  // Poisoned inputs and reset outputs both have all bits one. An LSE that is computed from poison of 16 bits or fewer
  // never has all 32 bits one, so one that has was not written.
  if (p.type_of_k() == DType::kFp32) return "";
  const auto is_unwritten = [](const RowFinding& r) { return r.unwritten; };
  if (const auto n = std::ranges::count_if(rows, is_unwritten); n > 0) {
    const auto first = std::ranges::find_if(rows, is_unwritten);
    return fmt::format("the LSE of {} of them, the first of {}, was perhaps {}", n, row_text(first->id),
                       kNotWritten);
  }
  return "";
}

}  // namespace attnbench
