// Kernels written in Python (harness/python/README.md). This program links no Python: an interpreter loads
// libattnbench.so, runs the program in it, and is called back for the kernels of a .py file. So workers of such
// kernels are processes of the interpreter. The supervisor is this program; it knows the kernels by a
// description, which a process of the interpreter prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/launch/plugin.h"

namespace attnbench {

/// What an interpreter gives to the program that it runs. C layout: harness/python/attnbench/_host.py has
/// the same.
struct PythonHost {
  /// Loads the file and returns its table, which stays valid. Writes 16 hexadecimal digits and a zero byte to
  /// `digest`. Returns null if the file cannot be loaded; the message says why.
  const Plugin* (*load)(const char* file, char* digest, KernelMessage* message);
};

/// Makes this process the one of an interpreter: for attnbench_main. `program`: file of the program that the
/// interpreter runs in place of.
void set_python_host(const PythonHost& host, const std::string& program);
bool in_python();

inline constexpr std::size_t kMostKernels = 256;
/// As p_type or head_grad_type: the type of V, which depends on the launch (not of kv_append and merge_states).
inline constexpr DType kTypeOfV = static_cast<DType>(-1);
/// As p_type: the type of q, or of O where q is int8.
inline constexpr DType kTypeOfQ = static_cast<DType>(-2);
/// A function that returns these numbers; null after kMostKernels.
Numerics (*constant_numerics(const Numerics& n))(const OpParams*);

/// Whether the kernel is of a file that load_python_plugin has loaded.
bool is_python_kernel(const Kernel& kernel);
/// Of a kernel that another process has loaded.
void note_python_kernel(const Kernel& kernel);

/// Whether the file is a plug-in written in Python, by its name.
bool is_python(const std::string& file);

/// The file of this program, also if an interpreter runs it. Throws Error if the system does not tell.
std::string program_file();

/// The folder of kernels/peers, beside the program. Throws PluginError if it is missing.
std::string peers_folder();

/// The interpreter: `given`, or that of the active virtual environment, or of the one where the program lies, or
/// python3 of PATH. Throws PluginError if it is not there.
std::string python_file(const std::string& given);

/// The words that make the interpreter run this program with the arguments `argv`; the first word is the
/// file to execute. Throws PluginError if a part of the installation is missing.
std::vector<std::string> python_command(const std::string& python, const std::vector<std::string>& argv);

/// In an interpreter's process: loads the file. Throws PluginError.
LoadedPlugin load_python_plugin(const std::string& file);

/// In any process: the kernels as a process of the interpreter describes them that loads `file`. Their
/// callbacks throw. `limit_s`: seconds that this may take (default 120). Throws PluginError, LoadCrash, and
/// PluginAbsent if the interpreter lacks a package that the file needs.
LoadedPlugin describe_python_plugin(const std::string& file, const std::string& python,
                                    std::optional<double> limit_s = {});

}  // namespace attnbench
