#include "harness/selftest/sensitivity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "harness/judge/error_model.h"
#include "harness/judge/verify.h"
#include "harness/launch/last_words.h"
#include "harness/ops/attention_backward/faults_host.h"
#include "harness/ops/op.h"
#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

constexpr int kStepsPerOctave = 4;

/// The sizes of a fault: 2^(i / 4) for i from low to high, or i itself if `whole`.
struct Scale {
  int low, high;
  bool whole;
  double size(int i) const { return whole ? i : std::exp2(static_cast<double>(i) / kStepsPerOctave); }
};

constexpr Scale kRelativeSizes{-24 * kStepsPerOctave, -2 * kStepsPerOctave, false};
constexpr Scale kTokenCounts{1, 256, true};

Threshold smallest(const char* fault, const Scale& scale, const std::function<Verdict(double)>& judge) {
  Threshold t{.fault = fault};
  int missed = scale.low - 1;
  int caught = scale.high + 1;
  while (caught - missed > 1) {
    const int i = missed + (caught - missed) / 2;
    const Verdict v = judge(scale.size(i));
    if (v.failed_by.empty()) {
      missed = i;
      t.missed = scale.size(i);
    } else {
      caught = i;
      t.smallest = scale.size(i);
      t.caught_by = v.failed_by.front();
    }
  }
  return t;
}

/// A case on the kernel, launched with faults.
class Measurement {
 public:
  Measurement(const Case& item, const Kernel& kernel, Device& device)
      : device_(device),
        tamper_(kernel, device),
        workload_(device, item, layout_for(kernel)),
        launcher_(tamper_.armed([this](Tamper& t, const OpParams& op) { return fault_(t, op); }), {}, device,
                  workload_),
        numerics_(launcher_.numerics()) {}
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;
  virtual ~Measurement() = default;

  const Case& item() const { return workload_.item(); }
  DType p_type() const { return numerics_.p_type; }
  /// Judges from now on as if the kernel declared this type of P.
  virtual void set_p_type(DType p) { numerics_.p_type = p; }
  /// Judges the kernel itself. Call it before find_faults().
  virtual Verdict clean() = 0;
  virtual std::vector<Threshold> find_faults() = 0;

 protected:
  HostOutputs launch(Tamper::Fault fault) {
    fault_ = std::move(fault);
    workload_.reset_outputs();
    launcher_.launch();
    device_.synchronize();
    return launcher_.outputs(workload_);
  }
  const Numerics& numerics() const { return numerics_; }

 private:
  Device& device_;
  Tamper tamper_;
  Tamper::Fault fault_;
  Workload workload_;
  Launcher launcher_;
  Numerics numerics_;
};

Tamper::Fault wrong_scale(double size) {
  return with_params(
      [size](Tamper&, AttentionParams& p) { p.softmax_scale *= static_cast<float>(1 + size); });
}

Tamper::Fault dropped_keys(double size) {
  return with_params([size](Tamper& t, AttentionParams& p) {
    change_lengths(t, p, [size](int, int32_t k) { return k - static_cast<int32_t>(size); });
  });
}

Tamper::Fault wrong_lse(double size) {
  return afterwards<&OpParams::attention>([size](Tamper& t, const AttentionParams& p) {
    t.edit(p, [size](OutView& out) {
      for (float& x : out.lse) x += static_cast<float>(size);
    });
  });
}

class AttentionMeasurement : public Measurement {
 public:
  AttentionMeasurement(const Case& item, const Kernel& kernel, Device& device)
      : Measurement(item, kernel, device), reference_(item, CheckMode::kSampled) {}

  Verdict clean() override {
    return judge(with_params([](Tamper&, AttentionParams&) {}));
  }

  std::vector<Threshold> find_faults() override {
    const auto any = [this](auto fault) { return [this, fault](double size) { return judge(fault(size)); }; };
    const auto of_o = [this](auto fault) {
      return [this, fault](double size) {
        Verdict v = judge(fault(size));
        std::erase(v.failed_by, detector::kLse);
        return v;
      };
    };
    return {smallest("scale", kRelativeSizes, any(wrong_scale)),
            smallest("scale_o", kRelativeSizes, of_o(wrong_scale)),
            smallest("dropped_keys", kTokenCounts, any(dropped_keys)),
            smallest("dropped_keys_o", kTokenCounts, of_o(dropped_keys)),
            smallest("lse", kRelativeSizes, any(wrong_lse))};
  }

 private:
  Verdict judge(Tamper::Fault fault) { return reference_.judge(launch(std::move(fault)), numerics()); }

  StoredReference reference_;
};

/// Multiplies the numbers by 1 + size as if before they were rounded: up or down at random, so that the mean of
/// the error is as large as it should be.
void scale_rounded(DType t, double size, std::vector<unsigned char>& values) {
  std::minstd_rand rng(1);
  const double u = 2 * unit_roundoff(t);
  for (int64_t i = 0; i < std::ssize(values) / static_cast<int64_t>(dtype_size(t)); ++i) {
    const auto x = static_cast<double>(load_float(t, values.data(), i));
    if (x == 0 || !std::isfinite(x)) continue;
    const double spacing = std::max(least_spacing(t), u * std::exp2(std::floor(std::log2(std::abs(x)))));
    const double share = static_cast<double>(rng()) / static_cast<double>(std::minstd_rand::max()) - 0.5;
    store_float(t, values.data(), i, static_cast<float>(x * (1 + size) + share * spacing));
  }
}

/// The rows of the last `size` tokens become zero in a copy of the tensor.
const void* without_last(Tamper& t, const void* from, DType dtype, int64_t tokens, int64_t stride,
                         double size) {
  const int64_t row = stride * static_cast<int64_t>(dtype_size(dtype));
  auto copy = t.read<unsigned char>(from, tokens * row);
  const int64_t zeros = std::min(tokens, static_cast<int64_t>(size)) * row;
  std::fill(copy.end() - zeros, copy.end(), static_cast<unsigned char>(0));
  return t.put(copy);
}

class GradientMeasurement : public Measurement {
 public:
  using Measurement::Measurement;

  void set_p_type(DType p) override {
    Measurement::set_p_type(p);
    reference_.reset();
  }

  Verdict clean() override {
    right_ = launch(with_backward([](Tamper&, AttentionBackwardParams&) {}));
    return judge(right_);
  }

  std::vector<Threshold> find_faults() override {
    const auto factor = [this](std::vector<unsigned char> HostOutputs::*gradient) {
      return [this, gradient](double size) {
        HostOutputs h = right_;
        scale_rounded(item().params.dtype, size, h.*gradient);
        return judge(h);
      };
    };
    // O and LSE are inputs. So a key of zeros, or a query whose dO is zero, adds nothing to the sums over it,
    // and every other term stays as it is.
    const auto keys = [this](double size) {
      HostOutputs h = right_;
      h.dq = launch(with_backward([size](Tamper& t, AttentionBackwardParams& p) {
               p.k = without_last(t, p.k, p.dtype, p.total_k, p.k_stride_token, size);
             })).dq;
      return judge(h);
    };
    const auto queries = [this](double size) {
      HostOutputs h = launch(with_backward([size](Tamper& t, AttentionBackwardParams& p) {
        p.d_out = without_last(t, p.d_out, p.dtype, p.total_q, p.d_out_stride_token, size);
      }));
      h.dq = right_.dq;
      return judge(h);
    };
    const auto scale = [this](double size) {
      return judge(launch(with_backward(
          [size](Tamper&, AttentionBackwardParams& p) { p.softmax_scale *= static_cast<float>(1 + size); })));
    };
    return {smallest("scale", kRelativeSizes, scale),
            smallest("dq", kRelativeSizes, factor(&HostOutputs::dq)),
            smallest("dk", kRelativeSizes, factor(&HostOutputs::dk)),
            smallest("dv", kRelativeSizes, factor(&HostOutputs::dv)),
            smallest("dropped_keys", kTokenCounts, keys),
            smallest("dropped_queries", kTokenCounts, queries)};
  }

 private:
  Verdict judge(const HostOutputs& h) {
    if (!reference_) reference_ = std::make_unique<StoredGradients>(item(), numerics(), CheckMode::kSampled);
    return reference_->judge(h);
  }

  std::unique_ptr<StoredGradients> reference_;
  HostOutputs right_;
};

/// A type of the measured cases.
struct Type {
  const char* name;
  const char* keys;
};

std::vector<Type> types_of(Op op) {
  std::vector<Type> types = {{"bf16", "dtype: bf16"}, {"fp16", "dtype: fp16"}};
  types.push_back(traits_of(op).forward() ? Type{"e4m3 KV", "dtype: bf16, kv_dtype: e4m3"}
                                          : Type{"fp32", "dtype: fp32"});
  return types;
}

Case case_of(Op op, const Type& type, int64_t context) {
  const std::string yaml =
      traits_of(op).forward()
          ? fmt::format(
                "{{kv: paged, block_size: 64, {}, heads: 8/2, head_dim: 128, mask: none, batch: 4q1s{}}}",
                type.keys, context)
          : fmt::format("{{op: {}, {}, heads: 8/2, head_dim: 128, mask: none, batch: q{}}}", op_name(op),
                        type.keys, context);
  return expand(parse_inline_case(yaml, {}, uint64_t{1})).cases.at(0);
}

std::unique_ptr<Measurement> measurement_of(const Case& item, const Kernel& kernel, Device& device) {
  if (traits_of(kernel.op).forward()) return std::make_unique<AttentionMeasurement>(item, kernel, device);
  return std::make_unique<GradientMeasurement>(item, kernel, device);
}

SensitivityRow measured(Measurement& m, const Verdict& clean, const char* type, int64_t context,
                        const std::function<void(const std::string&)>& progress) {
  SensitivityRow row{.dtype = type,
                     .p_type = dtype_name(m.p_type()),
                     .item = m.item().id,
                     .context = context,
                     .rows = clean.rows,
                     .max_z = clean.max_z,
                     .faults = m.find_faults()};
  if (progress) {
    std::vector<std::string> words;
    for (const Threshold& t : row.faults)
      words.push_back(fmt::format("{} {:.2g} ({})", t.fault, t.smallest, t.caught_by));
    progress(fmt::format("{}, P in {}: max |z| {:.2f}; {}", row.item, row.p_type, row.max_z,
                         fmt::join(words, ", ")));
  }
  return row;
}

}  // namespace

bool Sensitivity::all_caught() const {
  for (const SensitivityRow& row : rows) {
    for (const Threshold& t : row.faults) {
      if (t.smallest == 0 && !t.fault.ends_with("_o")) return false;
    }
  }
  return true;
}

Sensitivity measure_sensitivity(const Kernel& kernel, Device& device, const std::vector<int64_t>& contexts,
                                const std::function<void(const std::string&)>& progress,
                                const std::function<void(const std::vector<SensitivityRow>&)>& row_found,
                                const std::function<bool()>& stop) {
  Sensitivity found;
  /// Adds a row, unless the kernel itself is wrong.
  const auto add_row = [&](Measurement& m, const Type& type, int64_t context) {
    const Verdict clean = m.clean();
    if (!clean.pass) {
      found.wrong = fmt::format("{}: the kernel itself fails: {}", m.item().id, clean.reason);
      return false;
    }
    found.rows.push_back(measured(m, clean, type.name, context, progress));
    row_found(found.rows);
    return true;
  };
  for (const Type& type : types_of(kernel.op)) {
    for (const int64_t context : contexts) {
      found.stopped = stop();
      if (found.stopped) return found;
      const Case item = case_of(kernel.op, type, context);
      set_in_hand("selftest --sensitivity, case " + item.id);
      if (const auto why = refusal(kernel, {}, device, item)) {
        if (progress) progress(fmt::format("{}: {}", item.id, why->text));
        break;
      }
      try {
        const auto m = measurement_of(item, kernel, device);
        if (!add_row(*m, type, context)) return found;
        if (m->p_type() == item.params.dtype || item.params.dtype == DType::kFp32) continue;
        m->set_p_type(item.params.dtype);
        if (!add_row(*m, type, context)) return found;
      } catch (const DeviceError& e) {
        found.unfinished = fmt::format("{}: {}", item.id, e.what());
        return found;
      } catch (const KernelError& e) {
        found.unfinished = fmt::format("{}: {}", item.id, e.what());
        return found;
      }
    }
  }
  return found;
}

}  // namespace attnbench
