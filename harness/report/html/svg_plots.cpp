#include "harness/report/html/svg_plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <tuple>

#include "harness/report/html/case_facts.h"
#include "harness/report/html/svg_canvas.h"
#include "harness/report/summary.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

struct Timed {
  const Record* result;
  CaseFacts facts;
  double intensity = 0;
  std::string device;
};

/// 0 if it is unknown.
double tflops_of(const Timed& t) { return t.result->roofline ? t.result->roofline->tflops : 0; }

struct Roof {
  double gbs = 0;
  std::map<std::string, double> tflops;  ///< TFLOP/s by element type
};

std::vector<Timed> timed_results(std::span<const ResultSet> sets) {
  std::vector<Timed> out;
  for (const ResultSet& set : sets) {
    for (const Record& r : set.results) {
      const auto facts = facts_of(r);
      if (r.status != Status::kPass || !r.median_us() || !(r.time->median_us > 0) || !facts) continue;
      out.push_back({&r, *facts, intensity_of(r).value_or(0), set.context.device.model});
    }
  }
  return out;
}

RateUnit rate_unit_of(const std::vector<Timed>& list) {
  const bool cpu = std::ranges::all_of(list, [](const Timed& t) { return t.result->device == "cpu"; });
  return rate_unit(cpu);
}

/// The best rates that any run of a device measured.
std::map<std::string, Roof> roofs_of(std::span<const ResultSet> sets) {
  std::map<std::string, Roof> roofs;
  for (const ResultSet& set : sets) {
    if (set.context_entry == nullptr) continue;
    const Ceilings& ceilings = set.context.ceilings;
    Roof& roof = roofs[set.context.device.model];
    roof.gbs = std::max(roof.gbs, ceilings.read_gbs.value_or(0));
    for (const auto& [dtype, rate] : ceilings.matmul) {
      double& best = roof.tflops[dtype_name(dtype)];
      best = std::max(best, rate);
    }
  }
  return roofs;
}

class Colors {
 public:
  int of(const std::string& kernel) {
    const auto it = std::ranges::find(names_, kernel);
    if (it != names_.end()) return static_cast<int>(it - names_.begin());
    names_.push_back(kernel);
    return static_cast<int>(names_.size()) - 1;
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

void fit(SvgAxis& a, const std::vector<SvgSeries>& series, double SvgPoint::*field, double room) {
  double low = std::numeric_limits<double>::infinity(), high = 0;
  for (const SvgSeries& s : series) {
    for (const SvgPoint& p : s.points) {
      low = std::min(low, p.*field);
      high = std::max(high, p.*field);
    }
  }
  a.min = a.log ? low / room : 0;
  a.max = high * room;
}

std::string devices_of(const std::vector<Timed>& list) {
  std::vector<std::string> names;
  for (const Timed& t : list) {
    if (!t.device.empty() && std::ranges::find(names, t.device) == names.end()) names.push_back(t.device);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string titled(const char* what, const std::vector<Timed>& list) {
  const std::string devices = devices_of(list);
  return devices.empty() ? what : fmt::format("{}, {}", what, devices);
}

std::string roofline_svg(const std::vector<Timed>& all, const std::map<std::string, Roof>& roofs) {
  const RateUnit unit = rate_unit_of(all);
  std::vector<Timed> list;
  for (const Timed& t : all) {
    if (t.intensity > 0 && tflops_of(t) > 0 && !t.facts.apart) list.push_back(t);
  }
  if (list.empty()) return "";
  Colors colors;
  SvgChart c;
  c.x = {"FLOP per byte of memory traffic", 1, 10, true, false};
  c.y = {unit.name, 1, 10, true, false};
  std::map<std::string, SvgSeries> by_kernel;
  for (const Timed& t : list) {
    SvgSeries& s = by_kernel[t.result->kernel];
    s.color = colors.of(t.result->kernel);
    s.points.push_back({t.intensity, unit.per_tflops * tflops_of(t)});
  }
  for (auto& [kernel, s] : by_kernel) c.series.push_back(s);
  fit(c.x, c.series, &SvgPoint::x, 1.6);
  for (const auto& [device, roof] : roofs) {
    std::vector<std::pair<double, std::string>> rates;
    for (const auto& [dtype, rate] : roof.tflops) {
      const bool used = std::ranges::any_of(list, [&, &d = device, &type = dtype](const Timed& t) {
        return t.device == d && (t.facts.dtype == type || t.facts.q_dtype == type);
      });
      if (used) rates.push_back({rate, dtype});
    }
    std::ranges::sort(rates);  // the higher rate first: its label stays if two would overlap
    for (const auto& [rate, dtype] : rates) {
      if (!(roof.gbs > 0) || !(rate > 0)) continue;
      const double ridge = std::min(rate * 1e3 / roof.gbs, c.x.max);
      SvgSeries s;
      s.color = kSvgRoof;
      s.line = true;
      const double slope = unit.per_tflops * roof.gbs / 1e3, flat = unit.per_tflops * rate;
      s.label = fmt::format("{} {} {}", dtype, digits(flat, 3), unit.name);
      s.points = {{c.x.min, c.x.min * slope}, {ridge, ridge * slope}};
      if (ridge < c.x.max) s.points.push_back({c.x.max, flat});
      c.series.insert(c.series.begin(), s);
    }
  }
  fit(c.y, c.series, &SvgPoint::y, 1.7);
  c.legend = colors.names();
  c.title = titled("Roofline", list);
  c.description = fmt::format(
      "{} timed cases; lines: read bandwidth and matrix rates measured in the same runs", list.size());
  return write_svg(c);
}

/// The axes of a line plot, and which cases share a line.
struct LinePlot {
  SvgAxis x, y;
  std::function<bool(const Timed&)> takes;
  std::function<SvgPoint(const Timed&)> point;
  std::function<std::string(const Timed&)> key;    ///< cases with equal key and kernel share a line
  std::function<std::string(const Timed&)> label;  ///< in the legend; lines with one label share a colour
};

/// Draws lines of two points or more, or single points if there is no line.
std::string line_svg(const char* title, const LinePlot& plot, const std::vector<Timed>& all) {
  std::vector<Timed> list;
  std::map<std::tuple<std::string, std::string, std::string>, std::map<double, double>> lines;
  std::map<std::tuple<std::string, std::string, std::string>, std::string> labels;
  for (const Timed& t : all) {
    if (!plot.takes(t)) continue;
    list.push_back(t);
    const auto key = std::make_tuple(t.result->kernel, t.device, plot.key(t));
    const SvgPoint p = plot.point(t);
    lines[key][p.x] = p.y;
    labels[key] = plot.label(t);
  }
  if (lines.empty()) return "";
  const bool any_line = std::ranges::any_of(lines, [](const auto& l) { return l.second.size() > 1; });
  // One colour per label, in the order of lengths and settings that people expect: 64 before 128.
  const auto drawn = [&](const auto& points) { return points.size() > 1 || !any_line; };
  std::vector<std::string> names;
  for (const auto& [key, points] : lines) {
    if (drawn(points)) names.push_back(labels[key]);
  }
  std::ranges::sort(names, [](const std::string& a, const std::string& b) {
    return std::make_pair(a.size(), a) < std::make_pair(b.size(), b);
  });
  names.erase(std::unique(names.begin(), names.end()), names.end());
  SvgChart c;
  std::map<std::string, int> seen;
  std::size_t cases = 0;
  for (const auto& [key, points] : lines) {
    if (!drawn(points)) continue;
    const std::string& label = labels[key];
    SvgSeries s;
    s.line = points.size() > 1;
    s.color = static_cast<int>(std::ranges::find(names, label) - names.begin());
    s.dash = seen[label]++ + s.color / kSvgColors;
    for (const auto& [x, y] : points) s.points.push_back({x, y});
    cases += s.points.size();
    c.series.push_back(s);
  }
  c.x = plot.x;
  c.y = plot.y;
  fit(c.x, c.series, &SvgPoint::x, 1.2);
  fit(c.y, c.series, &SvgPoint::y, c.y.log ? 1.3 : 1.08);
  c.legend = names;
  c.title = titled(title, list);
  c.description = fmt::format("{} cases in {} series", cases, c.series.size());
  return write_svg(c);
}

std::string lengths(int64_t n) {
  return n >= 1024 && n % 1024 == 0 ? fmt::format("{}k", n >> 10) : std::to_string(n);
}

/// "h16-16 d128 causal" from "attention/packed/bf16/h16-16/d128/causal".
std::string short_setting(const std::string& setting) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= setting.size();) {
    const std::size_t end = std::min(setting.find('/', begin), setting.size());
    parts.push_back(setting.substr(begin, end - begin));
    begin = end + 1;
  }
  std::string out;
  for (std::size_t i = 3; i < parts.size(); ++i) out += (i == 3 ? "" : " ") + parts[i];
  if (parts.size() > 1 && parts[1].rfind("paged", 0) == 0)
    out += " " + parts[1].substr(0, parts[1].find('-'));
  return out;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> svg_plots(std::span<const ResultSet> sets) {
  const std::vector<Timed> all = timed_results(sets);
  const RateUnit unit = rate_unit_of(all);
  LinePlot rate;
  rate.x = {"query tokens per sequence", 1, 10, true, true};
  rate.y = {unit.name, 0, 10, false, false};
  rate.takes = [](const Timed& t) {
    return t.facts.phase == "prefill" && t.facts.uniform && t.facts.max_q > 0 && tflops_of(t) > 0;
  };
  rate.point = [&](const Timed& t) {
    return SvgPoint{static_cast<double>(t.facts.max_q), unit.per_tflops * tflops_of(t)};
  };
  rate.key = [](const Timed& t) {
    return fmt::format("{}\n{}\n{}", t.facts.setting, t.facts.total_q, t.facts.max_k - t.facts.max_q);
  };
  rate.label = [](const Timed& t) { return short_setting(t.facts.setting); };
  LinePlot latency;
  latency.x = {"keys per sequence", 1, 10, true, true};
  latency.y = {"median time, µs", 1, 10, true, false};
  latency.takes = [](const Timed& t) {
    return t.facts.phase == "decode" && t.facts.uniform && t.facts.max_k > 0;
  };
  latency.point = [](const Timed& t) {
    return SvgPoint{static_cast<double>(t.facts.max_k), t.result->time->median_us};
  };
  latency.key = [](const Timed& t) {
    return fmt::format("{}\n{}\n{}", t.facts.setting, t.facts.max_q, t.facts.num_seqs);
  };
  // Where cases are spread over ranks, each way of it has a line with its name.
  const bool ways = std::ranges::any_of(all, [](const Timed& t) { return t.facts.on_ranks; });
  latency.label = [ways](const Timed& t) {
    const std::string batch = fmt::format("batch {}", lengths(t.facts.num_seqs));
    return ways ? batch + ", " + short_setting(t.facts.setting) : batch;
  };

  std::vector<std::pair<std::string, std::string>> out = {
      {"roofline.svg", roofline_svg(all, roofs_of(sets))},
      {"rate_by_length.svg", line_svg("Rate by length", rate, all)},
      {"decode_latency.svg", line_svg("Decode latency", latency, all)},
  };
  std::erase_if(out, [](const auto& plot) { return plot.second.empty(); });
  return out;
}

}  // namespace attnbench
