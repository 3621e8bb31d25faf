// One HTML file that needs no other file: it holds style, script, chart library and data.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace attnbench {

/// Files of this folder and the chart library, embedded in the program at build time (CMakeLists.txt).
namespace page_assets {
extern const std::string_view kTemplate;   ///< template.html
extern const std::string_view kStyle;      ///< style.css
extern const std::string_view kScript;     ///< the .js files, joined
extern const std::string_view kChart;      ///< Chart.js; empty if it was not found
extern const std::string_view kStyleHash;  ///< sha256 in base64, for the Content-Security-Policy
extern const std::string_view kScriptHash;
extern const std::string_view kChartHash;
}  // namespace page_assets

/// False if the program was built without the chart library.
bool page_available();

/// JSON that is safe inside <script type="application/json">. Nothing in it ends the element or begins a
/// comment, and it has no line separators, on which old scripts fail.
std::string json_for_script(const nlohmann::ordered_json& data);

/// The whole file. Throws std::logic_error if the chart library is missing.
std::string write_page(const nlohmann::ordered_json& data);

}  // namespace attnbench
