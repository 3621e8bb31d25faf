// What ends a command, or a case of it. A kernel's own refusals are values: KernelStatus with a message, and
// reasons of a skip.
#pragma once

#include <stdexcept>
#include <string>

namespace attnbench {

inline constexpr int kExitUsage = 2;    ///< a mistake of the call, of a file, or of what a file asks for
inline constexpr int kExitFailure = 5;  ///< a crash, a hang or an error of a kernel, a device or the system
inline constexpr int kExitInterrupted = 130;  ///< 128 + SIGINT, as shells have it

/// what() is a message for the user, which a command prints behind `prefix` before it ends with exit_code().
/// Other exceptions than this one and those derived from it are mistakes of the program.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what, int exit_code = kExitUsage,
                 const char* prefix = "attnbench: error: ")
      : std::runtime_error(what), exit_code_(exit_code), prefix_(prefix) {}

  int exit_code() const { return exit_code_; }
  std::string message() const { return prefix_ + std::string(what()); }

 private:
  int exit_code_;
  const char* prefix_;
};

/// A case that needs more than the machine, or a 32-bit field, has: it is skipped.
class TooLarge : public Error {
 public:
  using Error::Error;
};

}  // namespace attnbench
