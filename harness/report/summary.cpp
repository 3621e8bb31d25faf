#include "harness/report/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "harness/results/text.h"

namespace attnbench {

RateUnit rate_unit_of(std::span<const Record> records) {
  return rate_unit(std::ranges::all_of(records, [](const Record& r) { return r.device == "cpu"; }));
}

std::string summary_text(std::span<const Record> records) {
  std::map<Status, int64_t> n;
  int64_t unchecked = 0;
  for (const Record& r : records) {
    ++n[r.status];
    unchecked += r.status == Status::kPass && !r.check;
  }
  const int64_t undecided = n[Status::kUndecided], timeouts = n[Status::kTimeout],
                invalid = n[Status::kInvalidTime];
  std::string text =
      fmt::format("{} passed{}, {} failed{}, {} skipped, {}", n[Status::kPass],
                  unchecked > 0 ? fmt::format(" ({} not checked)", unchecked) : "", n[Status::kFail],
                  undecided > 0 ? fmt::format(", {} undecided", undecided) : "", n[Status::kSkip],
                  counted(n[Status::kError] + timeouts, "error"));
  if (timeouts > 0) text += fmt::format(" ({})", counted(timeouts, "timeout"));
  if (invalid > 0) text += ", " + counted(invalid, "invalid time");
  return text;
}

bool needs_attention(Status s) { return s != Status::kPass && s != Status::kSkip; }

std::string time_marks(std::span<const Record> records) {
  int throttled = 0, host_bound = 0, near_floor = 0, trusted = 0;
  std::set<std::string> reasons;
  for (const Record& r : records) {
    if (!r.time) continue;
    throttled += r.time->clocks.throttled();
    reasons.insert(r.time->clocks.throttle.begin(), r.time->clocks.throttle.end());
    host_bound += r.time->host_bound > 0;
    near_floor += r.time->near_floor;
    trusted += r.check && r.time->watch.launches == 0;
  }
  std::string text;
  const auto add = [&](int count, const std::string& what) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  };
  add(throttled, fmt::format("throttled ({})", fmt::join(reasons, ", ")));
  add(host_bound, "with host-bound samples");
  add(near_floor, "near the time of an empty launch");
  add(trusted, "of launches that were not watched (--trust)");
  return text.empty() ? "" : "times that are marked: " + text;
}

std::string time_mark(const TimeResult& t) { return t.busy() ? "!" : ""; }

std::vector<std::string> time_legends(std::span<const Record> records) {
  std::vector<std::string> out;
  const auto add = [&](bool (TimeResult::*has)() const, std::string text) {
    const auto marked = [&](const Record& r) { return r.time && (*r.time.*has)(); };
    if (std::ranges::any_of(records, marked)) out.push_back(std::move(text));
  };
  add(&TimeResult::busy,
      "! other processes took the cores during more than half of the samples (a thread waited for over 2 % of the time): "
      "an unreliable time, however small its ± % is");
  add(&TimeResult::vague,
      fmt::format("? +/- {:g} % or more: not usable. Time it again while nothing else runs", 100 * kVague));
  return out;
}

std::string two_speed_times(std::span<const Record> records) {
  constexpr std::size_t kNamed = 5;
  std::vector<std::string> found;
  for (const Record& r : records) {
    if (!r.time || r.time->busy()) continue;
    if (const auto speeds = two_speeds(r.time->samples_us))
      found.push_back(fmt::format("{}: {}", one_line(record_name(r)), two_speeds_text(*speeds)));
  }
  if (found.empty()) return "";
  const std::size_t named = std::min(found.size(), kNamed);
  const std::string more = found.size() > named ? fmt::format("; and {} more", found.size() - named) : "";
  return fmt::format("two speeds: {}{}. Such a median may change from run to run by more than ± says",
                     fmt::join(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(named), "; "),
                     more);
}

std::string ceilings_legend(std::span<const Record> records, bool disturbed) {
  const bool any =
      std::ranges::any_of(records, [](const Record& r) { return r.roofline && r.roofline->sol; });
  return any && disturbed ? "* the ceilings were measured on a busy machine: %SOL and bound may be wrong"
                          : "";
}

std::vector<std::string> skip_reasons(std::span<const Record> records) {
  struct Group {
    int64_t count = 0;
    const Record* first = nullptr;
  };
  std::map<std::pair<std::string, std::string>, Group> groups;
  for (const Record& r : records) {
    if (r.status != Status::kSkip) continue;
    Group& g = groups[{r.kernel, without_numbers(r.reason)}];
    if (g.count++ == 0) g.first = &r;
  }
  std::vector<Group> order;
  for (const auto& [key, group] : groups) order.push_back(group);
  std::ranges::stable_sort(order, [](const Group& a, const Group& b) { return a.count > b.count; });
  std::vector<std::string> out;
  for (const Group& g : order) {
    out.push_back(counted(g.count, "run") + ": " + g.first->reason);
  }
  return out;
}

std::vector<std::string> relative_speeds(std::span<const Record> records) {
  std::vector<std::string> kernels;  // in the order of the table
  std::map<std::string, std::map<std::string, const TimeResult*>> times_of_case;
  for (const Record& r : records) {
    if (r.status != Status::kPass || !r.time) continue;
    if (std::ranges::find(kernels, r.kernel) == kernels.end()) kernels.push_back(r.kernel);
    times_of_case[r.item.id][r.kernel] = &*r.time;
  }
  struct Shared {
    int cases = 0, disturbed = 0, vague = 0;  ///< disturbed and vague ones are not among the cases
    double logs = 0;  ///< sum of the logarithms of the second kernel's time over the first's
  };
  const auto shared = [&](const std::string& a, const std::string& b) {
    Shared sum;
    for (const auto& [id, times] : times_of_case) {
      const auto x = times.find(a), y = times.find(b);
      if (x == times.end() || y == times.end()) continue;
      if (x->second->vague() || y->second->vague()) {
        ++sum.vague;
        continue;
      }
      if (!is_ranked(*x->second) || !is_ranked(*y->second)) {
        ++sum.disturbed;
        continue;
      }
      ++sum.cases;
      sum.logs += std::log(y->second->median_us / x->second->median_us);
    }
    return sum;
  };
  // The fastest: the one that is ahead of most others.
  const auto ahead = [&](const std::string& a) {
    return std::ranges::count_if(kernels, [&](const auto& b) { return shared(a, b).logs > 0; });
  };
  const auto best =
      std::ranges::max_element(kernels, [&](const auto& a, const auto& b) { return ahead(a) < ahead(b); });
  std::vector<std::string> out;
  for (const std::string& other : kernels) {
    const auto [n, disturbed, vague, logs] = shared(*best, other);
    if (other == *best || n + disturbed == 0) continue;
    if (n == 0) {
      const std::string all =
          vague > 0 ? fmt::format("{} of their {} cases, and the others' times are too uncertain", disturbed,
                                  disturbed + vague)
          : disturbed == 1 ? "their case"
                           : fmt::format("all {} cases", disturbed);
      out.push_back(fmt::format("{} and {} are not ranked: other processes disturbed {}", *best, other, all));
      continue;
    }
    std::string of = n == 1 ? "" : fmt::format("geometric mean of {} cases", n);
    if (disturbed > 0) of += fmt::format("{}{} disturbed left out", of.empty() ? "" : ", ", disturbed);
    if (!of.empty()) of = fmt::format(" ({})", of);
    out.push_back(
        fmt::format("{} is {} times as fast as {}{}", *best, digits(std::exp(logs / n), 3), other, of));
  }
  return out;
}

namespace {

/// What a kernel's invariants came to in all cases.
struct InvariantSum {
  std::map<InvariantResult::Outcome, int64_t> count;
  std::map<std::string, int64_t> skipped_for;  ///< "merge: the kernel gives no LSE"
};

/// " (merge: the kernel gives no LSE)": the most frequent reason.
std::string most_skipped_for(const InvariantSum& sum) {
  const auto most = std::ranges::max_element(
      sum.skipped_for, [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == sum.skipped_for.end()) return "";
  return fmt::format(" ({}{})", sum.skipped_for.size() > 1 ? "most for " : "", most->first);
}

}  // namespace

std::vector<std::string> invariant_sums(std::span<const Record> records) {
  using Outcome = InvariantResult::Outcome;
  std::vector<std::pair<std::string, InvariantSum>> kernels;  // in the order of the table
  for (const Record& r : records) {
    if (!r.check || r.check->invariants.empty()) continue;
    auto k = std::ranges::find_if(kernels, [&](const auto& x) { return x.first == r.kernel; });
    if (k == kernels.end()) k = kernels.insert(k, {r.kernel, {}});
    for (const InvariantResult& i : r.check->invariants) {
      ++k->second.count[i.outcome];
      if (i.outcome == Outcome::kSkipped) ++k->second.skipped_for[fmt::format("{}: {}", i.name, i.note)];
    }
  }
  const auto was = [](int64_t n) { return n == 1 ? "was" : "were"; };
  std::vector<std::string> out;
  for (auto& [name, sum] : kernels) {
    auto& n = sum.count;
    const int64_t held = n[Outcome::kHeld], broken = n[Outcome::kBroken], differs = n[Outcome::kDiffers],
                  skipped = n[Outcome::kSkipped];
    out.push_back(fmt::format("{}: {} held, {} {} broken, {} {} skipped{}{}", name,
                              counted(held, "invariant"), broken, was(broken), skipped, was(skipped),
                              most_skipped_for(sum),
                              differs == 0 ? ""
                                           : fmt::format("; {} gave other bits within the tolerance, and the "
                                                         "kernel promises no more",
                                                         differs)));
  }
  return out;
}

std::string coverage_text(const Coverage& c) {
  return fmt::format("{}: {} run{}{}", c.kernel.empty() ? "no kernel" : c.kernel, c.text(),
                     c.whole() ? "" : fmt::format(" ({} %)", digits(c.percent(), 3)),
                     c.types.empty() ? "" : fmt::format(", declares {}", fmt::join(c.types, " or ")));
}

std::string other_check_legend(std::span<const Record> records) {
  const auto marked = [](const Record& r) { return r.check && z_cell(*r.check).ends_with('^'); };
  if (std::ranges::none_of(records, marked)) return "";
  return "^ this max|z| is of the verified launch and within its limit; another check failed, which the failure's "
         "message names in brackets";
}

std::vector<std::string> seen_mistakes(std::span<const Record> records) {
  const auto range = [&](double Power::*figure) {
    double least = INFINITY, most = 0;
    int64_t none = 0;
    for (const Record& r : records) {
      if (r.status != Status::kPass || !r.check || !r.check->power) continue;
      const double x = (*r.check->power).*figure;
      none += std::isnan(x);
      least = std::fmin(least, x);
      most = std::fmax(most, x);
    }
    if (most == 0) return std::string("none");
    return fmt::format("{:.2g} %{}{}", 100 * least,
                       most > least ? fmt::format(" to {:.2g} %", 100 * most) : "",
                       none > 0 ? fmt::format(" (none in {})", counted(none, "case")) : "");
  };
  const auto both = [&](double Power::*figure, double Power::*by_o) {
    const std::string all = range(figure), of_o = range(by_o);
    return all == of_o ? all : fmt::format("{}, by O alone {}", all, of_o);
  };
  const auto has = [](const Record& r) { return r.status == Status::kPass && r.check && r.check->power; };
  if (std::none_of(records.begin(), records.end(), has)) return {};
  return {"softmax_scale off by " + both(&Power::softmax_scale, &Power::softmax_scale_by_o),
          "O off by " + range(&Power::o_scale),
          "a dropped key of weight " + both(&Power::dropped_key, &Power::dropped_key_by_o)};
}

std::string rows_text(const Verdict& v) {
  return v.rows == v.rows_total ? std::to_string(v.rows)
                                : std::to_string(v.rows) + "/" + std::to_string(v.rows_total);
}

}  // namespace attnbench
