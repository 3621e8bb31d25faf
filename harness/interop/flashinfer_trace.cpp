#include "harness/interop/flashinfer_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <unordered_set>

#include "harness/interop/safetensors.h"
#include "harness/interop/trace_definition.h"
#include "harness/interop/trace_json.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

using Json = trace::Json;
using trace::Definition;
using trace::parse_json;
using trace::Skipped;
using trace::Source;
using trace::TraceMask;
using trace::Value;
namespace fs = std::filesystem;

/// Files of a folder with this ending, in a fixed order. What cannot be read is added to `errors`.
std::vector<std::string> files_in(const fs::path& dir, const char* ending, std::vector<std::string>& errors) {
  std::vector<std::string> files;
  std::error_code ec;
  const auto note = [&](const fs::path& path, const std::string& what) {
    errors.push_back(
        fmt::format("{}: error: cannot read: {}; mend or remove it", one_line(path.string()), what));
  };
  fs::recursive_directory_iterator at(dir, ec);
  for (; !ec && at != fs::recursive_directory_iterator(); at.increment(ec)) {
    if (at->path().extension() != ending) continue;
    std::error_code of_file;
    if (fs::is_regular_file(at->status(of_file))) {
      files.push_back(at->path().string());
    } else if (!fs::is_directory(at->status(of_file))) {
      note(at->path(), of_file ? of_file.message() : "it is no regular file");
    }
  }
  if (ec) note(dir, ec.message());
  std::ranges::sort(files);
  return files;
}

/// Opens a file. Throws TraceError.
std::ifstream open_text(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in)
    throw TraceError(
        fmt::format("{}: error: cannot read: {}; mend or remove it", one_line(file), std::strerror(errno)));
  return in;
}

std::map<std::string, Definition> read_definitions(const fs::path& dir, std::vector<std::string>& errors) {
  std::map<std::string, Definition> out;
  for (const std::string& file : files_in(dir, ".json", errors)) {
    try {
      const Source source{file};
      std::ostringstream text;
      text << open_text(file).rdbuf();
      const Json json = parse_json(text.str(), source);
      const Value root(source, "", json);
      const std::string& name = root.at("name").text();
      Definition d;
      try {
        trace::read_definition(root, d);
      } catch (const Skipped& why) {
        d.why_skipped = why.what();
      }
      if (!out.emplace(name, std::move(d)).second) {
        root.at("name").fail(fmt::format("another file defines '{}' too", one_line(name)));
      }
    } catch (const TraceError& e) {
      errors.emplace_back(e.what());
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
    for (const auto& [input, value] : inputs.object().items()) {
      if (!value.is_null() && !d.op->knows_input(input))
        throw Skipped(fmt::format("{} with the input {}", d.op->name, one_line(input)));
    }
    for (const char* input : {"qo_indptr", "kv_indptr", "kv_indices"}) {
      const bool needed = d.prefill || input != std::string("qo_indptr");
      if (needed && d.op->knows_input(input) && d.optional.count(input) > 0 && !inputs.has(input))
        throw Skipped(fmt::format("{} is not bound: lengths and pages are unknown", input));
    }
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
    const std::string mapping = mapping_of(d, scale_of(inputs, d), qo, k_lens);
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

  /// Whether no earlier case has its id.
  bool is_new(const Case& c) { return seen_.insert(c.id).second; }

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
    const bool leaves = std::ranges::any_of(relative, [](const fs::path& p) { return p == ".."; });
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

  /// The softmax scale; not bound: FlashInfer's default, which MLA has none of.
  static double scale_of(const Value& inputs, const Definition& d) {
    if (d.optional.count("sm_scale") == 0 || inputs.has("sm_scale"))
      return inputs.at("sm_scale").at("value").number();
    if (d.mla) throw Skipped("sm_scale is not bound, and the heads before absorption are unknown");
    return 1 / std::sqrt(static_cast<double>(d.constant("head_dim")));
  }

  static std::string mapping_of(const Definition& d, double scale, const std::vector<int64_t>& qo,
                                const std::vector<int64_t>& k_lens) {
    std::string batch;
    bool short_kv = false, unequal = false;
    for (std::size_t b = 0, end = 0; b < k_lens.size(); b = end) {
      const int64_t q = qo[b + 1] - qo[b];
      while (end < k_lens.size() && qo[end + 1] - qo[end] == q && k_lens[end] == k_lens[b]) ++end;
      batch += fmt::format("{}{}q{}s{}", batch.empty() ? "" : "_", end - b, q, k_lens[b]);
      unequal = unequal || q != k_lens[b];
      short_kv = short_kv || (d.mask == TraceMask::kCausal && q > k_lens[b]);
    }
    const char* mask = d.mask == TraceMask::kNone                 ? "none"
                       : d.mask == TraceMask::kTopLeft && unequal ? "causal_top_left"
                                                                  : "causal";
    std::string text = fmt::format("{{op: attention, dtype: {}, softmax_scale: {}, mask: {}, batch: {}",
                                   d.dtype, scale, mask, batch.empty() ? "0q0" : batch);
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
  std::unordered_set<std::string> seen_;  ///< ids of cases
  std::string open_path_;
  std::optional<SafetensorsFile> file_;  ///< the last one: a workload's tensors are in one file
};

/// Adds the workloads of a file. Throws TraceError if it cannot be opened.
void read_workloads(const std::string& file, const std::map<std::string, Definition>& definitions,
                    WorkloadReader& reader, FlashinferTrace& trace) {
  Source source{file};
  std::ifstream in = open_text(file);
  for (std::string line; std::getline(in, line);) {
    ++source.line;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      const Json json = parse_json(line, source);
      const Value root(source, "", json);
      const std::string& name = root.at("definition").text();
      const auto found = definitions.find(name);
      if (found == definitions.end()) throw Skipped(fmt::format("definition {} is missing", one_line(name)));
      if (!found->second.why_skipped.empty()) throw Skipped(found->second.why_skipped);
      const Value workload = root.at("workload");
      workload.at("uuid").text();
      trace.cases.push_back(reader.read(source, workload, name, found->second));
      trace.workloads.push_back({name, workload.object().dump(), trace.cases.back().id});
      if (!reader.is_new(trace.cases.back())) trace.cases.pop_back();
    } catch (const Skipped& why) {
      ++trace.skipped[why.what()];
    } catch (const TraceError& e) {
      trace.errors.emplace_back(e.what());
    }
  }
}

}  // namespace

bool is_flashinfer_trace(const std::string& path) {
  std::error_code ec;
  return fs::is_directory(fs::path(path) / "definitions", ec) &&
         fs::is_directory(fs::path(path) / "workloads", ec);
}

FlashinferTrace read_flashinfer_trace(const std::string& dir, uint64_t seed) {
  FlashinferTrace trace;
  const auto definitions = read_definitions(fs::path(dir) / "definitions", trace.errors);
  WorkloadReader reader(dir, seed);
  for (const std::string& file : files_in(fs::path(dir) / "workloads", ".jsonl", trace.errors)) {
    try {
      read_workloads(file, definitions, reader, trace);
    } catch (const TraceError& e) {
      trace.errors.emplace_back(e.what());
    }
  }
  return trace;
}

}  // namespace attnbench
