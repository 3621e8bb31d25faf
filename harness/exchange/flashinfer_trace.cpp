#include "harness/exchange/flashinfer_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <unordered_set>

#include "harness/exchange/safetensors.h"
#include "harness/exchange/trace_json.h"
#include "harness/record/text.h"

namespace attnbench {
namespace {

using Json = trace::Json;
using trace::parse_json;
using trace::Source;
using trace::Value;
namespace fs = std::filesystem;

/// A workload that is left out; what() is the reason by which it is counted.
struct Skipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What attnbench knows of an op type.
struct OpType {
  const char* name;
  std::vector<std::string> constants;  ///< axes that must be constant
  std::vector<std::string> axes;       ///< other axes
  std::vector<std::string> inputs;
};

const std::vector<OpType>& op_types() {
  static const std::vector<OpType> types = {
      {"gqa_paged",
       {"num_qo_heads", "num_kv_heads", "head_dim", "page_size"},
       {"total_q", "batch_size", "num_pages", "len_indptr", "num_kv_indices"},
       {"q", "k_cache", "v_cache", "qo_indptr", "kv_indptr", "kv_indices", "kv_last_page_len", "sm_scale"}},
      {"gqa_ragged",
       {"num_qo_heads", "num_kv_heads", "head_dim"},
       {"total_q", "total_kv", "len_indptr"},
       {"q", "k", "v", "qo_indptr", "kv_indptr", "sm_scale"}},
      {"mla_paged",
       {"num_qo_heads", "head_dim_ckv", "head_dim_kpe", "page_size"},
       {"total_q", "batch_size", "num_pages", "len_indptr", "num_kv_indices"},
       {"q_nope", "q_pe", "ckv_cache", "kpe_cache", "qo_indptr", "kv_indptr", "kv_indices",
        "kv_last_page_len", "sm_scale"}},
  };
  return types;
}

bool holds(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

struct Definition {
  std::string why_skipped;  ///< empty: attnbench knows all of it
  const OpType* op = nullptr;
  std::map<std::string, int64_t> constants;
  std::string dtype;  ///< "bf16"
  bool paged = false, mla = false, prefill = false, causal = false, hnd = false;

  int64_t constant(const char* name) const { return constants.at(name); }
};

/// The type that all tensors of numbers have, by its name in cases.
std::string dtype_of(const Value& inputs) {
  std::set<std::string> types;
  for (const auto& [name, spec] : inputs.object().items()) {
    const std::string& type = inputs.at(name).at("dtype").text();
    if (name != "sm_scale" && !type.starts_with("int")) types.insert(type);
  }
  const std::map<std::string, std::string> known = {
      {"bfloat16", "bf16"}, {"float16", "fp16"}, {"float32", "fp32"}};
  if (types.size() != 1) throw Skipped("q, K and V have different dtypes");
  const auto found = known.find(*types.begin());
  if (found == known.end()) throw Skipped(fmt::format("dtype {}", one_line(*types.begin())));
  return found->second;
}

/// Throws Skipped.
void read_definition(const Value& root, const std::string& name, Definition& d) {
  const std::string& op_type = root.at("op_type").text();
  for (const OpType& t : op_types()) {
    if (op_type == t.name) d.op = &t;
  }
  if (d.op == nullptr) throw Skipped(fmt::format("op_type {}", one_line(op_type)));
  const Value axes = root.at("axes");
  for (const auto& [axis, spec] : axes.object().items()) {
    if (!holds(d.op->constants, axis) && !holds(d.op->axes, axis)) {
      throw Skipped(fmt::format("{} with the axis {}", op_type, one_line(axis)));
    }
    const Value value = axes.at(axis);
    if (value.at("type").text() == "const") d.constants[axis] = value.at("value").count();
  }
  for (const std::string& axis : d.op->constants) {
    if (d.constants.count(axis) == 0)
      axes.at(axis).fail("a constant axis is required: {\"type\": \"const\", \"value\": N}");
  }
  const Value inputs = root.at("inputs");
  for (const auto& [input, spec] : inputs.object().items()) {
    if (!holds(d.op->inputs, input))
      throw Skipped(fmt::format("{} with the input {}", op_type, one_line(input)));
  }
  d.dtype = dtype_of(inputs);
  d.mla = op_type == "mla_paged";
  d.paged = op_type != "gqa_ragged";
  d.prefill = inputs.has("qo_indptr");
  d.causal = d.prefill && name.find("causal") != std::string::npos;
  if (op_type == "gqa_paged") {
    const std::vector<std::string> shape = inputs.at("k_cache").at("shape").texts();
    const std::vector<std::string> nhd = {"num_pages", "page_size", "num_kv_heads", "head_dim"};
    const std::vector<std::string> hnd = {"num_pages", "num_kv_heads", "page_size", "head_dim"};
    if (shape != nhd && shape != hnd) throw Skipped("k_cache of another shape");
    d.hnd = shape == hnd;
  }
}

/// Files of a folder with this ending, in a fixed order.
std::vector<std::string> files_in(const fs::path& dir, const char* ending) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (entry.is_regular_file() && entry.path().extension() == ending) files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::map<std::string, Definition> read_definitions(const fs::path& dir) {
  std::map<std::string, Definition> out;
  for (const std::string& file : files_in(dir, ".json")) {
    const Source source{file};
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    const Json json = parse_json(text.str(), source);
    const Value root(source, "", json);
    const std::string& name = root.at("name").text();
    Definition d;
    try {
      read_definition(root, name, d);
    } catch (const Skipped& why) {
      d.why_skipped = why.what();
    }
    if (!out.emplace(name, std::move(d)).second) {
      root.at("name").fail(fmt::format("another file defines '{}' too", one_line(name)));
    }
  }
  return out;
}

/// Reads the workloads of one trace.
class WorkloadReader {
 public:
  WorkloadReader(fs::path root, uint64_t seed) : root_(std::move(root)), seed_(seed) {}

  /// The case of a workload. Throws Skipped.
  Case read(const Source& source, const Value& workload, const std::string& name, const Definition& d) {
    const Value inputs = workload.at("inputs");
    std::vector<int64_t> kv = indptr(inputs, "kv_indptr");
    const std::size_t batch = kv.size() - 1;
    std::vector<int64_t> qo(kv.size());
    for (std::size_t b = 0; b <= batch; ++b) qo[b] = static_cast<int64_t>(b);
    if (d.prefill) qo = indptr(inputs, "qo_indptr");
    if (qo.size() != kv.size()) {
      inputs.at("qo_indptr").fail(fmt::format("it has {} entries, and kv_indptr {}", qo.size(), kv.size()));
    }
    check_axes(workload.at("axes"), {{"total_q", qo.back()},
                                     {"batch_size", static_cast<int64_t>(batch)},
                                     {"len_indptr", static_cast<int64_t>(kv.size())},
                                     {"total_kv", kv.back()}});
    GivenBlocks::Ids ids;
    std::vector<int64_t> k_lens;
    for (std::size_t b = 0; b < batch; ++b) k_lens.push_back(kv[b + 1] - kv[b]);
    if (d.paged) {
      ids = pages(inputs, kv);
      lengths_of_pages(inputs, d.constant("page_size"), k_lens);
    }
    const std::string mapping = mapping_of(d, inputs.at("sm_scale").at("value").number(), qo, k_lens);
    try {
      Expansion e = expand(parse_inline_case(mapping, {}, seed_));
      Case c = std::move(e.cases.at(0));
      if (d.paged) give_blocks(c, std::move(ids));
      c.sweep = name;
      c.file = root_.string();
      return c;
    } catch (const Error& e) {
      source.fail("workload", one_line(e.what()));
    }
  }

 private:
  static void check_axes(const Value& axes, const std::map<std::string, int64_t>& expected) {
    for (const auto& [axis, given] : axes.object().items()) {
      const auto found = expected.find(axis);
      const int64_t value = axes.at(axis).count();
      if (found == expected.end() || found->second == value) continue;
      axes.at(axis).fail(fmt::format("it is {}, and the index tensors say {}", value, found->second));
    }
  }

  /// An index tensor. Its file is named relative to the trace's folder, and nothing outside of it is opened.
  std::vector<int64_t> integers(const Value& inputs, const char* name) {
    const Value input = inputs.at(name);
    const std::string& type = input.at("type").text();
    if (type == "random") throw Skipped(fmt::format("{} is random: lengths and pages are unknown", name));
    if (type != "safetensors") {
      input.at("type").fail(fmt::format("'{}' is given; safetensors is required here", one_line(type)));
    }
    const fs::path relative = input.at("path").text();
    const bool leaves =
        std::any_of(relative.begin(), relative.end(), [](const fs::path& p) { return p == ".."; });
    if (relative.is_absolute() || leaves) {
      input.at("path").fail("a path within the trace's folder is required, relative to it and without '..'");
    }
    try {
      const std::string path = (root_ / relative).string();
      if (open_path_ != path) file_.emplace(path);
      open_path_ = path;
      const std::string& key = input.at("tensor_key").text();
      if (file_->entry(key).shape.size() != 1) {
        input.at("tensor_key")
            .fail(fmt::format("tensor '{}' has shape {}; one dimension is required", one_line(key),
                              shape_text(file_->entry(key).shape)));
      }
      return file_->read_integers(key);
    } catch (const TensorFileError& e) {
      input.fail(e.what());
    }
  }

  std::vector<int64_t> indptr(const Value& inputs, const char* name) {
    std::vector<int64_t> out = integers(inputs, name);
    if (out.empty() || out.front() != 0) inputs.at(name).fail("it must begin with 0");
    for (std::size_t i = 1; i < out.size(); ++i) {
      if (out[i] >= out[i - 1] && out[i] <= INT32_MAX) continue;
      inputs.at(name).fail(
          fmt::format("entry {} is {} after {}; each must be as large as the one before, and at most {}", i,
                      out[i], out[i - 1], INT32_MAX));
    }
    return out;
  }

  GivenBlocks::Ids pages(const Value& inputs, const std::vector<int64_t>& kv) {
    const std::vector<int64_t> all = integers(inputs, "kv_indices");
    if (static_cast<int64_t>(all.size()) < kv.back()) {
      inputs.at("kv_indices")
          .fail(fmt::format("it has {} entries, and kv_indptr ends with {}", all.size(), kv.back()));
    }
    GivenBlocks::Ids ids(kv.size() - 1);
    for (std::size_t b = 0; b < ids.size(); ++b) {
      for (auto i = static_cast<std::size_t>(kv[b]); i < static_cast<std::size_t>(kv[b + 1]); ++i) {
        if (all[i] < 0 || all[i] >= INT32_MAX) {
          inputs.at("kv_indices")
              .fail(fmt::format("entry {} is {}; a page from 0 on is required", i, all[i]));
        }
        ids[b].push_back(static_cast<int32_t>(all[i]));
      }
    }
    return ids;
  }

  /// Turns numbers of pages into numbers of keys. Without kv_last_page_len all pages are full.
  void lengths_of_pages(const Value& inputs, int64_t page_size, std::vector<int64_t>& lens) {
    std::vector<int64_t> last(lens.size(), page_size);
    if (inputs.has("kv_last_page_len")) last = integers(inputs, "kv_last_page_len");
    if (last.size() < lens.size()) {
      inputs.at("kv_last_page_len")
          .fail(fmt::format("it has {} entries for {} sequences", last.size(), lens.size()));
    }
    for (std::size_t b = 0; b < lens.size(); ++b) {
      if (lens[b] == 0) continue;
      if (last[b] < 1 || last[b] > page_size) {
        inputs.at("kv_last_page_len")
            .fail(fmt::format("entry {} is {}; 1 to page_size {} is required", b, last[b], page_size));
      }
      lens[b] = (lens[b] - 1) * page_size + last[b];
    }
  }

  static std::string mapping_of(const Definition& d, double scale, const std::vector<int64_t>& qo,
                                const std::vector<int64_t>& k_lens) {
    std::string batch;
    bool short_kv = false;
    for (std::size_t b = 0, end = 0; b < k_lens.size(); b = end) {
      const int64_t q = qo[b + 1] - qo[b];
      while (end < k_lens.size() && qo[end + 1] - qo[end] == q && k_lens[end] == k_lens[b]) ++end;
      batch += fmt::format("{}{}q{}s{}", batch.empty() ? "" : "_", end - b, q, k_lens[b]);
      short_kv = short_kv || (d.causal && q > k_lens[b]);
    }
    std::string text =
        fmt::format("{{op: attention, dtype: {}, softmax_scale: {}, mask: {}, batch: {}", d.dtype, scale,
                    d.causal ? "causal" : "none", batch.empty() ? "0q0" : batch);
    if (short_kv) text += ", allow_short_kv: true";
    text += d.paged ? fmt::format(", kv: paged, block_size: {}, kv_layout: {}", d.constant("page_size"),
                                  d.hnd ? "hnd" : "nhd")
                    : ", kv: packed";
    if (d.mla) {
      const int64_t ckv = d.constant("head_dim_ckv");
      text += fmt::format(", heads: {}/1, head_dim: {}, head_dim_v: {}, v_is_k_view: true",
                          d.constant("num_qo_heads"), ckv + d.constant("head_dim_kpe"), ckv);
    } else {
      text += fmt::format(", heads: {}/{}, head_dim: {}", d.constant("num_qo_heads"),
                          d.constant("num_kv_heads"), d.constant("head_dim"));
    }
    return text + "}";
  }

  fs::path root_;
  uint64_t seed_;
  std::string open_path_;
  std::optional<SafetensorsFile> file_;  ///< the last one: a workload's tensors are in one file
};

}  // namespace

bool is_flashinfer_trace(const std::string& path) {
  std::error_code ec;
  return fs::is_directory(fs::path(path) / "definitions", ec) &&
         fs::is_directory(fs::path(path) / "workloads", ec);
}

FlashinferTrace read_flashinfer_trace(const std::string& dir, uint64_t seed) {
  const std::map<std::string, Definition> definitions = read_definitions(fs::path(dir) / "definitions");
  WorkloadReader reader(dir, seed);
  FlashinferTrace trace;
  std::unordered_set<std::string> seen;
  for (const std::string& file : files_in(fs::path(dir) / "workloads", ".jsonl")) {
    std::ifstream in(file, std::ios::binary);
    Source source{file};
    for (std::string line; std::getline(in, line);) {
      ++source.line;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const Json json = parse_json(line, source);
      const Value root(source, "", json);
      const std::string& name = root.at("definition").text();
      const auto found = definitions.find(name);
      try {
        if (found == definitions.end())
          throw Skipped(fmt::format("definition {} is missing", one_line(name)));
        if (!found->second.why_skipped.empty()) throw Skipped(found->second.why_skipped);
        const Value workload = root.at("workload");
        workload.at("uuid").text();
        Case c = reader.read(source, workload, name, found->second);
        trace.workloads.push_back({name, workload.object().dump(), c.id});
        if (seen.insert(c.id).second) trace.cases.push_back(std::move(c));
      } catch (const Skipped& why) {
        ++trace.skipped[why.what()];
      }
    }
  }
  return trace;
}

}  // namespace attnbench
