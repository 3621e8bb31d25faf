#include "harness/interop/captured_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "harness/config/captured.h"
#include "harness/config/sweep_file.h"
#include "harness/interop/case_file.h"
#include "harness/results/text.h"

namespace attnbench {
namespace {

/// Reads the tensors of one file and checks that they fit each other.
class CapturedReader {
 public:
  explicit CapturedReader(const std::string& path) : file_(path) { parts_.path = path; }

  Case read(uint64_t seed) {
    read_lengths();
    read_values();
    Case c = case_of(mapping_of(), seed);
    check_case(c);
    if (paged_) give_blocks(c, parts_.blocks);
    const auto captured = std::make_shared<const CapturedTensors>(std::move(parts_));
    check_finite(c, *captured);
    give_tensors(c, captured);
    c.sweep = "captured";
    c.file = file_.path();
    return c;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw TensorFileError(fmt::format("{}: error: {}", one_line(file_.path()), what));
  }

  /// A tensor of integers of this many dimensions.
  std::vector<int32_t> integers(const char* name, std::size_t dims) {
    if (file_.entry(name).shape.size() != dims) {
      fail(fmt::format("tensor '{}' has shape {}; {} required", name, shape_text(file_.entry(name).shape),
                       dims == 1 ? "one dimension is" : "two dimensions are"));
    }
    std::vector<int32_t> out;
    for (const int64_t x : file_.read_integers(name)) {
      out.push_back(static_cast<int32_t>(std::clamp<int64_t>(x, INT32_MIN, INT32_MAX)));
    }
    return out;
  }

  /// Cumulative lengths, in ascending order, that end within the `rows` of a tensor.
  std::vector<int32_t> cu_seqlens(const char* name) {
    std::vector<int32_t> out = integers(name, 1);
    if (out.empty() || out.front() < 0 || !std::ranges::is_sorted(out)) {
      fail(fmt::format(
          "tensor '{}' must hold one number more than there are sequences, ascending from 0 or more", name));
    }
    return out;
  }

  void check_batch(const char* name, std::size_t entries) const {
    if (entries == batch_) return;
    fail(fmt::format("tensor '{}' is of {} sequences, and cu_seqlens_q of {}", name, entries, batch_));
  }

  void read_lengths() {
    const std::vector<int32_t> q = cu_seqlens("cu_seqlens_q");
    batch_ = q.size() - 1;
    parts_.q_begin.assign(q.begin(), q.end() - 1);
    total_q_ = q.back();
    paged_ = file_.has("block_table");
    std::vector<int32_t> k_lens;
    if (file_.has("seqused_k")) {
      k_lens = integers("seqused_k", 1);
      check_batch("seqused_k", k_lens.size());
      for (const int32_t k : k_lens) {
        if (k < 0) fail(fmt::format("tensor 'seqused_k' holds {}; a length from 0 on is required", k));
      }
    }
    if (paged_) {
      file_.entry("seqused_k");  // or the error that it is missing
    } else {
      const std::vector<int32_t> k = cu_seqlens("cu_seqlens_k");
      check_batch("cu_seqlens_k", k.size() - 1);
      parts_.k_begin.assign(k.begin(), k.end() - 1);
      total_k_ = k.back();
      for (std::size_t b = 0; b < batch_; ++b) {
        const int32_t slot = k[b + 1] - k[b];
        if (k_lens.size() == b) k_lens.push_back(slot);
        if (k_lens[b] > slot)
          fail(fmt::format("tensor 'seqused_k' holds {} for sequence {}, and cu_seqlens_k has space for {}",
                           k_lens[b], b, slot));
      }
    }
    for (std::size_t b = 0; b < batch_; ++b) seqs_.push_back({q[b + 1] - q[b], k_lens[b]});
  }

  /// A tensor of values, whose dtype is that of q. The dimensions before the channels have these strides.
  CapturedTensors::Rows values(const char* name, std::size_t dims) {
    const SafetensorsFile::Entry& e = file_.entry(name);
    if (e.shape.size() != dims) {
      fail(fmt::format("tensor '{}' has shape {}; {} is required", name, shape_text(e.shape),
                       dims == 3 ? "(tokens, heads, channels)" : "(blocks, block_size, heads, channels)"));
    }
    const Element type = file_.entry("q").type;
    if (e.type != type || (type != Element::kBf16 && type != Element::kF16 && type != Element::kF32)) {
      fail(fmt::format("tensor '{}' is {}; BF16, F16 or F32 is required, the same for q, k and v{}", name,
                       element_name(e.type),
                       e.type == Element::kU16 ? " (NumPy: bfloat16 of the package ml_dtypes)" : ""));
    }
    parts_.dtype = type == Element::kBf16  ? DType::kBf16
                   : type == Element::kF16 ? DType::kFp16
                                           : DType::kFp32;
    const bool hnd = dims == 4 && hnd_;
    const std::size_t head_at = dims == 3 ? 1 : hnd ? 1 : 2;
    for (const int64_t n : e.shape) {
      if (n > INT32_MAX)
        fail(fmt::format("tensor '{}' has shape {}, which is too large", name, shape_text(e.shape)));
    }
    CapturedTensors::Rows rows;
    rows.bytes = file_.read(name);
    rows.heads = static_cast<int32_t>(e.shape[head_at]);
    rows.dim = static_cast<int32_t>(e.shape.back());
    rows.stride_head = hnd ? e.shape[2] * rows.dim : rows.dim;
    rows.stride_token = hnd ? rows.dim : int64_t{rows.heads} * rows.dim;
    rows.stride_block = dims == 4 ? e.shape[1] * e.shape[2] * e.shape[3] : 0;
    return rows;
  }

  void read_values() {
    const auto layout = file_.metadata().find("kv_layout");
    hnd_ = layout != file_.metadata().end() && layout->second == "hnd";
    if (layout != file_.metadata().end() && !hnd_ && layout->second != "nhd") {
      fail(fmt::format("'kv_layout' in its __metadata__ is '{}'; nhd or hnd is required",
                       one_line(layout->second)));
    }
    const std::size_t dims = paged_ ? 4 : 3;
    parts_.q = values("q", 3);
    parts_.k = values("k", dims);
    if (file_.has("v")) parts_.v = values("v", dims);
    const auto rows = [&](const char* name) { return file_.entry(name).shape.front(); };
    const auto enough = [&](const char* name, int64_t needed, const char* by) {
      if (rows(name) < needed)
        fail(fmt::format("tensor '{}' has {} rows, and {} ends with {}", name, rows(name), by, needed));
    };
    enough("q", total_q_, "cu_seqlens_q");
    for (const char* name : {"k", "v"}) {
      if (file_.has(name) && !paged_) enough(name, total_k_, "cu_seqlens_k");
    }
    if (file_.has("v") && parts_.v.heads != parts_.k.heads) {
      fail(fmt::format("tensor 'v' has {} heads, and 'k' {}", parts_.v.heads, parts_.k.heads));
    }
    if (paged_) read_blocks(rows("k"), file_.has("v") ? rows("v") : rows("k"));
  }

  void read_blocks(int64_t k_blocks, int64_t v_blocks) {
    const SafetensorsFile::Entry& k = file_.entry("k");
    parts_.block_size = static_cast<int32_t>(k.shape[hnd_ ? 2 : 1]);
    if (parts_.block_size < 1) fail("tensor 'k' has blocks of no token");
    if (file_.has("v") && file_.entry("v").shape[hnd_ ? 2 : 1] != parts_.block_size) {
      fail("tensors 'k' and 'v' have blocks of different sizes");
    }
    const std::vector<int32_t> table = integers("block_table", 2);
    const int64_t stride = file_.entry("block_table").shape[1];
    check_batch("block_table", static_cast<std::size_t>(file_.entry("block_table").shape[0]));
    for (std::size_t b = 0; b < batch_; ++b) {
      const int64_t needed = (int64_t{seqs_[b].k} + parts_.block_size - 1) / parts_.block_size;
      if (needed > stride) {
        fail(fmt::format("tensor 'block_table' has {} blocks for sequence {}, and its {} keys need {}",
                         stride, b, seqs_[b].k, needed));
      }
      auto& row = parts_.blocks.emplace_back();
      for (int64_t i = 0; i < needed; ++i) {
        const int32_t id = table[b * static_cast<std::size_t>(stride) + static_cast<std::size_t>(i)];
        if (id < 0 || id >= std::min(k_blocks, v_blocks)) {
          fail(
              fmt::format("tensor 'block_table' holds block {} for sequence {}, and there are blocks 0 to {}",
                          id, b, std::min(k_blocks, v_blocks) - 1));
        }
        row.push_back(id);
      }
    }
  }

  Case case_of(const std::string& mapping, uint64_t seed) const {
    try {
      Expansion e = expand(parse_inline_case(mapping, {}, seed));
      if (e.cases.size() == 1) return std::move(e.cases.front());
    } catch (const ConfigError& e) {
      fail(fmt::format("its shapes and keys make no case: {}", one_line(e.what())));
    }
    fail("the keys in its __metadata__ stand for several cases");
  }

  /// What shapes say, then the keys in __metadata__ that they do not say.
  std::string mapping_of() const {
    std::string batch;
    for (const SeqLen& s : seqs_) batch += fmt::format("{}q{}s{}", batch.empty() ? "" : "_", s.q, s.k);
    std::string text =
        fmt::format("{{op: attention, kv: {}, dtype: {}, heads: {}/{}, head_dim: {}, batch: {}",
                    paged_ ? "paged" : "packed", dtype_name(parts_.dtype), parts_.q.heads, parts_.k.heads,
                    parts_.q.dim, batch.empty() ? "0q0" : batch);
    if (paged_)
      text += fmt::format(", block_size: {}, kv_layout: {}", parts_.block_size, hnd_ ? "hnd" : "nhd");
    if (file_.has("v") && parts_.v.dim != parts_.q.dim) text += fmt::format(", head_dim_v: {}", parts_.v.dim);
    const auto keys = file_.metadata().find("case");
    if (keys == file_.metadata().end()) return text + "}";
    std::string more = keys->second;
    const std::size_t first = more.find_first_not_of(' '), last = more.find_last_not_of(' ');
    if (first == std::string::npos || more[first] != '{' || more[last] != '}') {
      fail(fmt::format("'case' in its __metadata__ is '{}'; a mapping is required: {{mask: causal}}",
                       shorten_end(one_line(more), 100)));
    }
    more = more.substr(first + 1, last - first - 1);
    return text + (more.find_first_not_of(' ') == std::string::npos ? "" : ", " + more) + "}";
  }

  /// The case may have no tensor that the file has not, and its shapes must be those of the file.
  void check_case(const Case& c) const {
    const CaseParams& p = c.params;
    const bool shapes =
        p.does().forward() && p.seqs == seqs_ && p.num_heads_q == parts_.q.heads &&
        p.num_heads_kv == parts_.k.heads && p.head_dim == parts_.q.dim && p.head_dim == parts_.k.dim &&
        (p.v_is_k_view ? !file_.has("v") : p.dim_v() == parts_.v.dim) && p.dtype == parts_.dtype &&
        (p.kv == KvSource::kPaged) == paged_ && (p.kv == KvSource::kPacked) != paged_ &&
        (!paged_ || p.block_size == parts_.block_size);
    if (!shapes) {
      fail(
          file_.has("v") || p.v_is_k_view
              ? "its tensors do not fit each other, or a key contradicts their shapes: (tokens, heads, channels) of q, "
                "k and v, heads of q a multiple of those of k"
              : "it has no tensor 'v'; if values are a view of k, the keys are {v_is_k_view: true, head_dim_v: N}");
    }
    if (p.append || p.kv_dtype != KvDType::kSame || p.q_dtype || p.sinks || p.alibi != Alibi::kNone ||
        p.path != Path::kOneCall || p.gap_tokens > 0 || p.gap_queries > 0 || p.expired != Expired::kKept ||
        p.shared_tokens() > 0 || p.e4m3_out || p.data != Profile::kNormal || p.expect_refused ||
        p.pool_blocks > 0 || p.page_layout == PageLayout::kRepeated || p.leftpad > 0 || p.shuffled_table ||
        p.qv || p.custom_mask != CustomMask::kNone || p.topk > 0 || p.rotary != Rotary::kNone) {
      fail(
          "of a captured case only mask, window, attention_chunk, softmax_scale, softcap, num_splits, probs, dropout, "
          "lse_log, out_lse_layout, head_dim_v and v_is_k_view may be set");
    }
  }

  /// Numbers that a query may see must be finite: the reference's results would not be.
  void check_finite(const Case& c, const CapturedTensors& captured) const {
    const CaseParams& p = c.params;
    const auto look = [&](Tensor tensor, const char* name, int32_t heads, int32_t dim, std::size_t b,
                          int32_t count) {
      for (int32_t pos = 0; pos < count; ++pos) {
        for (int32_t h = 0; h < heads; ++h) {
          const unsigned char* row = captured.row(tensor, static_cast<int32_t>(b), pos, h);
          for (int32_t i = 0; i < dim; ++i) {
            if (std::isfinite(load_float(p.dtype, row, i))) continue;
            fail(fmt::format("tensor '{}' is not finite at sequence {}, position {}, head {}, channel {}",
                             name, b, pos, h, i));
          }
        }
      }
    };
    for (std::size_t b = 0; b < seqs_.size(); ++b) {
      if (seqs_[b].q == 0) continue;
      look(Tensor::kQ, "q", p.num_heads_q, p.head_dim, b, seqs_[b].q);
      look(Tensor::kK, "k", p.num_heads_kv, p.head_dim, b, seqs_[b].k);
      if (!p.v_is_k_view) look(Tensor::kV, "v", p.num_heads_kv, p.dim_v(), b, seqs_[b].k);
    }
  }

  SafetensorsFile file_;
  CapturedTensors::Parts parts_;
  std::vector<SeqLen> seqs_;
  std::size_t batch_ = 0;
  int64_t total_q_ = 0, total_k_ = 0;
  bool paged_ = false, hnd_ = false;
};

}  // namespace

Case read_tensor_case(const std::string& path, uint64_t seed) {
  if (SafetensorsFile(path).metadata().count("attnbench") == 0) return CapturedReader(path).read(seed);
  Case c = CaseFile(path).item;
  c.sweep = "exported";
  c.file = path;
  return c;
}

}  // namespace attnbench
