#include "harness/compare/undecided.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/compare/ratio.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

constexpr std::size_t kIds = 2;  ///< named for each reason

/// Probability that a standard normal variable lies below x.
double normal_below(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }

enum class Reason { kOneRun, kNoise, kWide, kEdge, kManyCases, kMachine, kOther };

/// Half the interval's width as a share of the ratio, on the wider side.
double half_width(const CompareRow& row) {
  return row.lo && row.hi ? std::max(*row.hi / *row.ratio, *row.ratio / *row.lo) - 1 : 0;
}

Reason reason_of(const OpenRow& open) {
  const CompareRow& row = *open.row;
  if (open.one_run) return Reason::kOneRun;
  if (row.doubt == Doubt::kMachine) return Reason::kMachine;
  if (row.doubt == Doubt::kManyCases) return Reason::kManyCases;
  if (row.doubt != Doubt::kInterval || !row.evidence) return Reason::kOther;
  if (row.evidence->noise.sigma > row.evidence->effect) return Reason::kNoise;
  return half_width(row) > row.evidence->effect ? Reason::kWide : Reason::kEdge;
}

std::string percent(double share) {
  if (share > 10) return "over 1000";
  return share < 0.99 ? fmt::format("{:.2g}", 100 * share) : fmt::format("{:.0f}", 100 * share);
}

/// "6.1" or "6.1 to 8": of all rows.
template <class Value>
std::string range(const std::vector<const CompareRow*>& rows, Value value) {
  double least = value(*rows.front()), most = least;
  for (const CompareRow* row : rows) {
    least = std::min(least, value(*row));
    most = std::max(most, value(*row));
  }
  const std::string low = percent(least), high = percent(most);
  return low == high ? low : low + " to " + high;
}

std::string without_advice(const std::string& note) { return note.substr(0, note.rfind("; run both ")); }

/// Whether equal runs differ so much that rounds hardly help: other work on the machine does that.
bool disturbed(const std::vector<const CompareRow*>& rows) {
  constexpr double kMuch = 0.3;
  return std::ranges::all_of(rows, [](const CompareRow* r) { return r->evidence->noise.sigma > kMuch; });
}

std::string reason_text(Reason reason, const std::vector<const CompareRow*>& rows) {
  const auto effect = [&] {
    return range(rows, [](const CompareRow& r) { return r.evidence ? r.evidence->effect : 0; });
  };
  switch (reason) {
    case Reason::kOneRun:
      return "a difference that one run saw: a second run must confirm it";
    case Reason::kNoise:
      return fmt::format(
          "equal runs scatter by {} % (standard deviation), more than the {} % looked for{}",
          range(rows, [](const CompareRow& r) { return r.evidence->noise.sigma; }), effect(),
          disturbed(rows) ? "; such runs stay in the comparison, so a new gate on quieter cores ends sooner"
                          : "");
    case Reason::kWide:
      return fmt::format("the change is known to +/- {} % only, and {} % is looked for",
                         range(rows, half_width), effect());
    case Reason::kEdge:
      return fmt::format("the change lies about at the {} % looked for, and is known to +/- {} %", effect(),
                         range(rows, half_width));
    case Reason::kManyCases:
      return "a difference that is not certain enough among so many cases";
    case Reason::kMachine:
      return "the machine hides the change: " + without_advice(one_line(rows.front()->note));
    case Reason::kOther:
      break;
  }
  const std::string& note = rows.front()->note;
  return note.empty() ? "too little was measured" : one_line(note);
}

}  // namespace

double chance_to_decide(const CompareRow& row, const MoreRuns& more) {
  const Evidence& e = *row.evidence;
  const auto over = [](int base, int fresh) { return 1.0 / std::max(1, base) + 1.0 / std::max(1, fresh); };
  const double spread_now = over(e.base_runs, e.new_runs);
  const double spread_then = over(e.base_runs + more.base, e.new_runs + more.fresh);
  const double shrinks = std::sqrt(spread_then / spread_now);
  const double noise_now =
      e.runs_as_one ? noise_half_width(e.noise, 1, 1) : noise_half_width(e.noise, e.base_runs, e.new_runs);
  const RunNoise noise{e.noise.sigma, e.noise.runs + more.fresh};
  const double noise_then = e.runs_as_one
                                ? noise_half_width(noise, 1, 1)
                                : noise_half_width(noise, e.base_runs + more.base, e.new_runs + more.fresh);
  // Each end of the interval is that of the noise between runs, or of the bootstrap where that is wider.
  const double centre = std::log(*row.ratio), rise = std::log(*row.hi) - centre,
               fall = centre - std::log(*row.lo);
  const auto then = [&](double half) {
    return half > noise_now * (1 + 1e-9) ? std::max(half * shrinks, noise_then) : noise_then;
  };
  const bool by_noise = std::max(rise, fall) <= noise_now * (1 + 1e-9);
  const double error_now =
      by_noise ? e.noise.sigma * std::sqrt(spread_now) : std::max(rise, fall) / kNormal95;
  const double moves = std::max(1e-12, error_now * std::sqrt(std::max(0.0, 1 - shrinks * shrinks)));

  const double above = std::log1p(e.effect), below = std::log1p(-e.effect);
  const auto lies_below = [&](double edge) { return normal_below((edge - centre) / moves); };
  const double slower = 1 - lies_below(above + then(fall));
  if (!row.not_slower) return slower + lies_below(above - then(rise));
  // That it is not slower is known: left is whether it is the same or faster.
  const double faster = lies_below(below - then(rise));
  const double same = std::max(0.0, lies_below(above - then(rise)) - lies_below(below + then(fall)));
  return std::min(1.0, slower + faster + same);
}

std::string interval_reason(const CompareRow& row) { return reason_text(reason_of({&row}), {&row}); }

std::vector<std::string> why_undecided(const std::vector<OpenRow>& rows) {
  std::vector<std::pair<Reason, std::vector<const CompareRow*>>> groups;
  for (const OpenRow& open : rows) {
    const Reason reason = reason_of(open);
    auto it = std::ranges::find_if(groups, [&](const auto& g) { return g.first == reason; });
    if (it == groups.end()) it = groups.insert(it, {reason, {}});
    it->second.push_back(open.row);
  }
  std::vector<std::string> lines;
  for (const auto& [reason, of] : groups) {
    std::string ids;
    for (std::size_t i = 0; i < std::min(of.size(), kIds); ++i)
      ids += (ids.empty() ? "" : ", ") + one_line(of[i]->id);
    if (of.size() > kIds) ids += fmt::format(" and {} more", of.size() - kIds);
    lines.push_back(
        fmt::format("{}: {} ({})", counted(std::ssize(of), "case"), reason_text(reason, of), ids));
  }
  return lines;
}

std::string duration_text(double seconds, bool at_most) {
  const auto whole = [&](double x) { return static_cast<int64_t>(at_most ? std::ceil(x) : std::round(x)); };
  if (seconds <= 99) return fmt::format("{} s", whole(std::max(0.0, seconds)));
  const int64_t minutes = whole(seconds / 60);
  if (minutes < 60) return fmt::format("{} min", minutes);
  return minutes % 60 == 0 ? fmt::format("{} h", minutes / 60)
                           : fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

}  // namespace attnbench
