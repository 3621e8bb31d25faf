#include "harness/judge/misread_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
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

}  // namespace

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
