#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <memory>

#include "harness/cli/case_file_options.h"
#include "harness/cli/case_options.h"
#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/misplaced.h"
#include "harness/cli/option.h"
#include "harness/cli/usage_error.h"
#include "harness/facts/declared_types.h"
#include "harness/interop/case_file.h"
#include "harness/launch/launcher.h"
#include "harness/launch/numerics_bounds.h"
#include "harness/results/files.h"
#include "harness/results/text.h"
#include "harness/session/memory_check.h"
#include "kernels/registry.h"

namespace attnbench::cli {
namespace {

struct ExportOptions {
  CaseOptions cases;
  NumericsOptions numerics;
  std::string out;
  std::string padding = "poison";
  bool full = false;
};

int export_case(const ExportOptions& o) {
  CaseOptions chosen = o.cases;
  // A mapping may stand for the file of a case.
  for (std::size_t i = 0; i < chosen.configs.size();) {
    if (!chosen.configs[i].starts_with('{')) {
      ++i;
      continue;
    }
    chosen.chosen.push_back(chosen.configs[i]);
    chosen.configs.erase(chosen.configs.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (std::filesystem::path(o.out).extension() != ".safetensors") {
    throw UsageError(fmt::format("--out {}: the file's name must end in .safetensors", o.out));
  }
  const Cases cases = load_cases(chosen);
  if (cases.cases.empty()) {
    say_nothing_matched(cases);
    return 6;
  }
  if (cases.cases.size() > 1) {
    throw UsageError(fmt::format(
        "{} are given, and a file holds one; choose it by --case ID (attnbench list prints the ids)",
        counted(std::ssize(cases.cases), "case")));
  }
  const Case& item = cases.cases.front();
  const CaseFileOptions options{o.numerics.over(usual_numerics(item.params)), o.padding == "zeros"};
  if (const std::string why = why_not_exported(item, options); !why.empty()) {
    throw UsageError(fmt::format("case {} cannot be exported: {}", item.id, why));
  }
  const CheckMode mode = o.full ? CheckMode::kFull : CheckMode::kSampled;
  if (std::error_code ec; std::filesystem::exists(o.out, ec) && !std::filesystem::is_regular_file(o.out, ec))
    throw UsageError(fmt::format("--out {}: this is a folder, a pipe or a device; name a file", o.out));
  check_writable(o.out);
  const auto device = open_device("cpu");
  if (const auto why = does_not_fit(item, free_memory_of(*device), mode)) {
    throw UsageError(fmt::format("case {}: {}", item.id, why->text));
  }
  const Kernel& any = *select_kernels(builtin_kernels(), item.params.op, DeviceKind::kCpu, {}).front();
  Workload workload(*device, item, layout_for(any));  // with the forward pass that gradients need
  const ExpectedOutputs expected = expected_outputs(workload, {}, options.numerics, {mode, item.seed});
  write_case_file(o.out, workload, expected, options, build_text());
  std::cout << fmt::format(
      "wrote {0}: {1}\n  expected: {2} of {3} rows{4}; tolerance for {5}\n"
      "  judge outputs: attnbench check {0} OUT{6}\n",
      o.out, item.id, expected.rows, expected.rows_total,
      expected.rows < expected.rows_total ? " (a sample; --full: all)" : "", types_text({options.numerics}),
      item.params.does().forward() ? ".npy" : ".safetensors");
  if (item.params.dtype == DType::kBf16)
    std::cout
        << "  NumPy has no bfloat16: import ml_dtypes (pip install ml_dtypes) before safetensors.numpy reads it\n";
  return 0;
}

}  // namespace

void NumericsOptions::add(CLI::App& command, const std::string& default_text) {
  list_option(
      command, "--numerics", types,
      "Arithmetic of the kernel, from which the tolerance follows: p=TYPE (P before P.V), acc=TYPE "
      "(accumulators), exp_rel_err=X, mma_roundoff=X, input_roundoff=X, p_scale=X; TYPE is fp32, fp16, bf16 or e4m3. Default: " +
          default_text)
      ->check([](const std::string& item) {
        Required ignored;
        return read_required({item}, ignored);
      });
}

Numerics NumericsOptions::over(Numerics base) const {
  Required given;
  read_required(types, given);
  if (given.p) base.p_type = *given.p;
  if (given.acc) base.acc_type = *given.acc;
  for (std::size_t i = 0; i < kDeclaredNumbers.size(); ++i) {
    if (given.numbers[i]) base.*kDeclaredNumbers[i].field = *given.numbers[i];
  }
  if (const auto why = out_of_bounds(base)) throw UsageError("--numerics: " + *why);
  return base;
}

void add_export(CLI::App& app, Program& program) {
  auto* command = app.add_subcommand(
      "export", "Write a case to a safetensors file: inputs, expected outputs and their tolerance");
  auto o = std::make_shared<ExportOptions>();
  o->cases.add(*command);
  path_option(*command, "-o,--out", o->out, "FILE", "File to write; its name ends in .safetensors")
      ->required();
  option(*command, "--padding", o->padding, "WORD",
         "What stands where nothing may be read: poison (NaN, and junk in block_table, as in a run) or "
         "zeros, for kernels that multiply such places by 0")
      ->check(CLI::IsMember({"poison", "zeros"}));
  command->add_flag("--full", o->full, "Expected outputs of every row, where a run would compare a sample");
  o->numerics.add(*command, "p as the case's dtype, acc=fp32");
  ignore_repro_options(app, *command);
  command->footer(
      "Examples:\n"
      "  attnbench export '{kv: paged, batch: 4q1s1k, heads: 32/8}' -o case.safetensors\n"
      "  attnbench export configs/smoke.yaml --case ID -o case.safetensors --padding zeros\n"
      "Tensors and metadata: harness/interop/README.md. Judge outputs with attnbench check.");
  command->callback([=, &program] { program.chosen = [=] { return export_case(*o); }; });
}

}  // namespace attnbench::cli
