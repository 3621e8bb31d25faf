// "Did you mean" for files that are not there.
#pragma once

#include <filesystem>
#include <string>

namespace attnbench {

/// "; did you mean 'runs/model.yaml'?": a file or folder with a name near that of `path`, which does not exist, in its
/// folder; or one of the same name in the current folder or a folder in it. Empty: there is none, or `path` exists.
/// `ending` is added to a path that has none (".yaml"). errno stays as it was.
std::string near_file(std::filesystem::path path, const std::string& ending = "");

}  // namespace attnbench
