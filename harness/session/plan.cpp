#include "harness/session/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <string_view>

#include "harness/digest.h"
#include "harness/launch/launcher.h"
#include "harness/results/text.h"
#include "harness/session/estimate.h"

namespace attnbench {
namespace {

/// The items of one case; they are adjacent in a plan.
struct Group {
  std::size_t begin, end;
  int64_t cost;  ///< microseconds; an integer, so that sums are the same on every machine
};

/// What a case costs on a machine of the default kind, whatever machine this is.
double typical_seconds(const CaseParams& params, DeviceKind device) {
  Machine machine;
  machine.device = device;
  const CaseSeconds s = estimated_seconds(params, machine, CheckMode::kSampled, false);
  return (s.check + s.time).middle();
}

}  // namespace

std::vector<WorkItem> plan_session(const std::vector<Case>& cases, KernelTable table, DeviceKind device,
                                   const std::vector<std::string>& kernel_names) {
  std::vector<WorkItem> out;
  for (const Case& c : cases) {
    const auto kernels = select_kernels(table, c.params.op, device, kernel_names);
    for (const Kernel* k : kernels) out.push_back({&c, k, static_cast<int64_t>(out.size())});
    // A chosen kernel of another op has nothing to do with the case; one of another device is skipped in words.
    const auto chosen = [&](const Kernel* k) {
      return k->op == c.params.op && std::count(kernel_names.begin(), kernel_names.end(), k->name) > 0;
    };
    if (kernels.empty() && (kernel_names.empty() || std::any_of(table.begin(), table.end(), chosen))) {
      out.push_back({&c, nullptr, static_cast<int64_t>(out.size())});
    }
  }
  return out;
}

SkipReason no_kernel(Op op, const std::string& device, bool chosen) {
  return {fmt::format("no kernel{} for {} on {}", chosen ? " of the chosen names" : "", op_name(op), device)};
}

std::string repro_line(const WorkItem& work, const std::string& device, const SessionOptions& options) {
  constexpr std::size_t kLongest = 1000;  // characters of a mapping that anybody would paste
  const Case& item = *work.item;
  std::string mapping = case_yaml(item.params, item.batch);
  // Lengths that a file lists one by one stand there, and not a second time in each line. A mapping cannot
  // hold tensors, nor a block table other than that of a replay.
  const bool drawn = item.params.served || item.params.page_layout == PageLayout::kRepeated;
  const bool given = item.params.captured || (item.params.blocks && !drawn);
  const bool named =
      (mapping.size() > kLongest || given) && !item.file.empty() && item.file != "--case" && !item.overridden;
  std::string line =
      fmt::format("attnbench run {}--case {} --seed {} --device {}", named ? shell_word(item.file) + " " : "",
                  shell_word(named ? item.id : mapping), item.seed, device);
  if (work.kernel) line += std::string(" --kernel ") + work.kernel->name;
  const auto plugin = options.plugin_of.find(work.kernel);
  if (plugin != options.plugin_of.end()) line += " --plugin " + shell_word(plugin->second);
  for (const std::string& arg : options.plain_args) line += " " + arg;
  if (options.timeout_s) line += fmt::format(" --timeout {:g}", *options.timeout_s);
  return line;
}

std::string crash_advice(const CaseParams& params, const Reached& reached) {
  if (reached.phase == Phase::kSetup) return "; it was in set-up: nothing had been launched for this case";
  const bool paged = params.paged() != (reached.invariant == "packed_paged");
  if (!paged || params.op == Op::kKvAppend) return "";  // slot_mapping leads to its pages
  const char* freed = params.expired == Expired::kFreed
                          ? ", without those of blocks that lie left of every query's window as a whole"
                          : "";
  return fmt::format(
      "; if it reads block_table where it should not: only the first ceil(seqused_k / block_size) entries of a row "
      "lead anywhere{}; all others are junk on purpose. Rows begin block_table_stride entries apart",
      freed);
}

std::string in_hand_text(const WorkItem& work, const SessionOptions& options) {
  std::string text = "case " + work.item->id;
  if (work.kernel) text += std::string(", kernel ") + work.kernel->name;
  const auto plugin = options.plugin_of.find(work.kernel);
  return plugin == options.plugin_of.end() ? text : text + " of " + plugin->second;
}

const std::vector<DType>& ceiling_dtypes() {
  static const std::vector<DType> list = {DType::kBf16, DType::kFp16, DType::kFp32, DType::kE4m3,
                                          DType::kInt8};
  return list;
}

std::string plan_digest(const std::vector<WorkItem>& work) {
  Digest digest;
  for (const WorkItem& w : work) {
    for (const std::string& text :
         {w.item->id, std::string(w.kernel ? w.kernel->name : ""), std::to_string(w.item->seed)}) {
      digest.add_text(text);
      digest.add_word(0);  // the end of a text
    }
  }
  return fmt::format("{:016x}", digest.value());
}

std::vector<WorkItem> shard_of(const std::vector<WorkItem>& work, DeviceKind device, int index, int count) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < work.size(); ++i) {
    if (i == 0 || work[i].item != work[i - 1].item) {
      groups.push_back({i, i, 1000 + std::llround(1e6 * typical_seconds(work[i].item->params, device))});
    }
    groups.back().end = i + 1;
  }
  const auto cost = [&](const Group& g) { return g.cost * static_cast<int64_t>(g.end - g.begin); };
  // The most expensive first, each to the shard with the least cost so far (R. L. Graham's LPT rule).
  std::vector<std::size_t> order(groups.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const int64_t x = cost(groups[a]), y = cost(groups[b]);
    return x != y ? x > y : work[groups[a].begin].item->id < work[groups[b].begin].item->id;
  });
  using Load = std::pair<int64_t, int>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int s = 1; s <= count; ++s) loads.push({0, s});
  std::vector<std::size_t> mine;
  for (const std::size_t g : order) {
    auto [load, shard] = loads.top();
    loads.pop();
    loads.push({load + cost(groups[g]), shard});
    if (shard == index) mine.push_back(g);
  }
  std::sort(mine.begin(), mine.end());
  std::vector<WorkItem> share;
  for (const std::size_t g : mine) {
    for (std::size_t i = groups[g].begin; i < groups[g].end; ++i) share.push_back(work[i]);
  }
  return share;
}

void describe_plan(RunContext& context, const std::vector<WorkItem>& whole,
                   const std::vector<WorkItem>& share, const SessionOptions& options) {
  context.planned = static_cast<int64_t>(share.size());
  context.plan.digest = plan_digest(whole);
  context.plan.size = static_cast<int64_t>(whole.size());
  context.plan.options = {
      {"arguments", fmt::format("{}", fmt::join(options.plain_args, " "))},
      {"clock", options.time ? clock_name(options.timing.clock) : ""},
      {"min_time_s", fmt::format("{:g}", options.time ? options.timing.min_time_s : 0)},
      {"max_samples", std::to_string(options.time ? options.timing.max_samples : 0)},
  };
}

}  // namespace attnbench
