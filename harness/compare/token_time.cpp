#include "harness/compare/token_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "harness/compare/compare.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

constexpr int kTokenResamples = 2000;
constexpr double kNormalSpan = 2 * kNormal95;  // width of a 95 % interval in standard deviations

/// "attention/paged64-nhd-served1a2b3c4d/.../sharegpt-4f1c-step17-8q1s1k/peaked" without the digest of the block table,
/// the step and its lengths.
std::string group_of(const std::string& id, const ServedStep& step) {
  std::string group = id;
  if (const std::size_t table = group.find("-served"); table != group.npos) {
    const std::size_t digest = table + std::string("-served").size();
    group.erase(digest, group.find('/', digest) - digest);
  }
  const std::size_t at = group.find("/" + step.label() + "-");
  if (at == group.npos) return group;
  const std::size_t begin = at + 1 + step.sample_label().size();
  const std::size_t end = group.find('/', at + 1);
  return group.erase(begin, end == group.npos ? group.npos : end - begin);
}

/// Samples of a stratum: indices of its steps.
struct Drawn {
  int64_t steps = 0;
  std::vector<std::size_t> sample;
};

/// The strata of a replay; empty with the reason in `why` if the sample does not stand for all steps.
std::vector<Drawn> strata_of(const std::vector<const StepTime*>& steps, std::string& why) {
  std::map<int64_t, Drawn> by_number;
  int64_t untimed = 0, all = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Drawn& d = by_number[steps[i]->step.stratum];
    if (d.sample.empty()) all += steps[i]->step.stratum_steps;
    d.steps = steps[i]->step.stratum_steps;
    d.sample.push_back(i);
    untimed += !steps[i]->us;
  }
  const bool short_stratum = std::ranges::any_of(by_number, [](const auto& d) {
    return static_cast<int64_t>(d.second.sample.size()) < std::min<int64_t>(2, d.second.steps);
  });
  if (untimed > 0) {
    why =
        fmt::format("{} of {} drawn steps {} no time", untimed, steps.size(), untimed == 1 ? "has" : "have");
  } else if (all != steps.front()->step.steps || short_stratum) {
    why = fmt::format("{} of {} drawn steps ran; run all of them, without --filter or --case", steps.size(),
                      steps.front()->step.drawn);
  }
  if (!why.empty()) return {};
  std::vector<Drawn> strata;
  for (auto& [number, d] : by_number) strata.push_back(std::move(d));
  return strata;
}

/// Sum over all steps of the replay, estimated from those drawn.
double total_of(const std::vector<Drawn>& strata, const std::vector<double>& us) {
  double total = 0;
  for (const Drawn& d : strata) {
    double sum = 0;
    for (const std::size_t i : d.sample) sum += us[i];
    total += static_cast<double>(d.steps) * sum / static_cast<double>(d.sample.size());
  }
  return total;
}

/// How often each drawn step counts in a resample of its stratum; 1 on average.
std::vector<double> resample(const std::vector<Drawn>& strata, std::size_t steps, std::mt19937_64& rng) {
  std::vector<double> weight(steps, 1.0);
  for (const Drawn& d : strata) {
    const std::size_t n = d.sample.size();
    const double missed = 1 - static_cast<double>(n) / static_cast<double>(d.steps);
    if (n < 2 || missed <= 0) continue;
    std::vector<double> times(n, 0.0);
    for (std::size_t k = 0; k + 1 < n; ++k) times[static_cast<std::size_t>(rng() % n)] += 1;
    const double scale = std::sqrt(missed);
    for (std::size_t k = 0; k < n; ++k) {
      const double in_full = times[k] * static_cast<double>(n) / static_cast<double>(n - 1);
      weight[d.sample[k]] = 1 + scale * (in_full - 1);
    }
  }
  return weight;
}

double draw_normal(std::mt19937_64& rng) {
  const auto unit = [&] { return (static_cast<double>(rng() >> 11) + 0.5) * 0x1p-53; };
  const double radius = std::sqrt(-2 * std::log(unit()));
  return radius * std::cos(2 * M_PI * unit());
}

double deviation_of(const std::vector<double>& values) {
  double mean = 0, squares = 0;
  for (const double x : values) mean += x / static_cast<double>(values.size());
  for (const double x : values) squares += (x - mean) * (x - mean) / static_cast<double>(values.size());
  return std::sqrt(squares);
}

/// Half the width of a 95 % interval, in standard errors. Two steps tell little of the spread of their stratum: Student's
/// t with the degrees of freedom of F. Satterthwaite, "An approximate distribution of estimates of variance components",
/// 1946. `values` are those whose sum is estimated.
double width_of(const std::vector<Drawn>& strata, const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const Drawn& d : strata) {
    const auto n = static_cast<double>(d.sample.size()), all = static_cast<double>(d.steps);
    if (d.sample.size() < 2) continue;
    double mean = 0, spread = 0;
    for (const std::size_t i : d.sample) mean += values[i] / n;
    for (const std::size_t i : d.sample) spread += (values[i] - mean) * (values[i] - mean) / (n - 1);
    const double variance = all * (all - n) * spread / n;
    sum += variance;
    squares += variance * variance / (n - 1);
  }
  return squares > 0 ? student_95(std::max(1, static_cast<int>(sum * sum / squares))) : kNormal95;
}

using Groups = std::vector<std::vector<const StepTime*>>;

/// Steps of one replay on one kernel and device, in the order of the results.
Groups groups_of(std::span<const StepTime> steps) {
  Groups groups;
  for (const StepTime& s : steps) {
    auto g = std::ranges::find_if(groups, [&](const auto& x) {
      const StepTime& first = *x.front();
      return first.group == s.group && first.kernel == s.kernel && first.device == s.device;
    });
    if (g == groups.end()) g = groups.insert(g, std::vector<const StepTime*>{});
    g->push_back(&s);
  }
  return groups;
}

TokenTime token_time(const std::vector<const StepTime*>& steps) {
  const StepTime& first = *steps.front();
  TokenTime t{first.group, first.kernel, first.device, 0, first.step.steps, {}, {}, {}, ""};
  t.timed = std::ranges::count_if(steps, [](const StepTime* s) { return s->us.has_value(); });
  t.vague = std::ranges::count_if(steps, [](const StepTime* s) { return s->vague; });
  t.busy = std::ranges::count_if(steps, [](const StepTime* s) { return s->busy; });
  const std::vector<Drawn> strata = strata_of(steps, t.why);
  const auto tokens = static_cast<double>(first.step.output_tokens);
  if (t.why.empty() && !(tokens > 0)) t.why = "the replay generates no token";
  if (!t.why.empty()) return t;
  std::vector<double> us;
  for (const StepTime* s : steps) us.push_back(*s->us);
  t.us = total_of(strata, us) / tokens;
  std::mt19937_64 rng(name_seed(t.group));
  std::vector<double> totals, drawn(us.size());
  for (int r = 0; r < kTokenResamples; ++r) {
    const std::vector<double> weight = resample(strata, us.size(), rng);
    for (std::size_t i = 0; i < us.size(); ++i) {
      const double spread = steps[i]->lo && steps[i]->hi ? (*steps[i]->hi - *steps[i]->lo) / kNormalSpan : 0;
      drawn[i] = weight[i] * us[i] + spread * draw_normal(rng);
    }
    totals.push_back(total_of(strata, drawn) / tokens);
  }
  const double half = width_of(strata, us) * deviation_of(totals);
  t.lo = std::max(0.0, *t.us - half);
  t.hi = *t.us + half;
  return t;
}

std::optional<TokenChange> token_change(const std::vector<const StepTime*>& steps,
                                        const std::vector<const CompareRow*>& rows) {
  std::string why;
  const std::vector<Drawn> strata = strata_of(steps, why);
  const auto tokens = static_cast<double>(steps.front()->step.output_tokens);
  if (!why.empty() || !(tokens > 0)) return std::nullopt;
  std::vector<double> base, fresh;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (rows[i] == nullptr || !rows[i]->ratio) return std::nullopt;
    base.push_back(*steps[i]->us);
    fresh.push_back(base.back() * *rows[i]->ratio);
  }
  TokenChange c{steps.front()->group, rows.front()->base_kernel, rows.front()->new_kernel, 0, 0, 1, 1, 1};
  c.base_us = total_of(strata, base) / tokens;
  c.new_us = total_of(strata, fresh) / tokens;
  c.ratio = c.new_us / c.base_us;
  std::mt19937_64 rng(name_seed(c.group));
  std::vector<double> ratios, x(base.size()), y(base.size());
  for (int r = 0; r < kTokenResamples; ++r) {
    const std::vector<double> weight = resample(strata, base.size(), rng);
    const double common = draw_normal(rng);
    for (std::size_t i = 0; i < base.size(); ++i) {
      const CompareRow& row = *rows[i];
      const bool known = row.lo && row.hi && *row.lo > 0;
      const double spread = known ? std::log(*row.hi / *row.lo) / kNormalSpan : 0;
      x[i] = weight[i] * base[i];
      y[i] = weight[i] * fresh[i] * std::exp(spread * common);
    }
    ratios.push_back(total_of(strata, y) / total_of(strata, x));
  }
  std::vector<double> residuals;  // whose sum is 0 at this ratio
  for (std::size_t i = 0; i < base.size(); ++i) residuals.push_back(fresh[i] - c.ratio * base[i]);
  const double half = width_of(strata, residuals) * deviation_of(ratios);
  c.lo = c.ratio - half;
  c.hi = c.ratio + half;
  return c;
}

}  // namespace

std::vector<StepTime> step_times(std::span<const Record> records) {
  std::vector<StepTime> out;
  for (const Record& r : records) {
    const std::optional<ServedStep>& step = r.item.params.served;
    if (!step || step->stratum < 0) continue;
    StepTime s{r.item.id, group_of(r.item.id, *step), r.kernel, r.device, *step, {}, {}, {}};
    if (r.status == Status::kPass && r.time) {
      s.us = r.median_us();
      if (std::isfinite(r.time->lo_us)) s.lo = r.time->lo_us;
      if (std::isfinite(r.time->upper_us())) s.hi = r.time->upper_us();
      s.vague = r.time->vague();
      s.busy = r.time->busy();
    }
    out.push_back(std::move(s));
  }
  return out;
}

std::vector<TokenTime> token_times(std::span<const StepTime> steps) {
  std::vector<TokenTime> out;
  for (const auto& group : groups_of(steps)) {
    TokenTime t = token_time(group);
    if (t.timed > 0) out.push_back(std::move(t));
  }
  return out;
}

std::vector<TokenChange> token_changes(const ResultSet& base, const std::vector<CompareRow>& rows) {
  const std::vector<StepTime> steps = step_times(base.results);
  std::map<std::pair<std::string, std::string>, std::map<std::string, const CompareRow*>> row_of;
  for (const CompareRow& r : rows) row_of[{r.id, r.base_kernel}][r.new_kernel] = &r;
  std::vector<TokenChange> out;
  for (const auto& group : groups_of(steps)) {
    const auto first = row_of.find({group.front()->id, group.front()->kernel});
    if (first == row_of.end()) continue;
    for (const auto& [kernel, row] : first->second) {
      std::vector<const CompareRow*> of_steps;
      for (const StepTime* s : group) {
        const auto& here = row_of[{s->id, s->kernel}];
        const auto at = here.find(kernel);
        of_steps.push_back(at == here.end() ? nullptr : at->second);
      }
      if (auto change = token_change(group, of_steps)) out.push_back(std::move(*change));
    }
  }
  return out;
}

std::string token_time_text(const TokenTime& t) {
  const std::string name = fmt::format("{}: {}", t.group, t.kernel);
  if (!t.us) return fmt::format("{}: no time per generated token: {}", name, t.why);
  std::string marks;
  const auto add = [&marks](int64_t n, const char* what) {
    if (n > 0) marks += fmt::format("; {} of these times {}", n, what);
  };
  add(t.vague, "not usable (?)");
  add(t.busy, "disturbed (!)");
  return fmt::format("{} {} us per generated token and layer (95 % interval {} .. {}, from {} of {} steps{})",
                     name, digits(*t.us), digits(*t.lo), digits(*t.hi), t.timed, t.steps, marks);
}

std::string token_change_text(const TokenChange& c) {
  const std::string kernels =
      c.base_kernel == c.new_kernel ? c.new_kernel : fmt::format("{} -> {}", c.base_kernel, c.new_kernel);
  const auto percent = [](double ratio) { return 100 * (ratio - 1); };
  return fmt::format(
      "{}: {}: {} -> {} us per generated token and layer ({:+.2f} %, 95 % interval {:+.2f} .. {:+.2f})",
      c.group, kernels, digits(c.base_us), digits(c.new_us), percent(c.ratio), percent(c.lo), percent(c.hi));
}

}  // namespace attnbench
