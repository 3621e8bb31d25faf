// --peers NAME: libraries of Python that run beside other kernels (kernels/peers/README.md).
#pragma once

#include <string>
#include <vector>

#include "harness/cli/cli.h"

namespace attnbench::cli {

/// Adds --peers, which fills program.peers.
void add_peers_option(CLI::App& command, Program& program);

/// Describes the peers that are named and fills program.peer_files. One that is not installed is left out with
/// a line on stderr that says how to install it, and so is one of `all` that cannot be loaded. Throws UsageError.
/// Returns nothing in a process that got peer_words.
std::vector<LoadedPlugin> open_peers(Program& program);

/// --peer-file=FILE of each peer: for a process of this program that is not to search for them again.
std::vector<std::string> peer_words(const Program& program);

/// The names of --kernel with those of the peers' kernels, unless it names some of these. Empty: all kernels.
std::vector<std::string> with_peers(std::vector<std::string> kernels, const Program& program);

}  // namespace attnbench::cli
