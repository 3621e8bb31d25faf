#include "harness/fuzz/campaign.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "harness/fuzz/shrink.h"
#include "harness/ops/op.h"
#include "harness/results/exit_code.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

/// Cases of one round. Between rounds the generators learn and the clock is read.
constexpr std::size_t kRound = 32;
/// Turns of an attention kernel for each of another op: attention has most keys and most faults.
constexpr std::size_t kAttentionShare = 4;
constexpr int kRepeats = 3;
/// Cases that fail like a known finding are shrunk this often, because they may have another defect.
constexpr int64_t kAlikeShrunk = 3;

/// Whether the record says nothing about the kernel: it refuses the case, or zeros would pass whatever it computes.
bool says_nothing(const Record& r) {
  return r.status == Status::kSkip || (r.status == Status::kUndecided && r.check->tells_nothing);
}

bool is_failure(const Record& r) { return r.status != Status::kPass && !says_nothing(r); }

/// Whether the draft sets every key that the smallest case of a finding sets; numbers and sizes may differ.
bool has_keys_of(const Draft& draft, const Draft& smallest) {
  return std::ranges::all_of(smallest.values, [&](const auto& entry) {
    const auto& [key, value] = entry;
    if (key == "heads" || key == "head_dim") return true;
    const auto it = draft.values.find(key);
    const bool number =
        !value.empty() && (std::isdigit(static_cast<unsigned char>(value[0])) || value[0] == '-');
    return it != draft.values.end() && (number || it->second == value);
  });
}

constexpr const char* kMistake = "looks like: ";  // how a clue that names a mistake begins

/// The mistakes that the clues of a record name.
std::vector<std::string> mistakes_of(const Record& r) {
  std::vector<std::string> out;
  if (!r.check) return out;
  for (const std::string& clue : r.check->clues) {
    if (clue.starts_with(kMistake)) out.push_back(clue);
  }
  return out;
}

/// Whether nothing but the LSE is wrong.
bool lse_alone(const Record& r) {
  return r.check && !r.check->failed_by.empty() &&
         std::ranges::all_of(r.check->failed_by,
                             [](const std::string& detector) { return detector == detector::kLse; });
}

/// What failures with one cause have in common; empty if their records do not tell the cause. A mistake that
/// the clues name, a rule for empty rows, or a place that must not be written.
std::string cause_of(const Record& r) {
  if (r.status != Status::kFail || !r.check || r.check->failed_by.empty()) return "";
  const std::string& detector = r.check->failed_by.front();
  if (detector == detector::kEmptyRow) return detector;
  if (detector == detector::kGuard || detector == detector::kInputDigest) return without_numbers(r.reason);
  const std::vector<std::string> mistakes = mistakes_of(r);
  if (mistakes.empty()) return "";
  return without_numbers(without_last_brackets(mistakes[0]));  // counts of the case are in brackets
}

class Campaign {
 public:
  Campaign(const std::vector<const Kernel*>& kernels, const FuzzOptions& options, const FuzzEvents& events)
      : options_(options), events_(events), random_(options.seed) {
    for (const Kernel* k : kernels) {
      result_.kernels.emplace_back();
      result_.kernels.back().kernel = k;
      generators_.emplace_back(k->op, random_.next(), options.size);
      const std::size_t share = traits_of(k->op).forward() ? kAttentionShare : 1;
      turns_.insert(turns_.end(), share, generators_.size() - 1);
    }
  }

  FuzzResult run() {
    while (!turns_.empty() && !over()) {
      round();
      result_.seconds = elapsed();
      result_.gave_up = options_.cases > 0 && result_.ran() < options_.cases &&
                        result_.skipped() >= kMostSkipsPerCase * options_.cases;
      if (events_.progress) events_.progress(result_);
    }
    return std::move(result_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Drawn {
    std::size_t kernel;
    FuzzCase item;
  };

  double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  bool stopped() const { return events_.stop && events_.stop(); }
  bool over() const {
    return stopped() || elapsed() >= options_.seconds ||
           (options_.cases > 0 && result_.ran() >= options_.cases) || result_.gave_up ||
           std::ssize(result_.findings) >= options_.max_findings;
  }

  /// A new index, which tells FuzzEvents::run whether to try invariants.
  int64_t next_index(bool invariants) { return kInvariantsEvery * ++items_ + (invariants ? 0 : 1); }

  void round() {
    std::vector<Drawn> drawn;
    const auto left = options_.cases > 0 ? static_cast<std::size_t>(options_.cases - result_.ran()) : kRound;
    for (std::size_t i = 0; i < std::min(kRound, left); ++i) {
      const std::size_t kernel = turns_[static_cast<std::size_t>(drawn_++) % turns_.size()];
      drawn.push_back({kernel, generators_[kernel].next()});
    }
    std::vector<WorkItem> work;
    for (const Drawn& d : drawn) {
      const bool invariants = random_.below(kInvariantsEvery) == 0;
      work.push_back({&d.item.item, result_.kernels[d.kernel].kernel, next_index(invariants)});
    }
    std::unordered_map<int64_t, Record> records;
    for (Record& r : events_.run(work)) records.emplace(r.index, std::move(r));
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      const auto it = records.find(work[i].index);
      if (it != records.end()) count(drawn[i], it->second);  // no record: the run was stopped
    }
  }

  void count(const Drawn& drawn, const Record& record) {
    FuzzTally& tally = result_.kernels[drawn.kernel];
    const bool taken = !says_nothing(record);
    generators_[drawn.kernel].learn(drawn.item, taken);
    if (!taken) {
      ++tally.skipped;
      Refusals& alike = tally.refusals[without_numbers(record.reason)];
      if (alike.cases++ == 0 || record.repro.size() < alike.repro.size())
        alike = {alike.cases, record.reason, record.repro, record.item.id};
      return;
    }
    ++tally.ran;
    tally.invariants += record.index % kInvariantsEvery == 0;
    for (std::string& f : Generator::features_of(drawn.item)) tally.features.insert(std::move(f));
    if (!is_failure(record)) return;
    ++tally.failed;
    look_into(drawn, record);
  }

  /// Runs a draft as the finding was run; nullopt if it is no legal case, or was not finished.
  std::optional<Record> run_again(const Draft& draft, const Kernel* kernel, bool invariants) {
    const auto item = reader_.read(draft);
    if (!item) return std::nullopt;
    std::vector<Record> records = events_.run({{&*item, kernel, next_index(invariants)}});
    if (records.empty()) return std::nullopt;
    return std::move(records.front());
  }

  void look_into(const Drawn& drawn, const Record& record) {
    if (std::ssize(result_.findings) >= options_.max_findings || stopped()) return;
    const Kernel* kernel = result_.kernels[drawn.kernel].kernel;
    for (std::size_t i = 0; i < result_.findings.size(); ++i) {
      Finding& known = result_.findings[i];
      if (known.kernel != kernel || known.record.status != record.status || !known.repeats) continue;
      const bool like =
          std::ranges::any_of(smallest_[i], [&](const Draft& d) { return has_keys_of(drawn.item.draft, d); });
      if (like && ++known.alike > kAlikeShrunk) return;
    }
    const bool invariants = record.index % kInvariantsEvery == 0;
    Finding finding;
    finding.kernel = kernel;
    finding.record = record;
    finding.found_as = record.item.id;
    finding.repeats = fails_again(drawn.item.draft, kernel, invariants, finding.record);
    const std::vector<std::string> as_found = mistakes_of(finding.record);
    Draft smallest = drawn.item.draft;
    if (finding.repeats) smallest = shrunk(std::move(smallest), invariants, finding);
    if (mistakes_of(finding.record).empty()) finding.clues_as_found = as_found;
    if (is_known(finding, smallest)) return;
    if (finding.repeats && finding.record.status != Status::kTimeout) repeat(smallest, invariants, finding);
    result_.findings.push_back(std::move(finding));
    smallest_.push_back({std::move(smallest)});
    if (events_.found) events_.found(result_.findings.back());
  }

  /// Whether the smallest case is that of an earlier finding, or has its cause. Then it belongs to that one.
  bool is_known(const Finding& finding, const Draft& smallest) {
    const std::string cause = cause_of(finding.record);
    for (std::size_t i = 0; i < result_.findings.size(); ++i) {
      Finding& known = result_.findings[i];
      if (known.kernel != finding.kernel) continue;
      const auto same = [&](const Record& r) { return r.item.id == finding.record.item.id; };
      if (same(known.record) || std::ranges::any_of(known.like, same)) return true;
      if (!finding.repeats || !known.repeats || cause.empty() || cause_of(known.record) != cause) continue;
      known.like.push_back(finding.record);
      smallest_[i].push_back(smallest);
      if (events_.found_like) events_.found_like(i + 1, finding.record);
      return true;
    }
    return false;
  }

  /// Counts how often the smallest case fails.
  void repeat(const Draft& smallest, bool invariants, Finding& finding) {
    for (int i = 0; i < kRepeats && !stopped(); ++i) {
      const auto again = run_again(smallest, finding.kernel, invariants);
      if (!again) return;
      ++finding.run_again;
      finding.failed_again += is_failure(*again);
    }
  }

  bool fails_again(const Draft& draft, const Kernel* kernel, bool invariants, Record& record) {
    for (int i = 0; i < kRepeats && !stopped(); ++i) {
      auto again = run_again(draft, kernel, invariants);
      if (!again || again->status != record.status) continue;
      record = std::move(*again);
      return true;
    }
    return false;
  }

  Draft shrunk(Draft draft, bool invariants, Finding& finding) {
    const auto until = Clock::now() + std::chrono::duration<double>(options_.shrink_seconds);
    std::unordered_map<std::string, bool> known;  // different drafts may be one case
    const auto fails = [&](const Draft& d) {
      if (stopped() || Clock::now() >= until) return false;
      const auto item = reader_.read(d);
      if (!item) return false;
      const auto [it, is_new] = known.emplace(item->id, false);
      if (!is_new) return it->second;
      ++finding.tries;
      auto record = run_again(d, finding.kernel, invariants);
      if (!record || record->status != finding.record.status) return false;
      if (lse_alone(*record) && !lse_alone(finding.record)) return false;  // that says less about the cause
      finding.record = std::move(*record);
      return it->second = true;
    };
    return shrink(std::move(draft), options_.shrink_tries, fails).draft;
  }

  const FuzzOptions& options_;
  const FuzzEvents& events_;
  Clock::time_point begin_ = Clock::now();
  Random random_;
  std::vector<Generator> generators_;  ///< one for each kernel
  std::vector<std::size_t> turns_;     ///< kernels, each as often as its share
  DraftReader reader_;
  FuzzResult result_;
  std::vector<std::vector<Draft>> smallest_;  ///< for each finding its smallest case, and those like it
  int64_t drawn_ = 0;
  int64_t items_ = 0;
};

}  // namespace

int64_t FuzzResult::ran() const {
  int64_t n = 0;
  for (const FuzzTally& t : kernels) n += t.ran;
  return n;
}

int64_t FuzzResult::skipped() const {
  int64_t n = 0;
  for (const FuzzTally& t : kernels) n += t.skipped;
  return n;
}

int FuzzResult::exit_code() const {
  int code = 0;
  for (const FuzzTally& t : kernels) {
    if (t.failed > 0) code = worse_exit_code(code, 1);
  }
  for (const Finding& f : findings) {
    if (f.record.status != Status::kFail && f.record.status != Status::kUndecided)
      code = worse_exit_code(code, 5);
  }
  return ran() > 0 ? code : worse_exit_code(code, 6);
}

FuzzResult fuzz(const std::vector<const Kernel*>& kernels, const FuzzOptions& options,
                const FuzzEvents& events) {
  return Campaign(kernels, options, events).run();
}

}  // namespace attnbench
