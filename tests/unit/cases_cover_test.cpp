// configs/semantics.yaml and semantics_ops.yaml cover every legal pair of values of two keys, by the rules of
// cases_cover_rules.h.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <map>
#include <set>
#include <stdexcept>

#include "harness/cases/case.h"
#include "harness/config/keys.h"
#include "tests/unit/cases_cover_rules.h"

namespace attnbench {
namespace {

using P = CaseParams;
using cover_rules::dead;
using cover_rules::Rule;
using cover_rules::rules;
using ::testing::IsEmpty;
using ::testing::Not;

/// The values of a cover's keys, and its cases.
struct HeldPairs {
  const Sweep* sweep;
  std::vector<std::string> keys;  ///< keys of the axes; each axis sets one key
  std::vector<const Case*> cases;

  HeldPairs(const Sweep& s, const Expansion& e) : sweep(&s) {
    for (const Axis& axis : s.axes) {
      EXPECT_EQ(axis.points[0].size(), 1u) << "zip in a cover";
      keys.push_back(axis.points[0][0].key);
    }
    for (const Case& c : e.cases) {
      if (c.sweep == s.name) cases.push_back(&c);
    }
  }
  const Setting& value(std::size_t axis, std::size_t point) const {
    return sweep->axes[axis].points[point][0];
  }
  std::size_t points(std::size_t axis) const { return sweep->axes[axis].points.size(); }
  P with(P p, std::size_t axis, std::size_t point) const {
    value(axis, point).apply(p);
    return normalised(p);
  }
};

struct Value {
  std::size_t axis, point;
};

/// Whether each case counts for each value: the value is set, another value of its key would change the case,
/// and no earlier value spells the same problem.
std::vector<std::vector<std::vector<bool>>> held(const HeldPairs& cover) {
  std::vector<std::vector<std::vector<bool>>> all;  // (axis, point, case)
  for (std::size_t a = 0; a < cover.keys.size(); ++a) {
    all.emplace_back(cover.points(a), std::vector<bool>(cover.cases.size()));
    for (std::size_t c = 0; c < cover.cases.size(); ++c) {
      const P& here = cover.cases[c]->params;
      std::vector<bool> same;
      for (std::size_t i = 0; i < cover.points(a); ++i) same.push_back(cover.with(here, a, i) == here);
      const bool matters = std::find(same.begin(), same.end(), false) != same.end();
      const auto first = std::find(same.begin(), same.end(), true) - same.begin();
      for (std::size_t i = 0; i < same.size(); ++i)
        all[a][i][c] = matters && static_cast<std::ptrdiff_t>(i) == first;
    }
  }
  return all;
}

/// Searches all combinations of the cover's values for one that has two given values and breaks no rule.
class Search {
 public:
  explicit Search(const HeldPairs& cover) : cover_(&cover) {
    for (const Setting& s : cover.sweep->fixed) {
      s.apply(plain_);
      known_ |= bit_of(s.key);
    }
    known_ |= bit_of("op");
    for (const std::string& key : cover.keys) key_bits_.push_back(bit_of(key));
    for (const Rule& r : rules()) rule_bits_.push_back(bits_of(r));
    for (const auto& [key, rule] : dead()) dead_bits_.emplace_back(bit_of(key), bits_of(rule));
    // A key of a rule that the cover does not vary stays at its value.
    const std::set<std::string> varied(cover.keys.begin(), cover.keys.end());
    for (const auto& [key, bit] : std::map(bits_)) {
      if (!varied.count(key)) known_ |= bit_of(key);
    }
    // Keys on which others depend come first, so that a dead end is found early.
    for (const char* key : {"append", "rotary", "alibi", "path", "page_layout", "kv", "kv_dtype", "dtype",
                            "shared_prefix", "batch", "mask", "head_dim", "head_dim_v"}) {
      const auto at = std::find(cover.keys.begin(), cover.keys.end(), key);
      if (at != cover.keys.end()) order_.push_back(static_cast<std::size_t>(at - cover.keys.begin()));
    }
    for (std::size_t a = 0; a < cover.keys.size(); ++a) {
      if (std::find(order_.begin(), order_.end(), a) == order_.end()) order_.push_back(a);
    }
  }

  /// The case, if there is one. With `dead_too`, the two values need not make a difference in it.
  std::optional<P> holding(const Value& u, const Value& v, bool dead_too = false) const {
    const std::vector<Step> steps = steps_of(u.axis, v.axis, dead_too);
    P p = plain_;
    for (const Value& x : {u, v}) cover_->value(x.axis, x.point).apply(p);
    return broken(steps[0], p) ? std::nullopt : extended(p, steps, 1);
  }

 private:
  /// A set of keys is a set of bits, because sets of strings would take most of the search's time.
  static constexpr std::size_t kMostKeys = 128;
  using Keys = std::bitset<kMostKeys>;

  Keys bit_of(const std::string& key) {
    const auto [at, inserted] = bits_.emplace(key, bits_.size());
    if (at->second >= kMostKeys)
      throw std::logic_error(
          fmt::format("sweep {}, rules() and dead() name more than {} keys: raise kMostKeys",
                      cover_->sweep->name, kMostKeys));
    return Keys().set(at->second);
  }
  Keys bits_of(const Rule& rule) {
    Keys bits;
    for (const auto& key : rule.keys) bits |= bit_of(key);
    return bits;
  }

  /// A key that the search sets, and the rules that can be broken by it: those whose other keys are set before.
  struct Step {
    std::size_t axis;
    std::vector<const Rule*> rules;
  };

  /// The first step sets the keys of both axes.
  std::vector<Step> steps_of(std::size_t u, std::size_t v, bool dead_too) const {
    Keys known = known_ | key_bits_[u] | key_bits_[v];
    const Keys wanted = key_bits_[u] | key_bits_[v];
    std::vector<Step> steps;
    const auto add = [&](std::size_t axis, const Keys& set) {
      const auto decided = [&](const Keys& rule) { return (rule & set).any() && (rule & ~known).none(); };
      Step& step = steps.emplace_back(Step{axis, {}});
      for (std::size_t i = 0; i < rule_bits_.size(); ++i) {
        if (decided(rule_bits_[i])) step.rules.push_back(&rules()[i]);
      }
      for (std::size_t i = 0; i < dead_bits_.size() && !dead_too; ++i) {
        const auto& [key, keys] = dead_bits_[i];
        if ((key & wanted).any() && decided(keys)) step.rules.push_back(&dead()[i].second);
      }
    };
    add(u, known);
    for (const std::size_t axis : order_) {
      if (axis == u || axis == v) continue;
      known |= key_bits_[axis];
      add(axis, key_bits_[axis]);
    }
    return steps;
  }

  static bool broken(const Step& step, const P& p) {
    return std::any_of(step.rules.begin(), step.rules.end(), [&](const Rule* r) { return r->broken(p); });
  }

  std::optional<P> extended(P p, const std::vector<Step>& steps, std::size_t depth) const {
    if (depth == steps.size()) return p;
    for (std::size_t i = 0; i < cover_->points(steps[depth].axis); ++i) {
      cover_->value(steps[depth].axis, i).apply(p);
      if (broken(steps[depth], p)) continue;
      if (auto found = extended(p, steps, depth + 1)) return found;
    }
    return std::nullopt;
  }

  const HeldPairs* cover_;
  P plain_;
  std::map<std::string, std::size_t> bits_;  ///< index of a key's bit
  Keys known_;
  std::vector<Keys> key_bits_;  ///< one per axis
  std::vector<Keys> rule_bits_;
  std::vector<std::pair<Keys, Keys>> dead_bits_;  ///< the key, and the rule that makes it so
  std::vector<std::size_t> order_;
};

/// Whether the loader accepts it as a case of the sweep.
bool loads(const Sweep& sweep, const P& params) {
  SweepFile file;
  Sweep one;
  one.name = sweep.name;
  one.exclude = sweep.exclude;
  one.fixed = {{"batch", "", [&](P& p) { p = params; }, ""}};
  file.sweeps = {one};
  try {
    return expand(file).cases.size() == 1;
  } catch (const ConfigError&) {
    return false;
  }
}

template <class Visit>
void for_each_pair(const HeldPairs& cover, const Visit& visit) {
  for (std::size_t a = 0; a < cover.keys.size(); ++a) {
    for (std::size_t b = a + 1; b < cover.keys.size(); ++b) {
      for (std::size_t i = 0; i < cover.points(a); ++i) {
        for (std::size_t j = 0; j < cover.points(b); ++j) visit(Value{a, i}, Value{b, j});
      }
    }
  }
}

std::string text_of(const HeldPairs& cover, const Value& x) {
  return fmt::format("{}: {}", cover.keys[x.axis], cover.value(x.axis, x.point).text);
}

/// The sweeps of both files, whose seeds and defaults are equal.
SweepFile semantics() {
  SweepFile file = load_sweep_file(ATTNBENCH_SOURCE_DIR "/configs/semantics.yaml");
  for (const Sweep& sweep : load_sweep_file(ATTNBENCH_SOURCE_DIR "/configs/semantics_ops.yaml").sweeps)
    file.sweeps.push_back(sweep);
  return file;
}
SweepFile backward_semantics() {
  return load_sweep_file(ATTNBENCH_SOURCE_DIR "/configs/semantics_backward.yaml");
}

std::string pair_text(const HeldPairs& cover, const Value& u, const Value& v) {
  return fmt::format("{}: {} with {}", cover.sweep->name, text_of(cover, u), text_of(cover, v));
}

/// Whether two values meet in some case, in which each makes a difference.
bool meet(const std::vector<std::vector<std::vector<bool>>>& holds, const Value& u, const Value& v) {
  const std::vector<bool>&with_u = holds[u.axis][u.point], &with_v = holds[v.axis][v.point];
  for (std::size_t c = 0; c < with_u.size(); ++c) {
    if (with_u[c] && with_v[c]) return true;
  }
  return false;
}

/// The loader refuses the pair in every case of the cover, if both values would make a difference there.
void expect_refused(const HeldPairs& cover, const Value& u, const Value& v) {
  const auto matters = [&](const P& p, const Value& x) {
    for (std::size_t i = 0; i < cover.points(x.axis); ++i) {
      if (!(cover.with(p, x.axis, i) == p)) return true;
    }
    return false;
  };
  for (const Case* c : cover.cases) {
    P p = c->params;
    cover.value(u.axis, u.point).apply(p);
    cover.value(v.axis, v.point).apply(p);
    const P n = normalised(p);
    if (matters(n, u) && matters(n, v)) {
      EXPECT_FALSE(loads(*cover.sweep, p)) << pair_text(cover, u, v) << " in " << c->id;
    }
  }
}

/// Every legal pair of values is in a case, and no other. The loader refuses pairs that the rules call
/// impossible, and `list --impossible` names them. In any other pair without a case, one value makes no
/// difference. One test, because the search for each pair takes nearly all of its time.
TEST(Cover, EveryLegalPairOfTwoKeysIsInACaseAndOthersAreRefused) {
  const SweepFile file = semantics();
  const Expansion e = expand(file);
  std::set<std::string> impossible(e.cover.impossible.begin(), e.cover.impossible.end());
  std::set<std::string> indifferent(e.cover.indifferent.begin(), e.cover.indifferent.end());
  EXPECT_GE(impossible.size(), 50u);
  EXPECT_GE(indifferent.size(), 50u);
  EXPECT_TRUE(indifferent.count("attention: kv: packed with leftpad: 0"));
  int covers = 0;
  for (const Sweep& sweep : file.sweeps) {
    if (sweep.cover.strength != 2) continue;
    ++covers;
    const HeldPairs cover(sweep, e);
    const auto holds = held(cover);
    const Search search(cover);
    for_each_pair(cover, [&](const Value& u, const Value& v) {
      const std::string pair = pair_text(cover, u, v);
      const std::optional<P> example = search.holding(u, v);
      const bool met = meet(holds, u, v);
      EXPECT_TRUE(met || !example) << pair << " is in no case, as in " << case_yaml(normalised(*example));
      EXPECT_TRUE(!met || example) << pair << ": a rule of this test is too strict";
      if (!example) expect_refused(cover, u, v);
      const bool legal = example || search.holding(u, v, true);
      EXPECT_EQ(impossible.erase(pair) > 0, !legal) << pair;
      EXPECT_EQ(indifferent.erase(pair) > 0, legal && !example) << pair;
    });
  }
  EXPECT_GE(covers, 8);
  EXPECT_THAT(impossible, IsEmpty());
  EXPECT_THAT(indifferent, IsEmpty());
}

/// The last case of each cover holds a pair that no other has.
TEST(Cover, AMissingCaseIsSeen) {
  const SweepFile file = semantics();
  const Expansion e = expand(file);
  for (const Sweep& sweep : file.sweeps) {
    if (sweep.cover.strength != 2) continue;
    HeldPairs cover(sweep, e);
    const auto all = held(cover);
    cover.cases.pop_back();
    const auto rest = held(cover);
    const Search search(cover);
    bool missing = false;
    for_each_pair(cover, [&](const Value& u, const Value& v) {
      if (!missing && meet(all, u, v) && !meet(rest, u, v)) missing = search.holding(u, v).has_value();
    });
    EXPECT_TRUE(missing) << sweep.name;
  }
}

TEST(Cover, HasEveryKeyAndEveryWord) {
  std::map<std::string, std::set<std::string>> seen;
  std::vector<Sweep> sweeps = semantics().sweeps;
  for (const Sweep& sweep : backward_semantics().sweeps) sweeps.push_back(sweep);
  for (const Sweep& sweep : sweeps) {
    if (sweep.cover.strength != 2) continue;
    for (const Setting& s : sweep.fixed) {
      if (s.key == "op") seen["op"].insert(s.text);
      // All other covers have rotary_cached: false; most vary kv_dtype and mask.
      if (s.key == "rotary_cached" || s.key == "kv_dtype" || s.key == "mask") seen[s.key].insert(s.text);
    }
    for (const Axis& axis : sweep.axes) {
      for (const auto& point : axis.points) {
        for (const Setting& s : point) seen[s.key].insert(s.text);
      }
    }
  }
  seen["op"].insert("attention");        // the default
  seen["page_layout"].insert("served");  // a replay's alone: cases_served_test.cpp
  // Takes several GPUs, so a cover's cases would be skipped on most machines: session_ranks_test.cpp.
  seen["dcp_combine"] = {"one_device", "all_gather", "all_to_all", "fused"};
  // A sound case that every kernel refuses is none of these semantics; without a bad launch a result is expected.
  seen["expect"] = {"result", "refused"};
  seen["bad_launch"].insert("none");
  seen["allow_short_kv"] = {"a permit"};  // only permits short KV; the problem is the same
  for (const SweepKey& key : sweep_keys()) {
    EXPECT_TRUE(seen.count(key.name)) << "no cover of semantics.yaml varies " << key.name;
    if (!key.schema.contains("enum")) continue;
    for (const auto& word : key.schema["enum"]) {
      EXPECT_TRUE(seen[key.name].count(word))
          << "no cover of semantics.yaml has " << key.name << ": " << word;
    }
  }
}

}  // namespace
}  // namespace attnbench
