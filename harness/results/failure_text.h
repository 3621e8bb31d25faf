// A failure's reason with the detectors that found it, for people.
#pragma once

#include <span>
#include <string>

namespace attnbench {

/// "O of seq 3 ...: |z| = 40 > 6 [max_z, row_z2]": the names lead to harness/judge/README.md. The reason alone
/// if no detector fired.
std::string failure_text(const std::string& reason, std::span<const std::string> failed_by);

}  // namespace attnbench
