// Ids, inline YAML and normal form of a case: loops over the table of keys.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "harness/cases/case.h"
#include "harness/config/keys.h"
#include "harness/error.h"

namespace attnbench {

std::string case_id(const CaseParams& p) {
  std::string id;
  for (const SweepKey& key : sweep_keys()) {
    if (key.label && key.applies(p)) id += key.label(p);
  }
  return id;
}

std::string case_yaml(const CaseParams& p, const std::string& batch) {
  static const CaseParams defaults;
  std::string y;
  for (const SweepKey& key : sweep_keys()) {
    if (!key.applies(p)) continue;
    const bool drawn = !batch.empty() && key.name == "batch";
    const std::string text = drawn ? batch : key.text(p);
    if (!key.written && text == key.text(defaults)) continue;
    // A bare comma would end the value.
    const char* quote = !drawn && text.find(',') != std::string::npos ? "\"" : "";
    y += fmt::format("{}{}: {}{}{}", y.empty() ? "{" : ", ", key.name, quote, text, quote);
  }
  return y + "}";
}

void give_blocks(CaseParams& p, std::shared_ptr<const GivenBlocks> blocks) {
  const auto refuse = [](const char* key, const char* instead) {
    throw Error(fmt::format("a case with a block table of its own has no {}; {}", key, instead));
  };
  if (p.path != Path::kOneCall) refuse("path of several launches", "drop path");
  if (p.append) refuse("append: in_call", "drop append, or use op kv_append");
  if (p.type_of_k() == DType::kInt8) refuse("int8 keys", "take kv_dtype e4m3, e5m2 or same");
  if (p.expired != Expired::kKept) refuse("expired rows", "drop expired");
  p.blocks = std::move(blocks);
}

void give_blocks(Case& c, GivenBlocks::Ids ids) {
  CaseParams& p = c.params;
  std::vector<int32_t> k_lens;
  for (const SeqLen& s : p.seqs) k_lens.push_back(s.k);
  give_blocks(p, std::make_shared<const GivenBlocks>(std::move(ids), std::move(k_lens), p.block_size));
  c.id = case_id(p);
}

void give_tensors(Case& c, std::shared_ptr<const CapturedTensors> tensors) {
  c.params.captured = std::move(tensors);
  c.id = case_id(c.params);
}

void give_served(Case& c, ServedStep step, bool has_table) {
  c.params.served = std::move(step);
  if (has_table) c.params.page_layout = PageLayout::kServed;
  c.id = case_id(c.params);
}

std::string lengths_yaml(CaseParams p) {
  p.blocks.reset();
  p.served.reset();
  if (p.page_layout == PageLayout::kServed)
    p.page_layout = CaseParams{}.page_layout;  // repeated is drawn again
  return case_yaml(p);
}

CaseParams normalised(CaseParams p) {
  for (const SweepKey& key : sweep_keys()) {
    if (!key.applies(p)) key.reset(p);
    if (key.unify) key.unify(p);
  }
  return p;
}

}  // namespace attnbench
