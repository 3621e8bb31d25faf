#include "harness/compare/gate_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "harness/compare/join_runs.h"
#include "harness/results/exit_code.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

std::string cases_text(std::size_t n) { return counted(static_cast<int64_t>(n), "case"); }

/// Whether rounds may still decide the rows of a gate, by its comparisons so far.
class Hope {
 public:
  /// False where none of the rows has a chance worth one of the rounds left, which add so many runs. Called
  /// once after each comparison.
  bool look_at(const std::vector<OpenRow>& open, const MoreRuns& more) {
    bool any = false;
    for (const OpenRow& o : open) {
      const CompareRow& row = *o.row;
      const bool hidden = row.doubt == Doubt::kMachine;
      const bool unlikely =
          row.doubt == Doubt::kInterval && row.evidence && chance_to_decide(row, more) < kLeastChance;
      int& lost = lost_[row.id + "\n" + row.new_kernel];
      if (!o.one_run && (hidden || unlikely)) ++lost;
      any = any || o.one_run || !(unlikely || (hidden && lost >= kPatience));
    }
    return any;
  }

 private:
  std::map<std::string, int> lost_;  ///< comparisons in which a row was hidden or unlikely to be decided
};

}  // namespace

void add_run(GateSide& side, int exit_code, ResultSet results) {
  side.exit_code = worse_exit_code(side.exit_code, exit_code > 6 ? 5 : exit_code);
  if (side.runs++ == 0) {
    side.results = std::move(results);
  } else {
    pool_runs(side.results, results);
  }
}

void drop_times(ResultSet& set) {
  for (Record& r : set.results) {
    r.time.reset();
    if (r.roofline) r.roofline->sol.reset();
  }
}

CompareOptions gate_options(CompareOptions options, const GatePolicy& policy, const ResultSet& base,
                            const ResultSet& fresh) {
  options.in_turns = !policy.stored_baseline;
  if (!policy.no_time && !context_mismatches(base, fresh).empty()) options.as_sol = true;
  return options;
}

bool run_is_broken(int exit_code) { return exit_code == 1 || exit_code == 5; }

bool run_is_usable(int exit_code) { return !run_is_broken(exit_code) && exit_code != 6; }

std::vector<OpenRow> open_rows(const CompareResult& result, const ResultSet& fresh) {
  std::vector<OpenRow> open;
  for (const CompareRow& row : result.rows) {
    if (!row.ratio) continue;
    if (row.change == Change::kInconclusive) open.push_back({&row});
    if (row.change != Change::kSlower && row.change != Change::kFaster) continue;
    const bool one_run = std::ranges::any_of(fresh.results, [&](const Record& r) {
      return r.item.id == row.id && r.kernel == row.new_kernel && (!r.time || r.time->runs < 2);
    });
    if (one_run) open.push_back({&row, true});
  }
  return open;
}

std::set<std::string> undecided_cases(const CompareResult& result, const ResultSet& fresh) {
  std::set<std::string> ids;
  for (const OpenRow& open : open_rows(result, fresh)) ids.insert(open.row->id);
  return ids;
}

void leave_undecided(CompareResult& result, const ResultSet& fresh) {
  for (const OpenRow& open : open_rows(result, fresh)) {
    if (!open.one_run) continue;
    CompareRow& row = result.rows[static_cast<std::size_t>(open.row - result.rows.data())];
    --result.counts[row.change];
    ++result.counts[Change::kInconclusive];
    row.not_slower = row.change == Change::kFaster;
    result.not_slower += row.not_slower;
    row.note = fmt::format("{} in one run, which no second one confirmed", change_name(row.change));
    row.change = Change::kInconclusive;
    row.doubt = Doubt::kOther;
  }
}

int rerun_rounds(const GatePolicy& policy, const ResultSet& base) {
  if (policy.update_baseline) return 0;
  const DeviceInfo& device = base.context.device;
  const bool as_one = policy.stored_baseline && device.kind == DeviceKind::kCpu && device.threads > 0;
  return policy.reruns.value_or(as_one ? kRerunsOfCpu : kReruns);
}

MoreRuns runs_of_round(const GatePolicy& policy) {
  return policy.stored_baseline ? MoreRuns{0, 1} : MoreRuns{2, 2};
}

std::string ahead_text(const Ahead& ahead) {
  constexpr double kShort = 30;  // s
  const double left_s = ahead.turn_s * ahead.turns_left, round_s = ahead.turn_s * ahead.turns_a_round;
  int rounds = ahead.rounds;
  if (ahead.max_time_s) {
    const double for_rounds = std::max(0.0, *ahead.max_time_s - ahead.so_far_s - left_s);
    rounds = static_cast<int>(std::min<double>(rounds, std::ceil(for_rounds / round_s)));
  }
  const bool cut = rounds < ahead.rounds;  // by --max-time
  if (std::max(left_s, rounds > 0 ? round_s : 0) < kShort) return "";
  std::string text = fmt::format("gate: this turn took {}", duration_text(ahead.turn_s));
  if (ahead.turns_left > 0)
    text += fmt::format("; {} more take{} about {}", ahead.turns_left, ahead.turns_left == 1 ? "s" : "",
                        duration_text(left_s));
  if (rounds > 0)
    text += fmt::format("; while cases are undecided, up to {} of about {} follow{}",
                        counted(rounds, "round"), duration_text(round_s), cut ? " (--max-time)" : "");
  if (rounds == 0 && cut)
    text +=
        fmt::format("; no round follows, because --max-time is over by then: --max-time {:.0f} allows one",
                    std::ceil(ahead.so_far_s + left_s) + 1);
  return text + fmt::format("\ngate:   to shorten it, take fewer or smaller cases ({}{}){}\n",
                            ahead.filtered ? "a narrower --filter" : "--filter REGEX",
                            ahead.heads_set ? "" : ", --set heads=4/2",
                            rounds > 0 && !ahead.max_time_s ? " or limit the rounds (--max-time S)" : "");
}

std::string round_text(const Round& round) {
  std::string text =
      fmt::format("gate: round {} of {}, {} so far, at most {} more: {} undecided{}\n", round.number,
                  round.of, duration_text(round.so_far_s), duration_text(round.most_left_s, /*at_most=*/true),
                  cases_text(round.ids.size()), round.as_before ? ", as before" : "");
  if (round.as_before) return text;
  for (const std::string& line : round.why) text += "gate:   " + line + "\n";
  return text;
}

Decision decide(const RoundLimits& limits, const ResultSet& fresh,
                const std::function<CompareResult()>& compare,
                const std::function<void(const Round&)>& run_again, const std::function<double()>& seconds) {
  Decision out{compare(), {}};
  Hope hope;
  double longest_s = 0;
  std::set<std::string> before;
  for (int number = 1; number <= limits.most; ++number) {
    const std::vector<OpenRow> open = open_rows(out.result, fresh);
    if (open.empty()) break;
    Round round{number, limits.most, undecided_cases(out.result, fresh), why_undecided(open), seconds()};
    round.as_before = std::exchange(before, round.ids) == round.ids;
    const int left = limits.most - number + 1;
    const auto stop = [&](const std::string& why) {
      const std::string stopped = fmt::format("{} after {} of {} rounds: {}", why, number - 1, limits.most,
                                              fmt::join(round.why, "; "));
      leave_undecided(out.result, fresh);
      out.result.stopped = stopped;
    };
    if (limits.settled) {
      leave_undecided(out.result, fresh);
      out.result.stopped = fmt::format(
          "a turn of the new side is wrong or crashed, which settles the exit code; undecided: {}",
          cases_text(round.ids.size()));
      break;
    }
    if (limits.max_time_s && round.so_far_s >= *limits.max_time_s) {
      const std::string one = fmt::format(
          " (a round takes about {}{})", duration_text(number > 1 ? longest_s : limits.first_s),
          number > 1 ? "; fewer or smaller cases allow more" : ", and after one a large change can be told");
      stop(fmt::format("the limit of --max-time, {:g} s, was reached{}; undecided", *limits.max_time_s, one));
      break;
    }
    const MoreRuns more{left * limits.per_round.base, left * limits.per_round.fresh};
    const bool hopeful = hope.look_at(open, more);
    if (number > kLeastRounds && !hopeful) {
      stop(
          limits.per_round.base > 0
              ? "more rounds would not decide them; undecided"
              : "more rounds would not decide them, but the other build in turns may (--against, --against-plugin); undecided");
      break;
    }
    const double a_round_s = number == 1 ? limits.first_s : longest_s;
    round.most_left_s = a_round_s * left;
    if (limits.max_time_s) {
      round.most_left_s = std::min(round.most_left_s, *limits.max_time_s - round.so_far_s + a_round_s);
    }
    out.rerun.insert(round.ids.begin(), round.ids.end());
    run_again(round);
    longest_s = std::max(longest_s, seconds() - round.so_far_s);
    out.result = compare();
  }
  return out;
}

std::string hidden_text(const CompareResult& result, const DeviceInfo& device, int cores) {
  const auto hidden = std::ranges::count_if(result.rows, [](const CompareRow& row) {
    return row.change == Change::kInconclusive && row.doubt == Doubt::kMachine;
  });
  if (hidden == 0) return "";
  const bool all_cores = device.kind == DeviceKind::kCpu && cores > 1 && device.threads >= cores;
  return fmt::format("gate: other work on the machine hid {}: end it, or {}\n",
                     cases_text(static_cast<std::size_t>(hidden)),
                     all_cores ? "if it needs only some of the cores, leave it those with --threads N"
                               : "run the gate again when it has ended");
}

int64_t count_right(const ResultSet& set) {
  return std::ranges::count_if(set.results, [](const Record& r) { return r.status == Status::kPass; });
}

int gate_exit_code(const GatePolicy& policy, const CompareResult& result, const CompareOptions& options,
                   const GateSide& fresh) {
  int code = compare_exit_code(result, options);
  if (code == 6 && policy.no_time && count_right(fresh.results) > 0) code = 0;
  return run_is_usable(fresh.exit_code) ? code : worse_exit_code(code, fresh.exit_code);
}

std::string gate_outcome(const GatePolicy& policy, const CompareResult& result, const CompareOptions& options,
                         int exit_code) {
  if (result.interrupted) return "interrupted";
  std::map<Change, std::size_t> failing;   // in the order of Change, worst first
  std::size_t missing = 0, undecided = 0;  // and allowed to be
  std::size_t not_slower = 0;              // undecided whether they are the same or faster
  for (const CompareRow& row : result.rows) {
    not_slower += row.not_slower;
    if (row_fails(row, options)) {
      ++failing[row.change];
    } else {
      missing += row.change == Change::kMissingNew || row.change == Change::kMissingBase;
      undecided += row.change == Change::kInconclusive && !row.not_slower;
    }
  }
  std::string text;
  for (const auto& [change, n] : failing) {
    const bool open = change == Change::kInconclusive;
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", cases_text(n + (open ? not_slower : 0)),
                        change == Change::kError ? "with an " : "", change_name(change));
    if (open && not_slower > 0) text += fmt::format(", of which {} cannot be slower", not_slower);
  }
  if (!text.empty()) return text;
  if (exit_code == 6) return "nothing was compared: no case has a right result and a time on both sides";
  if (exit_code != 0) return "a turn of the new side is wrong or crashed";
  text = !policy.no_time ? "no case slower"
         : missing > 0   ? "no case incorrect"
                         : "no case incorrect or missing";
  if (missing > 0) text += fmt::format(", {} of one side alone, as allowed", cases_text(missing));
  if (undecided > 0) text += fmt::format(", {} undecided, as allowed", cases_text(undecided));
  if (undecided > 0 && not_slower > 0) text += fmt::format(", and {} more cannot be slower", not_slower);
  return text;
}

}  // namespace attnbench
