#include "harness/report/junit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <ostream>
#include <utility>
#include <vector>

#include "harness/report/failures.h"
#include "harness/report/summary.h"
#include "harness/results/coverage.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

double seconds_of(const Record& r) {
  double s = r.check ? r.check->reference_s : 0;
  if (r.time) {
    for (const double us : r.time->samples_us) s += us * 1e-6;
  }
  return std::isfinite(s) ? s : 0;
}

/// Viewers split class names at dots: "attnbench.<sweep>.<kernel>".
std::string class_name(const Record& r) {
  std::string name = "attnbench";
  for (std::string part : {r.item.sweep, r.kernel}) {
    std::ranges::replace(part, '.', '_');
    if (!part.empty()) name += "." + part;
  }
  return name;
}

std::string time_attribute(double seconds) { return fmt::format(" time=\"{:.6f}\"", seconds); }

/// `alike`: what more is told of a failure; may be empty.
void add_case(JunitSuite& s, const Record& r, const std::string& alike = "") {
  ++s.tests;
  s.xml += fmt::format("    <testcase classname=\"{}\" name=\"{}\"{}", xml_text(class_name(r)),
                       xml_text(record_name(r)), time_attribute(seconds_of(r)));
  if (r.status == Status::kPass && !r.time) {
    s.xml += "/>\n";
    return;
  }
  s.xml += ">\n";
  if (r.status == Status::kSkip) {
    s.add_skipped(reason_text(r));
  } else if (r.status != Status::kPass) {
    const bool error = r.status == Status::kError || r.status == Status::kTimeout;
    std::vector<std::string> told = r.check ? r.check->clues : std::vector<std::string>{};
    if (!alike.empty()) told.push_back(alike);
    s.add_problem(error ? "error" : "failure",
                  r.status == Status::kFail ? "incorrect" : status_name(r.status), reason_text(r), told,
                  r.repro);
    if (!r.log.empty()) s.xml += fmt::format("      <system-err>{}</system-err>\n", xml_text(r.log));
  } else {
    s.xml += fmt::format("      <system-out>{} ({} to {}), {} samples", time_text(r.time->median_us),
                         time_text(r.time->lo_us), time_text(r.time->upper_us()), r.time->samples_us.size());
    if (r.roofline) {
      const RateUnit rate = rate_unit(r.device == "cpu");
      s.xml += fmt::format(", {} {}, {} GB/s", digits(r.roofline->tflops * rate.per_tflops), rate.name,
                           digits(r.roofline->gbs));
    }
    s.xml += "</system-out>\n";
  }
  s.xml += "    </testcase>\n";
}

/// What each kernel ran of the suite, and its declared types.
std::string properties_of(const CoverageCounter& kernels) {
  std::string out = "    <properties>\n";
  const auto property = [&](const std::string& name, const std::string& value) {
    out += fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", xml_text(name), xml_text(value));
  };
  for (const Coverage& c : kernels.all()) {
    const std::string kernel = c.kernel.empty() ? "no kernel" : c.kernel;
    property(kernel + ": cases run", fmt::format("{} of {}", c.ran, c.asked));
    if (!c.types.empty())
      property(kernel + ": declared types", fmt::format("{}", fmt::join(c.types, " or ")));
  }
  return out + "    </properties>\n";
}

}  // namespace

std::string xml_text(std::string_view text) {
  // Unescaped, a line break would become a space in an attribute.
  static constexpr std::pair<char32_t, const char*> kEscapes[] = {
      {'&', "&amp;"},   {'<', "&lt;"},   {'>', "&gt;"},   {'"', "&quot;"},
      {'\'', "&apos;"}, {'\n', "&#10;"}, {'\r', "&#13;"}, {'\t', "&#9;"}};
  std::string out;
  for (const char32_t c : decode_utf8(text)) {
    const auto* escape =
        std::find_if(std::begin(kEscapes), std::end(kEscapes), [c](const auto& e) { return e.first == c; });
    if (escape != std::end(kEscapes)) {
      out += escape->second;
      continue;
    }
    // XML 1.0 cannot write other controls. U+007F to U+009F are allowed but discouraged. Characters that change the
    // direction of text are omitted too.
    if (c >= 0x20 && !(c >= 0x7f && c < 0xa0) && !(c >= 0x202a && c <= 0x202e) &&
        !(c >= 0x2066 && c <= 0x2069) && c != 0xfffe && c != 0xffff) {
      append_utf8(out, c);
    }
  }
  return out;
}

void JunitSuite::add_problem(const char* element, const char* type, const std::string& message,
                             std::span<const std::string> clues, const std::string& repro) {
  ++(element == std::string_view("error") ? errors : failures);
  std::string told;
  for (const std::string& clue : clues) told += "\n" + xml_text(clue);
  xml += fmt::format("      <{0} message=\"{1}\" type=\"{2}\">{1}{4}\nreproduce: {3}</{0}>\n", element,
                     xml_text(message), type, xml_text(repro), told);
}

void JunitSuite::add_skipped(const std::string& message) {
  ++skipped;
  xml += fmt::format("      <skipped message=\"{}\"/>\n", xml_text(message));
}

JunitSuite& suite_of(std::vector<JunitSuite>& suites, const std::string& name) {
  const auto it = std::ranges::find_if(suites, [&](const JunitSuite& s) { return s.name == name; });
  return it != suites.end() ? *it : suites.emplace_back(JunitSuite{name});
}

void write_junit_suites(std::ostream& out, std::string_view name, std::string_view attributes,
                        std::span<const JunitSuite> suites) {
  JunitSuite all;
  for (const JunitSuite& s : suites) {
    all.tests += s.tests;
    all.failures += s.failures;
    all.errors += s.errors;
    all.skipped += s.skipped;
  }
  const auto counts = [](const JunitSuite& s) {
    return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"", s.tests, s.failures,
                       s.errors, s.skipped);
  };
  out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      << fmt::format("<testsuites name=\"{}\" {}{}>\n", xml_text(name), counts(all), attributes);
  for (const JunitSuite& s : suites) {
    out << fmt::format("  <testsuite name=\"{}\" {}{}>\n{}  </testsuite>\n", xml_text(s.name), counts(s),
                       s.attributes, s.xml);
  }
  out << "</testsuites>\n";
}

void write_junit(std::ostream& out, const RunContext& context, std::span<const Record> records) {
  std::vector<JunitSuite> suites;
  std::map<std::string, CoverageCounter> kernels;
  std::map<std::string, double> seconds;
  double all_s = 0;
  for (const Record& r : records) {
    suite_of(suites, r.item.sweep);
    kernels[r.item.sweep].add(r);
    seconds[r.item.sweep] += seconds_of(r);
    all_s += seconds_of(r);
  }
  for (const RankedFailure& f : ranked_failures(records))
    add_case(suite_of(suites, f.record->item.sweep), *f.record, f.alike_text());
  for (const Record& r : records) {
    if (!needs_attention(r.status)) add_case(suite_of(suites, r.item.sweep), r);
  }
  for (JunitSuite& s : suites) {
    // The schema of Jenkins has no time-zone offset in its timestamp.
    s.attributes = fmt::format("{} timestamp=\"{}\" hostname=\"{}\"", time_attribute(seconds[s.name]),
                               xml_text(context.date.substr(0, 19)), xml_text(context.host));
    s.xml.insert(0, properties_of(kernels[s.name]));
  }
  write_junit_suites(out, context.name, time_attribute(all_s), suites);
}

}  // namespace attnbench
