#include "harness/report/html/page.h"

#include <map>
#include <stdexcept>

namespace attnbench {

bool page_available() { return !page_assets::kChart.empty(); }

std::string json_for_script(const nlohmann::ordered_json& data) {
  const std::string json = data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string out;
  out.reserve(json.size() + json.size() / 16);
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    const bool separator = json.compare(i, 2, "\xe2\x80") == 0 && i + 2 < json.size() &&
                           (json[i + 2] == '\xa8' || json[i + 2] == '\xa9');
    if (separator) {
      out += json[i + 2] == '\xa8' ? "\\u2028" : "\\u2029";
      i += 2;
    } else if (c == '<') {
      out += "\\u003c";
    } else if (c == '>') {
      out += "\\u003e";
    } else if (c == '&') {
      out += "\\u0026";
    } else {
      out += c;
    }
  }
  return out;
}

std::string write_page(const nlohmann::ordered_json& data) {
  using namespace page_assets;
  if (!page_available()) throw std::logic_error("built without the chart library");
  const std::string json = json_for_script(data);
  const std::map<std::string_view, std::string_view> values = {
      {"style", kStyle},
      {"script", kScript},
      {"chart", kChart},
      {"style_hash", kStyleHash},
      {"script_hash", kScriptHash},
      {"chart_hash", kChartHash},
      {"data", json},
  };
  std::string page;
  page.reserve(json.size() + kChart.size() + kScript.size() + kStyle.size() + kTemplate.size());
  // Replaces only the marks of the template itself, never those in inserted text.
  for (std::size_t i = 0; i < kTemplate.size();) {
    const std::size_t begin = kTemplate.find("{{", i);
    if (begin == std::string_view::npos) {
      page += kTemplate.substr(i);
      break;
    }
    const std::size_t end = kTemplate.find("}}", begin);
    page += kTemplate.substr(i, begin - i);
    page += values.at(kTemplate.substr(begin + 2, end - begin - 2));
    i = end + 2;
  }
  return page;
}

}  // namespace attnbench
