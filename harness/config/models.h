// Attention shapes of models by name: `model: qwen2.5-7b` in a sweep stands for the keys of its row.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attnbench {

struct Model {
  std::string name;
  std::string source;  ///< the repository of its config.json on Hugging Face
  std::vector<std::pair<std::string, std::string>> keys;  ///< key and value, as YAML has them
};

const std::vector<Model>& models();

/// The model of this name, or of this id on Hugging Face, in upper or lower case. Other owners and words that change no
/// shape do not matter: "unsloth/Llama-3.1-8B-Instruct". Null if there is none.
const Model* find_model(std::string_view name);

std::vector<std::string> model_names();

/// A table of all models, for `attnbench list --models`.
std::string models_markdown();

}  // namespace attnbench
