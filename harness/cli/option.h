// Options of commands that take a value.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "harness/cli/common.h"

namespace attnbench::cli {

/// An option, or an argument, that takes a value; `kind` stands for it in the help: "N".
template <class T>
CLI::Option* option(CLI::App& command, const std::string& name, T& value, const std::string& kind,
                    const std::string& text) {
  return command.add_option(name, value, text)->type_name(kind);
}

/// The name of a file or a folder.
template <class T>
CLI::Option* path_option(CLI::App& command, const std::string& name, T& value, const std::string& kind,
                         const std::string& text) {
  return option(command, name, value, kind, text)->check(has_a_name);
}

/// Words with commas between them. A file may follow.
template <class T>
CLI::Option* list_option(CLI::App& command, const std::string& name, T& value, const std::string& text) {
  return option(command, name, value, "LIST", text)->allow_extra_args(false)->delimiter(',');
}

}  // namespace attnbench::cli
