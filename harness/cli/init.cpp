#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/option.h"
#include "harness/cli/usage_error.h"
#include "harness/results/files.h"

namespace attnbench::cli {
namespace {

/// A sweep file to begin with. {0}: its name.
constexpr const char* kSweep = R"(# Cases for attnbench.
#
#   attnbench list {0}.yaml      # the cases, and about how long they take
#   attnbench run {0}.yaml       # check and time them
#
# A key with one value is fixed. A key with a [list] is an axis, and axes multiply.
# All keys: attnbench list --keys. Models: attnbench list --models.
name: {0}
seed: 1                   # every input value and every drawn length follows from it
defaults:                 # hold in every sweep that does not set the same key
  model: llama-3.1-8b     # stands for heads: 32/8, head_dim: 128
  dtype: bf16             # or fp16, fp32
  mask: causal            # or none

sweeps:
  # Prompts without padding, found through cu_seqlens. 4q512: four sequences of 512 tokens.
  - name: prefill
    kv: packed
    batch: [4q512, q2k]

  # One new token per sequence; keys in blocks of a pool, found through block_table.
  # "{{8,32}}q1s{{1k,4k}}" stands for 8q1s1k, 8q1s4k, 32q1s1k and 32q1s4k: 8 sequences with 1 query token and 1024
  # keys each, and so on.
  - name: decode
    kv: paged
    block_size: [16, 64]
    batch: "{{8,32}}q1s{{1k,4k}}"

  # A step of a continuous-batching server: a chunk of 512 tokens that ends a prompt of 2048, and 15 decodes.
  - name: mixed
    kv: paged
    block_size: 16
    batch: 1q512s2k_15q1s1k

  # Lengths drawn from a distribution, as in real traffic; the same on every machine.
  - name: traffic
    kv: paged
    block_size: 16
    batch: {{q: 1, context: {{lognormal: {{median: 1000, sigma: 0.7}}, clip: [64, 4096]}}, count: 16}}
)";

int init(const std::filesystem::path& file) {
  const std::string end = file.extension().string();
  if (end != ".yaml" && end != ".yml") {
    throw UsageError(fmt::format("init {}: the file's name must end in .yaml", file.string()));
  }
  std::error_code ec;
  if (std::filesystem::exists(std::filesystem::symlink_status(file, ec))) {
    throw UsageError(fmt::format("init {}: the file exists; name another one", file.string()));
  }
  write_file_atomically(file, fmt::format(kSweep, file.stem().string()));
  std::cout << fmt::format("wrote {0}; next: attnbench list {0}\n", file.string());
  return 0;
}

}  // namespace

void add_init(CLI::App& app, Program& program) {
  auto* command = app.add_subcommand("init", "Write a commented sweep file to begin with");
  auto file = std::make_shared<std::string>("sweep.yaml");
  path_option(*command, "file", *file, "FILE", "File to write (default: sweep.yaml); it must not exist yet");
  command->footer("Examples:\n  attnbench init\n  attnbench init decode.yaml");
  command->callback([=, &program] { program.chosen = [=] { return init(*file); }; });
}

}  // namespace attnbench::cli
