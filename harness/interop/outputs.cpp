#include "harness/interop/outputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "harness/config/captured.h"
#include "harness/interop/npy.h"
#include "harness/judge/clues.h"
#include "harness/judge/verify.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

/// A tensor with its place, for messages.
struct Given {
  std::string place;  ///< "out.safetensors: tensor 'lse'"
  HostTensor tensor;
};

[[noreturn]] void fail_output(const std::string& place, const std::string& what) {
  throw TensorFileError(fmt::format("{}: error: {}", place, what));
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
/// to that of the output. Bits of bf16 and of types of 8 bits may come as unsigned integers.
void place_output(const Given& given, const OutputTensor& to, const FileRows& rows) {
  const HostTensor& from = given.tensor;
  const std::vector<int64_t> wanted = rows.shape(to);
  if (from.shape != wanted) {
    std::vector<int64_t> turned = wanted;
    std::ranges::reverse(turned);
    fail_output(given.place,
                fmt::format("'{}' has shape {}; {} is required{}", to.name, shape_text(from.shape),
                            shape_text(wanted),
                            from.shape == turned ? ": transpose it, and copy it to C order" : ""));
  }
  if (from.type == Element::kU16 && to.type != DType::kBf16) {
    fail_output(given.place, fmt::format("uint16 stands for the bits of bf16, and '{}' is {}", to.name,
                                         dtype_name(to.type)));
  }
  const bool bits = from.type == Element::kU16 || (from.type == Element::kU8 && dtype_size(to.type) == 1);
  const bool floating = from.type == Element::kBf16 || from.type == Element::kF16 ||
                        from.type == Element::kF32 || from.type == Element::kF64;
  const bool same = bits || from.type == element_for(to.type);
  if (!same && (!floating || to.type == DType::kInt8)) {
    fail_output(given.place, fmt::format("'{}' is {}; {} is required", to.name, element_name(from.type),
                                         dtype_name(to.type)));
  }
  const std::size_t size = dtype_size(to.type);
  rows.for_each_run(to, [&](int64_t launch, int64_t file, int64_t count) {
    if (same) {
      if (count > 0)
        std::memcpy(static_cast<char*>(to.data) + static_cast<std::size_t>(launch) * size,
                    from.bytes.data() + static_cast<std::size_t>(file) * size,
                    static_cast<std::size_t>(count) * size);
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      store_float(to.type, to.data, launch + i,
                  static_cast<float>(number_at(from, static_cast<std::size_t>(file + i))));
    }
  });
}

std::map<std::string, Given> read_outputs(const OutputFiles& files,
                                          const std::vector<OutputTensor>& outputs) {
  std::map<std::string, Given> given;
  const std::string ending = std::filesystem::path(files.out).extension().string();
  if (ending == ".npy") {
    if (outputs.front().name != "out")
      fail_output(one_line(files.out),
                  "a .npy holds O alone; gradients are tensors dq, dk and dv of a .safetensors");
    given["out"] = {one_line(files.out), read_npy(files.out)};
  } else if (ending == ".safetensors") {
    SafetensorsFile file(files.out);
    std::vector<std::string> names;
    for (const OutputTensor& o : outputs) names.push_back(o.name);
    const bool with_inputs = file.has("cu_seqlens_q");  // captured tensors
    for (const auto& [name, e] : file.entries()) {
      if (std::ranges::find(names, name) == names.end()) {
        if (with_inputs) continue;
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
  const std::vector<OutputTensor> outputs = output_tensors(workload);
  const FileRows rows = file_rows(workload);
  const std::map<std::string, Given> given = read_outputs(files, outputs);
  for (const OutputTensor& o : outputs) {
    const auto found = given.find(o.name);
    if (found != given.end()) {
      place_output(found->second, o, rows);
    } else if (o.name != "lse") {
      fail_output(one_line(files.out), fmt::format("it has no tensor '{}', of {} and shape {}", o.name,
                                                   dtype_name(o.type), shape_text(rows.shape(o))));
    }
  }
  HostOutputs host = workload.download_outputs();
  host.unused_written.clear();  // a file has numbers in all rows
  host.no_lse = item.params.does().forward() && given.count("lse") == 0;
  if (files.plus_inf) host.flip_infinities();
  Verdict v = verify(workload, host, numerics, mode);
  if (!v.pass && item.params.does().forward()) v.clues = clues_of({item, host, numerics, v.rows_seed});
  v.declared = {numerics, host.no_lse ? uint32_t{kNoLse} : 0};
  return v;
}

std::optional<Verdict> judge_captured(const Case& c, CheckMode mode) {
  const std::string& path = c.params.captured->path();
  if (!SafetensorsFile(path).has("out")) return std::nullopt;
  const auto device = open_device("cpu");
  Workload workload(*device, c);
  return judge_outputs({path}, workload, usual_numerics(c.params), mode);
}

}  // namespace attnbench
