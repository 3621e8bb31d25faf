#include "harness/compare/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/compare/machine_pace.h"
#include "harness/compare/pairing.h"
#include "harness/compare/ratio.h"
#include "harness/compare/time_remarks.h"
#include "harness/compare/undecided.h"
#include "harness/error.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

void check_effect(double effect) {
  if (!(effect >= 0 && effect < 1)) {
    throw Error(fmt::format("minimum effect {}: allowed is 0 up to, not including, 1", effect));
  }
}

bool usable(double v) { return std::isfinite(v) && v > 0; }

/// The times of one side.
struct Times {
  std::vector<double> samples;
  MedianRange range;
  bool has_interval = false;  ///< range.lo and range.hi are an interval, not one point
};

/// The unit of the times in a comparison.
enum class Unit { kMicrosecond, kLeastTime, kCoresProbe };

std::optional<Times> times_of(const Record& r, Unit in) {
  const double median = r.median_us().value_or(0);
  if (r.status != Status::kPass || !usable(median)) return std::nullopt;
  double unit = 1;
  if (in == Unit::kLeastTime) {
    if (!r.roofline || !r.roofline->sol || !usable(*r.roofline->sol)) return std::nullopt;
    unit = *r.roofline->sol * median;
  }
  Times t;
  for (const double time : in == Unit::kCoresProbe ? paced_samples(r) : r.samples_us()) {
    if (usable(time)) t.samples.push_back(time / unit);
  }
  const double lo = r.time->lo_us, hi = r.time->upper_us();
  t.has_interval = usable(lo) && lo < hi;
  t.range = {median / unit, lo / unit, hi / unit, t.samples.size()};
  return t;
}

std::string status_note(const char* side, const Record& r) {
  return fmt::format("{}: {}{}{}", side, status_name(r.status), r.reason.empty() ? "" : ": ", reason_text(r));
}

/// The minimum effect, or two ticks of the timer if that is more.
double effect_of(const Record& base, const CompareOptions& options) {
  const auto it = options.min_effect_of_id.find(base.item.id);
  const double effect = it == options.min_effect_of_id.end() ? options.min_effect : it->second;
  const double us = base.median_us().value_or(0);
  if (options.as_sol || !base.device.starts_with("cuda") || !usable(us)) return effect;
  return std::max(effect, std::min(2 * kEventTickUs / us, 0.99));
}

/// What a status of NEW that is no pass makes of a case, whatever BASE has.
std::optional<Change> change_of(Status fresh) {
  if (fresh == Status::kError || fresh == Status::kTimeout) return Change::kError;
  if (fresh == Status::kFail || fresh == Status::kUndecided) return Change::kIncorrect;
  return std::nullopt;
}

/// Decides what the two statuses decide. Returns true if times must be compared.
bool decide_by_status(const Record& base, const Record& fresh, CompareRow& row) {
  const bool ran = base.status == Status::kPass || base.status == Status::kInvalidTime;
  if (fresh.status == Status::kPass) {
    if (base.status == Status::kPass) return true;
    row.change = ran ? Change::kInconclusive : Change::kNotCompared;
    row.note = status_note("BASE", base);
    return false;
  }
  row.change = change_of(fresh.status)
                   .value_or(fresh.status == Status::kInvalidTime ? Change::kInconclusive
                             : ran                                ? Change::kMissingNew
                                                                  : Change::kNotCompared);
  row.note = status_note("NEW", fresh);
  if (fresh.check) row.clues = fresh.check->clues;
  return false;
}

/// The verdict from an interval alone.
Change verdict_of(const RatioTest& t, double effect) {
  if (t.lo > 1 + effect) return Change::kSlower;
  if (t.hi < 1 - effect) return Change::kFaster;
  return t.lo >= 1 - effect && t.hi <= 1 + effect ? Change::kSame : Change::kInconclusive;
}

/// A slower clock does not make a slower kernel. If clocks differ, the verdict in time must hold in cycles
/// too. Cycles alone are not enough, because a memory-bound kernel takes fewer cycles at a lower clock.
void look_at_clocks(const Record& base, const Record& fresh, const RatioTest& t, double effect,
                    CompareRow& row) {
  const auto &base_mhz = base.time->clocks.sm_mhz, &fresh_mhz = fresh.time->clocks.sm_mhz;
  if (!usable(base_mhz.value_or(0)) || !usable(fresh_mhz.value_or(0))) return;
  const double clocks = *fresh_mhz / *base_mhz;
  if (std::abs(clocks - 1) <= kClockTolerance) return;
  if (row.change != Change::kSlower && row.change != Change::kFaster) return;
  RatioTest cycles = t;
  cycles.lo *= clocks;
  cycles.hi *= clocks;
  if (verdict_of(cycles, effect) == row.change) return;
  row.note = fmt::format("{} in time, {:+.2f} % in cycles: SM clock {:.0f} MHz in BASE, {:.0f} in NEW",
                         change_name(row.change), 100 * (t.ratio * clocks - 1), *base_mhz, *fresh_mhz);
  row.change = Change::kInconclusive;
}

/// If BASE has too few runs with the handover times of NEW, the distance between the cores alone may make a
/// case slower.
void look_at_cores(const RatioTest& t, double effect, CompareRow& row) {
  if (row.change != Change::kSlower && row.change != Change::kFaster) return;
  if (verdict_of(t, std::max(effect, kFarCores)) == row.change) return;
  row.note = fmt::format(
      "{} ({:+.1f} %), but BASE has too few runs with cores as far apart as in NEW (handover_us: threads wait "
      "for each other): that alone may make {:.0f} %",
      change_name(row.change), 100 * (t.ratio - 1), 100 * kFarCores);
  row.change = Change::kInconclusive;
}

/// Slower memory does not make a memory-bound kernel slower. A verdict by the cores' probe must hold by the
/// memory's probe too.
void look_at_memory(const Pace& pace, const RatioTest& t, double effect, CompareRow& row) {
  if (!pace.memory || (row.change != Change::kSlower && row.change != Change::kFaster)) return;
  const double memory = *pace.memory / pace.cores;  // t is in multiples of the cores' probe
  RatioTest in_memory = t;
  in_memory.lo /= memory;
  in_memory.hi /= memory;
  if (verdict_of(in_memory, effect) == row.change) return;
  row.note = fmt::format(
      "{} by time / CPU test loop, but {} by time / memory test loop ({:+.1f} .. {:+.1f} %): these loops changed by "
      "{:+.1f} and {:+.1f} %",
      change_name(row.change), change_name(verdict_of(in_memory, effect)), 100 * (in_memory.lo - 1),
      100 * (in_memory.hi - 1), 100 * (pace.cores - 1), 100 * (*pace.memory - 1));
  row.change = Change::kInconclusive;
}

/// Times from a machine that others use say nothing about a kernel, unless the difference is larger than
/// sharing cores can cause. A long sample is seldom undisturbed.
void look_at_neighbours(const Record& base, const Record& fresh, const RatioTest& t, bool in_turns,
                        CompareRow& row) {
  if (row.change != Change::kSlower && row.change != Change::kFaster) return;
  constexpr double kBothShared = 4;
  const bool both = base.time->busy() && fresh.time->busy();
  const double most = both ? kBothShared : most_by_sharing(base, fresh, fresh.time->busy());
  if (t.lo > most || t.hi < 1 / most) return;
  for (const auto& [side, r] : {std::pair{"BASE", &base}, std::pair{"NEW", &fresh}}) {
    if (!r->time->busy()) continue;
    row.note = fmt::format(
        "{}, but others took the cores during {} of {} samples in {}: only a change by a factor of over {} (its whole interval) could be told",
        change_name(row.change), r->time->disturbed, r->samples_us().size(), side,
        digits(least_change(base, fresh, in_turns, most), 2));
    row.change = Change::kInconclusive;
    return;
  }
}

/// The number of runs of each side, and whether they count as one.
struct Runs {
  int base, fresh;
  bool as_one;
  int of_base() const { return as_one ? 1 : base; }
  int of_fresh() const { return as_one ? 1 : fresh; }
};

/// Says why an undecided interval is so wide, and what the machine did meanwhile.
void explain(const RunNoise& noise, const Runs& runs, const std::optional<Pace>& pace, CompareRow& row) {
  if (!row.note.empty()) return;
  const bool open = row.change == Change::kInconclusive;
  if (open) {
    row.note = interval_reason(row);
    if (noise.runs > 1 && noise.sigma > 0) {
      const std::string of_base = counted(runs.base, "run");
      row.note += "; " + (runs.fresh == runs.base
                              ? of_base + " a side"
                              : fmt::format("{} of BASE and {} of NEW", of_base, counted(runs.fresh, "run")));
      if (runs.as_one) row.note += " (a CPU's runs of one side count as one: in turns they would not)";
    }
  } else if (pace && std::abs(pace->cores - 1) > kClockTolerance) {
    row.note = fmt::format("time {:+.1f} %, CPU test loop {:+.1f} %; change = time / test loop",
                           100 * (*row.ratio * pace->cores - 1), 100 * (pace->cores - 1));
  }
  if (row.not_slower && open) row.note += "; not slower";
}

/// A ratio in one unit, widened by the noise between runs.
struct Measured {
  Times base, fresh;
  bool sampled = false;           ///< from the samples, not from the intervals of the medians
  std::optional<RatioTest> test;  ///< nullopt if there are too few samples
  RunNoise noise;                 ///< the widest known noise
};

/// nullopt if a side has no time in this unit.
std::optional<Measured> measure(const Record& base, const Record& fresh, Unit unit, const Runs& runs,
                                double effect, const CompareOptions& options) {
  const std::optional<Times> b = times_of(base, unit), f = times_of(fresh, unit);
  if (!b || !f) return std::nullopt;
  Measured m{*b, *f};
  const Band band = band_of(fresh.time->clock);
  const uint64_t seed = name_seed(record_name(fresh));
  m.sampled = std::min(b->samples.size(), f->samples.size()) >= kLeastForBootstrap;
  if (m.sampled) {
    m.test = bootstrap_ratio(b->samples, f->samples, effect, seed, band);
  } else if (b->has_interval && f->has_interval) {
    m.test = interval_ratio(b->range, f->range, effect);
  } else {
    return m;
  }
  if (in_slices(base, options.in_turns))
    m.noise = noise_of_blocks(samples_by_run(base), samples_by_run(fresh), band, seed);
  if (m.noise.runs > 1) {
    *m.test = {m.test->ratio, m.test->ratio, m.test->ratio, 0};
    widen_by_noise(*m.test, m.noise, runs.base, runs.fresh, effect);
    return m;
  }
  // The wider of two noises: that of the sides' own runs, and that of a calibration.
  if (unit != Unit::kLeastTime) {
    const bool paced = m.sampled && unit == Unit::kCoresProbe;
    const std::vector<double> base_runs = run_times(base, paced), fresh_runs = run_times(fresh, paced);
    // A gate that was interrupted may have a run without its neighbour.
    const bool pairs = options.in_turns && base_runs.size() == fresh_runs.size();
    m.noise = pairs ? noise_of_pairs(base_runs, fresh_runs) : noise_of_runs(base_runs, fresh_runs);
    widen_by_noise(*m.test, m.noise, runs.of_base(), runs.of_fresh(), effect);
  }
  // Either or both of two kernels on a case may be calibrated. Noise depends on the machine more than on the
  // kernel.
  for (const std::string& name : std::set<std::string>{record_name(fresh), record_name(base)}) {
    const auto it = options.noise_of.find(name);
    if (it == options.noise_of.end()) continue;
    widen_by_noise(*m.test, it->second, runs.of_base(), runs.of_fresh(), effect);
    if (noise_half_width(it->second, runs.of_base(), runs.of_fresh()) >
        noise_half_width(m.noise, runs.of_base(), runs.of_fresh())) {
      m.noise = it->second;
    }
  }
  return m;
}

void show(const RatioTest& t, CompareRow& row) {
  row.ratio = t.ratio;
  row.lo = t.lo;
  row.hi = t.hi;
  row.p = t.p;
}

/// Leaves the row undecided, because of what the machine did. It is then not part of the family of tests.
bool hide(CompareRow& row) {
  row.p = std::nullopt;
  row.change = Change::kInconclusive;
  row.doubt = Doubt::kMachine;
  return true;
}

/// A time whose interval tells nothing but the order of magnitude decides nothing.
bool is_vague(const Record& base, const Record& fresh, CompareRow& row) {
  row.note = vague_time_text(base, fresh);
  if (row.note.empty()) return false;
  row.vague = true;
  return hide(row);
}

/// True if the probes may not decide (contradicts_clock). The row then shows clock times.
bool stays_undecided(const Record& base, const Record& fresh, const RatioTest& paced, const Runs& runs,
                     double effect, const CompareOptions& options, CompareRow& row) {
  const auto raw = measure(base, fresh, Unit::kMicrosecond, runs, effect, options);
  row.note = contradicts_clock(base, fresh, {raw->test->ratio, paced.ratio, effect, options.in_turns});
  if (row.note.empty()) return false;
  show(*raw->test, row);
  return hide(row);
}

/// In turns, both sides share what disturbs the machine, and the spread of equal runs shows how much that is.
/// A change far beyond it is the kernel's, whatever the probes say: they are short, and a kernel that uses up
/// its turn of the scheduler leaves the wait to the probe behind it.
void look_beyond_disturbance(const Record& base, const Record& fresh, const CompareOptions& options,
                             CompareRow& row) {
  if (row.change != Change::kInconclusive || !options.in_turns || options.as_sol) return;
  const std::optional<double> disturbance = disturbance_in_turns(base, fresh);
  if (!disturbance || !pace_between(base, fresh)) return;
  const double effect = effect_of(base, options), most = kMostByTurns * *disturbance;
  const Runs runs{base.time->runs, fresh.time->runs, false};
  const auto raw = measure(base, fresh, Unit::kMicrosecond, runs, effect, options);
  if (!raw || !raw->sampled || (raw->test->lo <= most && raw->test->hi >= 1 / most)) return;
  show(*raw->test, row);
  row.evidence = {effect, raw->noise, runs.base, runs.fresh, runs.as_one};
  row.change = raw->test->lo > most ? Change::kSlower : Change::kFaster;
  row.doubt = Doubt::kNone;
  row.not_slower = row.vague = false;
  const bool slower = row.change == Change::kSlower;
  row.note = fmt::format(
      "equal runs differ by a factor of {:.2f} at most, and the new side is at least {} times as {}: the "
      "disturbance of the machine cannot be the cause",
      *disturbance, digits(slower ? raw->test->lo : 1 / raw->test->hi, 2), slower ? "slow" : "fast");
}

void compare_times(Record base, Record fresh, const CompareOptions& options, CompareRow& row) {
  std::optional<Pace> pace =
      options.as_sol || in_slices(base, options.in_turns) ? std::nullopt : pace_between(base, fresh);
  LikeRuns like = LikeRuns::kUnknown;
  if (pace && !options.in_turns) {
    const std::pair had{base.time->runs, fresh.time->runs};
    like = keep_like_runs(base, fresh);
    row.left_out = {had.first - base.time->runs, had.second - fresh.time->runs};
    pace = pace_between(base, fresh);
    row.base_us = base.median_us();
    row.new_us = fresh.median_us();
  }
  // A CPU's pace drifts within minutes in ways that no probe shows. Runs made within seconds share it, so ten
  // of them tell no more than one, unless both sides were made in turns.
  const auto runs_in = [](const Record& r) { return r.time ? r.time->runs : 1; };
  const Runs runs{runs_in(base), runs_in(fresh), pace.has_value() && !options.in_turns};
  const Unit unit = options.as_sol ? Unit::kLeastTime : pace ? Unit::kCoresProbe : Unit::kMicrosecond;
  const double effect = effect_of(base, options);
  const auto m = measure(base, fresh, unit, runs, effect, options);
  if (!m) {
    const bool neither = !base.median_us() && !fresh.median_us();
    row.untimed = neither;
    row.change = neither ? Change::kNotCompared : Change::kInconclusive;
    const bool new_has = times_of(fresh, unit).has_value();
    row.note = neither
                   ? "not timed"
                   : fmt::format("{} has no {}", !new_has ? "NEW" : "BASE", options.as_sol ? "%SOL" : "time");
    return;
  }
  const MedianRange &b = m->base.range, &f = m->fresh.range;
  if (!m->test) {
    row.ratio = f.median / b.median;
    row.change = *row.ratio == 1 ? Change::kSame : Change::kInconclusive;
    if (*row.ratio == 1) return;
    row.doubt = Doubt::kOther;
    row.note = fmt::format("too few samples ({} and {})", m->base.samples.size(), m->fresh.samples.size());
    return;
  }
  const RatioTest& t = *m->test;
  show(t, row);
  row.evidence = {effect, m->noise, runs.base, runs.fresh, runs.as_one};
  if (t.ratio == 1 && !m->base.samples.empty() && base.samples_us() == fresh.samples_us()) {
    row.change = Change::kSame;  // a file against itself: its noise does not matter
  } else if (is_vague(base, fresh, row) ||
             (pace && stays_undecided(base, fresh, t, runs, effect, options, row))) {
    return;
  } else {
    row.change = verdict_of(t, effect);
    const bool open = row.change == Change::kInconclusive;
    row.not_slower = open && t.hi <= 1 + effect;
    if (!options.as_sol) look_at_clocks(base, fresh, t, effect, row);
    if (pace && m->sampled) {
      if (like == LikeRuns::kNone) look_at_cores(t, effect, row);
      look_at_memory(*pace, t, effect, row);
    }
    look_at_neighbours(base, fresh, t, options.in_turns, row);
    if (row.change == Change::kInconclusive) row.doubt = open ? Doubt::kInterval : Doubt::kMachine;
  }
  if (row.change == Change::kSame && effect > options.min_effect && row.note.empty() &&
      !options.min_effect_of_id.contains(base.item.id)) {
    row.within = effect;
    row.note = fmt::format("same within {:.1f} %: two ticks of the timer", 100 * effect);
  }
  explain(m->noise, runs, m->sampled ? pace : std::nullopt, row);
  if (row.note.empty() && row.change != Change::kInconclusive && !pace &&
      medians_say_more(b, f, t.ratio, effect)) {
    row.note = "times in steps: the medians lie further apart than the middle halves";
  }
  if (row.note.empty() || row.doubt == Doubt::kInterval) {
    const std::string remark = remark_on_times(base, fresh);
    row.note += (row.note.empty() || remark.empty() ? "" : "; ") + remark;
  }
}

/// Every case with an interval is a chance of a false alarm, so all of them are the family.
void correct_for_many_cases(std::vector<CompareRow>& rows, double rate) {
  std::vector<double> p;
  for (const CompareRow& r : rows) {
    if (r.p) p.push_back(*r.p);
  }
  const std::vector<bool> significant = benjamini_hochberg(p, rate);
  std::size_t i = 0;
  for (CompareRow& r : rows) {
    if (!r.p) continue;
    if (!significant[i++] && (r.change == Change::kSlower || r.change == Change::kFaster)) {
      r.note = fmt::format("{} if it were the only case (p = {:.2g}), but not certain enough among {}",
                           change_name(r.change), *r.p, p.size());
      r.change = Change::kInconclusive;
      r.doubt = Doubt::kManyCases;
    }
  }
}

int severity(Change c) {
  return c <= Change::kMissingBase ? static_cast<int>(c) : c == Change::kNotCompared ? 9 : 5;
}

}  // namespace

const char* change_name(Change c) {
  constexpr const char* names[] = {"error",        "incorrect", "missing in new", "missing in base", "slower",
                                   "inconclusive", "same",      "faster",         "not compared"};
  return names[static_cast<int>(c)];
}

int64_t CompareResult::count(Change c) const {
  const auto it = counts.find(c);
  return it == counts.end() ? 0 : it->second;
}

CompareResult compare_results(const ResultSet& base, const ResultSet& fresh, const CompareOptions& options) {
  check_effect(options.min_effect);
  for (const auto& [id, effect] : options.min_effect_of_id) check_effect(effect);
  CompareResult out;
  out.as_sol = options.as_sol;
  out.cpu_time = std::ranges::any_of(
      fresh.results, [](const Record& r) { return r.time && r.time->clock == TimeClock::kCpu; });
  for (const auto& [b, f] : pair_results(base, fresh, options.match)) {
    CompareRow row;
    const Record& either = f != nullptr ? *f : *b;
    row.id = either.item.id;
    row.sweep = either.item.sweep.empty() && b != nullptr ? b->item.sweep : either.item.sweep;
    row.base_kernel = b != nullptr ? b->kernel : "";
    row.new_kernel = f != nullptr ? f->kernel : "";
    row.repro = either.repro;
    const auto time_of = [](const Record* r) {
      return r != nullptr && r->status == Status::kPass ? r->median_us() : std::nullopt;
    };
    row.base_us = time_of(b);
    row.new_us = time_of(f);
    if (f == nullptr) {  // what never ran in BASE is not missing
      row.change = b->status == Status::kSkip ? Change::kNotCompared : Change::kMissingNew;
    } else if (b == nullptr) {
      const bool skipped = f->status == Status::kSkip;
      row.change = change_of(f->status).value_or(skipped ? Change::kNotCompared : Change::kMissingBase);
      if (f->status != Status::kPass) row.note = status_note("NEW", *f);
      if (f->check) row.clues = f->check->clues;
    } else if (b->refused() && f->refused()) {
      row.change = Change::kSame;
      row.note = "refused on both sides, as expected";
      ++out.refused;
    } else if (decide_by_status(*b, *f, row)) {
      compare_times(*b, *f, options, row);
      look_beyond_disturbance(*b, *f, options, row);
    }
    out.rows.push_back(std::move(row));
  }
  correct_for_many_cases(out.rows, options.false_discovery_rate);

  double log_sum = 0;
  for (const CompareRow& r : out.rows) {
    ++out.counts[r.change];
    if (r.not_slower) ++out.not_slower;
    if (!r.ratio) continue;
    ++out.compared;
    if (r.vague) continue;
    ++out.averaged;
    log_sum += std::log(*r.ratio);
    auto it = std::ranges::find_if(out.sweeps, [&](const SweepMean& s) { return s.sweep == r.sweep; });
    if (it == out.sweeps.end()) it = out.sweeps.insert(it, SweepMean{r.sweep});
    ++it->compared;
    it->geomean *= std::exp((std::log(*r.ratio) - std::log(it->geomean)) / static_cast<double>(it->compared));
  }
  if (out.averaged > 0) out.geomean = std::exp(log_sum / static_cast<double>(out.averaged));
  out.tokens = token_changes(base, out.rows);
  std::ranges::stable_sort(out.rows, [](const CompareRow& a, const CompareRow& b) {
    if (severity(a.change) != severity(b.change)) return severity(a.change) < severity(b.change);
    return a.ratio.value_or(0) > b.ratio.value_or(0);
  });
  return out;
}

int compare_exit_code(const CompareResult& result, const CompareOptions& options) {
  if (result.interrupted) return kExitInterrupted;
  const auto any = [&](Change c) { return result.count(c) > 0; };
  if (any(Change::kError)) return 5;
  if (any(Change::kIncorrect)) return 1;
  if (!options.allow_missing && any(Change::kMissingNew)) return 1;
  if (!options.allow_missing && !options.allow_new && any(Change::kMissingBase)) return 1;
  if (any(Change::kSlower)) return 3;
  if (!options.allow_inconclusive && result.count(Change::kInconclusive) > result.not_slower) return 4;
  return result.compared + result.refused == 0 ? 6 : 0;
}

bool row_fails(const CompareRow& row, const CompareOptions& options) {
  CompareResult one;
  one.compared = 1;
  one.counts[row.change] = 1;
  one.not_slower = row.not_slower ? 1 : 0;
  return compare_exit_code(one, options) != 0;
}

}  // namespace attnbench
