#include "harness/report/html/case_facts.h"

#include <nlohmann/json.hpp>

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;

const Json* object_at(const Json* j, const char* key) {
  if (j == nullptr || !j->is_object()) return nullptr;
  const auto it = j->find(key);
  return it != j->end() && it->is_object() ? &*it : nullptr;
}

int64_t integer(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_number_integer() ? it->get<int64_t>() : 0;
}

std::string word(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_string() ? it->get<std::string>() : "";
}

/// The id without the part that names the batch: its spec, or "16seqs-q..." if the spec is long.
std::string without_batch(const std::string& id, const std::string& spec, int64_t num_seqs) {
  const std::string digest = std::to_string(num_seqs) + "seqs-";
  std::string out;
  for (std::size_t begin = 0; begin <= id.size();) {
    const std::size_t end = std::min(id.find('/', begin), id.size());
    const std::string part = id.substr(begin, end - begin);
    if (part != spec && part.compare(0, digest.size(), digest) != 0) out += (out.empty() ? "" : "/") + part;
    begin = end + 1;
  }
  return out;
}

}  // namespace

std::optional<CaseFacts> facts_of(const Record& result) {
  const Json* params = object_at(object_at(result.entry.get(), "attnbench"), "params");
  if (params == nullptr) return std::nullopt;
  CaseFacts f;
  f.num_seqs = integer(*params, "num_seqs");
  f.max_q = integer(*params, "max_q");
  f.max_k = integer(*params, "max_k");
  f.total_q = integer(*params, "total_q");
  f.total_k = integer(*params, "total_k");
  f.dtype = word(*params, "dtype");
  f.q_dtype = word(*params, "q_dtype");
  f.on_ranks = word(*params, "path") == "dcp";
  const std::string combine = word(*params, "dcp_combine");
  f.apart = f.on_ranks && !combine.empty() && combine != "one_device";
  const std::string spec = word(*params, "batch");
  f.setting = without_batch(result.item.id, spec, f.num_seqs);
  f.uniform = f.num_seqs > 0 && f.total_q == f.num_seqs * f.max_q && f.total_k == f.num_seqs * f.max_k;
  const std::string op = word(*params, "op");
  // If the longest sequence is a prompt but the mean is not, the batch is a prompt among decodes.
  f.phase = !op.empty() && op != "attention"          ? op
            : f.max_q <= kDecodeQueries               ? "decode"
            : f.total_q > f.num_seqs * kDecodeQueries ? "prefill"
                                                      : "mixed";
  return f;
}

std::optional<double> intensity_of(const Record& result) {
  if (!result.roofline) return std::nullopt;
  const double flop = result.roofline->flop, bytes = result.roofline->bytes;
  return flop > 0 && bytes > 0 ? std::optional(flop / bytes) : std::nullopt;
}

}  // namespace attnbench
