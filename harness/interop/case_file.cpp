#include "harness/interop/case_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "harness/cases/kv_rows.h"
#include "harness/config/captured.h"
#include "harness/config/sweep_file.h"
#include "harness/facts/declared_types.h"
#include "harness/interop/captured_file.h"
#include "harness/interop/npy.h"
#include "harness/launch/numerics_bounds.h"
#include "harness/results/json.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

constexpr const char* kFormat = "1";  ///< of the metadata; a file of another one is refused

std::string number_text(double x) { return fmt::format("{}", x); }

/// The scalars that attention and attention_backward share.
template <class Params>
void add_scalars(const CaseParams& p, const Params& a, Metadata& m) {
  m["softmax_scale"] = number_text(static_cast<double>(a.softmax_scale));
  m["causal"] = std::to_string(a.causal);
  m["top_left"] = p.causal.top_left ? "1" : "0";
  m["window_left"] = std::to_string(a.window_left);
  m["window_right"] = std::to_string(a.window_right);
  m["softcap"] = number_text(static_cast<double>(a.softcap));
  m["max_seqlen_q"] = std::to_string(a.max_seqlen_q);
  m["max_seqlen_k"] = std::to_string(a.max_seqlen_k);
  if (p.alibi != Alibi::kNone) m["alibi_sqrt"] = std::to_string(a.alibi_sqrt);
  if (p.dropout > 0) {
    m["p_dropout"] = number_text(static_cast<double>(a.p_dropout));
    m["dropout_seed"] = std::to_string(a.dropout_seed);
    m["dropout_offset"] = std::to_string(a.dropout_offset);
  }
}

void add_attention_scalars(const CaseParams& p, const AttentionParams& a, Metadata& m) {
  add_scalars(p, a, m);
  m["attention_chunk"] = std::to_string(a.attention_chunk);
  m["out_dtype"] = element_name(element_for(a.dtype_out));
  if (p.kv == KvSource::kPaged) m["block_size"] = std::to_string(a.block_size);
  if (p.kv != KvSource::kPacked) m["kv_layout"] = kv_layout_name(p.kv_layout);
  if (p.blocks) m["blocks"] = p.blocks->digest();
  if (p.served) m["served"] = dump_json(served_json(*p.served));
  if (p.v_is_k_view) m["v"] = fmt::format("the first {} channels of k", a.head_dim_v);
  if (p.num_splits > 0) m["num_splits"] = std::to_string(a.num_splits);
  if (a.features & kDescaleRows) {
    m["q_descale_rows"] = std::to_string(a.q_descale_rows);
    m["k_descale_rows"] = std::to_string(a.k_descale_rows);
  }
  if (p.kv_dtype == KvDType::kNvfp4) m["k"] = "two numbers in e2m1 a byte, the first one in the low bits";
  if (p.kv_dtype == KvDType::kDsMla) {
    const DsMlaRow row = ds_mla_row(p);
    m["k"] = fmt::format("rows of {} bytes of e4m3, {} of scales in fp32, {} of bf16", row.latent, row.scales,
                         row.tail);
  }
  if (p.rotary != Rotary::kNone) {
    m["rotary_dim"] = std::to_string(a.rotary.dim);
    m["rotary_interleaved"] = std::to_string(a.rotary.interleaved);
    m["rotary_q"] = rotary_q_name(a.rotary.q_position);
    m["rotary_cached"] = p.rotary_cached ? "1" : "0";
  }
}

/// What of a file is no tensor: scalars of the launch by their names in the contract, without those that a case does
/// not use.
Metadata metadata_of(const Case& c, const OpParams& op, const CaseFileOptions& o, const ExpectedOutputs& e) {
  const CaseParams& p = c.params;
  Metadata m = {
      {"attnbench", kFormat},
      {"case", lengths_yaml(p)},
      {"id", c.id},
      {"seed", std::to_string(c.seed)},
      {"padding", o.zeros ? "zeros" : "poison"},
      {"p", dtype_name(o.numerics.p_type)},
      {"acc", dtype_name(o.numerics.acc_type)},
      {"rows_expected", fmt::format("{}/{}", e.rows, e.rows_total)},
      {"kv", kv_name(p.kv)},
      {"lse", fmt::format("{}, {}; -inf, or the sink, for a row that sees no key",
                          p.lse_base2 ? "logarithm to base 2" : "natural logarithm",
                          p.out_lse_token_major ? "(total_q, Hq)" : "(Hq, total_q)")},
  };
  for (const DeclaredNumber& n : kDeclaredNumbers) m[n.key] = number_text(o.numerics.*n.field);
  if (p.does().gradients) {
    add_scalars(p, op.attention_backward, m);
  } else {
    add_attention_scalars(p, op.attention, m);
  }
  return m;
}

[[noreturn]] void fail_metadata(const std::string& path, const std::string& what) {
  throw TensorFileError(
      fmt::format("{}: error: {}; 'attnbench export' writes such files", one_line(path), what));
}

const std::string& text_in(const SafetensorsFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end())
    fail_metadata(file.path(), fmt::format("its __metadata__ lacks '{}'", key));
  return found->second;
}

template <class T>
T number_in_metadata(const SafetensorsFile& file, const char* key) {
  const std::string& text = text_in(file, key);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail_metadata(file.path(),
                  fmt::format("'{}' in its __metadata__ is '{}', no number", key, one_line(text)));
  }
  return value;
}

DType type_in(const SafetensorsFile& file, const char* key) {
  const std::string& text = text_in(file, key);
  for (const DType t : {DType::kFp32, DType::kFp16, DType::kBf16, DType::kE4m3}) {
    if (text == dtype_name(t)) return t;
  }
  fail_metadata(file.path(),
                fmt::format("'{}' in its __metadata__ is '{}'; fp32, fp16, bf16 or e4m3 is required", key,
                            one_line(text)));
}

/// The blocks of a table that a trace gave, as the file holds it. Each row has at least the sequence's blocks.
GivenBlocks::Ids blocks_in(SafetensorsFile& file, const CaseParams& p) {
  const std::vector<int64_t> table = file.read_integers("block_table");
  const auto stride = static_cast<std::size_t>(file.entry("block_table").shape.at(1));
  const std::vector<int64_t> rows =
      p.shuffled_table ? file.read_integers("cache_batch_idx") : std::vector<int64_t>{};
  GivenBlocks::Ids ids;
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const int64_t blocks = (int64_t{p.seqs[b].k} + p.block_size - 1) / p.block_size;
    auto& row = ids.emplace_back();
    for (int64_t i = 0; i < std::min<int64_t>(blocks, static_cast<int64_t>(stride)); ++i) {
      const std::size_t at = rows.empty() ? b : static_cast<std::size_t>(rows.at(b));
      row.push_back(static_cast<int32_t>(table.at(at * stride + static_cast<std::size_t>(i))));
    }
  }
  return ids;
}

Case case_in(SafetensorsFile& file) {
  if (text_in(file, "attnbench") != kFormat) {
    fail_metadata(file.path(), fmt::format("it has format '{}', and this program reads {}",
                                           one_line(text_in(file, "attnbench")), kFormat));
  }
  const auto seed = number_in_metadata<uint64_t>(file, "seed");
  try {
    Expansion e = expand(parse_inline_case(text_in(file, "case"), {}, seed));
    const bool has_table = file.metadata().count("blocks") > 0;
    if (e.cases.size() == 1 && file.metadata().count("served") > 0) {
      give_served(e.cases.front(), served_from_json(nlohmann::json::parse(text_in(file, "served"))),
                  has_table);
    }
    if (e.cases.size() == 1 && has_table) {
      give_blocks(e.cases.front(), blocks_in(file, e.cases.front().params));
    }
    if (e.cases.size() == 1 && e.cases.front().id == text_in(file, "id")) return std::move(e.cases.front());
    fail_metadata(file.path(), fmt::format("its case reads back as {}, not as {}",
                                           e.cases.size() == 1 ? e.cases.front().id : "several",
                                           one_line(text_in(file, "id"))));
  } catch (const TensorFileError&) {
    throw;
  } catch (const nlohmann::json::exception& e) {
    fail_metadata(file.path(), fmt::format("'served' in its __metadata__ is wrong: {}", one_line(e.what())));
  } catch (const Error& e) {
    fail_metadata(file.path(), fmt::format("the case in its __metadata__ is wrong: {}", one_line(e.what())));
  }
}

/// The case of a file of an export, or of captured tensors.
Case item_in(SafetensorsFile& file) {
  if (file.metadata().count("attnbench") > 0 || !file.has("cu_seqlens_q")) return case_in(file);
  const uint64_t seed = file.metadata().count("seed") > 0 ? number_in_metadata<uint64_t>(file, "seed") : 1;
  return read_tensor_case(file.path(), seed);
}

}  // namespace

Numerics usual_numerics(const CaseParams& p) { return {p.dtype, DType::kFp32, 0x1p-22}; }

std::string why_not_exported(const Case& c, const CaseFileOptions& options) {
  const CaseParams& p = c.params;
  if (!p.does().attends)
    return fmt::format("its op is {}; attention or attention_backward is required", op_name(p.op));
  if (p.expect_refused) return "it expects a refusal, and no outputs";
  if (p.captured && options.zeros) return "its padding is what was captured: drop --padding zeros";
  if (p.path != Path::kOneCall) {
    return fmt::format("its path is {}, several launches; one_call is required", path_name(p.path));
  }
  if (options.zeros && p.append) {
    return "it appends to its cache, which is compared in every byte, padding too: drop --padding zeros";
  }
  return "";
}

namespace {

/// The inputs as they were captured, with what the file says of them.
std::vector<HostTensor> captured_inputs(const Case& c, Metadata& metadata, std::vector<TensorView>& views) {
  SafetensorsFile file(c.params.captured->path());
  for (const char* key : {"attnbench", "case", "kv_layout", "blocks"}) metadata.erase(key);
  for (const auto& [key, value] : file.metadata()) {
    if (key == "case" || key == "kv_layout") metadata[key] = value;
  }
  std::vector<HostTensor> tensors;
  for (const char* name : {"q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "seqused_k", "block_table"}) {
    if (!file.has(name)) continue;
    const SafetensorsFile::Entry& e = file.entry(name);
    tensors.push_back({e.type, e.shape, file.read(name)});
    views.push_back({name, e.type, e.shape, tensors.back().bytes.data()});
  }
  return tensors;
}

/// A tensor of the launch with its rows where the file has them; elements of other rows are NaN.
template <class T>
std::vector<T> in_file(const OutputTensor& tensor, const FileRows& rows, const std::vector<T>& of_launch) {
  if (rows.of.empty()) return of_launch;
  std::vector<T> out(static_cast<std::size_t>(element_count(rows.shape(tensor))),
                     std::numeric_limits<T>::quiet_NaN());
  rows.for_each_run(tensor, [&](int64_t launch, int64_t file, int64_t count) {
    std::copy_n(of_launch.begin() + launch, count, out.begin() + file);
  });
  return out;
}

}  // namespace

void write_case_file(const std::string& path, Workload& workload, const ExpectedOutputs& expected,
                     const CaseFileOptions& options, const std::string& program_version) {
  const Case& item = workload.item();
  Metadata metadata = metadata_of(item, workload.params(), options, expected);
  metadata["version"] = program_version;
  std::vector<TensorView> tensors;
  const std::vector<HostTensor> captured =
      item.params.captured ? captured_inputs(item, metadata, tensors) : std::vector<HostTensor>{};
  if (!item.params.captured) tensors = input_tensors(workload, options.zeros);
  const FileRows rows = file_rows(workload);
  const std::vector<OutputTensor> outputs = output_tensors(workload);
  std::vector<ExpectedOutput> placed;
  for (const ExpectedOutput& e : expected.tensors) {
    const OutputTensor& o =
        *std::ranges::find_if(outputs, [&](const OutputTensor& x) { return x.name == e.name; });
    placed.push_back({e.name, rows.shape(o), in_file(o, rows, e.value), in_file(o, rows, e.sigma)});
  }
  for (const ExpectedOutput& e : placed) {
    tensors.push_back({"expected_" + e.name, Element::kF64, e.shape, e.value.data()});
    tensors.push_back({"sigma_" + e.name, Element::kF32, e.shape, e.sigma.data()});
  }
  // Tensors of wide elements first: all begin at a multiple of their element's size.
  std::ranges::stable_sort(tensors, [](const TensorView& x, const TensorView& y) {
    return element_size(x.type) > element_size(y.type);
  });
  write_safetensors(path, metadata, tensors);
}

CaseFile::CaseFile(const std::string& path) : file(path), item(item_in(file)) {
  options.numerics = usual_numerics(item.params);
  if (item.params.captured && file.metadata().count("p") == 0) return;  // not of an export
  options.numerics = {type_in(file, "p"), type_in(file, "acc"), 0};
  for (const DeclaredNumber& n : kDeclaredNumbers) {
    // Files of older versions have exp_rel_err alone.
    if (&n != &kDeclaredNumbers.front() && file.metadata().count(n.key) == 0) continue;
    options.numerics.*n.field = number_in_metadata<double>(file, n.key);
  }
  if (const auto why = out_of_bounds(options.numerics)) fail_metadata(path, "in its __metadata__, " + *why);
  const std::string& padding = text_in(file, "padding");
  if (padding != "zeros" && padding != "poison") {
    fail_metadata(path, fmt::format("'padding' in its __metadata__ is '{}'; poison or zeros is required",
                                    one_line(padding)));
  }
  options.zeros = padding == "zeros";
  if (const std::string why = why_not_exported(item, options); !why.empty()) {
    fail_metadata(path, fmt::format("its case is none that is exported: {}", why));
  }
}

void CaseFile::check_inputs(Workload& workload) {
  if (item.params.captured) return;  // the file's values are the case's
  for (const TensorView& t : input_tensors(workload, options.zeros)) {
    // Inputs of attention_backward that another machine's forward pass computed. The judge does not read them.
    if (t.name == "out" || t.name == "lse") continue;
    const SafetensorsFile::Entry& e = file.entry(t.name);
    const bool alike = e.type == t.type && e.shape == t.shape;
    if (alike) {
      const std::vector<unsigned char> bytes = file.read(t.name);
      if (bytes.empty() || std::memcmp(bytes.data(), t.data, bytes.size()) == 0) continue;
    }
    const auto version = file.metadata().find("version");
    throw TensorFileError(fmt::format(
        "{}: error: tensor '{}' is not that of its case: {}; outputs are judged by the case's own inputs, so export "
        "it again (the file was written by {})",
        one_line(file.path()), t.name,
        alike ? "its values differ"
              : fmt::format("it is {} of shape {}, and {} of shape {} is required", element_name(e.type),
                            shape_text(e.shape), element_name(t.type), shape_text(t.shape)),
        version == file.metadata().end() ? "an unknown version" : one_line(version->second)));
  }
}

}  // namespace attnbench
