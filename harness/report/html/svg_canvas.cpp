#include "harness/report/html/svg_canvas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/report/junit.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

constexpr double kWidth = 760, kPlotHeight = 330;
constexpr double kLeft = 66, kRight = 20, kBottom = 52;
constexpr double kLegendRow = 19;

constexpr const char* kStyle =
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:#5a636e}"
    ".t{font-size:15px;font-weight:650;fill:#1b1f24}"
    ".g{stroke:#e3e6ea;stroke-width:1}.a{stroke:#aab2bb;stroke-width:1}"
    ".l{fill:none;stroke-width:1.75}.r{fill:none;stroke:#8b95a1;stroke-width:1.5}"
    ".h{stroke:#fff;stroke-width:3;paint-order:stroke;stroke-linejoin:round}"
    ".c0{--c:#2563a8}.c1{--c:#c2570c}.c2{--c:#0f7b6c}.c3{--c:#8a3b9c}"
    ".c4{--c:#b02a5b}.c5{--c:#6b6b12}.c6{--c:#4a5561}.c7{--c:#7a4a21}"
    ".l{stroke:var(--c)}.p{fill:var(--c);fill-opacity:.75}"
    ".b{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#9aa4af}.t{fill:#e4e7ea}.g{stroke:#262c33}.a{stroke:#4a535d}"
    ".r{stroke:#6c7784}.h{stroke:#14181c}.b{fill:#14181c}"
    ".c0{--c:#6ea8ea}.c1{--c:#f0985a}.c2{--c:#4fc3b0}.c3{--c:#c98bd8}"
    ".c4{--c:#ef85ab}.c5{--c:#c9c85a}.c6{--c:#a7b2be}.c7{--c:#d3a273}}";

double share(const SvgAxis& a, double v) {
  return a.log ? std::log(v / a.min) / std::log(a.max / a.min) : (v - a.min) / (a.max - a.min);
}
struct LegendEntry {
  double x = 0;
  int row = 0;
};

/// Legend entries from left to right, in as many rows as needed.
std::vector<LegendEntry> legend_layout(const std::vector<std::string>& names) {
  std::vector<LegendEntry> out;
  double x = kLeft;
  int row = 0;
  for (const std::string& name : names) {
    const double width = 34 + 6.7 * static_cast<double>(display_width(name));
    if (x > kLeft && x + width > kWidth) {
      x = kLeft;
      ++row;
    }
    out.push_back({x, row});
    x += width;
  }
  return out;
}

/// Upper and lower end of the plot area.
double top_of(const SvgChart& c) {
  const auto legend = legend_layout(c.legend);
  return 44 + kLegendRow * (legend.empty() ? 0 : legend.back().row + 1);
}
double bottom_of(const SvgChart& c) { return top_of(c) + kPlotHeight; }

double x_of(const SvgChart& c, double v) { return kLeft + share(c.x, v) * (kWidth - kLeft - kRight); }
double y_of(const SvgChart& c, double v) { return bottom_of(c) - share(c.y, v) * kPlotHeight; }

std::string length_label(double v) {
  const auto n = static_cast<int64_t>(v);
  if (n >= 1 << 20) return fmt::format("{}m", n >> 20);
  return n >= 1024 ? fmt::format("{}k", n >> 10) : std::to_string(n);
}

std::vector<double> ticks_of(const SvgAxis& a) {
  std::vector<double> ticks;
  if (a.log && a.powers_of_two) {
    const int lowest = static_cast<int>(std::ceil(std::log2(a.min))),
              highest = static_cast<int>(std::floor(std::log2(a.max)));
    const int every = std::max(1, (highest - lowest + 10) / 10);
    for (int p = lowest; p <= highest; p += every) ticks.push_back(std::exp2(p));
  } else if (a.log) {
    const double decades = std::log10(a.max / a.min);
    const std::vector<double> steps = decades <= 3 ? std::vector<double>{1, 2, 5} : std::vector<double>{1};
    const int every = decades <= 9 ? 1 : static_cast<int>(std::ceil(decades / 9));
    for (int d = static_cast<int>(std::floor(std::log10(a.min))); d <= std::ceil(std::log10(a.max)); ++d) {
      if (d % every != 0) continue;
      for (const double s : steps) {
        const double v = s * std::pow(10.0, d);
        if (v >= a.min && v <= a.max) ticks.push_back(v);
      }
    }
  } else {
    const double raw = (a.max - a.min) / 6, power = std::pow(10.0, std::floor(std::log10(raw)));
    const double step = power * (raw / power < 1.5 ? 1 : raw / power < 3.5 ? 2 : raw / power < 7.5 ? 5 : 10);
    for (double v = std::ceil(a.min / step) * step; v <= a.max + step * 1e-9; v += step) ticks.push_back(v);
  }
  return ticks;
}

std::string tick_label(const SvgAxis& a, double v) {
  if (a.powers_of_two) return length_label(v);
  if (v != 0 && (std::abs(v) < 1e-3 || std::abs(v) >= 1e6)) return fmt::format("{:.0e}", v);
  return fmt::format("{:g}", v);
}

void draw_axes(const SvgChart& c, std::string& out) {
  const double top = top_of(c), bottom = bottom_of(c), right = kWidth - kRight;
  for (const double v : ticks_of(c.x)) {
    const double x = x_of(c, v);
    out += fmt::format(
        "<path class=\"g\" d=\"M{0:.1f} {1}V{2}\"/><text x=\"{0:.1f}\" y=\"{3}\" "
        "text-anchor=\"middle\">{4}</text>\n",
        x, top, bottom, bottom + 18, tick_label(c.x, v));
  }
  for (const double v : ticks_of(c.y)) {
    const double y = y_of(c, v);
    out += fmt::format(
        "<path class=\"g\" d=\"M{0} {1:.1f}H{2}\"/><text x=\"{3}\" y=\"{4:.1f}\" "
        "text-anchor=\"end\">{5}</text>\n",
        kLeft, y, right, kLeft - 8, y + 4, tick_label(c.y, v));
  }
  out += fmt::format("<path class=\"a\" d=\"M{} {}H{}\"/>\n", kLeft, bottom, right);
  out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", (kLeft + right) / 2,
                     bottom_of(c) + kBottom - 12, xml_line(c.x.title));
  out +=
      fmt::format("<text transform=\"translate(16 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                  (top + bottom) / 2, xml_line(c.y.title));
}

void draw_legend(const SvgChart& c, std::string& out) {
  const auto places = legend_layout(c.legend);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const double x = places[i].x, y = 46 + kLegendRow * places[i].row;
    out += fmt::format(
        "<circle class=\"p c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\"/><text x=\"{:.1f}\" "
        "y=\"{:.1f}\">{}</text>\n",
        i % kSvgColors, x + 5, y - 4, x + 15, y, xml_line(c.legend[i]));
  }
}

std::string color_class(int color) {
  return color == kSvgRoof ? "r" : fmt::format("l c{}", color % kSvgColors);
}

void draw_series(const SvgChart& c, std::string& out) {
  constexpr const char* dashes[] = {"", "6 4", "2 3", "8 3 2 3"};
  for (const SvgSeries& s : c.series) {
    if (s.line && s.points.size() > 1) {
      std::string path;
      for (const SvgPoint& p : s.points)
        path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x_of(c, p.x), y_of(c, p.y));
      const char* dash = dashes[s.dash % 4];
      out += fmt::format("<path class=\"{}\" d=\"{}\"{}/>\n", color_class(s.color), path,
                         *dash ? fmt::format(" stroke-dasharray=\"{}\"", dash) : "");
    }
    if (s.color == kSvgRoof) continue;
    out += fmt::format("<g class=\"p c{}\">", s.color % kSvgColors);
    for (const SvgPoint& p : s.points)
      out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"/>", x_of(c, p.x), y_of(c, p.y),
                         s.line ? 3.2 : 2.8);
    out += "</g>\n";
  }
}

/// Labels are drawn last, with a halo. A label that would overlap another is omitted.
void draw_labels(const SvgChart& c, std::string& out) {
  struct Box {
    double x, y, width;
  };
  std::vector<Box> taken;
  for (const SvgSeries& s : c.series) {
    if (s.label.empty() || s.points.empty()) continue;
    const double width = 6.6 * static_cast<double>(display_width(s.label));
    const double at_x = x_of(c, s.points.back().x), at_y = y_of(c, s.points.back().y);
    const bool inside = s.color == kSvgRoof || at_x + 8 + width > kWidth;
    const double x = inside ? std::min(at_x - 4, kWidth - 4) - width : at_x + 8;
    const double y = std::max(inside ? at_y - 7 : at_y + 4, top_of(c) - 4);
    const bool hit = std::ranges::any_of(taken, [&](const Box& b) {
      return std::abs(b.y - y) < 14 && x < b.x + b.width + 6 && b.x < x + width + 6;
    });
    if (hit) continue;
    taken.push_back({x, y, width});
    out += fmt::format("<text class=\"h\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x, y, xml_line(s.label));
  }
}

}  // namespace

std::string xml_line(const std::string& text) { return xml_text(one_line(text)); }

std::string write_svg(const SvgChart& c) {
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "role=\"img\" "
      "aria-labelledby=\"title description\">\n<title id=\"title\">{2}</title>\n<desc "
      "id=\"description\">{3}</desc>\n"
      "<style>{4}</style>\n<rect class=\"b\" width=\"{0}\" height=\"{1}\" rx=\"8\"/>\n<text class=\"t\" "
      "x=\"{5}\" y=\"26\">{2}</text>\n",
      kWidth, bottom_of(c) + kBottom, xml_line(c.title), xml_line(c.description), kStyle, kLeft);
  draw_legend(c, out);
  draw_axes(c, out);
  draw_series(c, out);
  draw_labels(c, out);
  return out + "</svg>\n";
}

}  // namespace attnbench
