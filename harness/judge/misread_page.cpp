#include "harness/judge/misread_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/cases/visible_keys.h"
#include "harness/judge/misread.h"

namespace attnbench {
namespace {

/// What is read from another page.
struct Which {
  const char* text;
  bool k, v;
};
constexpr Which kBoth = {"K and V", true, true};
constexpr Which kEither[] = {{"K", true, false}, {"V", false, true}};

/// The page that is read in place of a page.
enum class Instead { kBefore, kPartner, kFirstOfTwo };

/// In which page.
struct Where {
  const char* text;  ///< "<K and V> of <text> are read from <source>"
  const char* source;
  Instead instead;
  bool last;      ///< only in the last page
  bool of_query;  ///< the last page that the query sees, not that of its sequence
  bool not_full;  ///< only if that page is not full
};
constexpr const char* kPageBefore = "the page before";
constexpr Where kWhere[] = {
    {"the last page of a sequence", kPageBefore, Instead::kBefore, true, false, false},
    {"the last page of a sequence, if it is not full,", kPageBefore, Instead::kBefore, true, false, true},
    {"the last page that a query sees", kPageBefore, Instead::kBefore, true, true, false},
    {"the last page that a query sees, if it sees only a part of it,", kPageBefore, Instead::kBefore, true,
     true, true},
    {"each page but the first", kPageBefore, Instead::kBefore, false, false, false},
    {"pages 2 i and 2 i + 1", "each other's place", Instead::kPartner, false, false, false},
    {"page 2 i + 1", "page 2 i, which is read twice", Instead::kFirstOfTwo, false, false, false},
};

/// Which page of a sequence is read in place of which, for one query row.
struct PageMap {
  int first;  ///< the first page that is misread; INT_MAX: none
  int whole;  ///< pages before this one are full
  Instead instead;

  int operator()(int page) const {
    if (page < first) return page;
    switch (instead) {
      case Instead::kBefore:
        return page - 1;
      case Instead::kPartner:
        return (page | 1) < whole ? page ^ 1 : page;
      case Instead::kFirstOfTwo:
        return page & ~1;
    }
    return page;
  }
};

PageMap page_map(const CaseParams& p, const Where& where, const reference::RowId& id) {
  constexpr int kNone = std::numeric_limits<int>::max();
  const SeqLen s = p.seqs[static_cast<std::size_t>(id.seq)];
  const int whole = static_cast<int>(s.k / p.block_size);
  if (!where.last) return {where.instead == Instead::kBefore ? 1 : 0, whole, where.instead};
  const int64_t end = where.of_query ? visible_keys(mask_of(p), s.q, s.k, id.pos).end : s.k;
  const bool misread = end > p.block_size && !(where.not_full && end % p.block_size == 0);
  return {misread ? static_cast<int>((end - 1) / p.block_size) : kNone, whole, where.instead};
}

/// A page of a sequence.
struct Page {
  int seq, page;
};

/// Whether K or V, or both, of page `to` come from page `from`.
struct OnePage {
  Page to, from;
  Which which;

  Misread::How how(int size) const {
    return {.place = [of = *this, size](Tensor tensor, int seq, int pos) {
      const bool misread = tensor == Tensor::kK ? of.which.k : of.which.v;
      return misread && seq == of.to.seq && pos / size == of.to.page
                 ? std::pair(of.from.seq, of.from.page * size + pos % size)
                 : std::pair(seq, pos);
    }};
  }
};

/// Searches the page that takes the place of one of a sequence's.
class OnePageSearch {
 public:
  OnePageSearch(const Launched& launched, const reference::Problem& right, const reference::Inputs& inputs,
                int num_threads)
      : launched_(launched),
        p_(launched.item.params),
        right_(right),
        inputs_(inputs),
        threads_(num_threads) {}

  /// of: rows of one sequence, a wrong one first. `lse`: their LSE is wrong.
  std::optional<OnePage> find(std::span<const reference::RowId> of, bool lse) const {
    const int seq = of[0].seq, size = p_.block_size;
    const int64_t keys = keys_of(seq);
    int64_t pages = 0;
    for (int b = 0; b < std::ssize(p_.seqs); ++b) pages += keys_of(b) / size + 1;
    if (pages * (keys / size + 1) * keys * (p_.head_dim + p_.dim_v()) > kMostValues) return std::nullopt;
    std::vector<Which> all = {kBoth};
    if (!p_.v_is_k_view) all = lse ? std::vector{kBoth, kEither[0]} : std::vector{kEither[1]};
    for (const Which& which : all) {
      for (int to = 0; to * int64_t{size} < keys; ++to) {
        const int64_t need = std::min<int64_t>(size, keys - to * int64_t{size});
        for (int b = 0; b < std::ssize(p_.seqs); ++b) {
          for (int from = 0; from * int64_t{size} + need <= keys_of(b); ++from) {
            const OnePage page{{seq, to}, {b, from}, which};
            if ((b != seq || from != to) && explains(page, of)) return page;
          }
        }
      }
    }
    return std::nullopt;
  }

 private:
  static constexpr int64_t kMostValues = 1 << 27;  ///< that the first row reads for all pages

  int64_t keys_of(int seq) const { return p_.seqs[static_cast<std::size_t>(seq)].k; }
  bool explains(const OnePage& page, std::span<const reference::RowId> of) const {
    const Misread wrong(right_, inputs_, page.how(p_.block_size));
    const auto fits = [&](std::span<const reference::RowId> ids) {
      return std::ranges::none_of(find_rows(launched_, right_, wrong, ids, threads_),
                                  [](const RowFinding& r) { return r.wrong(); });
    };
    return fits(of.first(1)) && fits(of);
  }

  const Launched& launched_;
  const CaseParams& p_;
  const reference::Problem& right_;
  const reference::Inputs& inputs_;
  int threads_;
};

}  // namespace

std::optional<Explanation> misread_one_page(const Launched& launched, const reference::Problem& right,
                                            const reference::Inputs& inputs,
                                            std::span<const reference::RowId> tried, std::size_t wrong,
                                            bool lse, int num_threads) {
  constexpr std::size_t kMostSequences = 3, kFewestRows = 4;
  const CaseParams& p = launched.item.params;
  if (p.kv != KvSource::kPaged || p.leftpad > 0 || p.topk > 0) return std::nullopt;
  std::map<int, std::vector<reference::RowId>> by_seq;
  for (const reference::RowId& id : tried.first(wrong)) by_seq[id.seq].push_back(id);
  if (wrong < kFewestRows || by_seq.size() > kMostSequences) return std::nullopt;
  for (const reference::RowId& id : tried.subspan(wrong)) {
    if (const auto of = by_seq.find(id.seq); of != by_seq.end()) of->second.push_back(id);
  }
  std::string text;
  for (const auto& [seq, rows] : by_seq) {
    const auto found = OnePageSearch(launched, right, inputs, num_threads).find(rows, lse);
    if (!found) return std::nullopt;
    text += fmt::format("{}{} of page {} of sequence {} {} read from page {} of sequence {}",
                        text.empty() ? "" : "; ", p.v_is_k_view ? "K" : found->which.text, found->to.page,
                        seq, found->which.k && found->which.v && !p.v_is_k_view ? "are" : "is",
                        found->from.page, found->from.seq);
  }
  return Explanation{text, true};
}

std::optional<Explanation> misread_page(const Launched& launched, const reference::Problem& right,
                                        const reference::Inputs& inputs,
                                        std::span<const reference::RowId> tried, int num_threads) {
  const CaseParams& p = launched.item.params;
  if (p.kv != KvSource::kPaged || p.leftpad > 0 || p.topk > 0) return std::nullopt;
  std::vector<Which> all = {kBoth};
  if (!p.v_is_k_view) all.insert(all.end(), std::begin(kEither), std::end(kEither));
  for (const Which& which : all) {
    for (const Where& where : kWhere) {
      bool lse_too = true;
      const auto is_right = [&](const reference::RowId& id) {
        const auto place = [&which, size = static_cast<int>(p.block_size), map = page_map(p, where, id)](
                               Tensor tensor, int seq, int pos) {
          const bool misread = tensor == Tensor::kK ? which.k : which.v;
          return std::pair(seq, misread ? map(pos / size) * size + pos % size : pos);
        };
        const Misread wrong(right, inputs, {.place = place});
        const RowFinding row = find_rows(launched, right, wrong, {&id, 1}, num_threads).front();
        lse_too = lse_too && !row.wrong_lse;
        return !row.wrong_o;
      };
      if (!std::ranges::all_of(tried, is_right)) continue;
      const char* rest = which.k == which.v ? "" : which.k ? "; V is right" : "; K is right";
      return Explanation{
          fmt::format("{} of {} {} read from {}{}", p.v_is_k_view ? "K" : which.text, where.text,
                      which.k && which.v && !p.v_is_k_view ? "are" : "is", where.source, rest),
          lse_too};
    }
  }
  return std::nullopt;
}

}  // namespace attnbench
