// What the program said before a change that no user should see: tests/cli/pins.txt has one line for each set of
// lines that a test pins.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace attnbench::testing {

/// Compares the lines, in any order, with their number and digest in pins.txt under `name`, and `mean` (of figures that
/// differ from machine to machine in their last digits) with the one there to 2 %. If they differ, fails, says what line
/// pins.txt would need, and leaves the lines in <build>/tests/cli/pins/<name>.
void expect_pinned(const std::string& name, std::vector<std::string> lines, std::optional<double> mean = {});

}  // namespace attnbench::testing
