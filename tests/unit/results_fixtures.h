// Records and result sets shared by the tests of the reports.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "harness/results/load.h"
#include "harness/results/record.h"

namespace attnbench::test {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInf = std::numeric_limits<double>::infinity();

/// Text that breaks a careless writer: quotes, markup, separators, controls, broken UTF-8.
inline const std::string kHostile =
    std::string("a \"b\" 'c' <d> & | , ; ` * _ \\ \n\r\t\x1b[31m \x01 \xff\xc3 \xed\xa0\x80 é ]]> end") +
    '\0' + "!";

inline Case make_case(const std::string& id, const std::string& sweep = "decode") {
  Case c;
  c.id = id;
  c.sweep = sweep;
  c.params.seqs = {{1, 1024}, {1, 1024}, {512, 2048}};
  c.params.kv = KvSource::kPaged;
  c.params.causal = true;
  return c;
}

inline Record passing(const std::string& id, const std::string& kernel = "cuda_simt", double us = 100) {
  Record r;
  r.item = make_case(id);
  r.kernel = kernel;
  r.device = "cuda:0";
  r.repro = "attnbench run --case '{op: attention}' --kernel " + kernel;
  r.status = Status::kPass;
  Verdict v;
  v.pass = true;
  v.method = "sampled";
  v.rows = 512;
  v.rows_total = 4096;
  v.rows_seed = 77;
  v.max_z = 3.25;
  v.power = Power{0.001, 2e-6, 0.002, 0.003, NAN};
  r.check = v;
  TimeResult t;
  t.median_us = us;
  t.lo_us = us * 0.995;
  t.hi_us = us * 1.01;
  t.samples_us = {us * 0.99, us * 0.995, us, us, us * 1.01, us * 1.02};
  t.iterations = 6;
  t.cpu_time_us = 3.5;
  r.time = t;
  Roofline f;
  f.flop = 1.5e12;
  f.bytes = 2e8;
  f.formula = "attention";
  f.tflops = 412.345;
  f.gbs = 2012.3;
  f.sol = 0.643;
  f.bound = "memory";
  r.roofline = f;
  return r;
}

inline Record not_passing(const std::string& id, Status status, const std::string& reason) {
  Record r;
  r.item = make_case(id);
  r.kernel = "cuda_simt";
  r.device = "cuda:0";
  r.repro = "attnbench run --case x";
  r.status = status;
  r.reason = reason;
  return r;
}

inline RunContext make_context() {
  RunContext c;
  c.name = "quickstart";
  c.command_line = {"attnbench", "run", "configs/quickstart.yaml"};
  c.date = "2025-01-31T09:05:00+01:00";
  c.host = "node1";
  c.device.kind = DeviceKind::kCuda;
  c.device.name = "cuda:0";
  c.device.model = "NVIDIA H100 80GB HBM3";
  c.device.driver = "580.0";
  c.device.runtime = "13.0";
  c.cpu_model = "Some CPU";
  c.cpu_threads = 16;
  c.cpu_mhz = 2600;
  c.ceilings.read_gbs = 3100;
  c.ceilings.matmul = {{DType::kBf16, 796}};
  c.version = "0.1.0";
  c.revision = "abc";
  c.build_type = "Release";
  c.planned = 3;
  return c;
}

/// A loaded result with log-normal samples around `us`.
inline Record sampled(const std::string& id, double us, double noise, int n, uint64_t seed,
                      const std::string& kernel = "k") {
  Record r;
  r.item.id = id;
  r.kernel = kernel;
  r.device = "cuda:0";
  r.status = Status::kPass;
  TimeResult& t = r.time.emplace();
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal(0, noise);
  for (int i = 0; i < n; ++i) t.samples_us.push_back(us * std::exp(normal(rng)));
  const MedianInterval m = median_interval(t.samples_us);
  t.median_us = m.median;
  t.lo_us = m.lo;
  t.hi_us = m.hi;
  return r;
}

inline Record with_status(const std::string& id, Status status, const std::string& kernel = "k") {
  Record r;
  r.item.id = id;
  r.kernel = kernel;
  r.status = status;
  r.reason = "because";
  return r;
}

inline ResultSet set_of(std::vector<Record> results) {
  ResultSet s;
  s.path = "set.json";
  s.results = std::move(results);
  return s;
}

}  // namespace attnbench::test
