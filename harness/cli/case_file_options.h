// Options that `export` and `check` share.
#pragma once

#include <string>
#include <vector>

#include "kernels/contract/kernel.h"

namespace CLI {
class App;
}

namespace attnbench::cli {

/// The arithmetic of a kernel that runs elsewhere, which cannot declare it by itself.
struct NumericsOptions {
  std::vector<std::string> types;  ///< --numerics: "p=bf16", "acc=fp32", "exp_rel_err=2^-22"

  void add(CLI::App& command, const std::string& default_text);
  /// `base` with what the options replace.
  Numerics over(Numerics base) const;
};

}  // namespace attnbench::cli
