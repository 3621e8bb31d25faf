#include "harness/interop/trace_definition.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "harness/results/text.h"

namespace attnbench::trace {
namespace {

const std::vector<OpType>& op_types() {
  static const std::vector<OpType> types = {
      {"gqa_paged",
       {"num_qo_heads", "num_kv_heads", "head_dim", "page_size"},
       {"total_q", "batch_size", "num_pages", "len_indptr", "num_kv_indices"},
       {"q", "k_cache", "v_cache"},
       {"qo_indptr", "kv_indptr", "kv_indices", "kv_last_page_len", "sm_scale", "return_lse"}},
      {"gqa_ragged",
       {"num_qo_heads", "num_kv_heads", "head_dim"},
       {"total_q", "total_kv", "len_indptr"},
       {"q", "k", "v"},
       {"qo_indptr", "kv_indptr", "sm_scale", "return_lse"}},
      {"mla_paged",
       {"num_qo_heads", "head_dim_ckv", "head_dim_kpe", "page_size"},
       {"total_q", "batch_size", "num_pages", "len_indptr", "num_kv_indices"},
       {"q_nope", "q_pe", "ckv_cache", "kpe_cache"},
       {"qo_indptr", "kv_indptr", "kv_indices", "kv_last_page_len", "sm_scale", "return_lse"}},
  };
  return types;
}

bool holds(const std::vector<std::string>& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

bool is_optional(const Value& input) {
  const Json& spec = input.object();
  return spec.contains("optional") && spec["optional"] == true;
}

/// The type that q, K and V have, by its name in cases.
std::string dtype_of(const Value& inputs, const OpType& op) {
  std::set<std::string> types;
  for (const std::string& name : op.tensors) {
    if (inputs.has(name.c_str())) types.insert(inputs.at(name).at("dtype").text());
  }
  const std::map<std::string, std::string> known = {
      {"bfloat16", "bf16"}, {"float16", "fp16"}, {"float32", "fp32"}};
  if (types.size() != 1) throw Skipped("q, K and V have different dtypes");
  const auto found = known.find(*types.begin());
  if (found == known.end()) throw Skipped(fmt::format("dtype {}", one_line(*types.begin())));
  return found->second;
}

/// Axes of the optional inputs that attnbench does not know. Throws Skipped at another unknown input.
std::set<std::string> axes_of_unknown(const Value& inputs, const OpType& op) {
  std::set<std::string> axes;
  for (const auto& [name, spec] : inputs.object().items()) {
    if (op.knows_input(name)) continue;
    const Value input = inputs.at(name);
    if (!is_optional(input)) throw Skipped(fmt::format("{} with the input {}", op.name, one_line(name)));
    if (!input.has("shape")) continue;
    for (const std::string& axis : input.at("shape").texts()) axes.insert(axis);
  }
  return axes;
}

}  // namespace

bool OpType::knows_input(const std::string& input) const {
  return holds(tensors, input) || holds(others, input);
}

void read_definition(const Value& root, Definition& d) {
  const std::string& op_type = root.at("op_type").text();
  for (const OpType& t : op_types()) {
    if (op_type == t.name) d.op = &t;
  }
  if (d.op == nullptr) throw Skipped(fmt::format("op_type {}", one_line(op_type)));
  const Value axes = root.at("axes"), inputs = root.at("inputs");
  const std::set<std::string> unused = axes_of_unknown(inputs, *d.op);
  for (const auto& [axis, spec] : axes.object().items()) {
    if (!holds(d.op->constants, axis) && !holds(d.op->axes, axis) && unused.count(axis) == 0) {
      throw Skipped(fmt::format("{} with the axis {}", op_type, one_line(axis)));
    }
    const Value value = axes.at(axis);
    if (value.at("type").text() == "const") d.constants[axis] = value.at("value").count();
  }
  for (const std::string& axis : d.op->constants) {
    if (d.constants.count(axis) == 0)
      axes.at(axis).fail("a constant axis is required: {\"type\": \"const\", \"value\": N}");
  }
  d.dtype = dtype_of(inputs, *d.op);
  d.mla = op_type == "mla_paged";
  d.paged = op_type != "gqa_ragged";
  d.prefill = inputs.has("qo_indptr");
  d.mask = mask_of(root);
  for (const std::string& name : d.op->others) {
    if (!inputs.has(name.c_str()) || is_optional(inputs.at(name))) d.optional.insert(name);
  }
  if (op_type == "gqa_paged") {
    const std::vector<std::string> shape = inputs.at("k_cache").at("shape").texts();
    const std::vector<std::string> nhd = {"num_pages", "page_size", "num_kv_heads", "head_dim"};
    const std::vector<std::string> hnd = {"num_pages", "num_kv_heads", "page_size", "head_dim"};
    if (shape != nhd && shape != hnd) throw Skipped("k_cache of another shape");
    d.hnd = shape == hnd;
  }
}

}  // namespace attnbench::trace
