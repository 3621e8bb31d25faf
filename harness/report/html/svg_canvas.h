// A chart as SVG text: two axes, lines, points, labels. It is readable on light and dark pages: colours are
// classes of a style sheet that follows prefers-color-scheme.
#pragma once

#include <string>
#include <vector>

namespace attnbench {

struct SvgAxis {
  std::string title;  ///< includes the unit
  double min = 1, max = 10;
  bool log = false;
  bool powers_of_two = false;  ///< ticks at 1k, 2k, ..., as lengths are written
};

struct SvgPoint {
  double x = 0, y = 0;
};

struct SvgSeries {
  std::string label;  ///< at the end of a line; empty: no label
  int color = 0;      ///< index in the legend, modulo kSvgColors; kSvgRoof: a ceiling
  bool line = false;
  int dash = 0;  ///< dash pattern, which separates lines of one colour
  std::vector<SvgPoint> points;
};
inline constexpr int kSvgRoof = -1;
inline constexpr int kSvgColors = 8;

struct SvgChart {
  std::string title, description;  ///< the description is for readers who cannot see the chart
  SvgAxis x, y;
  std::vector<SvgSeries> series;
  std::vector<std::string> legend;  ///< names of colours 0, 1, ...
};

/// A whole SVG file, 760 units wide.
std::string write_svg(const SvgChart& chart);

/// Text for XML on one line.
std::string xml_line(const std::string& text);

}  // namespace attnbench
