#include "harness/config/models.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnbench {

namespace {

using Keys = std::vector<std::pair<std::string, std::string>>;

Keys shape(const char* heads, const char* head_dim, Keys more = {}) {
  Keys keys = {{"heads", heads}, {"head_dim", head_dim}};
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

/// A decode with absorbed projections: kv_lora_rank 512 and qk_rope_head_dim 64 make 576 channels, of which V is the first
/// 512.
Keys absorbed_mla(const char* heads, const char* scale) {
  return shape(heads, "576", {{"head_dim_v", "512"}, {"v_is_k_view", "true"}, {"softmax_scale", scale}});
}

/// The name or id in lower case, without its owner and words that change no shape.
std::string plain_name(std::string_view name) {
  static const std::vector<std::string_view> neutral = {"meta", "instruct", "it",   "chat", "base", "hf",
                                                        "pt",   "fp8",      "bf16", "awq",  "gptq"};
  name.remove_prefix(std::min(name.find_last_of('/') + 1, name.size()));
  std::string plain;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('-', begin), name.size());
    std::string word(name.substr(begin, end - begin));
    std::ranges::transform(word, word.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    begin = end + 1;
    if (std::ranges::find(neutral, word) == neutral.end()) plain += (plain.empty() ? "" : "-") + word;
  }
  return plain;
}

}  // namespace

// Sources: num_attention_heads, num_key_value_heads, head_dim and, where named, other fields of config.json. A window of
// N keys is "N-1,0": the key of the query is one of them.
const std::vector<Model>& models() {
  static const std::vector<Model> all = {
      {"llama-3.1-8b", "meta-llama/Llama-3.1-8B", shape("32/8", "128")},
      {"llama-3.1-70b", "meta-llama/Llama-3.1-70B", shape("64/8", "128")},
      // Three of four layers have an attention_chunk_size.
      {"llama-4-scout", "meta-llama/Llama-4-Scout-17B-16E", shape("40/8", "128")},
      {"llama-4-scout-local", "meta-llama/Llama-4-Scout-17B-16E",
       shape("40/8", "128", {{"attention_chunk", "8192"}})},
      {"mistral-7b", "mistralai/Mistral-7B-v0.3", shape("32/8", "128")},
      {"mistral-7b-v0.1", "mistralai/Mistral-7B-v0.1", shape("32/8", "128", {{"window", "\"4095,0\""}})},
      {"qwen2.5-7b", "Qwen/Qwen2.5-7B", shape("28/4", "128")},
      {"qwen2.5-72b", "Qwen/Qwen2.5-72B", shape("64/8", "128")},
      {"qwen3-8b", "Qwen/Qwen3-8B", shape("32/8", "128")},
      {"qwen3-32b", "Qwen/Qwen3-32B", shape("64/8", "128")},
      {"qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", shape("32/4", "128")},
      // attn_logit_softcapping, and sliding_window in every other layer. 27b: query_pre_attn_scalar 144.
      {"gemma-2-9b", "google/gemma-2-9b", shape("16/8", "256", {{"softcap", "50"}})},
      {"gemma-2-9b-local", "google/gemma-2-9b",
       shape("16/8", "256", {{"softcap", "50"}, {"window", "\"4095,0\""}})},
      {"gemma-2-27b", "google/gemma-2-27b",
       shape("32/16", "128", {{"softcap", "50"}, {"softmax_scale", "0.083333"}})},
      {"gemma-2-27b-local", "google/gemma-2-27b",
       shape("32/16", "128", {{"softcap", "50"}, {"softmax_scale", "0.083333"}, {"window", "\"4095,0\""}})},
      // query_pre_attn_scalar 168, and sliding_window in five of six layers.
      {"gemma-3-27b", "google/gemma-3-27b-it", shape("32/16", "128", {{"softmax_scale", "0.077152"}})},
      {"gemma-3-27b-local", "google/gemma-3-27b-it",
       shape("32/16", "128", {{"softmax_scale", "0.077152"}, {"window", "\"1023,0\""}})},
      // sliding_window in every other layer.
      {"gpt-oss-20b", "openai/gpt-oss-20b", shape("64/8", "64", {{"sinks", "true"}})},
      {"gpt-oss-20b-local", "openai/gpt-oss-20b",
       shape("64/8", "64", {{"sinks", "true"}, {"window", "\"127,0\""}})},
      {"gpt-oss-120b", "openai/gpt-oss-120b", shape("64/8", "64", {{"sinks", "true"}})},
      {"gpt-oss-120b-local", "openai/gpt-oss-120b",
       shape("64/8", "64", {{"sinks", "true"}, {"window", "\"127,0\""}})},
      {"phi-4", "microsoft/phi-4", shape("40/10", "128")},
      {"glm-4.5", "zai-org/GLM-4.5", shape("96/8", "128")},
      // The scale is 1/sqrt(192) times the square of YaRN's 0.1 ln(factor) + 1, factor 40 and 32.
      {"deepseek-v3-mla", "deepseek-ai/DeepSeek-V3", absorbed_mla("128/1", "0.13523")},
      {"kimi-k2", "moonshotai/Kimi-K2-Instruct", absorbed_mla("64/1", "0.13086")},
      {"falcon-7b", "tiiuae/falcon-7b", shape("71/1", "64")},                         // multi_query
      {"mpt-7b", "mosaicml/mpt-7b", shape("32/32", "128", {{"alibi", "per_head"}})},  // attn_config.alibi
      {"stablelm-3b", "stabilityai/stablelm-3b-4e1t", shape("32/32", "80")},
  };
  return all;
}

const Model* find_model(std::string_view name) {
  const std::string plain = plain_name(name);
  for (const Model& m : models()) {
    if (plain == plain_name(m.name)) return &m;
  }
  for (const Model& m : models()) {
    if (plain == plain_name(m.source)) return &m;
  }
  return nullptr;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Model& m : models()) names.push_back(m.name);
  return names;
}

std::string models_markdown() {
  std::string text = "| model | stands for | from the config.json of |\n|---|---|---|\n";
  for (const Model& m : models()) {
    std::string keys;
    for (const auto& [key, value] : m.keys)
      keys += fmt::format("{}{}: {}", keys.empty() ? "" : ", ", key, value);
    text += fmt::format("| `{}` | `{}` | {} |\n", m.name, keys, m.source);
  }
  return text;
}

}  // namespace attnbench
