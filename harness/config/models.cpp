#include "harness/config/models.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnbench {

// Sources: config.json of each model (num_attention_heads, num_key_value_heads, head_dim).
const std::vector<Model>& models() {
  static const std::vector<Model> all = {
      {"llama-3.1-8b", {{"heads", "32/8"}, {"head_dim", "128"}}},
      {"llama-3.1-70b", {{"heads", "64/8"}, {"head_dim", "128"}}},
      {"mistral-7b", {{"heads", "32/8"}, {"head_dim", "128"}}},
      {"qwen2.5-7b", {{"heads", "28/4"}, {"head_dim", "128"}}},
      {"qwen2.5-72b", {{"heads", "64/8"}, {"head_dim", "128"}}},
      {"qwen3-8b", {{"heads", "32/8"}, {"head_dim", "128"}}},
      {"qwen3-30b-a3b", {{"heads", "32/4"}, {"head_dim", "128"}}},
      // attn_logit_softcapping. Every other layer has a window of 4,096 keys, which a sweep asks for by itself.
      {"gemma-2-9b", {{"heads", "16/8"}, {"head_dim", "256"}, {"softcap", "50"}}},
      // Every other layer has a window of 128 keys.
      {"gpt-oss-120b", {{"heads", "64/8"}, {"head_dim", "64"}, {"sinks", "true"}}},
      // A decode with absorbed projections: kv_lora_rank 512 and qk_rope_head_dim 64 make 576 channels, of which
      // V is the first 512. The scale is 1/sqrt(192) times the square of YaRN's 0.1 ln(40) + 1.
      {"deepseek-v3-mla",
       {{"heads", "128/1"},
        {"head_dim", "576"},
        {"head_dim_v", "512"},
        {"v_is_k_view", "true"},
        {"softmax_scale", "0.13523"}}},
  };
  return all;
}

const Model* find_model(std::string_view name) {
  const auto found =
      std::find_if(models().begin(), models().end(), [&](const Model& m) { return m.name == name; });
  return found == models().end() ? nullptr : &*found;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Model& m : models()) names.push_back(m.name);
  return names;
}

std::string models_markdown() {
  std::string text = "| model | stands for |\n|---|---|\n";
  for (const Model& m : models()) {
    std::string keys;
    for (const auto& [key, value] : m.keys)
      keys += fmt::format("{}{}: {}", keys.empty() ? "" : ", ", key, value);
    text += fmt::format("| `{}` | `{}` |\n", m.name, keys);
  }
  return text;
}

}  // namespace attnbench
