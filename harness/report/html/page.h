// One HTML file that needs nothing else: style, script, chart library and data stand in it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace attnbench {

/// Files of this folder and the chart library, put into the program at build time (CMakeLists.txt).
namespace page_assets {
extern const std::string_view kTemplate;   ///< template.html
extern const std::string_view kStyle;      ///< style.css
extern const std::string_view kScript;     ///< the .js files, joined
extern const std::string_view kChart;      ///< Chart.js; empty where it was not found
extern const std::string_view kStyleHash;  ///< sha256 in base64, as a Content-Security-Policy has it
extern const std::string_view kScriptHash;
extern const std::string_view kChartHash;
}  // namespace page_assets

/// False where the program was built without the chart library.
bool page_available();

/// JSON that may stand inside <script type="application/json">: nothing in it ends the element or begins a
/// comment, and no line separator that old scripts choke on is left.
std::string json_for_script(const nlohmann::ordered_json& data);

/// The whole file. Throws std::logic_error where the library is missing.
std::string write_page(const nlohmann::ordered_json& data);

}  // namespace attnbench
