// A plug-in: a shared library that exports a table of kernels, for `--plugin FILE`.
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench {

inline constexpr uint64_t kPluginMagic = 0x6e69676c706e7461;  ///< "atnplgin"
inline constexpr int kPluginStructs = 10;

/// The table of a plug-in. The fields before `num_kernels` say which headers it was compiled with; they keep
/// their places in every revision. The program reads the rest only if those headers match its own.
struct Plugin {
  uint64_t magic;        ///< kPluginMagic
  uint32_t abi_version;  ///< kKernelAbiVersion
  /// sizeof of Kernel, OpParams, AttentionParams, KvAppendParams, MergeStatesParams,
  /// AttentionBackwardParams, LaunchContext, KernelMessage, Numerics and KvMoveParams. They reveal a changed
  /// struct for which kKernelAbiVersion was not raised.
  uint32_t struct_bytes[kPluginStructs];
  uint32_t num_kernels;
  const Kernel* const* kernels;  ///< (num_kernels)
};

/// The table of `kernels`, with the ABI version and struct sizes of the headers that it is compiled with.
template <std::size_t N>
constexpr Plugin plugin_of(const Kernel* const (&kernels)[N]) {
  return {.magic = kPluginMagic,
          .abi_version = kKernelAbiVersion,
          .struct_bytes = {sizeof(Kernel), sizeof(OpParams), sizeof(AttentionParams), sizeof(KvAppendParams),
                           sizeof(MergeStatesParams), sizeof(AttentionBackwardParams), sizeof(LaunchContext),
                           sizeof(KernelMessage), sizeof(Numerics), sizeof(KvMoveParams)},
          .num_kernels = N,
          .kernels = kernels};
}

}  // namespace attnbench

// In a shared library (-fPIC), two tables are a link error. In the program, where nothing reads the tables,
// several such sources may be linked together; its kernels are compiled with ATTNBENCH_IN_PROGRAM.
#if defined(__PIC__) && !defined(__PIE__) && !defined(ATTNBENCH_IN_PROGRAM)
#define ATTNBENCH_PLUGIN_EXPORT __attribute__((visibility("default")))
#else
#define ATTNBENCH_PLUGIN_EXPORT __attribute__((visibility("default"), weak))
#endif

/// Use once per plug-in, outside all namespaces: ATTNBENCH_PLUGIN(&mine::kAttention, &mine::kKvAppend);
#define ATTNBENCH_PLUGIN(...)                                                                    \
  static constexpr const ::attnbench::Kernel* attnbench_plugin_kernels[] = {__VA_ARGS__};        \
  extern "C" {                                                                                   \
  ATTNBENCH_PLUGIN_EXPORT extern const ::attnbench::Plugin attnbench_plugin;                     \
  const ::attnbench::Plugin attnbench_plugin = ::attnbench::plugin_of(attnbench_plugin_kernels); \
  }                                                                                              \
  static_assert(true) /* takes the semicolon */
