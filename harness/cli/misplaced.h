// Arguments that are right, but stand where the command does not want them.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace attnbench::cli {

/// "--against ./old.so: this is a plug-in; give it as --against-plugin ./old.so": the first file that an option or an
/// argument of the command cannot take, and the place for it. Empty if there is none.
std::string misplaced_file(const CLI::App& command);

/// "this is a plug-in; give it as --plugin mine.so": the place for a file that an option of the command, or none,
/// cannot take. Empty if its kind is not known.
std::string place_of_file(const CLI::App& command, const std::string& file, const std::string& option = "");

/// Lets a command take the options that a repro line has and that it has no use for, so that such a line can be
/// repeated with another command. `run` must have been added.
void ignore_repro_options(const CLI::App& app, CLI::App& command);

/// "--kernel and --no-time": those that were given. Empty if there are none.
std::string ignored_options(const CLI::App& command);

}  // namespace attnbench::cli
