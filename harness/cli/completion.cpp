// Completion of words in a shell: a script for the shell asks the program, which knows its commands and options.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <iterator>
#include <map>

#include "harness/cli/cli.h"
#include "harness/cli/installed.h"
#include "harness/config/keys.h"

namespace attnbench::cli {
namespace {

const std::map<std::string, const char*>& scripts() {
  static const std::map<std::string, const char*> of_shell = {
      {"bash",
       R"sh(_attnbench() {
  local IFS=$'\n'
  COMPREPLY=($(compgen -W "$("$1" completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "$2"))
}
complete -o default -o bashdefault -F _attnbench attnbench
)sh"},
      {"zsh",
       R"sh(#compdef attnbench
_attnbench() {
  local -a found
  found=("${(@f)$("$words[1]" completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  compadd -a found
  _files
}
compdef _attnbench attnbench
)sh"},
      {"fish",
       "complete -c attnbench -a '(attnbench completion words -- (commandline -opc)[2..-1] (commandline -ct) "
       "2>/dev/null)'\n"}};
  return of_shell;
}

/// What may stand at the place of the last of the words behind "attnbench".
std::vector<std::string> choices(const CLI::App& app, const Program& program,
                                 const std::vector<std::string>& words) {
  std::vector<std::string> out;
  if (words.size() < 2) {
    for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; }))
      out.push_back(known->get_name());
    return out;
  }
  const auto named = app.get_subcommands([&](const CLI::App* c) { return c->get_name() == words.front(); });
  if (named.empty()) return out;
  const CLI::App* command = named.front();
  const std::string &before = words[words.size() - 2], &last = words.back();
  if (before == "--kernel") {
    for (const Kernel* kernel : program.kernels) out.emplace_back(kernel->name);
  } else if (before == "--set") {
    for (const std::string& key : sweep_key_names()) out.push_back(key + "=");
  } else if (before == "--device") {
    out = {"auto", "cpu", "cuda", "all"};
  } else if (last.starts_with("-")) {
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_group().empty()) continue;  // of the program's own processes
      for (const std::string& name : option->get_lnames()) out.push_back("--" + name);
    }
  } else if (command->get_option_no_throw("config") != nullptr) {
    out = sweep_names();
  } else if (words.front() == "completion") {
    for (const auto& [shell, script] : scripts()) out.push_back(shell);
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

void add_completion(CLI::App& app, Program& program) {
  auto* command =
      app.add_subcommand("completion", "Print a script that completes words in bash, zsh or fish");
  auto shell = std::make_shared<std::string>();
  auto words = std::make_shared<std::vector<std::string>>();
  std::vector<std::string> known = {"words"};
  for (const auto& [name, script] : scripts()) known.push_back(name);
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember(known))
      ->type_name("SHELL");
  command->add_option("words", *words)->group("");  // of the scripts: completion words -- WORDS
  command->footer(
      "Examples:\n"
      "  source <(attnbench completion bash)          in ~/.bashrc; zsh likewise\n"
      "  attnbench completion fish > ~/.config/fish/completions/attnbench.fish");
  command->callback([=, &app, &program] {
    program.chosen = [=, &app, &program] {
      if (*shell != "words") {
        std::cout << scripts().at(*shell);
        return 0;
      }
      for (const std::string& choice : choices(app, program, *words)) std::cout << choice << '\n';
      return 0;
    };
  });
}

}  // namespace attnbench::cli
