#include "harness/timing/roofline.h"

#include <algorithm>

#include "harness/device/peak.h"

namespace attnbench {
namespace {

constexpr double kExpPerClockPerSm = 16;  ///< special-function results of one SM a clock, sm_80 to sm_90

std::optional<double> matmul_tflops(const Ceilings& c, DType dtype) {
  for (const auto& m : c.matmul) {
    if (m.dtype == dtype) return m.tflops;
  }
  return std::nullopt;
}

/// The rate of products of rows in `a` with rows in `b`, of which the others are in p.dtype. Types of 8 bits have rates of
/// their own where both sides have the type; a kernel widens one that stands alone.
std::optional<double> product_tflops(const Ceilings& c, const CaseParams& p, DType a, DType b) {
  const std::optional<double> own = a == b && dtype_size(a) == 1 ? matmul_tflops(c, a) : std::nullopt;
  return own ? own : matmul_tflops(c, p.dtype);
}

/// Seconds that the matrix products of a case take at the measured rates. Products of q and K are head_dim wide, those of
/// weights and V, which a kernel may round to the type of q, head_dim_v.
std::optional<double> products_s(const Ceilings& c, const CaseCost& cost, const CaseParams& p) {
  if (!p.does().forward()) {
    const auto tflops = matmul_tflops(c, p.dtype);
    return tflops ? std::optional(cost.flop / (*tflops * 1e12)) : std::nullopt;
  }
  const auto scores = product_tflops(c, p, p.type_of_q(), p.type_of_k());
  const auto values = product_tflops(c, p, p.type_of_q(), p.type_of_v());
  if (!scores || !values) return std::nullopt;
  const double of_scores = static_cast<double>(p.head_dim) / (p.head_dim + p.dim_v());
  return cost.flop * 1e-12 * (of_scores / *scores + (1 - of_scores) / *values);
}

/// The least time that the hardware allows, in microseconds. Written bytes may still be in the cache when the
/// clock stops. Read bytes came from memory unless the cache was hot.
double hardware_limit_us(const CaseCost& cost, const CaseParams& p, CacheMode cache,
                         const DeviceInfo& device) {
  double us = 0;
  const bool eight_bits = dtype_size(p.type_of_q()) == 1 || dtype_size(p.type_of_k()) == 1;
  const DType fastest = eight_bits ? DType::kE4m3 : p.dtype;  // a kernel may quantise the other side itself
  if (const auto tflops = peak_tflops(device, fastest)) us = cost.flop / *tflops * 1e-6;
  if (device.memory_gbs > 0 && cache != CacheMode::kHot) {
    const double beyond_cache = std::max(0.0, cost.written - static_cast<double>(device.cache_bytes));
    us = std::max(us, (cost.bytes - cost.written + beyond_cache) / device.memory_gbs * 1e-3);
  }
  return us;
}

/// The share of one of several devices: shares are equal.
CaseCost share_of(CaseCost cost, int32_t devices) {
  for (double CaseCost::*field : {&CaseCost::flop, &CaseCost::pairs, &CaseCost::bytes, &CaseCost::written})
    cost.*field /= devices;
  return cost;
}

}  // namespace

Roofline roofline(const CaseCost& all, const CaseParams& p, double median_us, CacheMode cache,
                  const Ceilings& ceilings, const DeviceInfo& device) {
  Roofline r;
  r.flop = all.flop;
  r.bytes = all.bytes;
  r.formula = all.formula;
  if (!(median_us > 0)) return r;
  const double seconds = median_us * 1e-6;
  r.tflops = all.flop / seconds * 1e-12;
  r.gbs = all.bytes / seconds * 1e-9;
  const CaseCost cost = share_of(all, p.devices());  // ceilings are those of one device
  r.limit_us = hardware_limit_us(cost, p, cache, device);

  double best_s = 0;
  const auto term = [&](double s, const char* name) {
    if (s > best_s) {
      best_s = s;
      r.bound = name;
    }
  };
  // Attention mostly reads, and merging many states. Appending and moving read and write alike. On a CPU, written bytes
  // may still be in the cache when the clock stops: if they are a large share, only the reads bound the time.
  const bool on_gpu = device.kind == DeviceKind::kCuda;
  const std::optional<double> gbs = on_gpu && p.does().copies() ? ceilings.copy_gbs : ceilings.read_gbs;
  const double touched = on_gpu || p.does().forward() ? cost.bytes : cost.bytes - cost.written;
  // A hot cache may hold as many of the bytes as fit into it.
  const double cached = cache == CacheMode::kHot ? static_cast<double>(device.cache_bytes) : 0;
  if (gbs) term(std::max(0.0, touched - cached) / (*gbs * 1e9), "memory");
  const std::optional<double> products = products_s(ceilings, cost, p);
  if (products && cost.flop > 0) term(*products, "matrix");
  if (!gbs && !products) return r;
  r.floor_us = best_s * 1e6;
  if (!gbs) {  // memory may bind
    r.bound.clear();
    return r;
  }
  if (ceilings.cache_gbs) term(touched / (*ceilings.cache_gbs * 1e9), "l2");
  if (device.kind == DeviceKind::kCuda && device.clock_mhz > 0 && cost.pairs > 0) {
    const double exps = p.num_heads_q * cost.pairs * (p.softcap > 0 ? 2 : 1);
    term(exps / (kExpPerClockPerSm * device.multiprocessors * device.clock_mhz * 1e6), "exponent");
  }
  if (ceilings.floor_us && *ceilings.floor_us > best_s * 1e6) r.bound = "launch";
  if (best_s > 0) r.sol = best_s / seconds;  // nothing to do is no share of anything
  return r;
}

bool impossible_time(const Roofline& r, double median_us, const Ceilings& ceilings,
                     const DeviceInfo& device) {
  if (device.kind == DeviceKind::kCuda) return median_us + kTimerResolutionUs < r.limit_us;
  return !ceilings.disturbed && median_us * kRooflineMarginCpu < r.floor_us;
}

}  // namespace attnbench
