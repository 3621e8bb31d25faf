#include "harness/exchange/case_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "harness/config/sweep_file.h"
#include "harness/record/json.h"
#include "harness/record/text.h"

namespace attnbench {
namespace {

constexpr const char* kFormat = "1";  ///< of the metadata; a file of another one is refused

Element element_for(DType t) {
  switch (t) {
    case DType::kBf16:
      return Element::kBf16;
    case DType::kFp16:
      return Element::kF16;
    case DType::kE4m3:
      return Element::kE4m3;
    case DType::kE5m2:
      return Element::kE5m2;
    case DType::kInt8:
      return Element::kI8;
    default:
      return Element::kF32;
  }
}

/// Collects the tensors that a launch has.
class Collector {
 public:
  void add(const char* name, Element type, std::vector<int64_t> shape, const void* data) {
    if (data != nullptr) out_.push_back({name, type, std::move(shape), data});
  }
  void add_int32(const char* name, std::vector<int64_t> shape, const int32_t* data) {
    add(name, Element::kI32, std::move(shape), data);
  }
  void add_float(const char* name, std::vector<int64_t> shape, const float* data) {
    add(name, Element::kF32, std::move(shape), data);
  }
  std::vector<TensorView> take() && { return std::move(out_); }

 private:
  std::vector<TensorView> out_;
};

/// Shape of K or V without its last dimension, the channels.
std::vector<int64_t> kv_rows(const CaseParams& p, const AttentionParams& a) {
  if (p.kv == KvSource::kPacked) return {a.cu_seqlens_k[a.batch], a.num_heads_kv};
  const int64_t rows = p.kv == KvSource::kPaged ? a.block_size : a.cache_capacity;
  if (p.kv_layout == KvLayout::kHnd) return {a.num_blocks, a.num_heads_kv, rows};
  return {a.num_blocks, rows, a.num_heads_kv};
}

std::vector<int64_t> with(std::vector<int64_t> shape, int64_t last) {
  shape.push_back(last);
  return shape;
}

template <class T>
void zero_nan(void* data, int64_t count, T exponent, T fraction) {
  T* bits = static_cast<T*>(data);
  for (int64_t i = 0; i < count; ++i) {
    if ((bits[i] & exponent) == exponent && (bits[i] & fraction) != 0) bits[i] = 0;
  }
}

/// Inputs are numbers, so NaN is poison. int8 has none: there the descale is NaN.
void zero_poison(const TensorView& t) {
  void* data = const_cast<void*>(t.data);  // the export's own workload
  const int64_t count = element_count(t.shape);
  switch (t.type) {
    case Element::kBf16:
      return zero_nan<uint16_t>(data, count, 0x7f80, 0x007f);
    case Element::kF16:
      return zero_nan<uint16_t>(data, count, 0x7c00, 0x03ff);
    case Element::kF32:
      return zero_nan<uint32_t>(data, count, 0x7f800000u, 0x007fffffu);
    case Element::kE4m3:  // only all bits one are NaN
      std::replace_if(
          static_cast<uint8_t*>(data), static_cast<uint8_t*>(data) + count,
          [](uint8_t bits) { return (bits & 0x7f) == 0x7f; }, uint8_t{0});
      return;
    case Element::kE5m2:
      return zero_nan<uint8_t>(data, count, 0x7c, 0x03);
    case Element::kI32:
      if (t.name != "block_table") return;
      for (int64_t i = 0; i < count; ++i) {
        auto& block = static_cast<int32_t*>(data)[i];
        if (std::count(std::begin(kJunkBlocks), std::end(kJunkBlocks), block) > 0) block = 0;
      }
      return;
    default:
      return;
  }
}

std::string number_text(double x) { return fmt::format("{}", x); }

/// The scalars of the launch by their names in the contract; those that a case does not use are left out.
Metadata metadata_of(const Case& c, const AttentionParams& a, const CaseFileOptions& o,
                     const ExpectedOutputs& e) {
  const CaseParams& p = c.params;
  Metadata m = {
      {"attnbench", kFormat},
      {"case", lengths_yaml(p)},
      {"id", c.id},
      {"seed", std::to_string(c.seed)},
      {"padding", o.zeros ? "zeros" : "poison"},
      {"p", dtype_name(o.numerics.p_type)},
      {"acc", dtype_name(o.numerics.acc_type)},
      {"exp_rel_err", number_text(o.numerics.exp_rel_err)},
      {"rows_expected", fmt::format("{}/{}", e.rows, e.rows_total)},
      {"softmax_scale", number_text(static_cast<double>(a.softmax_scale))},
      {"causal", std::to_string(a.causal)},
      {"window_left", std::to_string(a.window_left)},
      {"window_right", std::to_string(a.window_right)},
      {"attention_chunk", std::to_string(a.attention_chunk)},
      {"softcap", number_text(static_cast<double>(a.softcap))},
      {"max_seqlen_q", std::to_string(a.max_seqlen_q)},
      {"max_seqlen_k", std::to_string(a.max_seqlen_k)},
      {"kv", kv_name(p.kv)},
      {"out_dtype", element_name(element_for(p.dtype))},
      {"lse", "natural logarithm, (Hq, total_q); -inf, or the sink, for a row that sees no key"},
  };
  if (p.kv == KvSource::kPaged) m["block_size"] = std::to_string(a.block_size);
  if (p.kv != KvSource::kPacked) m["kv_layout"] = kv_layout_name(p.kv_layout);
  if (p.blocks) m["blocks"] = p.blocks->digest();
  if (p.served) m["served"] = dump_json(served_json(*p.served));
  if (p.v_is_k_view) m["v"] = fmt::format("the first {} channels of k", a.head_dim_v);
  if (p.alibi != Alibi::kNone) m["alibi_sqrt"] = std::to_string(a.alibi_sqrt);
  if (p.num_splits > 0) m["num_splits"] = std::to_string(a.num_splits);
  if (p.dropout > 0) {
    m["p_dropout"] = number_text(static_cast<double>(a.p_dropout));
    m["dropout_seed"] = std::to_string(a.dropout_seed);
    m["dropout_offset"] = std::to_string(a.dropout_offset);
  }
  if (p.rotary != Rotary::kNone) {
    m["rotary_dim"] = std::to_string(a.rotary.dim);
    m["rotary_interleaved"] = std::to_string(a.rotary.interleaved);
    m["rotary_q"] = rotary_q_name(a.rotary.q_position);
    m["rotary_cached"] = p.rotary_cached ? "1" : "0";
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

}  // namespace

std::string why_not_exported(const Case& c, const CaseFileOptions& options) {
  const CaseParams& p = c.params;
  if (p.op != Op::kAttention) return fmt::format("its op is {}; attention is required", op_name(p.op));
  if (p.expect_refused) return "it expects a refusal, and no outputs";
  if (p.captured) return "its values are captured: they are in a file already";
  if (p.path != Path::kOneCall) {
    return fmt::format("its path is {}, several launches; one_call is required", path_name(p.path));
  }
  if (p.e4m3_out) return "O in e4m3 has a scale, which the file has no name for; write 'out_dtype: same'";
  if (p.append && p.kv_dtype != KvDType::kSame) {
    return "it appends to a quantised cache, which outputs of other programs cannot be; drop kv_dtype or append";
  }
  if (p.scale_block() > 0) {
    return fmt::format("its cache is {}, for whose scales the file has no names; take another kv_dtype",
                       kv_dtype_name(p.kv_dtype));
  }
  if (options.zeros && p.append) {
    return "it appends to its cache, which is compared in every byte, padding too: drop --padding zeros";
  }
  return "";
}

namespace {

int64_t table_rows(const Workload& workload) {
  const auto stride = std::max<int64_t>(workload.plan().block_table_stride, 1);
  return std::ssize(workload.plan().block_table) / stride;
}

}  // namespace

std::vector<TensorView> input_tensors(Workload& workload, bool zeros) {
  const CaseParams& p = workload.item().params;
  const AttentionParams a = workload.params().attention;
  const int64_t batch = a.batch, heads = a.num_heads_q, kv_heads = a.num_heads_kv;
  const std::vector<int64_t> rows = kv_rows(p, a);
  Collector c;
  c.add("q", element_for(a.dtype_q), {a.total_q, heads, a.head_dim}, a.q);
  c.add("qv", element_for(a.dtype_q), {a.total_q, heads, a.head_dim_v}, a.qv);
  c.add("k", element_for(a.dtype_k), with(rows, a.head_dim), a.k);
  if (!p.v_is_k_view) c.add("v", element_for(a.dtype_v), with(rows, a.head_dim_v), a.v);
  c.add_int32("cu_seqlens_q", {batch + 1}, a.cu_seqlens_q);
  c.add_int32("cu_seqlens_k", {batch + 1}, a.cu_seqlens_k);
  c.add_int32("seqused_q", {batch}, a.seqused_q);
  c.add_int32("seqused_k", {batch}, a.seqused_k);
  c.add_int32("block_table", {table_rows(workload), a.block_table_stride}, a.block_table);
  c.add_int32("cache_batch_idx", {batch}, a.cache_batch_idx);
  c.add_int32("cache_leftpad", {batch}, a.cache_leftpad);
  if (p.append) {
    c.add("k_new", element_for(a.dtype_k), {a.total_new, kv_heads, a.head_dim}, a.k_new);
    c.add("v_new", element_for(a.dtype_v), {a.total_new, kv_heads, a.head_dim}, a.v_new);
    c.add_int32("cu_seqlens_new", {batch + 1}, a.cu_seqlens_new);
  }
  c.add_float("rotary_cos", {a.rotary.positions, a.rotary.dim / 2}, a.rotary.cos);
  c.add_float("rotary_sin", {a.rotary.positions, a.rotary.dim / 2}, a.rotary.sin);
  c.add_float("alibi_slopes",
              a.alibi_stride_batch > 0 ? std::vector<int64_t>{batch, heads} : std::vector<int64_t>{heads},
              a.alibi_slopes);
  c.add_float("sinks", {heads}, a.sinks);
  if (a.topk_indices != nullptr) {
    c.add_int32("topk_indices", {a.total_q, kv_heads, a.topk}, a.topk_indices);
    c.add_int32("topk_length", {a.total_q}, a.topk_length);
  }
  if (a.custom_mask != nullptr) {
    c.add("custom_mask", Element::kU8, {a.mask_indptr[batch]}, a.custom_mask);
    c.add_int32("mask_indptr", {batch + 1}, a.mask_indptr);
  }
  const auto shared = [&](int64_t stride_outer, int64_t stride_head) {  // where a stride is 0
    return stride_head == 0    ? std::vector<int64_t>{1}
           : stride_outer == 0 ? std::vector<int64_t>{kv_heads}
                               : std::vector<int64_t>{batch, kv_heads};
  };
  const bool of_channels = a.dtype_v == DType::kInt8 || (a.features & kVChannelScales) != 0;
  c.add_float("q_descale",
              a.dtype_q == DType::kInt8 ? std::vector<int64_t>{a.total_q, heads}
                                        : shared(a.q_descale_stride_outer, a.q_descale_stride_head),
              a.q_descale);
  c.add_float("k_descale",
              a.dtype_k == DType::kInt8 ? rows : shared(a.k_descale_stride_outer, a.k_descale_stride_head),
              a.k_descale);
  c.add_float("v_descale",
              of_channels ? std::vector<int64_t>{kv_heads, a.head_dim_v}
                          : shared(a.v_descale_stride_outer, a.v_descale_stride_head),
              a.v_descale);
  std::vector<TensorView> tensors = std::move(c).take();
  for (const TensorView& t : tensors) {
    if (zeros) zero_poison(t);
  }
  return tensors;
}

void write_case_file(const std::string& path, Workload& workload, const ExpectedOutputs& expected,
                     const CaseFileOptions& options, const std::string& program_version) {
  const AttentionParams a = workload.params().attention;
  std::vector<TensorView> tensors = input_tensors(workload, options.zeros);
  const std::vector<int64_t> out = {a.total_q, a.num_heads_q, a.head_dim_v}, lse = {a.num_heads_q, a.total_q};
  tensors.push_back({"expected_out", Element::kF64, out, expected.out.data()});
  tensors.push_back({"expected_lse", Element::kF64, lse, expected.lse.data()});
  tensors.push_back({"sigma_out", Element::kF32, out, expected.sigma_out.data()});
  tensors.push_back({"sigma_lse", Element::kF32, lse, expected.sigma_lse.data()});
  // Tensors of wide elements first: all begin at a multiple of their element's size.
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorView& x, const TensorView& y) {
    return element_size(x.type) > element_size(y.type);
  });
  Metadata metadata = metadata_of(workload.item(), a, options, expected);
  metadata["version"] = program_version;
  write_safetensors(path, metadata, tensors);
}

CaseFile::CaseFile(const std::string& path) : file(path), item(case_in(file)) {
  options.numerics = {type_in(file, "p"), type_in(file, "acc"),
                      number_in_metadata<double>(file, "exp_rel_err")};
  const double error = options.numerics.exp_rel_err;
  if (!(error >= 0 && error < 1))
    fail_metadata(path, "'exp_rel_err' in its __metadata__ is not within 0 and 1");
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
  for (const TensorView& t : input_tensors(workload, options.zeros)) {
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
