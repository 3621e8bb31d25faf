#include "harness/cli/cheats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "harness/cli/child_program.h"
#include "harness/cli/common.h"
#include "harness/cli/usage_error.h"
#include "harness/launch/python.h"
#include "harness/report/table.h"
#include "harness/results/files.h"
#include "harness/results/json.h"
#include "harness/results/load.h"
#include "harness/results/text.h"

namespace attnbench::cli {
namespace {

namespace fs = std::filesystem;

/// The honest kernels whose times the others of their family are compared with. A family has cases of its own:
/// attention in C++ or CUDA, attention in Python, gradients.
enum Family { kCompiled, kPython, kGradients };
constexpr const char* kPlain[] = {"plain", "py_plain", "grads_plain"};
/// A kernel that passes in more than this share of the plain kernel's time has gained nothing by its trick. It
/// is below 1 because times scatter.
constexpr double kGainedNothing = 0.7;
/// A cheat has got through if it gains in so many comparisons in a row, each with a run of `plain` just before:
/// on a busy machine a single one says little.
constexpr int kComparisons = 3;
constexpr std::size_t kSentence = 200;  ///< characters of a reason in the table

/// Cases that the example kernels can time quickly: 0.2 to 2 ms each.
constexpr const char* kCpuCases[] = {
    "{kv: packed, batch: 2q24, heads: 4/2, head_dim: 32, mask: causal, dtype: bf16}",
    "{kv: paged, batch: 4q1s96, heads: 4/2, head_dim: 64, mask: causal, dtype: bf16}",
    "{kv: paged, batch: 1q40s72_2q1s60, heads: 4/2, head_dim: 64, mask: causal, dtype: bf16}"};
constexpr const char* kGradientCases[] = {
    "{op: attention_backward, batch: 2q24, heads: 4/2, head_dim: 32, mask: causal, dtype: bf16}",
    "{op: attention_backward, batch: q40s72_q16s60, heads: 4/2, head_dim: 32, mask: causal, dtype: bf16}",
    "{op: attention_backward, batch: 3q16, heads: 4/4, head_dim: 64, mask: none, dtype: bf16}"};
constexpr const char* kCudaCases[] = {
    "{kv: packed, batch: 2q512, heads: 16/4, head_dim: 128, mask: causal, dtype: bf16}",
    "{kv: paged, batch: 32q1s1k, heads: 16/4, head_dim: 128, mask: causal, dtype: bf16}",
    "{kv: paged, batch: 1q256s1k_15q1s1k, heads: 16/4, head_dim: 128, mask: causal, dtype: bf16}"};

struct PlugIn {
  std::string name;  ///< of the file and of the kernel
  fs::path file;
  bool honest;
  Family family() const {
    return is_python(file.string()) ? kPython : name.starts_with("grads_") ? kGradients : kCompiled;
  }
  bool is_plain() const { return name == kPlain[family()]; }
};

/// What became of a plug-in.
struct Outcome {
  enum class Verdict { kPassed, kNoGain, kCaught };
  Verdict verdict = Verdict::kCaught;
  std::string by;      ///< detectors, "error", "timeout", "coverage 1 of 3"
  std::string reason;  ///< of the first case that is no pass
  std::size_t passed = 0, cases = 0;
  std::size_t marked = 0;  ///< passed while others disturbed each sample, so that the time wins nothing
  bool only_marked() const { return marked > 0 && marked == passed; }
  std::map<std::string, double> us;  ///< median by case
  double share = 0;                  ///< of the plain kernel's time, geometric mean; 0: unknown
};

bool is_cuda(const CheatOptions& o) { return o.device.starts_with("cuda"); }

std::vector<std::string> cases_of(const CheatOptions& o, const PlugIn& p) {
  if (p.family() == kGradients) return {std::begin(kGradientCases), std::end(kGradientCases)};
  return is_cuda(o) ? std::vector<std::string>(std::begin(kCudaCases), std::end(kCudaCases))
                    : std::vector<std::string>(std::begin(kCpuCases), std::end(kCpuCases));
}

void add_plug_ins(const fs::path& dir, bool honest, std::vector<PlugIn>& out) {
  std::error_code ec;
  const std::size_t first = out.size();
  for (const auto& entry : fs::directory_iterator(dir, ec)) {
    const fs::path& file = entry.path();
    const std::string name = file.stem().string();
    if (file.extension() == ".so" || (name.starts_with("py_") && name != kPlain[kPython]))
      out.push_back({name, file, honest});
  }
  std::sort(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(),
            [](const PlugIn& a, const PlugIn& b) {
              return std::pair(!a.is_plain(), a.name) < std::pair(!b.is_plain(), b.name);
            });
}

/// Adds the plug-ins in Python, unless no interpreter here can load them.
void add_python(const fs::path& dir, std::vector<PlugIn>& out) {
  const fs::path plain = dir / (std::string(kPlain[kPython]) + ".py");
  std::error_code ec;
  if (!fs::exists(plain, ec)) return;
  try {
    describe_python_plugin(plain.string(), "");
  } catch (const PluginError& e) {
    std::cerr << error_line(fmt::format("attnbench: note: the cheats in Python are left out: {}", e.what()))
              << "\n";
    return;
  }
  out.push_back({kPlain[kPython], plain, true});
  add_plug_ins(dir, false, out);
}

/// The plug-ins of the device: in each language honest ones first, and the plain one before all.
std::vector<PlugIn> plug_ins(const CheatOptions& o) {
  const fs::path root =
      o.dir.empty() ? fs::path(program_file()).parent_path() / "tests" / "cheats" : fs::path(o.dir);
  const fs::path dir = root / (is_cuda(o) ? "cuda" : "cpu");
  std::vector<PlugIn> all;
  add_plug_ins(dir / "honest", true, all);
  add_plug_ins(dir, false, all);
  const auto names_of = [](const std::vector<PlugIn>& plug_ins) {
    std::vector<std::string> names;
    for (const PlugIn& p : plug_ins) names.push_back(p.name);
    return names;
  };
  const auto unknown_among = [&o](const std::vector<std::string>& names) {
    return std::ranges::find_if(
        o.kernels, [&](const std::string& k) { return std::ranges::find(names, k) == names.end(); });
  };
  // No interpreter is needed if all that is asked for is compiled.
  const bool all_compiled = !o.kernels.empty() && unknown_among(names_of(all)) == o.kernels.end();
  if (!is_cuda(o) && !all_compiled) add_python(root / "python", all);
  if (all.empty()) {
    throw UsageError(
        fmt::format("--cheats: no plug-ins in {}; build them with 'cmake --build BUILD --target "
                    "attnbench_cheats' (a build with -DATTNBENCH_TESTS=ON), or name their folder",
                    dir.string()));
  }
  const std::vector<std::string> names = names_of(all);
  if (const auto k = unknown_among(names); k != o.kernels.end()) {
    throw UsageError(fmt::format("--kernel {}: {}the kernels in {} are {}", *k, did_you_mean(*k, names),
                                 dir.string(), fmt::join(names, ", ")));
  }
  if (o.kernels.empty()) return all;
  const auto is_named = [&](const PlugIn& p) {
    return std::ranges::find(o.kernels, p.name) != o.kernels.end();
  };
  bool needs_plain[std::size(kPlain)] = {};
  for (const PlugIn& p : all) {
    if (is_named(p)) needs_plain[p.family()] = true;
  }
  std::erase_if(all,
                [&](const PlugIn& p) { return !is_named(p) && !(p.is_plain() && needs_plain[p.family()]); });
  return all;
}

/// The last line that a run printed.
std::string last_line(const fs::path& log) {
  constexpr std::streamoff kTail = 4096;
  std::ifstream in(log, std::ios::binary | std::ios::ate);
  in.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(in.tellg()) - kTail));
  std::string line, last;
  while (std::getline(in, line)) {
    if (!line.empty()) last = line;
  }
  return last;
}

/// Adds what one result tells about the kernel.
void add_result(const Record& r, Outcome& o, std::vector<std::string>& detectors, std::size_t& skipped) {
  if (r.status == Status::kPass && r.median_us()) {
    ++o.passed;
    o.us[r.item.id] = r.time->median_us;
    o.marked += static_cast<std::size_t>(r.time->disturbed) == r.time->samples_us.size();
    return;
  }
  if (r.status == Status::kSkip) ++skipped;
  if (o.reason.empty()) o.reason = r.reason;
  if (r.status == Status::kSkip) return;
  std::vector<std::string> found;
  if (r.status == Status::kFail && r.check) found = r.check->failed_by;
  if (found.empty()) found.push_back(status_name(r.status));
  for (const std::string& d : found) {
    if (std::ranges::find(detectors, d) == detectors.end()) detectors.push_back(d);
  }
}

Outcome judged(const fs::path& folder, const fs::path& log, int exit_code, std::size_t cases) {
  Outcome o;
  o.cases = cases;
  std::vector<std::string> detectors;
  std::size_t skipped = 0;
  try {
    for (const Record& r : load_results(folder.string()).results) add_result(r, o, detectors, skipped);
  } catch (const ResultsError& e) {
    o.reason = e.what();
  }
  if (!detectors.empty()) {
    o.by = fmt::format("{}", fmt::join(detectors, ", "));
  } else if (skipped > 0) {
    o.by = fmt::format("coverage {} of {}", o.passed, cases);
  } else if (o.passed < cases) {
    o.by = fmt::format("the run ended, exit code {}", exit_code);
    o.reason = last_line(log);
  } else {
    o.verdict = Outcome::Verdict::kPassed;
  }
  return o;
}

void compare_with(const Outcome& plain, Outcome& o) {
  double logs = 0;
  int n = 0;
  for (const auto& [id, us] : o.us) {
    const auto same = plain.us.find(id);
    if (same == plain.us.end() || us <= 0) continue;
    logs += std::log(us / same->second);
    ++n;
  }
  if (n > 0) o.share = std::exp(logs / n);
}

Outcome run_plug_in(const CheatOptions& o, const PlugIn& p) {
  const fs::path folder = fs::path(o.out) / "cheats" / p.name;
  const fs::path log = folder.string() + ".txt";
  make_folder(folder);
  std::error_code ignored;
  for (const char* file : {"results.json", "journal.jsonl"}) fs::remove(folder / file, ignored);
  const std::vector<std::string> cases = cases_of(o, p);
  std::vector<std::string> args = {program_file(), "run"};
  for (const std::string& c : cases) args.insert(args.end(), {"--case", c});
  args.insert(args.end(), {"--plugin", p.file.string(), "--kernel", p.name, "--device", o.device,
                           "--max-samples", "20", "--no-ceilings", "--fail-fast", "--timeout",
                           fmt::format("{:g}", o.timeout_s), "--out", folder.string(), "--quiet"});
  if (o.threads > 0) args.insert(args.end(), {"--threads", fmt::format("{}", o.threads)});
  const int code = run_program(args, log, /*silent=*/true);
  Outcome outcome = judged(folder, log, code, cases.size());
  fs::resize_file(log, std::min<std::uintmax_t>(fs::file_size(log, ignored), 1 << 16), ignored);
  return outcome;
}

/// What becomes of a cheat that passed in less time than `plain` took: both run again until it has gained
/// nothing, was caught, or has gained in kComparisons.
Outcome confirmed(const CheatOptions& o, const PlugIn& plain, const PlugIn& cheat, Outcome outcome) {
  for (int i = 1; i < kComparisons; ++i) {
    if (outcome.verdict != Outcome::Verdict::kPassed || outcome.share > kGainedNothing) break;
    const Outcome plain_again = run_plug_in(o, plain);
    if (child_stopped()) break;
    outcome = run_plug_in(o, cheat);
    compare_with(plain_again, outcome);
    if (child_stopped()) break;
  }
  if (outcome.verdict == Outcome::Verdict::kPassed &&
      (outcome.share > kGainedNothing || outcome.only_marked()))
    outcome.verdict = Outcome::Verdict::kNoGain;
  return outcome;
}

/// Whether the outcome is as it must be.
bool is_well(const PlugIn& p, const Outcome& o) {
  return p.honest == (o.verdict == Outcome::Verdict::kPassed);
}

std::string verdict_text(const PlugIn& p, const Outcome& o) {
  if (o.verdict == Outcome::Verdict::kCaught) return (p.honest ? "ACCUSED by " : "") + o.by;
  if (p.honest) return "passed";
  return o.verdict == Outcome::Verdict::kNoGain ? "gained nothing" : "GOT THROUGH";
}

std::string sentence(const PlugIn& p, const Outcome& o) {
  std::string text = one_line(o.reason);
  if (text.size() > kSentence) text = text.substr(0, text.find_last_of(' ', kSentence)) + " ...";
  if (o.verdict != Outcome::Verdict::kCaught && o.share > 0) {
    text = fmt::format("{:.2f} of the time of {}{}", o.share, kPlain[p.family()],
                       o.only_marked() ? ", marked: other processes took the cores" : "");
  }
  return text;
}

using Judged = std::vector<std::pair<PlugIn, Outcome>>;

void write_report(const CheatOptions& o, const Judged& all) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [p, outcome] : all) {
    list.push_back({{"name", p.name},
                    {"honest", p.honest},
                    {"as_it_must_be", is_well(p, outcome)},
                    {"verdict", verdict_text(p, outcome)},
                    {"reason", outcome.reason},
                    {"passed", outcome.passed},
                    {"marked", outcome.marked},
                    {"cases", outcome.cases},
                    {"share_of_plain", outcome.share}});
  }
  const fs::path file = fs::path(o.out) / "cheats.json";
  const RunContext context = describe_run({}, "cheats", o.command_line);
  const nlohmann::ordered_json made_by = {{"version", context.version},
                                          {"revision", context.revision},
                                          {"date", context.date},
                                          {"command_line", context.command_line}};
  write_file_atomically(file, results_text({{"context", made_by}, {"device", o.device}, {"cheats", list}}));
  std::cout << "report: " << file.string() << "\n";
}

void print(const Judged& all) {
  std::vector<TableRow> rows;
  for (const auto& [p, outcome] : all) {
    rows.push_back({{p.name, p.honest ? "honest" : "cheat", verdict_text(p, outcome), sentence(p, outcome)},
                    is_well(p, outcome) ? Colour::kGreen : Colour::kRed,
                    ""});
  }
  print_table(std::cout,
              {{"kernel", Align::kLeft},
               {"kind", Align::kLeft},
               {"what caught it", Align::kLeft},
               {"sentence", Align::kLeft}},
              rows, {0, isatty(STDOUT_FILENO) != 0});
}

int summary(const Judged& all) {
  std::vector<std::string> through, accused;
  int64_t cheats = 0, honest = 0;
  for (const auto& [p, outcome] : all) {
    ++(p.honest ? honest : cheats);
    if (!is_well(p, outcome)) (p.honest ? accused : through).push_back(p.name);
  }
  const auto names = [](const std::vector<std::string>& list) {
    return list.empty() ? "" : fmt::format(": {}", fmt::join(list, ", "));
  };
  std::cout << fmt::format("\n{}, {} got through{}\n{}, {} accused{}\n", counted(cheats, "cheat"),
                           through.size(), names(through), counted(honest, "honest kernel"), accused.size(),
                           names(accused));
  return through.empty() && accused.empty() ? 0 : 1;
}

/// Passes on signals to the run in hand while it lives.
struct SignalsCaught {
  SignalsCaught() { catch_signals(); }
  ~SignalsCaught() { restore_signals(); }
  SignalsCaught(const SignalsCaught&) = delete;
  SignalsCaught& operator=(const SignalsCaught&) = delete;
};

}  // namespace

int run_cheats(const CheatOptions& o) {
  const std::vector<PlugIn> chosen = plug_ins(o);
  make_folder(o.out);
  check_writable(fs::path(o.out) / "cheats.json");
  Judged all;
  const SignalsCaught caught;
  for (const PlugIn& p : chosen) {
    if (!o.quiet) std::cerr << fmt::format("cheats: {} ({} of {})\n", p.name, all.size() + 1, chosen.size());
    all.emplace_back(p, run_plug_in(o, p));
    if (child_stopped()) return kExitInterrupted;
    const auto plain = std::ranges::find_if(
        all, [&](const auto& done) { return done.first.is_plain() && done.first.family() == p.family(); });
    Outcome& now = all.back().second;
    if (plain != all.end()) compare_with(plain->second, now);
    if (plain != all.end() && !p.honest) now = confirmed(o, plain->first, p, std::move(now));
    if (child_stopped()) return kExitInterrupted;
  }
  print(all);
  write_report(o, all);
  return summary(all);
}

}  // namespace attnbench::cli
