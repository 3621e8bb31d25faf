#include "harness/fuzz/generator.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <stdexcept>

#include "harness/cases/cost.h"
#include "harness/fuzz/corners.h"
#include "harness/ops/op.h"

namespace attnbench {
namespace {

/// The menu of batch styles, whose choices are no values of the key.
constexpr const char* kStyle = "batch";

constexpr int kMostRepairs = 16;
constexpr double kStretched = 0.3;  ///< share of drafts with a window whose lengths are stretched
constexpr int kMostCuts = 40;
constexpr int kMostDraws = 10000;

/// How often keys that shape every launch leave their default. All other keys use the draft's boldness: they
/// leave their defaults rarely in most drafts and often in some.
struct Share {
  const char* key;
  double share;
};
constexpr Share kShares[] = {{"heads", 0.95},     {"head_dim", 0.5}, {"mask", 0.6},       {"kv", 0.65},
                             {"window", 0.35},    {"dtype", 0.3},    {"block_size", 0.6}, {"kv_layout", 0.25},
                             {"num_splits", 0.2}, {kStyle, 0.7}};
constexpr double kBoldness[] = {0.01, 0.03, 0.08, 0.2};

/// Least score of a value, which a value gets that was refused every time. One that was always taken has 1.
constexpr double kLeastScore = 0.01;

/// Most FLOP and bytes of a case, by cumulative share of cases. Most cases take about a millisecond; some are
/// large enough for the tiles and splits of long rows.
struct Budget {
  double share, flop, bytes;
};
constexpr Budget kBudgets[] = {{0.7, 1e7, 8e6}, {0.95, 1e8, 4e7}, {1.0, 1e9, 1.3e8}};

/// Whether the text has the word, and not only as a part of another word.
bool names(const std::string& text, const std::string& word) {
  const auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !part(text[at - 1])) && (end == text.size() || !part(text[end]))) return true;
  }
  return false;
}

/// Whether all keys are the same; tables of blocks follow from them.
bool same_keys(CaseParams a, CaseParams b) {
  a.blocks.reset();
  b.blocks.reset();
  return a == b;
}

int64_t number_of(const Draft& draft, const std::string& key, int64_t otherwise) {
  const auto it = draft.values.find(key);
  if (it == draft.values.end()) return otherwise;
  int64_t n = otherwise;
  std::from_chars(it->second.data(), it->second.data() + it->second.size(), n);
  return n;
}

bool is(const Draft& draft, const std::string& key, const std::string& value) {
  const auto it = draft.values.find(key);
  return it != draft.values.end() && it->second == value;
}

}  // namespace

double Generator::Choice::score() const {
  return std::max(kLeastScore, static_cast<double>(taken + 1) / static_cast<double>(offered + 1));
}

Generator::Generator(Op op, uint64_t seed, double size) : op_(op), size_(size), random_(seed) {
  for (const SweepKey& key : sweep_keys()) {
    if (key.name == "op" || key.name == "batch") continue;
    if (key.name == "expect" || key.name == "bad_launch")
      continue;  // whether a kernel refuses is its own matter
    if (key.name == "window") {
      add_menu(key.name, {std::begin(kWindowStyles), std::end(kWindowStyles)}, "none");
      continue;
    }
    std::vector<std::string> values = menu_of(key);
    if (key.name == "page_layout") std::erase(values, "served");  // of a replay, which batches here are not
    std::string plain;
    for (const std::string& value : values) {
      const SweepFile file = parse_inline_case(fmt::format("{{{}: {}}}", key.name, value));
      CaseParams params;
      file.sweeps[0].fixed[0].apply(params);
      if (params == CaseParams{}) plain = value;
    }
    add_menu(key.name, values, plain);
  }
  std::vector<std::string> styles;
  for (const BatchStyle s : kBatchStyles) styles.push_back(batch_style_name(s));
  add_menu(kStyle, styles, styles.front());
}

void Generator::add_menu(const std::string& key, const std::vector<std::string>& values,
                         const std::string& plain) {
  Menu menu;
  menu.key = key;
  if (plain.empty()) menu.choices.push_back({""});  // the default is no corner: "" leaves the key out
  for (const std::string& value : values) {
    if (value == plain) menu.plain = menu.choices.size();
    menu.choices.push_back({value});
  }
  for (const Share& s : kShares) {
    if (key == s.key) menu.share = s.share;
  }
  menus_.push_back(std::move(menu));
}

std::size_t Generator::choose(const Menu& menu, double boldness) {
  const double away = menu.share > 0 ? menu.share : boldness;
  const auto others = static_cast<double>(menu.choices.size() - 1);
  std::vector<double> sums;
  double sum = 0;
  for (std::size_t i = 0; i < menu.choices.size(); ++i) {
    sum += (i == menu.plain ? 1 - away : away / others) * menu.choices[i].score();
    sums.push_back(sum);
  }
  const double at = random_.unit() * sum;
  const auto chosen = std::ranges::upper_bound(sums, at) - sums.begin();
  return std::min(static_cast<std::size_t>(chosen), sums.size() - 1);
}

FuzzCase Generator::draw() {
  FuzzCase drawn;
  Draft& draft = drawn.draft;
  draft.seed = 1 + random_.below(1000);
  if (op_ != CaseParams{}.op) draft.values["op"] = op_name(op_);
  const double boldness = kBoldness[random_.below(std::size(kBoldness))];
  std::string window = "none";
  for (const Menu& menu : menus_) {
    const std::size_t i = choose(menu, boldness);
    if (menu.key == kStyle) {
      drawn.style = kBatchStyles[i];
    } else if (menu.key == "window") {
      window = menu.choices[i].value;
    } else if (i != menu.plain) {
      draft.values[menu.key] = menu.choices[i].value;
    }
  }
  draft.seqs = draw_batch(random_, drawn.style);
  if (window != "none" && random_.chance(kStretched)) stretch_over_units(random_, draft.seqs);
  for (std::size_t i = 0; i < std::size(kWindowStyles); ++i) {
    if (i > 0 && window == kWindowStyles[i])
      draft.values["window"] = draw_window(random_, static_cast<WindowStyle>(i), draft.seqs);
  }
  complete(draft);
  return drawn;
}

/// Makes keys agree with each other where random values rarely would.
void Generator::complete(Draft& draft) {
  if (traits_of(op_).appends || is(draft, "append", "in_call")) {
    for (SeqLen& s : draft.seqs) s.q = std::min(s.q, s.k);
  }
  if (is(draft, "path", "cascade")) draft.values["page_layout"] = "shared_prefix";
  if (is(draft, "page_layout", "shared_prefix")) {
    draft.values["kv"] = "paged";
    const int64_t block = number_of(draft, "block_size", CaseParams{}.block_size);
    const int64_t shared = block * random_.between(1, std::max<int64_t>(1, 128 / block));
    draft.values["shared_prefix"] = std::to_string(shared);
    for (SeqLen& s : draft.seqs) s.k += static_cast<int32_t>(shared);
  }
  if (is(draft, "path", "split_decode")) {
    std::ranges::sort(draft.seqs, [](const SeqLen& a, const SeqLen& b) { return a.q < b.q; });
  }
}

/// Sets keys as the error message proposes, for example "write 'kv_dtype: e4m3'".
bool Generator::follow_advice(const std::string& why, Draft& draft) {
  static const RE2 advice("([a-z_]+): ([a-z0-9_]+)");
  bool followed = false;
  std::istringstream quoted(why);
  std::string key, value;
  for (std::string text; std::getline(quoted, text, '\'');) {
    if (!RE2::FullMatch(text, advice, &key, &value)) continue;
    if (key == "op" || key == "batch" || !find_sweep_key(key) || is(draft, key, value)) continue;
    draft.values[key] = value;
    followed = true;
  }
  return followed;
}

bool Generator::drop_a_named_key(const std::string& why, Draft& draft) {
  std::vector<std::string> named;
  for (const auto& [key, value] : draft.values) {
    if (key != "op" && names(why, key)) named.push_back(key);
  }
  if (named.empty()) return false;
  draft.values.erase(random_.pick(named));
  return true;
}

/// A block of 64k tokens or a thousand rows of padding may make a case larger than its lengths do.
bool Generator::drop_a_large_number(Draft& draft) {
  constexpr int64_t kLarge = 512;
  return std::erase_if(draft.values, [&](const auto& of) { return number_of(draft, of.first, 0) > kLarge; }) >
         0;
}

bool Generator::make_legal(FuzzCase& drawn) {
  Draft& draft = drawn.draft;
  for (int i = 0; i < kMostRepairs; ++i) {
    if (auto item = reader_.read(draft)) {
      drawn.item = std::move(*item);
      return true;
    }
    const std::string& why = reader_.why();
    if (random_.chance(0.5) && follow_advice(why, draft)) continue;
    if (drop_a_named_key(why, draft)) continue;
    for (SeqLen& s : draft.seqs) s.q = std::min(s.q, s.k);
  }
  return false;
}

bool Generator::make_small(FuzzCase& drawn) {
  const double at = random_.unit();
  const Budget& budget =
      *std::find_if(std::begin(kBudgets), std::end(kBudgets), [&](const Budget& b) { return at < b.share; });
  Draft& draft = drawn.draft;
  for (int i = 0; i < kMostCuts; ++i) {
    const CaseCost cost = most_cost_of(drawn.item.params);
    if (cost.flop <= size_ * budget.flop && cost.device_bytes <= size_ * budget.bytes) return true;
    if (draft.seqs.empty()) return false;
    if (random_.chance(0.5) && drop_a_large_number(draft)) {
      auto item = reader_.read(draft);
      if (!item) return false;
      drawn.item = std::move(*item);
      continue;
    }
    // Lengths are cut last: long rows with few heads and sequences reach splits that short rows do not.
    if (draft.seqs.size() > 2 && random_.chance(0.5)) {
      const auto kept = static_cast<std::ptrdiff_t>((draft.seqs.size() + 1) / 2);
      draft.seqs.erase(draft.seqs.begin() + kept, draft.seqs.end());
    } else if (i == 0 || random_.chance(0.3)) {
      draft.values["heads"] = random_.pick<std::string>({"1/1", "2/1", "2/2", "3/1"});
    } else if (random_.chance(0.6)) {
      for (SeqLen& s : draft.seqs) s.q = (s.q + 1) / 2;
    } else {
      for (SeqLen& s : draft.seqs) s = {(s.q + 1) / 2, (s.k + 1) / 2};
    }
    auto item = reader_.read(draft);
    if (!item) return false;  // for example a sequence that is now shorter than the shared prefix
    drawn.item = std::move(*item);
  }
  return false;  // a single block or head is too large
}

/// Drops keys that make no difference. Repairs leave such keys, and a kernel's refusal is not due to them.
void Generator::drop_idle_keys(FuzzCase& drawn) {
  Draft& draft = drawn.draft;
  for (auto it = draft.values.begin(); it != draft.values.end();) {
    if (it->first == "op") {
      ++it;
      continue;
    }
    auto kept = *it;
    it = draft.values.erase(it);
    const auto item = reader_.read(draft);
    if (item && same_keys(item->params, drawn.item.params)) continue;
    it = std::next(draft.values.insert(std::move(kept)).first);
  }
}

FuzzCase Generator::next() {
  for (int i = 0; i < kMostDraws; ++i) {
    FuzzCase drawn = draw();
    if (!make_legal(drawn) || !make_small(drawn)) continue;
    drop_idle_keys(drawn);
    return drawn;
  }
  throw std::logic_error(fmt::format("no legal case of {} in {} draws", op_name(op_), kMostDraws));
}

Generator::Choice& Generator::choice_of(Menu& menu, const FuzzCase& drawn) const {
  std::string value;
  if (menu.key == kStyle) {
    value = batch_style_name(drawn.style);
  } else if (const auto it = drawn.draft.values.find(menu.key); it != drawn.draft.values.end()) {
    value = menu.key == "window" ? kWindowStyles[static_cast<int>(window_style(it->second))] : it->second;
  } else {
    return menu.choices[menu.plain];
  }
  const auto found = std::ranges::find_if(menu.choices, [&](const Choice& c) { return c.value == value; });
  if (found != menu.choices.end()) return *found;
  menu.choices.push_back({value});  // a repair chose it
  return menu.choices.back();
}

std::vector<std::string> Generator::features_of(const FuzzCase& drawn) {
  std::vector<std::string> features = {fmt::format("batch={}", batch_style_name(drawn.style))};
  for (const auto& [key, value] : drawn.draft.values) {
    const bool window = key == "window";
    features.push_back(
        fmt::format("{}={}", key, window ? kWindowStyles[static_cast<int>(window_style(value))] : value));
  }
  return features;
}

void Generator::learn(const FuzzCase& drawn, bool taken) {
  for (Menu& menu : menus_) {
    Choice& choice = choice_of(menu, drawn);
    ++choice.offered;
    choice.taken += taken ? 1 : 0;
  }
}

}  // namespace attnbench
