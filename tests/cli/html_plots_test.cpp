// What the HTML report draws: times and rates against any axis, kernels against each other, a case's samples; and
// what it makes easy to find: failures by clue, ids, parameters. A page of many results opens soon.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

#include "tests/cli/html_page.h"

namespace attnbench::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class HtmlPlots : public HtmlReport {
 protected:
  void write_and_show(const std::vector<json>& entries, const std::string& fragment = "",
                      const Browser::View& view = {}) {
    show({scratch_.write("results.json", results_text(entries, "my_sweep"))}, view, fragment);
  }
  /// Picks a value of the selector that stands behind a label.
  void choose(const std::string& panel, const std::string& label, const std::string& value) {
    js(
        fmt::format("{{ const s = [...document.querySelectorAll('{} label')].find(l => "
                    "l.textContent.startsWith('{}')).querySelector('select'); s.value = '{}'; "
                    "s.dispatchEvent(new Event('change')); }}",
                    panel, label, value));
  }
  json options(const std::string& panel, const std::string& label) {
    return js(
        fmt::format("[...[...document.querySelectorAll('{} label')].find(l => "
                    "l.textContent.startsWith('{}')).querySelectorAll('option')].map(o => o.value)",
                    panel, label));
  }
  /// Lines of a plot: [[kernel, [x, y], ...], ...], sorted.
  json lines(const std::string& panel) {
    return js(
        fmt::format("Chart.getChart(document.querySelector('{} canvas')).data.datasets.filter(d => "
                    "d.label).map(d => [d.label, ...d.data.map(p => [p.x, p.y])]).sort()",
                    panel));
  }
  json texts(const std::string& selector) {
    return js("[...document.querySelectorAll('" + selector + "')].map(e => e.textContent)");
  }
};

json with(json e, const json& params) {
  for (const auto& [key, value] : params.items()) e["attnbench"]["params"][key] = value;
  return e;
}

json of_pages(const std::string& kernel, int block_size, const std::string& dtype, double us) {
  return with(entry(fmt::format("a/p{}/{}", block_size, dtype), kernel, us),
              {{"block_size", block_size}, {"dtype", dtype}});
}

json of_batch(const std::string& batch, int num_seqs, int max_q, int max_k, double us) {
  return with(entry("a/" + batch, "k", us),
              {{"batch", batch}, {"num_seqs", num_seqs}, {"max_q", max_q}, {"max_k", max_k}});
}

TEST_F(HtmlPlots, TimeAndRateAgainstAnyAxis) {
  write_and_show({of_pages("k", 16, "bf16", 100), of_pages("k", 64, "bf16", 50),
                  of_pages("k", 16, "fp16", 90), of_pages("k", 64, "fp16", 40), of_pages("m", 64, "bf16", 30),
                  of_pages("m", 16, "bf16", 60)});
  EXPECT_EQ(text_of("h1"), "my_sweep");
  EXPECT_EQ(options("#by-axis", "Against"), json({"block_size", "dtype"}));
  EXPECT_EQ(lines("#time"), json::parse(R"([["k", [16, 100], [64, 50]], ["k", [16, 90], [64, 40]],
                                            ["m", [16, 60], [64, 30]]])"));
  EXPECT_EQ(texts("#by-axis .lines li"), json({"k, bf16", "k, fp16", "m, bf16"}));
  choose("#by-axis", "Show", "gbs");
  EXPECT_EQ(lines("#rate")[0], json::parse(R"(["k", [16, 1000], [64, 2000]])"));
  // Words are categories. A case that nothing continues is left out.
  choose("#by-axis", "Against", "dtype");
  EXPECT_EQ(lines("#time"), json::parse(R"([["k", [0, 100], [1, 90]], ["k", [0, 50], [1, 40]]])"));
  EXPECT_EQ(js("Chart.getChart(document.querySelector('#time canvas')).scales.x.ticks.map(t => t.label)"),
            json({"bf16", "fp16"}));
  EXPECT_THAT(text_of("#by-axis > .note"), HasSubstr("Left out: 2 cases that no other continues"));
  choose("#by-axis", "A colour per", "kernel");
  EXPECT_EQ(texts("#by-axis .lines li"), json({"k"}));
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

TEST_F(HtmlPlots, MixedBatchesHaveLinesToo) {
  write_and_show(
      {of_batch("q512s2k_15q1s1k", 16, 512, 2048, 100), of_batch("q512s2k_255q1s1k", 256, 512, 2048, 300),
       of_batch("q1ks2k_15q1s1k", 16, 1024, 2048, 150), of_batch("q512s2k_15q1s8k", 16, 512, 8192, 200)});
  EXPECT_EQ(options("#by-axis", "Against"), json({"max_k", "max_q", "num_seqs", "batch"}));
  choose("#by-axis", "Against", "num_seqs");
  EXPECT_EQ(lines("#time"), json::parse(R"([["k", [16, 100], [256, 300]]])"));
  choose("#by-axis", "Against", "max_k");  // of the sequences that differ, not of the longest
  EXPECT_EQ(lines("#time"), json::parse(R"([["k", [1024, 100], [8192, 200]]])"));
  choose("#by-axis", "Against", "max_q");
  EXPECT_EQ(lines("#time"), json::parse(R"([["k", [512, 100], [1024, 150]]])"));
  choose("#by-axis", "Against", "batch");
  EXPECT_EQ(lines("#time")[0].size(), 5u);
}

TEST_F(HtmlPlots, ManyLinesHaveTheirMeanOverCasesThatAllHave) {
  std::vector<json> entries;
  for (int heads = 1; heads <= 10; ++heads) {
    for (const int size : {16, 64}) {
      for (const char* kernel : {"k", "m"}) {
        // The slowest cases of m are missing, which must not make it faster.
        const double us = 100.0 * heads * (size == 16 ? 2 : 1);
        if (heads > 4 && *kernel == 'm') continue;
        entries.push_back(with(entry(fmt::format("a/h{}/p{}", heads, size), kernel, us),
                               {{"num_heads_q", heads}, {"num_heads_kv", 1}, {"block_size", size}}));
      }
    }
  }
  entries.push_back(
      with(entry("a/h11/p16", "m", 1), {{"num_heads_q", 11}, {"num_heads_kv", 1}, {"block_size", 16}}));
  write_and_show(entries);
  choose("#by-axis", "Against", "block_size");
  const json means =
      js("Chart.getChart(document.querySelector('#time canvas')).data.datasets.filter(d => "
         "d.borderWidth > 2).map(d => [d.label, ...d.data.filter(p => p.x).map(p => Math.round(p.y))])");
  const int low = 221;  // the fourth root of 100 * 200 * 300 * 400
  EXPECT_EQ(means, json::array({{"k", 2 * low + 1, low}, {"m", 2 * low + 1, low}}));
  EXPECT_THAT(text_of("#by-axis > .note"),
              HasSubstr("Thick: geometric means over the cases that all colours have"));
}

TEST_F(HtmlPlots, KernelAgainstKernelHasRatiosWithIntervals) {
  std::vector<json> entries;
  const auto pair = [&](const char* id, double k, double m) {
    entries.push_back(entry(id, "k", k));
    entries.push_back(entry(id, "m", m));
  };
  pair("a/slow", 150, 100);
  pair("a/alike", 100.5, 100);
  pair("a/fast", 50, 100);
  entries.push_back(entry("a/alone", "k", 100));
  entries.push_back(entry("a/fast", "z", 100));
  write_and_show(entries);
  EXPECT_EQ(options("#versus", "Time of"), json({"k", "m", "z"}));
  EXPECT_EQ(texts("#versus .chip"), json({"1 slower", "1 alike", "1 faster", "geometric mean × 0.9101"}));
  // Each time is known to 1 %, so the ratio to sqrt(2) %.
  EXPECT_EQ(texts("#versus tbody tr:nth-child(1) td"),
            json({"slower", "1.500", "1.479 – 1.521", "a/slow", "150.0 µs", "100.0 µs"}));
  EXPECT_EQ(texts("#versus tbody td.id"), json({"a/slow", "a/alike", "a/fast"}));
  EXPECT_EQ(js("Chart.getChart(document.querySelector('#versus canvas')).data.datasets.slice(1).flatMap(d => "
               "d.data).sort((a, b) => a.x - b.x).map(p => p.y)"),
            json({0.5, 1.005, 1.5}));
  choose("#versus", "over", "z");
  EXPECT_EQ(texts("#versus tbody td.id"), json({"a/fast"}));
  EXPECT_THAT(browser_->complaints(), IsEmpty());
  write_and_show({entry("a", "k", 1), entry("b", "m", 1)});
  EXPECT_EQ(text_of("#versus"), "none");
}

TEST_F(HtmlPlots, FailuresStandBelowTheirClue) {
  std::vector<json> entries;
  for (int i = 0; i < 5; ++i) {
    entries.push_back(entry(fmt::format("wrong{}", i), "k", 1, "max |z| 60"));
    entries.back()["attnbench"]["check"]["rows_total"] = 50 - i;
    entries.back()["attnbench"]["check"]["clues"] = {fmt::format("looks like: no mask ({} rows)", i)};
  }
  entries.push_back(entry("other", "k", 1, "max |z| 60"));
  entries.back()["attnbench"]["check"]["clues"] = {"all wrong rows are in head 3"};
  write_and_show(entries);
  EXPECT_EQ(texts("#problems > ul > li > a"), json({"wrong4/k", "other/k"})) << "that of least work first";
  EXPECT_EQ(texts("#problems summary"), json({"4 others of this kind"}));
  EXPECT_EQ(texts("#problems details a"), json({"wrong3/k", "wrong2/k", "wrong1/k", "wrong0/k"}));
}

TEST_F(HtmlPlots, IdsAreCutWhereTheyAreAlike) {
  const std::string begin = "attention/paged64-nhd-shuffled/", middle = "/h32-8/d128/causal/";
  write_and_show({entry(begin + "bf16" + middle + "q1s1k", "k", 1),
                  entry(begin + "fp16" + middle + "q1s1k", "k", 1),
                  entry(begin + "bf16" + middle + "q1s8k", "k", 1), entry("kv_append/bf16/q1", "k", 1)});
  EXPECT_EQ(texts("#results td.id"), json({"attention/…/bf16/…/q1s1k", "attention/…/fp16/…/q1s1k",
                                           "attention/…/bf16/…/q1s8k", "kv_append/bf16/q1"}));
  EXPECT_EQ(js("document.querySelector('#results td.id span').title"), begin + "bf16" + middle + "q1s1k");
}

TEST_F(HtmlPlots, ACaseShowsItsParametersThatAreNoDefaults) {
  write_and_show({with(entry("a", "k", 1), {{"dtype", "fp16"}, {"kv_dtype", "fp16"}, {"kv", "packed"}})},
                 "case=0");
  const json set = texts("#params > dl:nth-of-type(2) dt");
  EXPECT_EQ(set, json({"batch", "dtype", "max_k", "max_q", "num_seqs", "total_k", "total_q"}));
  EXPECT_EQ(texts("#params details dt"), json({"head_dim", "kv", "kv_dtype"}));
  EXPECT_EQ(text_of("#params summary"), "3 parameters with their defaults");
  EXPECT_EQ(js("document.querySelector('#params details').open"), false);
}

TEST_F(HtmlPlots, ACaseShowsItsTails) {
  json outliers = entry("a", "k", 100), two = entry("b", "k", 100);
  json& x = outliers["attnbench"]["time"]["samples_us"];
  x.clear();
  for (int i = 0; i < 100; ++i) x.push_back(100 + 0.1 * (i % 10));
  x[7] = 300;
  x[8] = 200;
  x[60] = 80;
  json& y = two["attnbench"]["time"]["samples_us"];
  y.clear();
  for (int i = 0; i < 100; ++i) y.push_back((i % 3 ? 100 : 120) + 0.1 * (i % 10));
  write_and_show({outliers, two}, "case=0");
  const auto marks = [&](const char* panel) {
    return js(
        fmt::format("Chart.getChart(document.querySelector('#{} canvas')).data.datasets.map(d => "
                    "d.end_label).filter(l => l)",
                    panel));
  };
  EXPECT_THAT(text_of("article"), HasSubstr("least, p50, p90, p9980.00 µs, 100.0 µs, 100.9 µs, 200.0 µs"));
  EXPECT_EQ(marks("histogram"), json({"p50", "min 80.00 µs", "p90", "p99 200.0 µs"}));
  EXPECT_THAT(text_of("#histogram"), HasSubstr("3 outliers, up to 300.0 µs"));
  EXPECT_EQ(
      js("Chart.getChart(document.querySelector('#sequence canvas')).data.datasets.find(d => d.label === "
         "'outliers').data"),
      json::parse(R"([{"x": 8, "y": 300}, {"x": 9, "y": 200}, {"x": 61, "y": 80}])"));
  js("location.hash = 'case=1'");
  ASSERT_TRUE(browser_->wait_for("document.querySelector('#case-title').textContent === 'b'"));
  EXPECT_EQ(marks("sequence"), json({"fast", "slow"}));
  EXPECT_EQ(marks("histogram"), json({"p50", "min", "p90", "p99", "fast", "slow"}));
  EXPECT_THAT(text_of("#histogram"), HasSubstr("Two speeds: 100.4 µs in 66 % of the samples, 120.4 µs"));
  EXPECT_THAT(text_of("#histogram"), Not(HasSubstr("outlier")));
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

TEST_F(HtmlPlots, ThirtyThousandResultsOpenSoon) {
  const std::string file = scratch_.path("many.json");
  {
    std::ofstream out(file);
    const std::string head = results_text({}, "many");
    out << head.substr(0, head.find('[') + 1) << '\n';
    for (int i = 0; i < 30000; ++i) {
      const int heads = 1 + i / 3 % 100, keys = 16 * (1 + i / 300);
      json e = with(entry(fmt::format("attention/h{}/q1s{}", heads, keys), fmt::format("k{}", i % 3),
                          1 + 0.01 * heads + 0.001 * keys),
                    {{"num_heads_q", heads},
                     {"num_heads_kv", 1},
                     {"max_k", keys},
                     {"batch", fmt::format("q1s{}", keys)}});
      e["attnbench"]["time"]["samples_us"] = {1, 2, 3};
      out << (i ? ",\n" : "") << e.dump();
    }
    out << "]" << head.substr(head.find(']') + 1);
  }
  browser_->call("Performance.enable", {{"timeDomain", "threadTicks"}});  // CPU time, counted from here on
  show({file});
  EXPECT_THAT(browser_->complaints(), IsEmpty());
  EXPECT_EQ(text_of("#cases .note"), "30,000 results of 30,000.");
  const json metrics = browser_->call("Performance.getMetrics")["metrics"];
  const auto metric = [&](const char* name) {
    for (const json& m : metrics) {
      if (m["name"] == name) return m["value"].get<double>();
    }
    return -1.0;
  };
  EXPECT_GT(metric("TaskDuration"), 0);
  EXPECT_LT(metric("TaskDuration"), 5);
  EXPECT_LT(metric("JSHeapUsedSize"), 300e6);
  EXPECT_LT(
      js("Object.values(Chart.instances).reduce((n, c) => n + c.data.datasets.reduce((m, d) => m + d.data.length, 0), 0)")
          .get<int>(),
      20000)
      << "points that lie on others are not drawn";
}

}  // namespace
}  // namespace attnbench::testing
