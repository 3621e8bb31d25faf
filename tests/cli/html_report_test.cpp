// The HTML report in a browser: it loads without complaint, draws, filters, opens a case, and shows the text
// of results as text. Skips if no Chromium is installed.
#include <gmock/gmock.h>

#include <regex>

#include "tests/cli/html_page.h"

namespace attnbench::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::uintmax_t kLargestPage = 2000000;

TEST_F(HtmlReport, SharesOfDisturbedCeilingsAreMarked) {
  const std::vector<json> entries = {entry("a", "cpu", 100)};
  show({scratch_.write("busy.json", results_text(entries, "run", true))});
  EXPECT_THAT(text_of("#results tbody"), HasSubstr("50.0*"));
  EXPECT_THAT(text_of(".overview .notice"), HasSubstr("were measured on a busy machine"));
  show({scratch_.write("quiet.json", results_text(entries))});
  EXPECT_THAT(text_of("#results tbody"), Not(HasSubstr("*")));
}

TEST_F(HtmlReport, TimesOfABusyMachineAreMarkedAndWordsAreTheConsoles) {
  json busy = entry("a", "cpu", 100);
  busy["attnbench"]["time"]["disturbed"] = 11;
  busy["attnbench"]["bound"] = "matrix";
  show({scratch_.write("busy.json", results_text({busy, entry("b", "cpu", 200)}))});
  EXPECT_THAT(text_of("#results tbody tr:nth-child(1)"), AllOf(HasSubstr("100.0 µs!"), HasSubstr("matrix")));
  EXPECT_THAT(text_of("#results tbody tr:nth-child(2)"), AllOf(HasSubstr("200.0 µs"), Not(HasSubstr("!"))));
  EXPECT_THAT(text_of(".overview .notice"), HasSubstr("! Other processes took the cores"));
  EXPECT_THAT(text_of("#results thead"), AllOf(HasSubstr("%SOL"), HasSubstr("bound")));
  EXPECT_EQ(js("[...document.querySelectorAll('canvas')].filter(c => c.offsetParent).map(c => "
               "Chart.getChart(c).options.scales.y.title.text).filter(t => t.includes('FLOP/s'))"),
            json({"GFLOP/s"}))
      << "the roofline of a CPU";
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

TEST_F(HtmlReport, ATimeThatIsNotUsableIsMarkedAndAZIsRoundedAsOnTheConsole) {
  json vague = entry("a", "cpu", 100);
  vague["attnbench"]["time"]["hi_us"] = 150;
  vague["attnbench"]["check"]["max_z"] = 1.6949;  // not by 1.695
  show({scratch_.write("vague.json", results_text({vague, entry("b", "cpu", 200)}))});
  EXPECT_THAT(text_of("#results tbody tr:nth-child(1)"), AllOf(HasSubstr("50?"), HasSubstr("1.69")));
  EXPECT_THAT(text_of("#results tbody tr:nth-child(2)"), Not(HasSubstr("?")));
  EXPECT_THAT(text_of(".overview .notice"), HasSubstr("? ± 50 % or more: such a time is not usable."));
  show({scratch_.write("usable.json", results_text({entry("b", "cpu", 200)}))});
  EXPECT_THAT(text_of(".overview"), Not(HasSubstr("not usable")));
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

TEST_F(HtmlReport, AZWithinItsLimitIsMarkedBesideAFailure) {
  json timed = entry("a", "cpu", 100);
  timed["attnbench"]["status"] = "fail";
  timed["attnbench"]["check"]["max_z"] = 1.75;
  timed["attnbench"]["check"]["failed_by"] = {"timed_launch", "max_z"};
  json right = entry("b", "cpu", 100);
  right["attnbench"]["check"]["max_z"] = 1.75;
  const std::string file = scratch_.write("timed.json", results_text({timed, right}));
  show({file});
  EXPECT_THAT(text_of("#results tbody tr:nth-child(1)"), HasSubstr("1.75^"));
  EXPECT_THAT(text_of("#results tbody tr:nth-child(2)"), AllOf(HasSubstr("1.75"), Not(HasSubstr("^"))));
  EXPECT_THAT(text_of(".overview"), HasSubstr("^ This max |z| is of the verified launch"));
  show({file}, {}, "case=0");
  EXPECT_THAT(text_of("article"), HasSubstr("failed bytimed_launch, max_z"));
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

TEST_F(HtmlReport, ShowsTheH100ResultsWithoutComplaint) {
  show(h100_files());
  EXPECT_LT(std::filesystem::file_size(scratch_.path("page.html")), kLargestPage);
  EXPECT_THAT(browser_->complaints(), IsEmpty());
  EXPECT_EQ(text_of("h1"), "perf_decode, perf_mixed, perf_prefill, quickstart");
  EXPECT_EQ(text_of(".device"), "NVIDIA H100 80GB HBM3");
  const json canvases = js(kCanvases);
  ASSERT_EQ(canvases.size(), 5u);  // time, rate, kernel against kernel, roofline, errors
  for (const json& c : canvases) {
    EXPECT_GT(c["drawn"].get<int>(), 2000) << c;
    EXPECT_GT(c["colors"].get<int>(), 20) << c;
  }
  // Every element that takes the keyboard has a name.
  const json tree = browser_->call("Accessibility.getFullAXTree");
  EXPECT_GT(tree["nodes"].size(), 100u);
  for (const json& node : tree["nodes"]) {
    const std::string role = node.value("/role/value"_json_pointer, "");
    if (role == "button" || role == "link" || role == "searchbox" || role == "combobox" ||
        role == "application") {
      EXPECT_NE(node.value("/name/value"_json_pointer, ""), "") << node.dump();
    }
  }
}

TEST_F(HtmlReport, FiltersByTextPatternAndFigure) {
  show(h100_files());
  std::vector<json> records;
  for (const std::string& file : h100_files()) {
    const std::vector<json> more = read_records(file);
    records.insert(records.end(), more.begin(), more.end());
  }
  const auto count = [&](auto matches) { return std::count_if(records.begin(), records.end(), matches); };
  const auto shown = [&](int64_t n) {
    std::string text = std::to_string(n);
    if (n >= 1000) text.insert(text.size() - 3, ",");
    return browser_->wait_for("document.querySelector('#cases .note').textContent.startsWith('" + text +
                              " result')");
  };
  EXPECT_TRUE(shown(static_cast<int64_t>(records.size()))) << text_of("#cases .note");
  filter("kernel=sm90_decode status=pass");
  EXPECT_TRUE(shown(count([](const json& r) {
    return r["kernel"] == "sm90_decode" && r["status"] == "pass";
  }))) << text_of("#cases .note");
  filter("head_dim>=256 max_k>=8k");
  EXPECT_TRUE(shown(count([](const json& r) {
    return r["params"]["head_dim"] >= 256 && r["params"]["max_k"] >= 8192;
  }))) << text_of("#cases .note");
  filter("/^attention.*h16-16.d128.(causal|full)/ -paged");
  EXPECT_TRUE(shown(count([](const json& r) {
    static const std::regex pattern("^attention.*h16-16.d128.(causal|full)");
    const std::string id = r["id"];
    return std::regex_search(id, pattern) && id.find("paged") == std::string::npos &&
           r["params"]["kv"] != "paged";
  }))) << text_of("#cases .note");
  filter("nothing_has_this_word");
  EXPECT_TRUE(shown(0)) << text_of("#cases .note");
  EXPECT_EQ(js(kCanvases).size(), 0u);  // each panel says so
  filter("/(/");
  EXPECT_TRUE(browser_->wait_for(
      "document.querySelector('.filter-error').textContent.includes('regular expression')"));
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

TEST_F(HtmlReport, OpensACaseByKeyboardAndSortsTheTable) {
  show(h100_files());
  js("document.querySelector('#roofline canvas').focus()");
  for (int i = 0; i < 3; ++i) browser_->press("ArrowRight");
  const std::string said = text_of("#live");
  const std::string op = said.substr(0, said.find('/'));
  EXPECT_THAT(op, ::testing::AnyOf("attention", "kv_append", "merge_states", "attention_backward", "kv_move"))
      << said;
  browser_->press("Enter");
  ASSERT_TRUE(browser_->wait_for("document.querySelector('#case-title')"));
  const std::string id = text_of("#case-title");
  EXPECT_EQ(said.substr(0, id.size()), id);
  EXPECT_THAT(text_of("#repro"), HasSubstr("attnbench run --case '{op: " + op));
  const json canvases = js(kCanvases);
  ASSERT_EQ(canvases.size(), 2u);
  for (const json& c : canvases) EXPECT_GT(c["drawn"].get<int>(), 300) << c;
  browser_->press("Escape");
  ASSERT_TRUE(browser_->wait_for("document.querySelector('#results')"));
  js("[...document.querySelectorAll('#results th button')].find(b => b.textContent === 'rate').click()");
  const json top =
      js("[...document.querySelectorAll('#results tbody tr')].slice(0, 20).map(r => "
         "parseFloat(r.cells[5].textContent))");
  EXPECT_TRUE(std::is_sorted(top.begin(), top.end(), [](const json& a, const json& b) {
    return a.get<double>() > b.get<double>();
  })) << top;
  EXPECT_GT(top[0].get<double>(), 100);
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

TEST_F(HtmlReport, TakesHostileTextForText) {
  const std::vector<std::string> hostile = {"</script><script>window.pwned=1</script>",
                                            "<img src=x onerror=\"window.pwned=2\">",
                                            "--><svg onload=window.pwned=3>",
                                            "<!--<script>",
                                            "</script x",
                                            "<!--<script x",
                                            "javascript:window.pwned=4",
                                            "{{data}} {{script}} ' \" ` & &lt; \\u003c",
                                            "line\xe2\x80\xa8separator\xe2\x80\xa9",
                                            "__proto__"};
  std::vector<json> entries;
  for (const std::string& h : hostile) {
    json e = entry("a/" + h, "k" + h, 100, "reason " + h);
    e["attnbench"]["params"][h] = h;
    e["attnbench"]["sweep"] = h;
    entries.push_back(e);
    entries.push_back(entry("b/" + h, "k" + h, 50));
  }
  const std::string file = scratch_.write("hostile.json", results_text(entries, hostile[0]));
  const std::string base =
      scratch_.write("base<img src=x onerror=window.pwned=5>.json", results_text(entries));
  show({file, "--baseline", base, "--title", hostile[0]});
  EXPECT_THAT(browser_->complaints(), IsEmpty());
  EXPECT_EQ(js("document.title"), hostile[0]);
  const json ids = js("[...document.querySelectorAll('#results td.id')].map(c => c.textContent)");
  ASSERT_EQ(ids.size(), entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(ids[i], entries[i]["attnbench"]["id"]);
    js("location.hash = 'case=" + std::to_string(i) + "'");
    ASSERT_TRUE(browser_->wait_for(
        "document.querySelector('#case-title') && document.querySelector('#case-title').textContent === " +
        entries[i]["attnbench"]["id"].dump()));
    EXPECT_EQ(text_of("#repro"), entries[i]["attnbench"]["repro"].get<std::string>());
  }
  EXPECT_EQ(js("typeof window.pwned"), "undefined");
  EXPECT_EQ(js("document.querySelectorAll('script').length"), 3);
  EXPECT_EQ(js("document.querySelectorAll('img, svg, iframe, object').length"), 0);
  // A script that gets into the page cannot do anything: only the page's own scripts run, and nothing is
  // fetched.
  EXPECT_THAT(browser_->complaints(), IsEmpty());
  js("{ const s = document.createElement('script'); s.textContent = 'window.pwned = 6'; "
     "document.body.append(s); }");
  js("document.body.setAttribute('onclick', 'window.pwned = 7'); document.body.click()");
  EXPECT_EQ(js("typeof window.pwned"), "undefined");
  EXPECT_EQ(js("fetch('data:text/plain,x').then(() => 'fetched', () => 'refused')"), "refused");
}

TEST_F(HtmlReport, ShowsWhatTheHardwareCounted) {
  json counted = entry("a", "k", 100), refused = entry("b", "k", 100);
  counted["attnbench"]["counters"] = {{"dram_read_bytes", 1.5e8},
                                      {"dram_write_bytes", 1e7},
                                      {"dram_over_model", 1.6},
                                      {"tensor_active_percent", 37.5},
                                      {"l2_hit_percent", nullptr},
                                      {"launches", 2},
                                      {"reason", ""}};
  refused["attnbench"]["counters"] = {{"dram_read_bytes", nullptr}, {"reason", "no <b>permission</b>"}};
  const std::string file = scratch_.write("counted.json", results_text({counted, refused}));
  show({file}, {}, "case=0");
  EXPECT_THAT(browser_->complaints(), IsEmpty());
  EXPECT_THAT(text_of("article"),
              HasSubstr("bytes that DRAM moved150.0 MB read, 10.00 MB written, 1.60 x the needed"));
  EXPECT_THAT(text_of("article"), HasSubstr("tensor pipes active37.5 %"));
  EXPECT_THAT(text_of("article"), ::testing::Not(HasSubstr("L2 hits")));
  show({file}, {}, "case=1");
  EXPECT_THAT(text_of("article"), HasSubstr("no countersno <b>permission</b>"));
}

TEST_F(HtmlReport, DoesNotCallCorrectWhatNobodyChecked) {
  json unchecked = entry("b", "k", 100);
  unchecked["attnbench"]["check"] = nullptr;
  show({scratch_.write("half.json", results_text({entry("a", "k", 100), unchecked}))});
  EXPECT_EQ(js("[...document.querySelectorAll('.overview .chip')].map(c => c.textContent)"),
            json({"1 pass", "1 not checked"}));
  EXPECT_EQ(js("[...document.querySelectorAll('#results .badge')].map(c => c.textContent)"),
            json({"pass", "not checked"}));
  filter("status=unchecked");
  EXPECT_TRUE(browser_->wait_for("document.querySelectorAll('#results tbody tr').length === 1"));
}

TEST_F(HtmlReport, BeginsWithWhatIsWrong) {
  std::vector<json> entries = {entry("right", "k", 100)};
  show({scratch_.write("right.json", results_text(entries))});
  EXPECT_EQ(text_of("#problems"), "none");
  for (int i = 0; i < 22; ++i) entries.push_back(entry("wrong" + std::to_string(i), "k", 100, "<b>why</b>"));
  show({scratch_.write("wrong.json", results_text(entries))});
  EXPECT_EQ(js("document.querySelectorAll('#problems li').length"), 20);
  EXPECT_THAT(text_of("#problems"),
              ::testing::AllOf(HasSubstr("fail wrong0/k<b>why</b>"), HasSubstr("and 2 more")));
  EXPECT_EQ(js("document.querySelector('#problems a').getAttribute('href')"), "#case=1");
  EXPECT_EQ(js("document.querySelectorAll('.clues').length"), 0);
  entries[1]["attnbench"]["check"]["clues"] = {"8 of 8 rows looked at are wrong",
                                               "looks like: <b>no mask</b>"};
  show({scratch_.write("clues.json", results_text(entries))});
  // One of the 21 alike, then the one of its kind.
  EXPECT_THAT(text_of("#problems li:nth-child(1)"), HasSubstr("fail wrong1/k<b>why</b>"));
  EXPECT_THAT(text_of("#problems li:nth-child(2)"),
              HasSubstr("fail wrong0/k<b>why</b>8 of 8 rows looked at are wronglooks like: <b>no mask</b>"));
  js("document.querySelector('#problems li:nth-child(2) a').click()");
  ASSERT_TRUE(browser_->wait_for("document.querySelector('#case-title')"));
  EXPECT_EQ(text_of(".clues"), "8 of 8 rows looked at are wronglooks like: <b>no mask</b>");
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

TEST_F(HtmlReport, EveryAxisHasTwoTicks) {
  show({scratch_.write("one.json", results_text({entry("a", "k", 1607)}))});
  EXPECT_EQ(js("[...document.querySelectorAll('canvas')].filter(c => c.offsetParent).map(c => "
               "Object.values(Chart.getChart(c).scales)).flat().filter(s => s.ticks.length < 2).length"),
            0);
}

TEST_F(HtmlReport, FitsAPhoneAndTheDark) {
  Browser::View phone;
  phone.width = 390;
  phone.height = 844;
  show(h100_files(), phone);
  EXPECT_EQ(js("document.documentElement.scrollWidth"), 390);
  const json light = js(kCanvases);
  EXPECT_EQ(light.size(), 5u);
  for (const json& c : light) EXPECT_GT(c["width"].get<int>(), 300);
  js("location.hash = 'case=3'");
  ASSERT_TRUE(browser_->wait_for("document.querySelector('#case-title')"));
  EXPECT_EQ(js("document.documentElement.scrollWidth"), 390);

  const std::string brightness =
      "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + "
      "Number(b), 0)";
  EXPECT_GT(js(brightness).get<int>(), 600);
  phone.dark = true;
  browser_->open(scratch_.path("page.html"), phone);
  EXPECT_LT(js(brightness).get<int>(), 150);
  js("document.querySelector('button.theme').click()");
  EXPECT_GT(js(brightness).get<int>(), 600);
  EXPECT_THAT(browser_->complaints(), IsEmpty());
}

TEST_F(HtmlReport, ComparesAsCompareDoes) {
  const std::string base =
      scratch_.write("base.json", results_text({entry("a/same", "k", 100), entry("a/slower", "k", 100),
                                                entry("a/faster", "k", 100), entry("a/gone", "k", 9)}));
  const std::string fresh = scratch_.write(
      "new.json",
      results_text({entry("a/same", "k", 100.2), entry("a/slower", "k", 130), entry("a/faster", "k", 70)}));
  show({fresh, "--baseline", base});
  EXPECT_THAT(browser_->complaints(), IsEmpty());
  const json chips =
      js("[...document.querySelectorAll('#comparison .chip')].slice(0, 4).map(c => c.textContent)");
  EXPECT_EQ(chips, json({"1 missing in new", "1 slower", "1 same", "1 faster"}));
  const json rows =
      js("[...document.querySelectorAll('#comparison tbody tr')].map(r => r.cells[0].textContent + ' ' + "
         "r.cells[1].textContent)");
  EXPECT_EQ(rows, json({"missing in new a/gone", "slower a/slower", "same a/same", "faster a/faster"}));
  EXPECT_EQ(js("Chart.getChart(document.querySelector('#comparison "
               "canvas')).data.datasets.slice(3).flatMap(d => d.data).length"),
            3);
  EXPECT_EQ(run_attnbench(scratch_, {"compare", base, fresh, "--allow-missing"}).exit_code, 3);
}

}  // namespace
}  // namespace attnbench::testing
