#include "harness/report/junit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <vector>

#include "harness/report/summary.h"
#include "harness/results/coverage.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

struct Suite {
  std::string name;
  std::vector<const Record*> records;
  int failures = 0, errors = 0, skipped = 0;
  double seconds = 0;
};

double seconds_of(const Record& r) {
  double s = r.check ? r.check->reference_s : 0;
  if (r.time) {
    for (const double us : r.time->samples_us) s += us * 1e-6;
  }
  return std::isfinite(s) ? s : 0;
}

std::vector<Suite> suites_of(std::span<const Record> records) {
  std::vector<Suite> suites;
  for (const Record& r : records) {
    auto it =
        std::find_if(suites.begin(), suites.end(), [&](const Suite& s) { return s.name == r.item.sweep; });
    if (it == suites.end()) it = suites.insert(suites.end(), Suite{r.item.sweep, {}});
    it->records.push_back(&r);
    it->failures +=
        r.status == Status::kFail || r.status == Status::kUndecided || r.status == Status::kInvalidTime;
    it->errors += r.status == Status::kError || r.status == Status::kTimeout;
    it->skipped += r.status == Status::kSkip;
    it->seconds += seconds_of(r);
  }
  return suites;
}

/// Viewers split class names at dots: "attnbench.<sweep>.<kernel>".
std::string class_name(const Record& r) {
  std::string name = "attnbench";
  for (std::string part : {r.item.sweep, r.kernel}) {
    std::replace(part.begin(), part.end(), '.', '_');
    if (!part.empty()) name += "." + part;
  }
  return name;
}

void write_case(std::ostream& out, const Record& r) {
  out << fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.6f}\"", xml_text(class_name(r)),
                     xml_text(record_name(r)), seconds_of(r));
  const std::string reason = xml_text(reason_text(r));
  const auto problem = [&](const char* element, const char* type) {
    std::string clues;
    if (r.check) {
      for (const std::string& clue : r.check->clues) clues += "\n" + xml_text(clue);
    }
    out << fmt::format(">\n      <{0} message=\"{1}\" type=\"{2}\">{1}{4}\nreproduce: {3}</{0}>\n", element,
                       reason, type, xml_text(r.repro), clues);
    if (!r.log.empty()) out << fmt::format("      <system-err>{}</system-err>\n", xml_text(r.log));
    out << "    </testcase>\n";
  };
  switch (r.status) {
    case Status::kFail:
      return problem("failure", "incorrect");
    case Status::kUndecided:
    case Status::kInvalidTime:
      return problem("failure", status_name(r.status));
    case Status::kError:
      return problem("error", "error");
    case Status::kTimeout:
      return problem("error", "timeout");
    case Status::kSkip:
      out << fmt::format(">\n      <skipped message=\"{}\"/>\n    </testcase>\n", reason);
      return;
    case Status::kPass:
      break;
  }
  if (!r.time) {
    out << "/>\n";
    return;
  }
  out << fmt::format(">\n      <system-out>{} ({} to {}), {} samples", time_text(r.time->median_us),
                     time_text(r.time->lo_us), time_text(r.time->hi_us), r.time->samples_us.size());
  if (r.roofline) {
    const RateUnit rate = rate_unit(r.device == "cpu");
    out << fmt::format(", {} {}, {} GB/s", digits(r.roofline->tflops * rate.per_tflops), rate.name,
                       digits(r.roofline->gbs));
  }
  out << "</system-out>\n    </testcase>\n";
}

/// What each kernel ran of the suite, and its declared types.
void write_properties(std::ostream& out, const Suite& s) {
  CoverageCounter counter;
  for (const Record* r : s.records) counter.add(*r);
  out << "    <properties>\n";
  const auto property = [&](const std::string& name, const std::string& value) {
    out << fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", xml_text(name), xml_text(value));
  };
  for (const Coverage& c : counter.all()) {
    const std::string kernel = c.kernel.empty() ? "no kernel" : c.kernel;
    property(kernel + ": cases run", fmt::format("{} of {}", c.ran, c.asked));
    if (!c.types.empty())
      property(kernel + ": declared types", fmt::format("{}", fmt::join(c.types, " or ")));
  }
  out << "    </properties>\n";
}

}  // namespace

std::string xml_text(std::string_view text) {
  std::string out;
  for (const char32_t c : decode_utf8(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&apos;";
        break;
      case '\n':
        out += "&#10;";
        break;  // unescaped, it would become a space in an attribute
      case '\r':
        out += "&#13;";
        break;
      case '\t':
        out += "&#9;";
        break;
      default:
        // XML 1.0 cannot write other controls. U+007F to U+009F are allowed but discouraged. Characters that
        // change the direction of text are omitted too.
        if (c >= 0x20 && !(c >= 0x7f && c < 0xa0) && !(c >= 0x202a && c <= 0x202e) &&
            !(c >= 0x2066 && c <= 0x2069) && c != 0xfffe && c != 0xffff) {
          append_utf8(out, c);
        }
    }
  }
  return out;
}

void write_junit(std::ostream& out, const RunContext& context, std::span<const Record> records) {
  const std::vector<Suite> suites = suites_of(records);
  Suite all;
  for (const Suite& s : suites) {
    all.failures += s.failures;
    all.errors += s.errors;
    all.skipped += s.skipped;
    all.seconds += s.seconds;
  }
  const auto counts = [](const Suite& s, std::size_t tests) {
    return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.6f}\"", tests,
                       s.failures, s.errors, s.skipped, s.seconds);
  };
  out << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  out << fmt::format("<testsuites name=\"{}\" {}>\n", xml_text(context.name), counts(all, records.size()));
  for (const Suite& s : suites) {
    // The schema of Jenkins has no time-zone offset in its timestamp.
    out << fmt::format("  <testsuite name=\"{}\" {} timestamp=\"{}\" hostname=\"{}\">\n", xml_text(s.name),
                       counts(s, s.records.size()), xml_text(context.date.substr(0, 19)),
                       xml_text(context.host));
    write_properties(out, s);
    for (const Record* r : s.records) write_case(out, *r);
    out << "  </testsuite>\n";
  }
  out << "</testsuites>\n";
}

}  // namespace attnbench
