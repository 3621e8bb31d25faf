// Results as JUnit XML, which CI systems show as tests.
#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <string_view>

#include "harness/results/record.h"

namespace attnbench {

/// One testsuite per sweep, one testcase per record. fail, undecided and invalid_time are <failure>, error and timeout
/// are <error>, skip is <skipped>. `time` is the seconds spent in samples and in the reference, because
/// nothing better fits. The format is the common part of what Jenkins' xunit plug-in, GitLab and GitHub
/// actions read.
void write_junit(std::ostream& out, const RunContext& context, std::span<const Record> records);

/// Text for an element or an attribute: valid UTF-8 with only characters that XML 1.0, section 2.2, allows.
std::string xml_text(std::string_view text);

}  // namespace attnbench
