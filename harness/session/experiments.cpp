#include "harness/session/experiments.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/judge/bitwise.h"
#include "harness/judge/clues.h"
#include "harness/launch/refused_launch.h"
#include "harness/session/weight_launches.h"

namespace attnbench {
namespace {

/// What is not finite in the rows of queries. An LSE of -inf is none of it: rows without keys have it.
struct NotFinite {
  std::vector<std::size_t> of_o;  ///< elements
  std::size_t inf = 0;            ///< of these
  std::size_t lse = 0;
  double least = INFINITY, most = -INFINITY;  ///< LSE of rows with such elements

  bool none() const { return of_o.empty() && lse == 0; }
  std::string text() const {
    return inf == 0 ? "NaN" : inf == of_o.size() && lse == 0 ? "inf" : "NaN and inf";
  }
};

NotFinite not_finite(const CaseParams& p, const HostOutputs& h) {
  NotFinite found;
  const std::vector<int64_t> begins = packed_q_begins(p);
  const auto total = static_cast<std::size_t>(begins.back()), heads = static_cast<std::size_t>(p.num_heads_q),
             dim = static_cast<std::size_t>(p.dim_v());
  for (std::size_t row = 0; row < total * heads; ++row) {
    const auto token = static_cast<int64_t>(row / heads);
    const auto next = std::ranges::upper_bound(begins, token);
    const auto seq = static_cast<std::size_t>(next - begins.begin() - 1);
    if (token - begins[seq] >= p.seqs[seq].q) continue;  // a row of no query
    const auto lse = h.no_lse ? 0 : static_cast<double>(h.lse[row % heads * total + row / heads]);
    found.lse += std::isnan(lse) || lse == INFINITY;
    const std::size_t before = found.of_o.size();
    for (std::size_t at = row * dim; at < (row + 1) * dim; ++at) {
      const float x = load_float(p.type_of_out(), h.out.data(), static_cast<int64_t>(at));
      if (std::isfinite(x)) continue;
      found.of_o.push_back(at);
      found.inf += std::isinf(x);
    }
    if (found.of_o.size() == before || h.no_lse || std::isnan(lse)) continue;
    found.least = std::min(found.least, lse);
    found.most = std::max(found.most, lse);
  }
  return found;
}

class Experiments {
 public:
  Experiments(const WorkItem& work, Workload& workload, Launcher& launcher, Device& device,
              const SessionOptions& options, const HostOutputs& first, Verdict& v)
      : work_(work),
        p_(work.item->params),
        workload_(workload),
        launcher_(launcher),
        device_(device),
        options_(options),
        first_(first),
        v_(v) {}

  /// Where what is not finite comes from.
  void tell_not_finite() {
    if (!p_.does().forward() || p_.path != Path::kOneCall) return;
    const NotFinite found = not_finite(p_, first_);
    if (found.none()) return;
    if (!work_.experiments) {
      return say(
          "no experiments looked for the cause of {}: {} failing cases of this run had them; the line that reproduces "
          "this case makes them",
          found.text(), kMostExperiments);
    }
    workload_.reset_outputs(0);
    launcher_.launch();
    device_.synchronize();
    const HostOutputs other = launcher_.outputs(workload_);
    tell_unwritten(found, other);
    const NotFinite computed = not_finite(p_, other);
    if (computed.lse > 0) {  // the kernel wrote these NaN
      std::erase_if(v_.clues, [](const std::string& clue) {
        return clue.starts_with("the LSE of") && clue.ends_with(kNotWritten);
      });
    }
    if (computed.none() || !p_.does().attends) return;
    const NotFinite* left = &computed;
    std::optional<NotFinite> finite;
    if ((work_.kernel->flags & kFinitePadding) == 0) {
      if (!(finite = launched(*work_.item))) return;
      if (finite->of_o.size() + finite->lse < computed.of_o.size() + computed.lse) {
        say("{} comes from memory that must not be read, such as {}behind a sequence's last key or in unused pages{}: it is "
            "{} (checked by running again without poison)",
            computed.text(), p_.expired == Expired::kKept ? "" : "left of every window, ",
            computed.lse == 0 && !first_.no_lse ? "; from V, as no LSE has it" : "",
            finite->none() ? "gone without poison" : "gone in part without poison");
      }
      left = &*finite;
    }
    if (!left->none()) tell_arithmetic(*left);
  }

  /// Whether a clue has named the cause.
  bool known() const {
    return std::ranges::any_of(v_.clues, [](const std::string& clue) {
      const bool guess = clue.find("perhaps") != clue.npos;
      return (clue.starts_with("looks like:") && !guess) || clue.find("(checked by") != clue.npos;
    });
  }

  /// What the weights of keys are, as launches on other V show it.
  void tell_weights() {
    if (!work_.experiments) return;
    const double begin = seconds();  // what the second launch took
    const auto left = [&] { return begin + kWeightSeconds - seconds(); };
    const auto found = clues_of_weights(work_, device_, options_.table, launcher_, v_.worst.seq, begin, left);
    if (found.empty()) return;
    for (std::string& clue : v_.clues) {  // what was guessed of sums and places is known now
      const bool of_sums = clue == v_.clues.front() || clue.starts_with("O is right but for a factor") ||
                           clue.starts_with("all wrong rows see");
      const std::size_t guess = of_sums ? clue.find(": perhaps") : clue.npos;
      if (guess != clue.npos) clue.erase(guess, clue.find("; typical", guess) - guess);
    }
    v_.clues.insert(v_.clues.end(), found.begin(), found.end());
  }

  /// From how many keys on a sequence is wrong, if launches of it alone with other lengths and values all agree.
  void tell_length() {
    const bool other = p_.append || p_.blocks || p_.captured || p_.topk > 0 || p_.shared_tokens() > 0;
    if (!p_.does().forward() || p_.path != Path::kOneCall || other || !work_.experiments) return;
    const auto seq = static_cast<std::size_t>(v_.worst.seq);
    if (seq >= p_.seqs.size()) return;
    const int longest = p_.seqs[seq].k;
    if (is_wrong(longest, 0) != true) return;
    int right = 0, wrong = longest, launches = 1;
    for (; wrong - right > 1; ++launches) {
      const int middle = right + (wrong - right) / 2;
      const auto found = is_wrong(middle, 0);
      if (!found) return;
      (*found ? wrong : right) = middle;
    }
    // Tiles, pages and parts end at such a number; errors that grow with the keys anywhere.
    constexpr int kLeastTile = 8;
    const bool behind = right % kLeastTile == 0;
    if (right < kLeastTile - 1 || (!behind && wrong % kLeastTile != 0)) return;
    // If each of these were wrong by chance, they would agree in one of 2^14 cases or fewer.
    const std::set<int> below = {1, right / 4, right / 3, right / 2, right * 3 / 4, right - 2, right - 1};
    const std::set<int> above = {wrong + 1,         wrong + 2,     wrong + 3, wrong + 5,
                                 wrong + wrong / 2, 2 * wrong - 1, 2 * wrong, 2 * wrong + 1};
    std::vector<std::pair<int, bool>> others = {{right, false}, {wrong, true}, {right, false}, {wrong, true}};
    for (const int k : below) others.emplace_back(k, false);
    for (const int k : above) others.emplace_back(k, true);
    uint64_t seed = 0;
    for (const auto& [k, expected] : others) {
      if (is_wrong(k, ++seed) != expected) return;
      ++launches;
    }
    say("a sequence alone is right with up to {} keys and wrong with more (checked by {} launches of other lengths and "
        "values): perhaps {}",
        right, launches,
        behind ? fmt::format("what follows the first {} keys, such as a second tile, page or part", right)
               : fmt::format("a tile, page or part of {} keys once it is full", wrong));
  }

 private:
  /// Whether a launch of the worst row's sequence alone is wrong with so many keys, and with values of another seed.
  /// Nothing if there is no time for it, or the kernel refuses.
  std::optional<bool> is_wrong(int k, uint64_t seed) {
    const double now = seconds();
    if (now + last_s_ > kExperimentSeconds) return std::nullopt;
    Case c = *work_.item;
    c.seed += seed;
    c.params.seqs = {{std::min(p_.seqs[static_cast<std::size_t>(v_.worst.seq)].q, k), k}};
    if (refusal(*work_.kernel, options_.table, device_, c)) return std::nullopt;
    Workload w(device_, c, layout_for(*work_.kernel));
    Launcher launcher(*work_.kernel, options_.table, device_, w, &launcher_);
    w.reset_outputs();
    launcher.launch();
    device_.synchronize();
    const bool wrong = !verify(w, launcher.outputs(w), launcher.numerics(), {CheckMode::kSampled, 1}).pass;
    last_s_ = seconds() - now;
    return wrong;
  }

  template <class... T>
  void say(fmt::format_string<T...> text, T&&... values) {
    v_.clues.push_back(fmt::format(text, std::forward<T>(values)...));
  }

  /// Elements that a launch on outputs of 0, which left `other`, did not write, or added to what was there.
  void tell_unwritten(const NotFinite& found, const HostOutputs& other) {
    const std::size_t size = dtype_size(p_.type_of_out());
    const auto has_bytes = [size](const HostOutputs& o, std::size_t at, unsigned char byte) {
      const auto element = std::span(o.out).subspan(at * size, size);
      return std::ranges::all_of(element, [byte](unsigned char b) { return b == byte; });
    };
    std::size_t zeros = 0, read = 0;
    for (const std::size_t at : found.of_o) {
      const bool zero = has_bytes(other, at, 0);
      zeros += zero && has_bytes(first_, at, 0xff);  // what nobody wrote has all bits one
      read +=
          !zero && std::isfinite(load_float(p_.type_of_out(), other.out.data(), static_cast<int64_t>(at)));
    }
    const auto of = [&](std::size_t n) {
      return n == found.of_o.size() ? std::to_string(n)
                                    : fmt::format("{} of the {} NaN", n, found.of_o.size());
    };
    if (zeros > 0) {
      // The first clue, and the only one about these rows.
      if (zeros == found.of_o.size())
        std::erase_if(v_.clues, [](const std::string& clue) { return clue.find(kNotWritten) != clue.npos; });
      v_.clues.insert(
          v_.clues.begin(),
          fmt::format("{} elements of O were {}: they are 0 in a launch whose outputs held 0 before",
                      of(zeros), kNotWritten));
    }
    if (read > 0) {
      say("{} elements of O are finite in a launch whose outputs held 0 before: O is read before it is written",
          of(read));
    }
  }

  /// What is not finite in a launch on `c` without poison, with q and V multiplied by powers of two and a workspace of some
  /// byte. Nothing if there is no time or no memory for
  /// it, or the kernel refuses.
  std::optional<NotFinite> launched(const Case& c, float q = 1, float v = 1,
                                    unsigned char workspace_byte = 0xff) {
    missing_ = true;
    const double now = seconds();
    if (now + last_s_ > kExperimentSeconds) {
      say("the time for experiments on this case is over ({} s)", kExperimentSeconds);
      return std::nullopt;
    }
    if (refusal(*work_.kernel, options_.table, device_, c)) return std::nullopt;
    LayoutVariant layout = layout_for(*work_.kernel);
    layout.finite_padding = true;
    Workload w(device_, c, layout);
    if (q != 1) w.scale_input("q", p_.type_of_q(), q);
    if (v != 1) w.scale_input("v", p_.type_of_v(), v);
    Launcher launcher(*work_.kernel, options_.table, device_, w, &launcher_, workspace_byte);
    w.reset_outputs(0);
    launcher.launch();
    device_.synchronize();
    NotFinite found = not_finite(p_, launcher.outputs(w));
    last_s_ = seconds() - now;
    missing_ = false;
    return found;
  }

  /// What is there without poison is computed. Says whether it is so with small scores, and with small values.
  void tell_arithmetic(const NotFinite& left) {
    constexpr float kSmall = 0x1p-10f;
    constexpr double kLeastSum = -87, kMostSum = 88;  ///< logs of the least normal float and of the largest
    const std::string what = left.text();
    const auto gone = [](const std::optional<NotFinite>& other) { return other && other->none(); };
    if (gone(launched(*work_.item, kSmall))) {
      if (p_.softcap > 0) {
        Case wide = *work_.item;
        wide.params.softcap *= 1024;
        if (gone(launched(wide))) {
          return say(
              "{} is computed in the softcap, such as inf / inf in tanh (checked by running again with q / 1024, and "
              "with a softcap 1024 times as large: it is gone in both)",
              what);
        }
      }
      const char* how = left.most < kLeastSum ? ": sums of exp underflow, as LSEs of these rows are below -87"
                        : left.least > kMostSum ? ": exp overflows, as LSEs of these rows are above 88"
                                                : "";
      return say(
          "{} is computed where scores, or exponentials of them, leave the range of a type{} (checked by running "
          "again with q / 1024: it is gone)",
          what, how);
    }
    if (missing_) return;
    const bool scaled =
        workload_.find("v") != nullptr && (is_fp8(p_.type_of_v()) || dtype_size(p_.type_of_v()) > 1);
    if (scaled && gone(launched(*work_.item, 1, kSmall))) {
      return say(
          "{} is computed where sums of P V, or O, leave the range of a type (checked by running again with V / 1024: "
          "it is gone)",
          what);
    }
    if (missing_) return;
    if (launcher_.workspace_bytes() > 0 && gone(launched(*work_.item, 1, 1, 0))) {
      return say(
          "{} comes from the workspace, which is read before it is written (checked by running again with a workspace "
          "of zeros: it is gone)",
          what);
    }
    if (missing_) return;
    say("{} is computed, whatever is read: it is there without poison and with q / 1024{}, as from 0 / 0, inf - inf or "
        "a NaN of the kernel's own",
        what, scaled ? " or V / 1024" : "");
  }

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

  const WorkItem& work_;
  const CaseParams& p_;
  Workload& workload_;
  Launcher& launcher_;
  Device& device_;
  const SessionOptions& options_;
  const HostOutputs& first_;
  Verdict& v_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double last_s_ = 0;     ///< what the last experiment took
  bool missing_ = false;  ///< the last one did not take place
};

/// Launches a wrong case again on the same inputs, which tells a race from a wrong formula. Returns what that
/// shows, in words. Leaves the outputs of the second launch.
std::string second_launch(const WorkItem& work, Workload& workload, Launcher& launcher, Device& device,
                          const Check& check, const HostOutputs& first, uint64_t digest) {
  try {
    workload.reset_outputs();
    launcher.launch();
    device.synchronize();
    if (workload.outputs_digest() == digest) return "";
    const HostOutputs second = launcher.outputs(workload);
    const Verdict again = verify(workload, second, launcher.numerics(), check);
    if (again.pass) return fmt::format("{} was right: {}", kSecondLaunch, kARace);
    if (!(work.kernel->flags & kDeterministic))
      return fmt::format("{} was wrong in other bits, which this kernel does not promise to repeat",
                         kSecondLaunch);
    const auto where =
        work.item->params.does().attends ? first_difference(*work.item, first, second) : std::nullopt;
    return fmt::format("{} gave other numbers{}: {}", kSecondLaunch, where ? " (" + *where + ")" : "",
                       kARace);
  } catch (const std::exception& e) {  // the first launch's verdict stands
    return fmt::format("{} failed: {}", kSecondLaunch, e.what());
  }
}

}  // namespace

bool took_experiments(const Record& record) {
  return record.status == Status::kFail && record.check &&
         !std::ranges::all_of(record.check->failed_by,
                              [](const std::string& by) { return by.starts_with(detector::kInvariant); });
}

void tell_by_launches(const WorkItem& work, Workload& workload, Launcher& launcher, Device& device,
                      const SessionOptions& options, const Check& check, const HostOutputs& first,
                      uint64_t digest, Verdict& v) {
  Experiments experiments(work, workload, launcher, device, options, first, v);
  const auto tell = [&](void (Experiments::*about)()) {
    try {
      (experiments.*about)();
    } catch (const MemoryFault& e) {
      v.clues.push_back(fmt::format("a launch that looked for the cause failed: {}", e.what()));
      return false;
    } catch (const std::exception&) {  // the first launch's verdict stands
    }
    return true;
  };
  for (const char* damage : {detector::kGuard, detector::kInputDigest}) {
    if (std::count(v.failed_by.begin(), v.failed_by.end(), damage) > 0) return;  // it would show in them, too
  }
  if (!tell(&Experiments::tell_not_finite)) return;
  const std::string other = second_launch(work, workload, launcher, device, check, first, digest);
  const char* same = "a second launch gave the same bits";
  if (!other.empty()) {
    v.clues.push_back(other);
  } else if (v.clues.empty()) {
    v.clues.emplace_back(same);
  } else {
    v.clues.front() += std::string("; ") + same;
  }
  if (!other.empty() || experiments.known()) return;
  if (tell(&Experiments::tell_weights)) tell(&Experiments::tell_length);
}

}  // namespace attnbench
