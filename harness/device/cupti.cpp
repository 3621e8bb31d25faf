#include "harness/device/cupti.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "harness/device/cupti_api.h"

namespace attnbench {
namespace {

using cupti::params;

/// A figure, and the metrics that may give it; a chip has one of them.
struct Figure {
  std::optional<double> CounterReading::*field;
  std::vector<std::pair<const char*, const char*>> metrics;  ///< base name and suffix
};

const std::vector<Figure>& figures() {
  static const std::vector<Figure> list = {
      // The second names are those on Blackwell.
      {&CounterReading::dram_read_bytes, {{"dram__bytes_read", ".sum"}, {"dram__bytes_op_read", ".sum"}}},
      {&CounterReading::dram_write_bytes, {{"dram__bytes_write", ".sum"}, {"dram__bytes_op_write", ".sum"}}},
      // A share of the cycles in which a multiprocessor has work, not of all cycles of the range: the range
      // includes the profiler's own work before and after the launch.
      {&CounterReading::tensor_active_percent,
       {{"sm__pipe_tensor_cycles_active", ".avg.pct_of_peak_sustained_active"}}},
      {&CounterReading::l2_hit_percent, {{"lts__t_sector_hit_rate", ".pct"}}},
  };
  return list;
}

}  // namespace

struct Cupti::Impl {
  explicit Impl(const cupti::Api& functions) : api(functions) {}
  ~Impl() {
    if (host == nullptr) return;
    auto p = params<cupti::HostDeinitialize>();
    p.host = host;
    api.host_deinitialize(&p);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void open_chip(int ordinal);
  void choose_metrics();
  void plan_passes();

  cupti::Api api;
  std::string chip;
  void* host = nullptr;
  std::vector<std::string> names;  ///< one metric name for each of `fields`
  std::vector<const char*> name_pointers;
  std::vector<std::optional<double> CounterReading::*> fields;
  std::vector<uint8_t> config;  ///< which metrics are collected in which pass
};

void Cupti::Impl::open_chip(int ordinal) {
  auto init = params<cupti::Initialize>();
  api.check(api.initialize(&init), "cuptiProfilerInitialize");
  auto name = params<cupti::ChipName>();
  name.device = static_cast<std::size_t>(ordinal);
  api.check(api.chip_name(&name), "cuptiDeviceGetChipName");
  chip = name.chip != nullptr ? name.chip : "";
  auto p = params<cupti::HostInitialize>();
  p.type = cupti::kRangeProfiler;
  p.chip = chip.c_str();
  api.check(api.host_initialize(&p), fmt::format("cuptiProfilerHostInitialize for {}", chip).c_str());
  host = p.host;
}

void Cupti::Impl::choose_metrics() {
  std::set<std::string> known;
  for (const int type : {cupti::kMetricCounter, cupti::kMetricRatio}) {
    auto base = params<cupti::BaseMetrics>();
    base.host = host;
    base.type = type;
    api.check(api.base_metrics(&base), "cuptiProfilerHostGetBaseMetrics");
    for (std::size_t i = 0; i < base.count; ++i) known.insert(base.names[i]);
  }
  for (const Figure& figure : figures()) {
    for (const auto& [base, suffix] : figure.metrics) {
      if (known.count(base) == 0) continue;
      names.push_back(std::string(base) + suffix);
      fields.push_back(figure.field);
      break;
    }
  }
  if (names.empty()) throw cupti::Refusal(fmt::format("CUPTI has none of the counters for {}", chip));
  for (const std::string& n : names) name_pointers.push_back(n.c_str());
}

void Cupti::Impl::plan_passes() {
  auto add = params<cupti::AddMetrics>();
  add.host = host;
  add.names = name_pointers.data();
  add.count = name_pointers.size();
  api.check(api.add_metrics(&add), "cuptiProfilerHostConfigAddMetrics");
  auto size = params<cupti::ConfigSize>();
  size.host = host;
  api.check(api.config_size(&size), "cuptiProfilerHostGetConfigImageSize");
  config.resize(size.bytes);
  auto image = params<cupti::ConfigImage>();
  image.host = host;
  image.bytes = config.size();
  image.image = config.data();
  api.check(api.config_image(&image), "cuptiProfilerHostGetConfigImage");
}

namespace {

/// The profiler while it is attached to a context.
class Attached {
 public:
  Attached(const cupti::Api& api, void* context) : api_(api) {
    auto p = params<cupti::Enable>();
    p.context = context;
    api.check(api.enable(&p), "cuptiRangeProfilerEnable");
    profiler_ = p.profiler;
  }
  ~Attached() {  // also after an error in a pass
    auto p = of_profiler();
    if (in_range_) api_.pop_range(&p);
    if (started_) {
      auto s = params<cupti::Stop>();
      s.profiler = profiler_;
      api_.stop(&s);
    }
    api_.disable(&p);
  }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

  /// A buffer for the counters of one range.
  std::vector<uint8_t> make_counters(const std::vector<const char*>& names) const {
    std::vector<const char*> copy = names;  // CUPTI takes pointers to non-const names
    auto size = params<cupti::CountersSize>();
    size.profiler = profiler_;
    size.names = copy.data();
    size.count = copy.size();
    size.max_ranges = 1;
    size.max_nodes = 1;
    api_.check(api_.counters_size(&size), "cuptiRangeProfilerGetCounterDataSize");
    std::vector<uint8_t> counters(size.bytes);
    auto init = params<cupti::CountersInitialize>();
    init.profiler = profiler_;
    init.bytes = counters.size();
    init.counters = counters.data();
    api_.check(api_.counters_initialize(&init), "cuptiRangeProfilerCounterDataImageInitialize");
    return counters;
  }

  void configure(const std::vector<uint8_t>& config, std::vector<uint8_t>& counters) const {
    auto p = params<cupti::SetConfig>();
    p.profiler = profiler_;
    p.config_bytes = config.size();
    p.config = config.data();
    p.counters_bytes = counters.size();
    p.counters = counters.data();
    p.range = cupti::kUserRange;
    p.replay = cupti::kUserReplay;
    p.max_ranges = 1;
    p.num_levels = 1;
    p.min_level = 1;
    p.target_level = 1;
    api_.check(api_.set_config(&p), "cuptiRangeProfilerSetConfig");
  }

  /// Counts one launch. Returns true when all counters have been collected.
  bool pass(const std::function<void()>& prepare, const std::function<void()>& launch) {
    auto p = of_profiler();
    api_.check(api_.start(&p), "cuptiRangeProfilerStart");
    started_ = true;
    prepare();
    auto push = params<cupti::PushRange>();
    push.profiler = profiler_;
    push.name = "launch";
    api_.check(api_.push_range(&push), "cuptiRangeProfilerPushRange");
    in_range_ = true;
    launch();
    in_range_ = false;
    api_.check(api_.pop_range(&p), "cuptiRangeProfilerPopRange");
    auto stop = params<cupti::Stop>();
    stop.profiler = profiler_;
    started_ = false;
    api_.check(api_.stop(&stop), "cuptiRangeProfilerStop");
    return stop.all_submitted != 0;
  }

  void decode() const {
    auto p = params<cupti::Decode>();
    p.profiler = profiler_;
    api_.check(api_.decode(&p), "cuptiRangeProfilerDecodeData");
    if (p.dropped > 0) throw cupti::Refusal("CUPTI dropped what it had counted");
  }

 private:
  cupti::OfProfiler of_profiler() const {
    auto p = params<cupti::OfProfiler>();
    p.profiler = profiler_;
    return p;
  }

  const cupti::Api& api_;
  void* profiler_ = nullptr;
  bool started_ = false;
  bool in_range_ = false;
};

}  // namespace

std::vector<std::string> cupti_libraries() {
  const std::vector<std::string> names = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
  std::vector<std::string> out = names;
  std::vector<std::string> toolkits;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* path = std::getenv(variable); path != nullptr && *path != '\0')
      toolkits.emplace_back(path);
  }
  toolkits.emplace_back("/usr/local/cuda");
  for (const std::string& toolkit : toolkits) {
    for (const char* folder : {"/lib64/", "/extras/CUPTI/lib64/"}) {
      for (const std::string& name : names) out.push_back(fmt::format("{}{}{}", toolkit, folder, name));
    }
  }
  return out;
}

std::unique_ptr<Cupti> Cupti::open(int ordinal, std::string& why_not,
                                   const std::vector<std::string>& libraries) {
  try {
    auto impl = std::make_unique<Impl>(cupti::Api::load(libraries));
    impl->open_chip(ordinal);
    impl->choose_metrics();
    impl->plan_passes();
    return std::unique_ptr<Cupti>(new Cupti(std::move(impl)));
  } catch (const cupti::Refusal& e) {
    why_not = e.what();
    return nullptr;
  }
}

Cupti::Cupti(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Cupti::~Cupti() = default;

CounterReading Cupti::count(void* context, const std::function<void()>& prepare,
                            const std::function<void()>& launch) {
  CounterReading out;
  Impl& i = *impl_;
  try {
    Attached profiler(i.api, context);
    std::vector<uint8_t> counters = profiler.make_counters(i.name_pointers);
    profiler.configure(i.config, counters);
    bool done = false;
    while (!done) {
      if (out.launches == kMaxPasses) {
        throw cupti::Refusal(fmt::format("the counters were not complete after {} launches", kMaxPasses));
      }
      done = profiler.pass(prepare, launch);
      ++out.launches;
    }
    profiler.decode();

    auto info = params<cupti::CountersInfo>();
    info.counters = counters.data();
    info.counters_bytes = counters.size();
    i.api.check(i.api.counters_info(&info), "cuptiRangeProfilerGetCounterDataInfo");
    if (info.ranges != 1) throw cupti::Refusal(fmt::format("CUPTI counted {} ranges, not one", info.ranges));
    std::vector<double> values(i.names.size(), std::nan(""));
    auto p = params<cupti::Evaluate>();
    p.host = i.host;
    p.counters = counters.data();
    p.counters_bytes = counters.size();
    p.names = i.name_pointers.data();
    p.count = values.size();
    p.values = values.data();
    i.api.check(i.api.evaluate(&p), "cuptiProfilerHostEvaluateToGpuValues");
    for (std::size_t k = 0; k < values.size(); ++k) {
      if (std::isfinite(values[k])) out.*(i.fields[k]) = values[k];
    }
  } catch (const cupti::Refusal& e) {
    out = CounterReading{};
    out.reason = e.what();
  }
  return out;
}

}  // namespace attnbench
