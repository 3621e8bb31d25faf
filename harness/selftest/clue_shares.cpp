#include "harness/selftest/clue_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "harness/judge/case_inputs.h"
#include "harness/judge/sample.h"
#include "harness/selftest/fault.h"
#include "harness/session/session.h"

namespace attnbench {
namespace {

/// Words of clues about faults that are no known mistake (mistakes.h).
constexpr std::pair<std::string_view, std::string_view> kWords[] = {
    {"paging/last_page_dropped", "page"},
};

bool proven(const std::string& clue) {
  return clue.find("looks like") != clue.npos || clue.find("(checked by") != clue.npos;
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
std::vector<std::string> right_words(const std::string& name, const Fault& fault, const Case& c) {
  std::vector<std::string> words;
  for (const auto& [of, text] : kWords) {
    if (of == name) words.emplace_back(text);
  }
  const std::vector<unsigned char> none;
  const CaseInputs inputs(c, none);
  for (const Mistake& m : mistakes_of(c, problem_of(c), inputs)) {
    if (m.fault == fault.name) words.push_back(m.text);
  }
  return words;
}

/// Counts what the clues say of a fault on a case.
void count(const Record& r, const std::vector<std::string>& words, ClueShare& share) {
  constexpr std::size_t kKept = 3;
  ++share.cases;
  bool named = false;
  std::string wrong;
  for (const std::string& clue : r.check->clues) {
    const bool right =
        std::ranges::any_of(words, [&](const std::string& w) { return clue.find(w) != clue.npos; });
    named = named || right;
    if (wrong.empty() && !right && proven(clue)) wrong = clue;
  }
  share.named += named;
  share.misnamed += !named && !wrong.empty();
  if (!named && share.seen.size() < kKept) share.seen.push_back(wrong);
}

}  // namespace

std::vector<ClueShare> measure_clues(KernelTable table, Device& device, const SelftestOptions& options) {
  std::vector<ClueShare> shares;
  for (const Kernel* kernel : select_kernels(table, Op::kAttention, device.info().kind, options.kernels)) {
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
            if (r.status != Status::kFail || !r.check) continue;
            count(r, right_words(name, fault, c), share);
          }
        }
        if (share.cases == 0) continue;
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
