#include "harness/selftest/sensitivity.h"

#include <fmt/format.h>

#include <cmath>

#include "harness/run/last_words.h"
#include "harness/selftest/fault.h"
#include "harness/verify/verify.h"

namespace attnbench {
namespace {

constexpr int kStepsPerOctave = 4;

/// The sizes of a fault: 2^(i / 4) for i from low to high, or i itself if `whole`.
struct Scale {
  int low, high;
  bool whole;
  double size(int i) const { return whole ? i : std::exp2(static_cast<double>(i) / kStepsPerOctave); }
};

class Measurement {
 public:
  Measurement(const Case& item, const Kernel& kernel, Device& device)
      : device_(device),
        tamper_(kernel, device),
        workload_(device, item, layout_for(kernel)),
        launcher_(tamper_.armed([this](Tamper& t, const OpParams& op) { return fault_(t, op); }), {}, device,
                  workload_),
        reference_(item, CheckMode::kSampled),
        numerics_(launcher_.numerics()) {
    const Verdict v = judge(with_params([](Tamper&, AttentionParams&) {}));
    if (!v.pass) wrong_ = fmt::format("{}: the kernel itself fails: {}", item.id, v.reason);
    rows_ = v.rows;
  }

  int64_t rows() const { return rows_; }
  /// What the kernel itself gets wrong; empty if it is right.
  const std::string& wrong() const { return wrong_; }
  /// Judges from now on as if the kernel declared this type of P.
  void set_p_type(DType p) { numerics_.p_type = p; }
  DType p_type() const { return numerics_.p_type; }

  Threshold smallest(const Scale& scale, const std::function<Tamper::Fault(double)>& fault, bool o_alone) {
    Threshold t;
    int missed = scale.low - 1;
    int caught = scale.high + 1;
    while (caught - missed > 1) {
      const int i = missed + (caught - missed) / 2;
      Verdict v = judge(fault(scale.size(i)));
      if (o_alone) std::erase(v.failed_by, detector::kLse);
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

 private:
  Verdict judge(Tamper::Fault fault) {
    fault_ = std::move(fault);
    workload_.reset_outputs();
    launcher_.launch();
    device_.synchronize();
    return reference_.judge(launcher_.outputs(workload_), numerics_);
  }

  Device& device_;
  Tamper tamper_;
  Tamper::Fault fault_;
  Workload workload_;
  Launcher launcher_;
  StoredReference reference_;
  Numerics numerics_;
  int64_t rows_ = 0;
  std::string wrong_;
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
  return [size](Tamper& t, const OpParams& op) {
    const KernelStatus s = t.launch(op);
    t.edit(op.attention, [size](OutView& out) {
      for (float& x : out.lse) x += static_cast<float>(size);
    });
    return s;
  };
}

SensitivityRow measured(Measurement& m, const char* type, const Case& item, int64_t context,
                        const std::function<void(const std::string&)>& progress) {
  SensitivityRow row;
  row.dtype = type;
  row.p_type = dtype_name(m.p_type());
  row.item = item.id;
  row.context = context;
  row.rows = m.rows();
  const Scale relative{-24 * kStepsPerOctave, -2 * kStepsPerOctave, false};
  const Scale keys{1, 256, true};
  row.scale = m.smallest(relative, wrong_scale, false);
  row.scale_o = m.smallest(relative, wrong_scale, true);
  row.dropped_keys = m.smallest(keys, dropped_keys, false);
  row.dropped_keys_o = m.smallest(keys, dropped_keys, true);
  row.lse = m.smallest(relative, wrong_lse, false);
  if (progress) {
    progress(fmt::format(
        "{}, P in {}: scale {:.1e} ({}), of O {:.1e} ({}); keys {} ({}), of O {} ({}); LSE {:.1e}", item.id,
        row.p_type, row.scale.smallest, row.scale.caught_by, row.scale_o.smallest, row.scale_o.caught_by,
        row.dropped_keys.smallest, row.dropped_keys.caught_by, row.dropped_keys_o.smallest,
        row.dropped_keys_o.caught_by, row.lse.smallest));
  }
  return row;
}

}  // namespace

Sensitivity measure_sensitivity(const Kernel& kernel, Device& device, const std::vector<int64_t>& contexts,
                                const std::function<void(const std::string&)>& progress,
                                const std::function<void(const std::vector<SensitivityRow>&)>& row_found,
                                const std::function<bool()>& stop) {
  struct Type {
    const char* name;
    const char* keys;
  };
  constexpr Type types[] = {
      {"bf16", "dtype: bf16"}, {"fp16", "dtype: fp16"}, {"e4m3 KV", "dtype: bf16, kv_dtype: e4m3"}};
  Sensitivity found;
  std::vector<SensitivityRow>& rows = found.rows;
  for (const Type& type : types) {
    for (const int64_t context : contexts) {
      found.stopped = stop();
      if (found.stopped) return found;
      const std::string yaml = fmt::format(
          "{{kv: paged, block_size: 64, {}, heads: 8/2, head_dim: 128, mask: none, batch: 4q1s{}}}",
          type.keys, context);
      const Case item = expand(parse_inline_case(yaml, {}, uint64_t{1})).cases.at(0);
      set_in_hand("selftest --sensitivity, case " + item.id);
      if (const auto why = refusal(kernel, {}, device, item)) {
        if (progress) progress(fmt::format("{}: {}", item.id, why->text));
        break;
      }
      try {
        Measurement m(item, kernel, device);
        found.wrong = m.wrong();
        if (!found.wrong.empty()) return found;
        rows.push_back(measured(m, type.name, item, context, progress));
        row_found(rows);
        if (m.p_type() == item.params.dtype) continue;
        m.set_p_type(item.params.dtype);
        rows.push_back(measured(m, type.name, item, context, progress));
        row_found(rows);
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
