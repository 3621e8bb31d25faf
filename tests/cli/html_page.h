// A report in a browser, and results files to make it of.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/browser.h"
#include "tests/cli/program.h"

namespace attnbench::testing {

using nlohmann::json;

inline std::vector<std::string> h100_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("results/baselines/h100"))) {
    if (entry.path().extension() == ".json") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

class HtmlReport : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto chromium = find_chromium();
    if (!chromium) GTEST_SKIP() << "no chromium in PATH (apt: chromium)";
    const Outcome o = run_attnbench(scratch_, {"report", h100_files().front(), "-o", "probe.html"});
    if (o.exit_code == 2 && o.err.find("built without Chart.js") != std::string::npos) GTEST_SKIP() << o.err;
    browser_ = std::make_unique<Browser>(*chromium, scratch_.path("profile"));
  }

  /// Writes the page and opens it.
  void show(std::vector<std::string> args, const Browser::View& view = {}, const std::string& fragment = "") {
    args.insert(args.begin(), "report");
    args.insert(args.end(), {"-o", "page.html"});
    const Outcome o = run_attnbench(scratch_, args);
    ASSERT_EQ(o.exit_code, 0) << o.err;
    browser_->open(scratch_.path("page.html"), view, fragment);
  }
  json js(const std::string& expression) { return browser_->evaluate(expression); }
  std::string text_of(const std::string& selector) {
    return js("(document.querySelector('" + selector + "') || {textContent: 'none'}).textContent")
        .get<std::string>();
  }
  void filter(const std::string& text) {
    js("document.getElementById('filter').focus(); document.getElementById('filter').select()");
    browser_->type_text(text);
    EXPECT_TRUE(browser_->wait_for("location.hash.includes('filter=')")) << text;
  }

  Scratch scratch_;
  std::unique_ptr<Browser> browser_;
};

/// For each visible canvas: the number of drawn pixels and of colours.
inline constexpr const char* kCanvases =
    "[...document.querySelectorAll('canvas')].filter(c => c.offsetParent).map(c => {"
    "  const d = new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);"
    "  return {drawn: d.filter(p => p).length, colors: new Set(d).size, width: c.clientWidth}; })";

/// An entry of results.json as the program writes it, reduced to what the page needs.
inline json entry(const std::string& id, const std::string& kernel, double us,
                  const std::string& reason = "") {
  json samples = json::array();
  for (int i = 0; i < 20; ++i) samples.push_back(us * (1 + 0.001 * (i % 5)));
  json a = {{"id", id},
            {"op", "attention"},
            {"sweep", "s"},
            {"kernel", kernel},
            {"device", "cpu"},
            {"seed", 1},
            {"params",
             {{"dtype", "bf16"},
              {"batch", "8q1s1k"},
              {"num_seqs", 8},
              {"total_q", 8},
              {"total_k", 8192},
              {"max_q", 1},
              {"max_k", 1024},
              {"head_dim", 128},
              {"kv", "paged"}}},
            {"repro", "attnbench run --case x --kernel " + kernel},
            {"status", reason.empty() ? "pass" : "fail"},
            {"reason", reason},
            {"check", {{"method", "full"}, {"rows", 8}, {"rows_total", 8}, {"max_z", 2.5}}},
            {"time",
             {{"median_us", us},
              {"lo_us", us * 0.99},
              {"hi_us", us * 1.01},
              {"samples_us", samples},
              {"cache", "cold"}}},
            {"flop", 1e9},
            {"bytes", 1e8},
            {"tflops", 1e-3 / us * 1e6},
            {"gbs", 1e5 / us},
            {"sol", 0.5}};
  return {{"name", id + "/" + kernel}, {"attnbench", a}};
}

inline std::string results_text(const std::vector<json>& entries, const std::string& run_name = "run",
                                bool disturbed = false) {
  const json context = {
      {"date", "2026-01-02T03:04:05+00:00"},
      {"attnbench",
       {{"name", run_name},
        {"complete", true},
        {"device", {{"name", "cpu"}, {"kind", "cpu"}, {"model", "A CPU"}}},
        {"ceilings", {{"read_gbs", 100}, {"matmul_tflops", {{"bf16", 2}}}, {"disturbed", disturbed}}}}}};
  return json{{"context", context}, {"benchmarks", entries}}.dump();
}

}  // namespace attnbench::testing
