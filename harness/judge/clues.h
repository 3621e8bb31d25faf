// Clues: guesses at the cause of a wrong output.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/judge/row_findings.h"

namespace attnbench {

/// Ends the name of a mistake that the kernel makes in the wrong rows, while right rows would be wrong by it.
inline constexpr std::string_view kInAPart = ", in a part of the rows";
/// "two mistakes: <one>; and <the other>", in the place of one mistake.
inline constexpr std::string_view kTwoMistakes = "two mistakes: ";
inline constexpr std::string_view kAndTheOther = "; and ";

/// Ends the clue of a verdict for which nothing else was looked for.
inline constexpr std::string_view kOfCompared = "compared rows are wrong";
/// Ends a clue about elements that nobody wrote.
inline constexpr const char* kNotWritten =
    "not written when the launch ended (never, or later: by a thread that is not joined, or on a stream that is not "
    "waited for)";
/// What it is if a second launch on the same inputs gives other results.
inline constexpr const char* kARace =
    "a race, or memory that the kernel reads before it writes it, or that it keeps from the launch before, or outside "
    "of all buffers";

/// Sentences about the wrong rows of an attention case. They say how many rows are wrong, what distinguishes
/// them from the right ones, whether they hold the results of other rows or multiples of the right results,
/// and which known mistakes (mistakes.h) give these results within the tolerance. Empty if no single row is
/// wrong. Takes about as long as the comparison. num_threads 0: all.
std::vector<std::string> clues_of(const Launched& launched, int num_threads = 0);

}  // namespace attnbench
