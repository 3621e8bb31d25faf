// Attention shapes of models by name: `model: qwen2.5-7b` in a sweep stands for the keys of its row.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attnbench {

struct Model {
  std::string name;
  std::vector<std::pair<std::string, std::string>> keys;  ///< key and value, as YAML has them
};

const std::vector<Model>& models();

/// Null if there is no such model.
const Model* find_model(std::string_view name);

std::vector<std::string> model_names();

/// A table of all models, for `attnbench list --models`.
std::string models_markdown();

}  // namespace attnbench
