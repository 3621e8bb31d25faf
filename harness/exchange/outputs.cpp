#include "harness/exchange/outputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "harness/exchange/npy.h"
#include "harness/record/text.h"
#include "harness/verify/clues.h"
#include "harness/verify/verify.h"

namespace attnbench {
namespace {

/// An output that a launch of the case writes.
struct Output {
  std::string name;
  DType type;
  std::vector<int64_t> shape;
  void* data;
};

/// A tensor with its place, for messages.
struct Given {
  std::string place;  ///< "out.safetensors: tensor 'lse'"
  HostTensor tensor;
};

[[noreturn]] void fail_output(const std::string& place, const std::string& what) {
  throw TensorFileError(fmt::format("{}: error: {}", place, what));
}

std::vector<Output> outputs_of(const Workload& workload) {
  const CaseParams& p = workload.item().params;
  const AttentionParams a = workload.params().attention;
  std::vector<Output> outputs = {{"out", a.dtype_out, {a.total_q, a.num_heads_q, a.head_dim_v}, a.out},
                                 {"lse", DType::kFp32, {a.num_heads_q, a.total_q}, a.lse}};
  if (p.probs)
    outputs.push_back({"probs", DType::kFp32, {a.num_heads_q, a.total_q, a.max_seqlen_k}, a.probs});
  if (p.append) {
    outputs.push_back({"k_cache", a.dtype_k, {}, a.k_cache});
    outputs.push_back({"v_cache", a.dtype_v, {}, a.v_cache});
  }
  return outputs;
}

/// Element i of a tensor of floating-point numbers.
double number_at(const HostTensor& t, std::size_t i) {
  double wide = 0;
  switch (t.type) {
    case Element::kBf16:
      return static_cast<double>(load_float(DType::kBf16, t.bytes.data(), static_cast<int64_t>(i)));
    case Element::kF16:
      return static_cast<double>(load_float(DType::kFp16, t.bytes.data(), static_cast<int64_t>(i)));
    case Element::kF32:
      return static_cast<double>(load_float(DType::kFp32, t.bytes.data(), static_cast<int64_t>(i)));
    default:
      std::memcpy(&wide, &t.bytes[i * sizeof wide], sizeof wide);
      return wide;
  }
}

/// Copies a tensor to where a launch would have written it. Numbers of another floating-point type are rounded
/// to that of the output.
void place_output(const Given& given, const Output& to) {
  const HostTensor& from = given.tensor;
  if (from.shape != to.shape) {
    std::vector<int64_t> turned = to.shape;
    std::reverse(turned.begin(), turned.end());
    fail_output(given.place,
                fmt::format("'{}' has shape {}; {} is required{}", to.name, shape_text(from.shape),
                            shape_text(to.shape),
                            from.shape == turned ? ": transpose it, and copy it to C order" : ""));
  }
  const bool bits = from.type == Element::kU16;
  if (bits && to.type != DType::kBf16) {
    fail_output(given.place, fmt::format("uint16 stands for the bits of bf16, and '{}' is {}", to.name,
                                         dtype_name(to.type)));
  }
  const bool same = bits || (from.type == Element::kBf16 && to.type == DType::kBf16) ||
                    (from.type == Element::kF16 && to.type == DType::kFp16) ||
                    (from.type == Element::kF32 && to.type == DType::kFp32) ||
                    (from.type == Element::kE4m3 && to.type == DType::kE4m3) ||
                    (from.type == Element::kE5m2 && to.type == DType::kE5m2) ||
                    (from.type == Element::kI8 && to.type == DType::kInt8);
  if (same) {
    if (!from.bytes.empty()) std::memcpy(to.data, from.bytes.data(), from.bytes.size());
    return;
  }
  const bool floating = from.type == Element::kBf16 || from.type == Element::kF16 ||
                        from.type == Element::kF32 || from.type == Element::kF64;
  if (!floating || dtype_size(to.type) < 2) {
    fail_output(given.place, fmt::format("'{}' is {}; {} is required", to.name, element_name(from.type),
                                         dtype_name(to.type)));
  }
  const auto count = static_cast<std::size_t>(element_count(to.shape));
  for (std::size_t i = 0; i < count; ++i) {
    store_float(to.type, to.data, static_cast<int64_t>(i), static_cast<float>(number_at(from, i)));
  }
}

std::map<std::string, Given> read_outputs(const OutputFiles& files, const std::vector<Output>& outputs) {
  std::map<std::string, Given> given;
  const std::string ending = std::filesystem::path(files.out).extension().string();
  if (ending == ".npy") {
    given["out"] = {one_line(files.out), read_npy(files.out)};
  } else if (ending == ".safetensors") {
    SafetensorsFile file(files.out);
    std::vector<std::string> names;
    for (const Output& o : outputs) names.push_back(o.name);
    for (const auto& [name, e] : file.entries()) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        fail_output(one_line(files.out), fmt::format("unknown tensor '{}'; this case has {}", one_line(name),
                                                     fmt::join(names, ", ")));
      }
      given[name] = {fmt::format("{}: tensor '{}'", one_line(files.out), name),
                     {e.type, e.shape, file.read(name)}};
    }
  } else {
    fail_output(one_line(files.out), "its name must end in .npy or .safetensors");
  }
  if (files.lse.empty()) return given;
  if (given.count("lse") > 0) fail_output(one_line(files.lse), "the LSE is also in " + one_line(files.out));
  given["lse"] = {one_line(files.lse), read_npy(files.lse)};
  return given;
}

}  // namespace

Verdict judge_outputs(const OutputFiles& files, Workload& workload, const Numerics& numerics,
                      CheckMode mode) {
  const Case& item = workload.item();
  workload.reset_outputs();
  std::vector<Output> outputs = outputs_of(workload);
  for (const TensorView& t : input_tensors(workload, false)) {
    for (Output& o : outputs) {
      if (o.name == t.name + "_cache") o.shape = t.shape;
    }
  }
  const std::map<std::string, Given> given = read_outputs(files, outputs);
  for (const Output& o : outputs) {
    const auto found = given.find(o.name);
    if (found != given.end()) {
      place_output(found->second, o);
    } else if (o.name != "lse") {
      fail_output(one_line(files.out), fmt::format("it has no tensor '{}', of {} and shape {}", o.name,
                                                   dtype_name(o.type), shape_text(o.shape)));
    }
  }
  HostOutputs host = workload.download_outputs();
  host.unused_written.clear();  // a file has numbers in all rows
  host.no_lse = given.count("lse") == 0;
  Verdict v = verify(workload, host, numerics, mode);
  if (!v.pass) v.clues = clues_of({item, host, numerics});
  v.numerics = {numerics.p_type, numerics.acc_type, host.no_lse ? uint32_t{kNoLse} : 0};
  return v;
}

}  // namespace attnbench
