#include "harness/report/failures.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "harness/cases/cost.h"
#include "harness/judge/clues.h"
#include "harness/judge/shown_mistakes.h"
#include "harness/judge/trait.h"
#include "harness/report/summary.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

/// How the reason of a broken invariant begins.
constexpr std::string_view kInvariantReason = "invariant ";
constexpr const char* kOtherNumbers = ", with other numbers in some";

using CaseTrait = Trait<Record>;
using Has = std::function<bool(const CaseParams&)>;

/// Traits of the cases of one op, the plainest first.
std::vector<CaseTrait> traits_of(std::span<const Record> records) {
  std::vector<CaseTrait> out;
  const auto add = [&](std::string text, Has has) {
    out.push_back({std::move(text), [has = std::move(has)](const Record& r) { return has(r.item.params); }});
  };
  const auto some_last_page = [](bool full) {
    return [full](const CaseParams& p) {
      for (std::size_t b = 0; p.kv == KvSource::kPaged && p.block_size > 1 && b < p.seqs.size(); ++b) {
        const int end = leftpad_of(p, b) + p.seqs[b].k;
        if (p.seqs[b].k > 0 && (end % p.block_size == 0) == full) return true;
      }
      return false;
    };
  };
  const auto any_sequence = [](auto&& has) {
    return [has](const CaseParams& p) { return std::ranges::any_of(p.seqs, has); };
  };
  add("have more query heads than KV heads",
      [](const CaseParams& p) { return p.num_heads_q > p.num_heads_kv; });
  add("have a number of query heads per KV head that is no power of two", [](const CaseParams& p) {
    const int ratio = p.num_heads_q / std::max(1, p.num_heads_kv);
    return (ratio & (ratio - 1)) != 0;
  });
  add("are causal", [](const CaseParams& p) { return p.causal; });
  add("are causal from the top left", [](const CaseParams& p) { return p.causal.top_left; });
  add("have no causal mask", [](const CaseParams& p) { return !p.causal; });
  add("have a window", [](const CaseParams& p) { return p.window_left >= 0 || p.window_right >= 0; });
  add("have a custom mask", [](const CaseParams& p) { return p.custom_mask != CustomMask::kNone; });
  add("have lists of keys", [](const CaseParams& p) { return p.topk > 0; });
  add("have expired rows", [](const CaseParams& p) { return p.expired != Expired::kKept; });
  add("have freed blocks", [](const CaseParams& p) { return p.expired == Expired::kFreed; });
  add("have a softcap", [](const CaseParams& p) { return p.softcap > 0; });
  add("have ALiBi", [](const CaseParams& p) { return p.alibi != Alibi::kNone; });
  add("have sinks", [](const CaseParams& p) { return p.sinks; });
  add("have qv", [](const CaseParams& p) { return p.qv; });
  add("have dropout", [](const CaseParams& p) { return p.dropout > 0; });
  add("have a softmax_scale of their own", [](const CaseParams& p) { return p.softmax_scale.has_value(); });
  for (const KvSource kv : {KvSource::kPacked, KvSource::kPaged, KvSource::kContiguous})
    add(std::string("have kv: ") + kv_name(kv), [kv](const CaseParams& p) { return p.kv == kv; });
  add("have kv_layout: hnd", [](const CaseParams& p) { return p.kv_layout == KvLayout::kHnd; });
  add("have gaps between sequences", [](const CaseParams& p) { return p.gap_tokens > 0; });
  add("have gaps between queries", [](const CaseParams& p) { return p.gap_queries > 0; });
  add("have left padding", [](const CaseParams& p) { return p.leftpad > 0; });
  add("have rows of block_table in another order", [](const CaseParams& p) { return p.shuffled_table; });
  add("append", [](const CaseParams& p) { return p.append; });
  add("have rotary embedding", [](const CaseParams& p) { return p.rotary != Rotary::kNone; });
  add("turn the keys of the cache", [](const CaseParams& p) { return p.rotary_cached; });
  add("have a rotary_q of their own", [](const CaseParams& p) { return p.rotary_q != RotaryQ::kDiagonal; });
  add("have quantised keys or values", [](const CaseParams& p) { return p.kv_dtype != KvDType::kSame; });
  add("have keys and values in e5m2", [](const CaseParams& p) { return p.kv_dtype == KvDType::kE5m2; });
  add("have keys and values in nvfp4", [](const CaseParams& p) { return p.kv_dtype == KvDType::kNvfp4; });
  add("have rows of fp8_ds_mla", [](const CaseParams& p) { return p.kv_dtype == KvDType::kDsMla; });
  add("have values of another width", [](const CaseParams& p) { return p.dim_v() != p.head_dim; });
  add("are a path of several launches", [](const CaseParams& p) { return p.path != Path::kOneCall; });
  add("have a sequence with more keys than queries", any_sequence([](const SeqLen& s) { return s.k > s.q; }));
  add("have a sequence with fewer keys than queries",
      any_sequence([](const SeqLen& s) { return s.k < s.q; }));
  add("have a sequence without keys", any_sequence([](const SeqLen& s) { return s.k == 0; }));
  add("have a sequence without queries", any_sequence([](const SeqLen& s) { return s.q == 0; }));
  add("have a sequence with several queries", any_sequence([](const SeqLen& s) { return s.q > 1; }));
  add("have a sequence with one query", any_sequence([](const SeqLen& s) { return s.q == 1; }));
  add("have several sequences", [](const CaseParams& p) { return p.seqs.size() > 1; });
  add("have a last page that is not full", some_last_page(false));
  add("have a last page that is full", some_last_page(true));
  for (const int tile : {16, 32, 64, 128}) {
    add("have a sequence whose length is no multiple of " + std::to_string(tile),
        any_sequence([tile](const SeqLen& s) { return s.k % tile != 0; }));
    add("have a sequence whose length is a multiple of " + std::to_string(tile),
        any_sequence([tile](const SeqLen& s) { return s.k > 0 && s.k % tile == 0; }));
    add("have a sequence of more than " + std::to_string(tile) + " keys",
        any_sequence([tile](const SeqLen& s) { return s.k > tile; }));
  }
  std::set<int> dims, pages;
  std::set<DType> types;
  for (const Record& r : records) {
    dims.insert(r.item.params.head_dim);
    pages.insert(r.item.params.block_size);
    types.insert(r.item.params.dtype);
  }
  for (const int multiple : {8, 16, 32}) {
    add(fmt::format("have a head_dim that is no multiple of {}", multiple),
        [multiple](const CaseParams& p) { return p.head_dim % multiple != 0; });
  }
  for (const int d : dims)
    add("have head_dim " + std::to_string(d), [d](const CaseParams& p) { return p.head_dim == d; });
  for (const int size : pages) {
    add("have pages of " + std::to_string(size),
        [size](const CaseParams& p) { return p.kv == KvSource::kPaged && p.block_size == size; });
  }
  add("store O in e4m3", [](const CaseParams& p) { return p.e4m3_out; });
  for (const DType t : types)
    add(std::string("are of ") + dtype_name(t), [t](const CaseParams& p) { return p.dtype == t; });
  return out;
}

/// A mistake as packed and paged cases both name it.
std::string of_any_layout(std::string mistake) {
  constexpr std::string_view kPage = "page or tile of ";
  if (const std::size_t at = mistake.find(kPage); at != mistake.npos)
    mistake.replace(at, kPage.size(), "tile of ");
  return mistake;
}

/// A mistake without its numbers, which are not the same in all cases.
std::string mistake_key(const std::string& mistake) { return without_numbers(of_any_layout(mistake)); }

/// A mistake that a case may make, as a clue names it.
struct Named {
  std::string mistake;
  bool in_part = false;  ///< in a part of the rows
  std::string beside;    ///< the key of the other one of two; else empty
};

/// The mistakes that "looks like: ..." names: one, or two that the case makes at once.
std::vector<Named> mistakes_of(const std::string& clue) {
  constexpr std::string_view kStart = "looks like: ";
  if (!clue.starts_with(kStart)) return {};
  // The counts of a case are in brackets at the end.
  std::string text(without_last_brackets(clue).substr(kStart.size()));
  const std::size_t second = text.find(kAndTheOther);
  if (text.starts_with(kTwoMistakes) && second != text.npos) {
    const std::string one = text.substr(kTwoMistakes.size(), second - kTwoMistakes.size());
    const std::string other = text.substr(second + kAndTheOther.size());
    return {{one, false, mistake_key(other)}, {other, false, mistake_key(one)}};
  }
  const bool in_part = text.ends_with(kInAPart);
  if (in_part) text.resize(text.size() - kInAPart.size());
  return {{std::move(text), in_part, ""}};
}

/// What cases say of one mistake.
struct MistakeCount {
  std::set<std::size_t> cases;                          ///< that name it
  int whole = 0;                                        ///< not in a part of their rows
  bool alone = false;                                   ///< some case has no other clue
  int right = 0;                                        ///< right cases that would be wrong by it
  std::map<std::string, int> texts;                     ///< with numbers
  std::map<std::string, std::set<std::size_t>> beside;  ///< cases by the key of the other mistake

  const std::string& commonest() const {
    return std::ranges::max_element(texts, [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }
  std::string text() const { return commonest() + (texts.size() > 1 ? kOtherNumbers : ""); }
  bool in_part() const { return 2 * whole < static_cast<int>(cases.size()); }
  /// Right cases that speak against it. What is made in a part of the rows may leave a case right.
  int against() const { return in_part() ? 0 : right; }
  /// Greater for a likelier mistake. One that is no case's only clue may be a guess that a few rows cannot tell apart.
  auto rank() const {
    const std::size_t weight = against() > 0 ? cases.size() / 2 : cases.size();
    return std::tuple(alone, cases.size() > 1, weight);
  }
};

/// The mistakes that clues name, by mistake_key().
struct MistakeCounts {
  std::map<std::string, MistakeCount> mistakes;
  int wrong = 0;           ///< cases
  std::size_t naming = 0;  ///< of them, cases that name some mistake
};

MistakeCounts count_mistakes(std::span<const Record> records) {
  MistakeCounts out;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].status != Status::kFail) continue;
    ++out.wrong;
    if (!records[i].check) continue;
    std::vector<Named> all;
    std::size_t clues = 0;
    for (const std::string& clue : records[i].check->clues) {
      const std::vector<Named> named = mistakes_of(clue);
      clues += !named.empty();
      all.insert(all.end(), named.begin(), named.end());
    }
    out.naming += !all.empty();
    for (const Named& n : all) {
      MistakeCount& count = out.mistakes[mistake_key(n.mistake)];
      if (count.cases.insert(i).second) {
        count.whole += !n.in_part;
        ++count.texts[n.mistake];
      }
      count.alone |= clues == 1;
      if (!n.beside.empty()) count.beside[n.beside].insert(i);
    }
  }
  for (const Record& r : records) {
    if (r.status != Status::kPass || out.mistakes.empty()) continue;
    std::set<std::string> shown;
    for (const std::string& mistake : shown_mistakes(r.item)) shown.insert(of_any_layout(mistake));
    for (auto& [name, count] : out.mistakes) count.right += shown.contains(of_any_layout(count.commonest()));
  }
  return out;
}

/// "83 of 108 wrong cases look like: the causal mask is not applied"; empty if no clue occurs twice. Cases that make a
/// mistake in a part of their rows count for it, too, and so do those that make two. Right cases that would be wrong by
/// the mistake speak against it, and so do cases that name other mistakes alone; both are counted.
std::string commonest_clue(std::span<const Record> records) {
  const MistakeCounts counts = count_mistakes(records);
  const auto most = std::ranges::max_element(
      counts.mistakes, [](const auto& a, const auto& b) { return a.second.rank() < b.second.rank(); });
  if (most == counts.mistakes.end() || most->second.cases.size() < 2) return "";
  const MistakeCount& count = most->second;
  std::string out = fmt::format("{} of {} wrong cases look like: {}{}", count.cases.size(), counts.wrong,
                                count.text(), count.in_part() ? kInAPart : "");
  if (count.against() > 0) {
    out += fmt::format(", but {} would be wrong by it, too", counted(count.right, "right case"));
  }
  const auto second = std::ranges::max_element(
      count.beside, [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (second != count.beside.end() && second->second.size() > 1) {
    out += fmt::format("; {} of them at once like: {}", second->second.size(),
                       counts.mistakes.at(second->first).text());
  }
  if (const std::size_t others = counts.naming - count.cases.size(); others > 0)
    out += fmt::format("; {} look{} like something else", others, others == 1 ? "s" : "");
  return out;
}

/// "94 of 141 wrong cases give other numbers in a second launch: a race"; empty unless it is most of them. What such
/// cases have in common besides is chance.
std::string race(std::span<const Record> records) {
  int wrong = 0, races = 0;
  for (const Record& r : records) {
    if (r.status != Status::kFail) continue;
    ++wrong;
    races += r.check && std::ranges::any_of(r.check->clues, [](const std::string& clue) {
               return clue.find(kARace) != std::string::npos;
             });
  }
  if (2 * races <= wrong) return "";
  return fmt::format("{} of {} wrong cases give other numbers in a second launch: {}", races, wrong, kARace);
}

/// What launches that looked for the cause of a case showed: "a sequence alone is right with up to 96 keys and wrong with
/// more"; empty: nothing.
std::string shown_by_launches(const Record& r) {
  for (const std::string& clue : r.check ? r.check->clues : std::vector<std::string>()) {
    if (const std::size_t at = clue.find(" (checked by "); at != clue.npos && !clue.starts_with("looks like"))
      return clue.substr(0, std::min(at, clue.find(';')));
  }
  return "";
}

/// "7 wrong cases: a sequence alone is right with up to 96 keys and wrong with more" of what most cases show; empty if
/// they are one. Ten cases of a run have such launches.
std::string commonest_shown(std::span<const Record> records) {
  std::map<std::string, std::pair<int, std::string>>
      shown;  // by the text without its numbers: cases, and the first text
  for (const Record& r : records) {
    std::string text = r.status == Status::kFail ? shown_by_launches(r) : "";
    if (text.empty()) continue;
    auto& [cases, first] = shown[without_numbers(text)];
    if (cases++ == 0) first = text;
    if (first != text && !first.ends_with(kOtherNumbers)) first += kOtherNumbers;
  }
  const auto most = std::ranges::max_element(
      shown, [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
  if (most == shown.end() || most->second.first < 2) return "";
  return fmt::format("{} wrong cases: {}", most->second.first, most->second.second);
}

/// What failures of one kind have in common: the status, an invariant, and the clue that tells most, without its numbers.
std::string kind_of(const Record& r) {
  std::string kind = status_name(r.status);
  if (r.reason.starts_with(kInvariantReason))
    kind += r.reason.substr(0, r.reason.find(' ', kInvariantReason.size()));
  const auto clue = [&r](const char* begin) -> std::string {
    for (const std::string& c : r.check ? r.check->clues : std::vector<std::string>()) {
      if (c.starts_with(begin)) return std::string(without_last_brackets(c.substr(0, c.find(kFitsAsWell))));
    }
    return "";
  };
  for (const std::string& told :
       {clue("looks like"), clue("the case passes alone"), shown_by_launches(r), clue("all wrong rows")}) {
    if (!told.empty()) return kind + without_numbers(told);
  }
  return kind;
}

/// The work of a case. What was read from a file has only the number of its rows.
double work_of(const Record& r) {
  if (r.entry != nullptr) return r.check ? static_cast<double>(r.check->rows_total) : 0;
  return cost_of(r.item).flop + cost_of(r.item).bytes;
}

}  // namespace

std::string RankedFailure::alike_text() const {
  return alike < 2 ? "" : fmt::format("{} failures are of this kind: here is the one of least work", alike);
}

std::vector<RankedFailure> ranked_failures(std::vector<const Record*> records) {
  std::erase_if(records, [](const Record* r) { return !needs_attention(r->status); });
  std::stable_sort(records.begin(), records.end(),
                   [](const Record* a, const Record* b) { return work_of(*a) < work_of(*b); });
  std::map<std::string, std::vector<const Record*>> by_kind;
  for (const Record* r : records) by_kind[kind_of(*r)].push_back(r);
  std::vector<std::vector<const Record*>> kinds;
  for (auto& [name, of] : by_kind) kinds.push_back(std::move(of));
  // A mistake that a case's own launch shows is told more plainly than the invariants that it breaks elsewhere.
  const auto rank = [](const std::vector<const Record*>& kind) {
    const Record& r = *kind.front();
    return std::tuple(r.status == Status::kFail, r.reason.starts_with(kInvariantReason), -std::ssize(kind));
  };
  std::stable_sort(kinds.begin(), kinds.end(),
                   [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  std::vector<RankedFailure> out;
  for (std::size_t i = 0; out.size() < records.size(); ++i) {
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      const auto& of = kinds[kind];
      const bool told = i == 0 && kind_of(*of[0]) != status_name(of[0]->status);  // something that they share
      if (i < of.size()) out.push_back({of[i], told ? of.size() : 0, kind});
    }
  }
  return out;
}

std::vector<RankedFailure> ranked_failures(std::span<const Record> records) {
  std::vector<const Record*> all;
  for (const Record& r : records) all.push_back(&r);
  return ranked_failures(std::move(all));
}

std::vector<std::string> failure_patterns(std::span<const Record> records) {
  std::vector<std::string> kernels;
  for (const Record& r : records) {
    if (r.status == Status::kFail && std::ranges::find(kernels, r.kernel) == kernels.end())
      kernels.push_back(r.kernel);
  }
  std::vector<std::string> out;
  for (const std::string& kernel : kernels) {
    std::vector<Record> judged;
    for (const Record& r : records) {
      if (r.kernel == kernel && r.item.params.does().forward() &&
          (r.status == Status::kFail || (r.status == Status::kPass && cost_of(r.item.params).pairs > 0)))
        judged.push_back(r);  // without a key in sight a case is right by whatever code
    }
    const auto wrong =
        std::ranges::count_if(judged, [](const Record& r) { return r.status == Status::kFail; });
    if (wrong < 2) continue;
    if (std::string racy = race(judged); !racy.empty()) {
      out.push_back(kernel + ": " + std::move(racy));
      continue;
    }
    std::string told = telling_trait<Record>(traits_of(judged), judged, "cases",
                                             [](const Record& r) { return r.status == Status::kFail; });
    if (!told.empty()) out.push_back(kernel + ": " + std::move(told));
    if (std::string likely = commonest_clue(judged); !likely.empty()) {
      out.push_back(kernel + ": " + std::move(likely));
    } else if (std::string shown = commonest_shown(judged); !shown.empty()) {
      out.push_back(kernel + ": " + std::move(shown));
    }
  }
  return out;
}

}  // namespace attnbench
