// The path of a trace's file: where it is looked for, and how ids and mappings write it.
#pragma once

#include <string>

#include "harness/config/yaml_read.h"

namespace attnbench {

/// The path that the value of `trace` names. A relative one begins at the folder of the sweep file; without a file, at
/// the current folder. The file is not opened. Errors: ConfigError, if there is no regular file: others may never end.
std::string read_trace_path(const Field& field);

/// "my_trace": the stem of the file, packed (.gz) or not, with one '_' for each run of characters that ids do not have; at most 40 characters.
std::string trace_name(const std::string& path);

/// The path as a word of a flow mapping, in quotes if it needs them.
std::string trace_path_text(const std::string& path);

}  // namespace attnbench
