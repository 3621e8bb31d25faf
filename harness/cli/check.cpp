#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>

#include "harness/cli/case_file_options.h"
#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/misplaced.h"
#include "harness/cli/option.h"
#include "harness/cli/usage_error.h"
#include "harness/facts/declared_types.h"
#include "harness/interop/outputs.h"
#include "harness/judge/made_up.h"
#include "harness/report/console.h"
#include "harness/results/exit_code.h"
#include "harness/results/text.h"
#include "harness/session/memory_check.h"

namespace attnbench::cli {
namespace {

struct CheckOptions {
  std::string case_file;
  OutputFiles outputs;
  NumericsOptions numerics;
  bool full = false;
};

int check(const CheckOptions& o, const Program& program) {
  const auto begin = std::chrono::steady_clock::now();
  CaseFile file(o.case_file);
  OutputFiles outputs = o.outputs;
  if (outputs.out.empty()) {
    if (!file.item.params.captured || !file.file.has("out"))
      throw UsageError(
          fmt::format("check {}: the file has no tensor 'out' of a captured case; name the file of outputs "
                      "behind it",
                      o.case_file));
    outputs.out = o.case_file;
  }
  const CheckMode mode = o.full ? CheckMode::kFull : CheckMode::kSampled;
  const auto device = open_device("cpu");
  if (const auto why = does_not_fit(file.item, free_memory_of(*device), mode)) {
    throw UsageError(fmt::format("case {}: {}", file.item.id, why->text));
  }
  Workload workload(*device, file.item);
  file.check_inputs(workload);
  const Numerics numerics = o.numerics.over(file.options.numerics);
  Record record;
  record.item = file.item;
  record.kernel = std::filesystem::path(outputs.out).filename().string();
  record.device = "cpu";
  for (const std::string& word : program.command_line)
    record.repro += record.repro.empty() ? "attnbench" : " " + shell_word(word);
  record.check = judge_outputs(outputs, workload, numerics, mode);
  record.end_checked(
      [&] { return undecided_reason(workload, workload.download_outputs(), numerics, mode, *record.check); });

  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  print_console(std::cout, {&record, 1}, {style_of_stdout(), elapsed, false});
  std::cout << fmt::format("judged as a kernel with {} (--numerics)\n", types_text(*record.check->declared));
  if ((record.check->declared->waived & kNoLse) != 0) std::cout << "no LSE is given: only O is judged\n";
  return exit_code_of({record});
}

}  // namespace

void add_check(CLI::App& app, Program& program) {
  auto* command = app.add_subcommand(
      "check", "Judge outputs of a kernel that ran elsewhere, on an exported case or captured tensors");
  auto o = std::make_shared<CheckOptions>();
  path_option(*command, "case", o->case_file, "CASE.safetensors",
              "File of attnbench export, or of captured tensors")
      ->required();
  path_option(
      *command, "out", o->outputs.out, "OUT",
      "O of shape (total_q, Hq, Dv) as .npy, or tensors 'out' and 'lse' (gradients: 'dq', 'dk', 'dv') as "
      ".safetensors. bf16 in .npy: its bits as uint16. Other floating-point types are rounded to the case's dtype. "
      "None: the 'out' that was captured");
  path_option(
      *command, "--lse", o->outputs.lse, "FILE",
      "LSE as .npy, (Hq, total_q) and in natural logarithm unless the case says otherwise; without any, O alone "
      "is judged");
  command->add_flag("--plus-inf", o->outputs.plus_inf,
                    "The LSE of a row without keys is +inf, as FlashAttention writes it, not -inf");
  command->add_flag("--full", o->full, "Compare every row, where a run would compare a sample");
  o->numerics.add(*command, "as exported");
  ignore_repro_options(app, *command);
  command->footer(
      "Examples:\n"
      "  attnbench check case.safetensors out.npy --lse lse.npy\n"
      "  attnbench check case.safetensors out.safetensors --numerics p=fp16,acc=fp32\n"
      "  attnbench check capture.safetensors\n"
      "Exit codes: 0 right, 1 wrong, 2 a file cannot be used.");
  command->callback([=, &program] { program.chosen = [=, &program] { return check(*o, program); }; });
}

}  // namespace attnbench::cli
