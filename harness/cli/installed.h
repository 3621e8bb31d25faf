// Files that come with the program: headers for plug-ins, and sweeps. They lie around the program, in an
// installation (PREFIX/include/attnbench, PREFIX/share/attnbench/configs) as in a source tree.
#pragma once

#include <string>
#include <vector>

namespace attnbench::cli {

/// The folder that a plug-in's -I names: it holds kernels/contract. Empty: there is none.
std::string header_folder();

/// The file that CONFIG names: `given` itself if it exists or has a folder, else NAME or NAME.yaml here, else that
/// of the sweeps that come with the program. `given` if there is none.
std::string sweep_path(const std::string& given);

/// The sweeps that come with the program, sorted.
std::vector<std::string> sweep_names();

/// What is wrong with a CONFIG that names no file: without a folder, with the names that there are; with one, if a
/// sweep of its name comes with the program. Else empty.
std::string unknown_sweep(const std::string& path);

}  // namespace attnbench::cli
