// Results as JUnit XML, which CI systems show as tests.
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/results/record.h"

namespace attnbench {

/// One testsuite per sweep, one testcase per record. fail, undecided and invalid_time are <failure>, error and timeout
/// are <error>, skip is <skipped>. `time` is the seconds spent in samples and in the reference, because
/// nothing better fits. The format is the common part of what Jenkins' xunit plug-in, GitLab and GitHub
/// actions read.
void write_junit(std::ostream& out, const RunContext& context, std::span<const Record> records);

/// A <testsuite> in the making.
struct JunitSuite {
  std::string name;
  std::string attributes = "";  ///< after the counts
  std::string xml = "";         ///< its elements
  int tests = 0, failures = 0, errors = 0, skipped = 0;

  /// Adds an element of a test case that is not well: "failure" or "error". Counts it.
  void add_problem(const char* element, const char* type, const std::string& message,
                   std::span<const std::string> clues, const std::string& repro);
  /// The same for "skipped".
  void add_skipped(const std::string& message);
};

/// The suite of this name, which is added behind the others where it is new.
JunitSuite& suite_of(std::vector<JunitSuite>& suites, const std::string& name);

/// The whole file. `attributes`: of <testsuites>, after the counts.
void write_junit_suites(std::ostream& out, std::string_view name, std::string_view attributes,
                        std::span<const JunitSuite> suites);

/// Text for an element or an attribute: valid UTF-8 with only characters that XML 1.0, section 2.2, allows.
std::string xml_text(std::string_view text);

}  // namespace attnbench
