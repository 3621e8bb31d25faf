#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "harness/cases/case.h"
#include "harness/cases/cost.h"
#include "harness/cases/cover.h"
#include "harness/cases/draws.h"
#include "harness/cases/served.h"
#include "harness/cases/value_tuples.h"
#include "harness/config/keys.h"
#include "harness/gigabytes.h"
#include "harness/ops/case_ops.h"
#include "harness/serving/trace_lines.h"

namespace attnbench {
namespace {

/// No machine addresses more memory: a case that needs more is a mistake in the file.
constexpr double kAddressSpaceBytes = 0x1p46;

using Settings = std::vector<const Setting*>;

const Setting* last_of(const Settings& settings, std::string_view key) {
  const Setting* found = nullptr;
  for (const Setting* s : settings) {
    if (s->key == key) found = s;
  }
  return found;
}

[[noreturn]] void fail(const std::string& place, const std::string& message) {
  throw ConfigError(place + ": error: " + message);
}

/// Checks keys against each other.
void check(const CaseParams& p, const Settings& settings, const Sweep& sweep) {
  const auto given = [&](std::string_view key) { return last_of(settings, key) != nullptr; };
  const FailAt fail_at = [&](std::string_view key, const std::string& message) {
    const Setting* s = last_of(settings, key);
    fail(s ? s->place : sweep.place, message);
  };
  check_rotary(p, fail_at);
  case_ops(p.op).check(p, given, fail_at);
  check_launch(p, fail_at);
  check_lengths(p, fail_at);
  if (!(most_cost_of(p).device_bytes < kAddressSpaceBytes)) {
    fail_at("batch", fmt::format("this case needs {} of memory, more than any machine can address",
                                 gigabytes(most_cost_of(p).device_bytes)));
  }
}

/// Puts into the case what is drawn for it, and the step of a replay if it asks for one. The replay's block
/// table is the default page_layout.
void settle(CaseParams& p, const Settings& settings, const Sweep& sweep, uint64_t seed, ServedSteps& served) {
  const auto place = [&](std::string_view key) {
    const Setting* s = last_of(settings, key);
    return s ? s->place : sweep.place;
  };
  if (p.window_drawn) draw_window(p, seed);
  if (!p.serving) {
    const bool may_repeat = p.paged() && !p.does().appends;
    if (may_repeat && p.page_layout == PageLayout::kRepeated) draw_repeated_blocks(p, seed);
    if (p.paged() && p.page_layout == PageLayout::kServed)
      fail(place("page_layout"),
           "served is the block table of a replay: it needs 'batch: {serving: {mix: ...}}'");
    return;
  }
  if (last_of(settings, "page_layout") == nullptr) p.page_layout = PageLayout::kServed;
  try {
    served.settle(p, place("batch"));
  } catch (const ConfigError&) {
    throw;
  } catch (const BadTraceError& e) {
    // No ConfigError, for which a cover would leave the row out: no key of a sweep mends the file.
    throw BadTraceError(fmt::format("{}; named in {}", e.what(), place("batch")));
  } catch (const Error& e) {
    fail(place("batch"), e.what());
  }
}

/// A setting matches a case if applying it changes nothing.
bool matches(const Exclusion& exclusion, const CaseParams& params) {
  for (const auto& values : exclusion.any_of_each) {
    bool any = false;
    for (const Setting& s : values) {
      CaseParams changed = params;
      s.apply(changed);
      any = any || changed == params;
    }
    if (!any) return false;
  }
  return true;
}

int64_t product_of_axes(const Sweep& sweep) {
  int64_t n = 1;
  for (const Axis& axis : sweep.axes) {
    if (__builtin_mul_overflow(n, static_cast<int64_t>(axis.points.size()), &n)) return INT64_MAX;
  }
  return n;
}

void append(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

void CoverCounts::add(const CoverCounts& other) {
  pairs += other.pairs;
  triples += other.triples;
  append(impossible, other.impossible);
  append(indifferent, other.indifferent);
  exact = exact && other.exact;
  append(short_samples, other.short_samples);
}

namespace {

Settings settings_of(const Sweep& sweep, const AxisRow& row) {
  Settings settings;
  for (const Setting& s : sweep.fixed) settings.push_back(&s);
  for (std::size_t a = 0; a < row.size(); ++a) {
    for (const Setting& s : sweep.axes[a].points[row[a]]) settings.push_back(&s);
  }
  return settings;
}

CaseParams apply(const Settings& settings) {
  CaseParams params;
  for (const Setting* s : settings) s->apply(params);
  return params;
}

bool is_excluded(const Sweep& sweep, const CaseParams& params) {
  return std::ranges::any_of(sweep.exclude, [&](const Exclusion& e) { return matches(e, params); });
}

/// All rows, the last axis fastest, like nested loops written in file order.
template <class Visit>
void for_each_row(const Sweep& sweep, const Visit& visit) {
  AxisRow row(sweep.axes.size(), 0);
  for (bool more = true; more;) {
    visit(row);
    more = false;
    for (std::size_t a = row.size(); a-- > 0;) {
      if (++row[a] < sweep.axes[a].points.size()) {
        more = true;
        break;
      }
      row[a] = 0;
    }
  }
}

std::string point_text(const Sweep& sweep, std::size_t axis, std::size_t point) {
  std::string text;
  for (const Setting& s : sweep.axes[axis].points[point]) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", s.key, s.text);
  }
  return text;
}

std::string tuple_text(const Sweep& sweep, const ValueTuple& tuple) {
  std::string text;
  for (const AxisValue& v : tuple)
    text += (text.empty() ? "" : " with ") + point_text(sweep, v.axis, v.point);
  return fmt::format("{}: {}", sweep.name, text);
}

/// The axes of a sweep with a cover or a sample. A row whose keys contradict each other is left out; only in
/// a product is it an error of the file.
AxisTable table_of(const Sweep& sweep, uint64_t seed, ServedSteps& served) {
  std::vector<std::size_t> points;
  for (const Axis& axis : sweep.axes) points.push_back(axis.points.size());
  const auto problem = [&sweep](const AxisRow& row) { return normalised(apply(settings_of(sweep, row))); };
  const auto legal = [&sweep, seed, &served](const AxisRow& row) {
    const Settings settings = settings_of(sweep, row);
    CaseParams params = apply(settings);
    if (is_excluded(sweep, params)) return false;
    try {
      settle(params, settings, sweep, seed, served);
      check(params, settings, sweep);
    } catch (const ConfigError&) {
      return false;
    }
    return true;
  };
  const auto live = [points, problem](const AxisRow& row, std::size_t axis) {
    if (points[axis] == 1) return true;
    const CaseParams here = problem(row);
    AxisRow other = row;
    for (other[axis] = 0; other[axis] < points[axis]; ++other[axis]) {
      if (other[axis] != row[axis] && !(problem(other) == here)) return true;
    }
    return false;
  };
  return {points, legal, live};
}

/// Adds the cases of a sweep with a cover or a sample. add(row) returns whether the row's case is new.
template <class Add>
CoverCounts add_covered(const Sweep& sweep, uint64_t seed, ServedSteps& served, const Add& add) {
  const AxisTable table = table_of(sweep, seed, served);
  CoverCounts counts;
  if (sweep.cover.sample > 0) {
    int64_t drawn = 0;
    sample_rows(table, sweep.cover.sample, seed, [&](const AxisRow& row) {
      const bool is_new = add(row);
      drawn += is_new;
      return is_new;
    });
    if (drawn < sweep.cover.sample)
      counts.short_samples.push_back(
          fmt::format("{}: {} of {}: no other legal case was found", sweep.name, drawn, sweep.cover.sample));
    return counts;
  }
  const std::size_t strength = std::min(sweep.cover.strength, table.points.size());
  const Cover cover = cover_tuples(table, strength, seed);
  for (const AxisRow& row : cover.rows) add(row);
  if (cover.rows.empty()) {  // the plainest row's own error says which keys contradict each other
    add(AxisRow(table.points.size(), 0));
    fail(sweep.place,
         fmt::format("the cover of sweep '{}' has no legal case that 'exclude' leaves; exclude less",
                     sweep.name));
  }
  if (strength == 2) counts.pairs = cover.met;
  if (strength == 3) counts.triples = cover.met;
  for (const ValueTuple& t : cover.impossible) counts.impossible.push_back(tuple_text(sweep, t));
  for (const ValueTuple& t : cover.indifferent) counts.indifferent.push_back(tuple_text(sweep, t));
  counts.exact = cover.exact;
  return counts;
}

/// Refuses a sweep that exceeds a limit. `planned` counts the cases of the sweeps so far.
void check_size(const Sweep& sweep, int64_t& planned) {
  if (sweep.cover.strength > 0) {
    std::vector<std::size_t> points;
    for (const Axis& axis : sweep.axes) points.push_back(axis.points.size());
    const double tuples = TupleSet::count(points, std::min(sweep.cover.strength, points.size()));
    if (tuples > static_cast<double>(kMaxTuples)) {
      fail(sweep.place, fmt::format("the cover of sweep '{}' has {:.0f} combinations of values to meet, more "
                                    "than {}; shorten an axis",
                                    sweep.name, tuples, kMaxTuples));
    }
    return;
  }
  const int64_t n = sweep.cover.sample > 0 ? sweep.cover.sample : product_of_axes(sweep);
  if (n > kMaxCases || (planned += n) > kMaxCases) {
    fail(sweep.place,
         fmt::format("sweep '{}' brings the file past {} cases; shorten an axis", sweep.name, kMaxCases));
  }
}

/// Keys that a sweep sets itself, and that apply to none of its cases, from `first` on.
void note_keys_without_use(const Sweep& sweep, const std::vector<Case>& cases, std::size_t first,
                           std::vector<std::string>& notes) {
  std::map<std::string, const Setting*> own;
  for (const Setting& s : sweep.fixed) {
    if (s.own) own.emplace(s.key, &s);
  }
  for (const Axis& axis : sweep.axes) {
    for (const Setting& s : axis.points.front()) {
      if (s.own) own.emplace(s.key, &s);
    }
  }
  for (const auto& [name, setting] : own) {
    const SweepKey* key = find_sweep_key(name);
    const auto applies = [key = key](const Case& c) { return key->applies(c.params); };
    if (first == cases.size() || key == nullptr ||
        std::any_of(cases.begin() + static_cast<std::ptrdiff_t>(first), cases.end(), applies))
      continue;
    notes.push_back(
        fmt::format("{}: note: {} changes no case of sweep '{}'; see when it applies in the table of "
                    "'attnbench list --keys'",
                    setting->place, name, sweep.name));
  }
}

/// Exclusions that no row of a product matched. (A cover does not look at all rows.)
void note_idle_exclusions(const Sweep& sweep, const std::vector<bool>& used,
                          std::vector<std::string>& notes) {
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    notes.push_back(fmt::format("{}: note: this row of 'exclude' matches no case of sweep '{}'",
                                sweep.exclude[i].any_of_each.front().front().place, sweep.name));
  }
}

}  // namespace

Expansion expand(const SweepFile& file) {
  Expansion out;
  std::size_t sequences = 0;
  int64_t planned = 0;
  for (const Sweep& sweep : file.sweeps) check_size(sweep, planned);
  const uint64_t seed = file.seed.value_or(1);
  std::unordered_set<std::string> seen;
  const auto room = static_cast<std::size_t>(std::min<int64_t>(planned, 1 << 17));
  seen.reserve(room);
  out.cases.reserve(room);
  ServedSteps served;
  std::string why_left_out;
  for (const Sweep& sweep : file.sweeps) {
    const std::size_t first = out.cases.size();
    std::vector<bool> used(sweep.exclude.size(), false);
    int64_t left_out = 0;
    const auto contradicts = [&](const ConfigError& e) {
      if (!sweep.overridden) throw;
      if (left_out++ == 0) why_left_out = e.what();
    };
    const auto add = [&](const AxisRow& row) {
      const Settings settings = settings_of(sweep, row);
      CaseParams params = apply(settings);
      bool excluded = false;
      for (std::size_t i = 0; i < used.size(); ++i)
        if (matches(sweep.exclude[i], params)) used[i] = excluded = true;
      if (excluded) {
        ++out.excluded;
        return false;
      }
      try {
        settle(params, settings, sweep, seed, served);
        check(params, settings, sweep);
      } catch (const ConfigError& e) {
        contradicts(e);
        return false;
      }
      params = normalised(std::move(params));
      std::string id = case_id(params);
      if (!seen.insert(id).second) {
        if (sweep.cover.is_product()) out.duplicates.push_back(id);  // rows of a cover may be one problem
        return false;
      }
      if ((sequences += params.seqs.size()) > kMaxSequences) {
        fail(sweep.place,
             fmt::format("sweep '{}' brings the file past {} sequences in all its cases; shorten "
                         "its batches or an axis",
                         sweep.name, kMaxSequences));
      }
      const Setting* batch = last_of(settings, "batch");
      std::string mapping = params.served ? serving_batch_text(*params.served) : batch ? batch->mapping : "";
      out.cases.push_back(
          {std::move(id), sweep.name, seed, std::move(params), file.path, std::move(mapping)});
      return true;
    };
    if (sweep.cover.is_product()) {
      for_each_row(sweep, add);
      note_idle_exclusions(sweep, used, out.idle_exclusions);
    } else {
      try {
        out.cover.add(add_covered(sweep, seed, served, add));
      } catch (const ConfigError& e) {
        contradicts(e);
      }
    }
    if (left_out > 0)
      out.notes.push_back(fmt::format(
          "note: --set leaves out {} of sweep '{}': {}",
          sweep.cover.is_product() ? fmt::format("{} case{}", left_out, left_out == 1 ? "" : "s") : "all",
          sweep.name, why_left_out));
    note_keys_without_use(sweep, out.cases, first, out.notes);
  }
  append(out.notes, served.notes());
  if (out.cases.empty() && !why_left_out.empty()) throw ConfigError(why_left_out);
  return out;
}

}  // namespace attnbench
