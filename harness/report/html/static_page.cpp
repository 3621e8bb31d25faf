#include "harness/report/html/static_page.h"

#include <fmt/format.h>

#include "harness/report/html/page.h"

namespace attnbench {
namespace {

std::string cell_html(const char* element, const TableColumn& column, const std::string& text) {
  return fmt::format("<{0}{1}>{2}</{0}>", element, column.align == Align::kRight ? " class=\"number\"" : "",
                     xml_line(text));
}

}  // namespace

std::string write_static_page(const StaticPage& page) {
  // Nothing may be loaded and no script may run, whatever a file's name or a trace holds.
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{0}</title>\n"
      "<style>{1}svg{{max-width:100%;height:auto}}section{{margin:1.2rem 0;overflow-x:auto}}"
      "table{{width:auto}}.fact{{white-space:normal}}</style>\n"
      "</head>\n<body>\n<main id=\"main\">\n<h1>{0}</h1>\n<section>\n<table>\n",
      xml_line(page.title), page_assets::kStyle);
  for (const auto& [name, text] : page.facts)
    out += fmt::format("<tr><th scope=\"row\">{}</th><td class=\"fact\">{}</td></tr>\n", xml_line(name),
                       xml_line(text));
  out += "</table>\n</section>\n<section>\n<table>\n<tr>";
  for (const TableColumn& c : page.columns) out += cell_html("th", c, c.header);
  out += "</tr>\n";
  for (const TableRow& row : page.rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.cells.size(); ++i)
      out += cell_html("td", page.columns.at(i), row.cells[i]);
    out += "</tr>\n";
  }
  return out + "</table>\n</section>\n<section>\n" + write_svg(page.chart) +
         "</section>\n</main>\n</body>\n</html>\n";
}

}  // namespace attnbench
