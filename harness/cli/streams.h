// The standard streams. Text from files and plug-ins cannot steer the terminal that it is shown on, and a write
// to stderr that fails (a full disk, a closed terminal, a reader that has ended) ends no run.
#pragma once

namespace attnbench::cli {

/// For the begin of the program. std::cout and std::cerr show control characters (harness/results/text.h: printable),
/// but for the colours of std::cout. std::cerr drops what cannot be written, and so does a closed pipe, which
/// raises no signal.
void prepare_streams();

/// Whether all output has arrived on stdout; says on stderr if it has not. A reader that closes the pipe (head)
/// has read enough.
bool printed_all();

}  // namespace attnbench::cli
