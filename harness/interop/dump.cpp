#include "harness/interop/dump.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "harness/interop/case_tensors.h"
#include "harness/interop/npy.h"
#include "harness/results/files.h"

namespace attnbench {
namespace {

/// A tensor on the host. What lies in a hole has all bits one.
std::vector<unsigned char> copy_of(Device& device, const TensorView& t) {
  const int64_t size = element_size(t.type);
  int64_t elements = element_count(t.shape);
  if (!t.strides.empty() && elements > 0) {
    elements = 1;
    for (std::size_t d = 0; d < t.shape.size(); ++d) elements += (t.shape[d] - 1) * t.strides[d];
  }
  std::vector<unsigned char> host(static_cast<std::size_t>(elements * size), 0xff);
  for_each_part(t.data, elements * size, device.holes_of(t.data), [&](const char* from, int64_t n) {
    device.download(host.data() + (from - static_cast<const char*>(t.data)), from, n);
  });
  if (t.strides.empty() || elements == 0) return host;
  std::vector<unsigned char> dense;
  for (int64_t i = 0; i < element_count(t.shape); ++i) {
    int64_t at = 0, rest = i;
    for (std::size_t d = t.shape.size(); d-- > 0; rest /= t.shape[d]) at += rest % t.shape[d] * t.strides[d];
    dense.insert(dense.end(), host.begin() + at * size, host.begin() + (at + 1) * size);
  }
  return dense;
}

void write_array(const std::string& dir, const std::string& name, Element type,
                 const std::vector<int64_t>& shape, const void* data) {
  write_file_atomically(std::filesystem::path(dir) / (name + ".npy"), npy_text(type, shape, data));
}

void write_script(const std::string& dir, const std::string& text) {
  write_file_atomically(std::filesystem::path(dir) / kDumpScript, text);
}

float z_of(double got, double expected, float sigma) {
  if (std::isnan(sigma)) return std::numeric_limits<float>::quiet_NaN();
  const bool same = got == static_cast<double>(static_cast<float>(expected)) || std::isnan(expected);
  if (sigma <= 0) return sigma == 0 && same ? 0 : INFINITY;
  const double z = std::abs(got - expected) / static_cast<double>(sigma);
  return std::isnan(z) ? INFINITY : static_cast<float>(z);
}

const ExpectedOutput* find(const ExpectedOutputs& expected, const std::string& name) {
  const auto found = std::ranges::find(expected.tensors, name, &ExpectedOutput::name);
  return found == expected.tensors.end() ? nullptr : &*found;
}

}  // namespace

void dump_inputs(const std::string& dir, Workload& workload, const Numerics& numerics, const Check& check) {
  const Case& item = workload.item();
  workload.reset_outputs();
  for (const TensorView& t : input_tensors(workload, false))
    write_array(dir, t.name, t.type, t.shape, copy_of(workload.device(), t).data());
  HostOutputs before = workload.download_outputs();
  before.new_k.clear();  // new rows are those of the reference
  const ExpectedOutputs expected = expected_outputs(workload, before, numerics, check);
  for (const OutputTensor& o : output_tensors(workload)) {
    if (const ExpectedOutput* e = find(expected, o.name))
      write_array(dir, "expected_" + o.name, Element::kF64, o.shape, e->value.data());
  }
  write_file_atomically(std::filesystem::path(dir) / "case.txt",
                        fmt::format("{}\n{}\nseed {}\nz is |error| / sigma; over 6 is wrong\n", item.id,
                                    lengths_yaml(item.params), item.seed));
  write_script(
      dir,
      "print('no outputs: the launch failed, or files could not be written; attnbench run says which')\n");
}

void dump_outputs(const std::string& dir, Workload& workload, const HostOutputs& got,
                  const Numerics& numerics, const Check& check) {
  const ExpectedOutputs expected = expected_outputs(workload, got, numerics, check);
  std::vector<std::string> names;
  for (const OutputTensor& o : output_tensors(workload)) {
    if (o.name == "lse" && got.no_lse) continue;
    const TensorView view{o.name, element_for(o.type), o.shape, o.data};
    const std::vector<unsigned char> bytes = copy_of(workload.device(), view);
    write_array(dir, o.name, view.type, o.shape, bytes.data());
    const ExpectedOutput* e = find(expected, o.name);
    if (e == nullptr || e->value.empty()) continue;
    std::vector<float> z(e->value.size());
    for (std::size_t i = 0; i < z.size(); ++i) {
      const auto x = static_cast<double>(load_float(o.type, bytes.data(), static_cast<int64_t>(i)));
      z[i] = z_of(x, e->value[i], e->sigma[i]);
    }
    write_array(dir, "expected_" + o.name, Element::kF64, o.shape, e->value.data());
    write_array(dir, "z_" + o.name, Element::kF32, o.shape, z.data());
    names.push_back("'" + o.name + "'");
  }
  write_script(
      dir,
      fmt::format(
          "import os, numpy as np\n"
          "load = lambda name: np.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), name + '.npy'))\n"
          "for n in {}: z = load('z_' + n); i = np.unravel_index(np.nan_to_num(z, nan=-1).argmax(), z.shape); "
          "print(n, *i, 'got', load(n)[i], 'expected', load('expected_' + n)[i], 'z', z[i])\n",
          fmt::format("[{}]", fmt::join(names, ", "))));
}

}  // namespace attnbench
