#include "harness/selftest/clue_shares.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "harness/judge/case_inputs.h"
#include "harness/judge/sample.h"
#include "harness/ops/attention_backward/judge_mistakes.h"
#include "harness/selftest/fault.h"
#include "harness/session/session.h"

namespace attnbench {
namespace {

/// A fact wherever an experiment shows it, and the name of a fault only where its row says so.
constexpr std::string_view kRead = "must not be read";

bool proven(const std::string& clue) {
  return clue.find("perhaps") == clue.npos &&
         (clue.find("looks like") != clue.npos || clue.find("(checked by") != clue.npos);
}

Record run(const Case& c, const Kernel& kernel, Device& device) {
  SessionOptions o;
  o.check = CheckMode::kFull;
  o.time = false;
  bool lost = false;
  Record r = run_item({&c, &kernel}, device, o, lost);
  if (lost) throw DeviceError(r.reason, true);
  return r;
}

/// The texts of a clue that is right for a fault on a case.
std::vector<std::string> right_words(const Fault& fault, const Case& c) {
  if (!fault.clue.empty()) return {fault.clue};
  std::vector<std::string> words;
  const auto add = [&](const auto& mistakes) {
    for (const auto& m : mistakes) {
      if (m.fault == fault.name) words.push_back(m.text);
    }
  };
  const std::vector<unsigned char> none;
  const CaseInputs inputs(c, none);
  if (c.params.does().forward()) add(mistakes_of(c, problem_of(c), inputs));
  if (c.params.op == Op::kAttentionBackward) add(grad_mistakes(problem_of(c), c.params.type_of_out()));
  return words;
}

/// Whether the launch computed something wrong, and did not only write where it must not.
bool is_wrong(const Record& r) {
  return r.status == Status::kFail && r.check && std::ranges::any_of(r.check->failed_by, [](const auto& d) {
           return d != detector::kGuard && d != detector::kInputDigest;
         });
}

/// Counts what the clues say of a fault on a case.
void count(const Record& r, const std::vector<std::string>& words, ClueShare& share) {
  constexpr std::size_t kKept = 1;
  ++share.cases;
  bool named = false;
  bool wrong = false;
  for (const std::string& clue : r.check->clues) {
    const bool right =
        std::ranges::any_of(words, [&](const std::string& w) { return clue.find(w) != clue.npos; });
    named = named || right;
    wrong = wrong || (!right && proven(clue) && clue.find(kRead) == clue.npos);
  }
  share.named += named;
  share.misnamed += !named && wrong;
  if (!named && (wrong || share.seen.size() < kKept))
    share.seen.push_back(fmt::format("{}", fmt::join(r.check->clues, " | ")));
}

}  // namespace

std::vector<ClueShare> measure_clues(KernelTable table, Device& device, const SelftestOptions& options) {
  std::vector<ClueShare> shares;
  std::vector<const Kernel*> kernels;
  for (const Op op : {Op::kAttention, Op::kAttentionBackward, Op::kKvAppend, Op::kKvMove, Op::kMergeStates}) {
    const auto of_op = select_kernels(table, op, device.info().kind, options.kernels);
    kernels.insert(kernels.end(), of_op.begin(), of_op.end());
  }
  for (const Kernel* kernel : kernels) {
    for (const FaultClass& group : all_faults()) {
      for (const Fault& fault : group.faults) {
        const std::string name = group.name + "/" + fault.name;
        if (options.chosen && !options.chosen(name)) continue;
        if (((fault.breaks & ~kernel->flags) | (fault.shows_with & ~kernel->features)) != 0) continue;
        ClueShare share{name, kernel->name};
        for (const std::string& yaml : fault.cases) {
          for (uint64_t seed = 1; seed <= static_cast<uint64_t>(options.seeds); ++seed) {
            if (options.stop && options.stop()) return shares;
            const Case c = fault_case(fault.about_types() ? yaml : in_type_of(*kernel, yaml), seed);
            if (c.params.op != kernel->op || c.params.expect_refused) continue;
            Tamper tamper(*kernel, device);
            const Record r = run(c, tamper.armed(fault.launch), device);
            if (is_wrong(r)) count(r, right_words(fault, c), share);
          }
        }
        if (share.cases == 0) continue;
        if (share.named > 0 && share.misnamed == 0) share.seen.clear();
        if (options.progress) {
          options.progress(fmt::format("{} on {}: named {}, misnamed {} of {}{}", name, kernel->name,
                                       share.named, share.misnamed, share.cases,
                                       share.seen.empty() ? "" : ": " + share.seen.front()));
        }
        shares.push_back(std::move(share));
      }
    }
  }
  return shares;
}

std::string clue_summary(const std::vector<ClueShare>& shares) {
  int64_t named = 0, misnamed = 0, cases = 0;
  for (const ClueShare& s : shares) {
    named += s.named > 0;
    misnamed += s.misnamed;
    cases += s.cases;
  }
  const auto percent = [](int64_t part, std::size_t of) {
    return of == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(of);
  };
  return fmt::format(
      "clues name {} of {} faults ({:.0f} %) in some case, and something else in {} of {} cases ({:.1f} %)",
      named, shares.size(), percent(named, shares.size()), misnamed, cases,
      percent(misnamed, static_cast<std::size_t>(cases)));
}

}  // namespace attnbench
