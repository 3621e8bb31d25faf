#include "harness/cli/peers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>

#include "harness/cli/common.h"
#include "harness/cli/option.h"
#include "harness/cli/plugins.h"
#include "harness/cli/usage_error.h"
#include "harness/launch/python.h"
#include "harness/results/text.h"

namespace attnbench::cli {
namespace {

constexpr std::string_view kPrefix = "peer_";  // a file named as a package would hide it
constexpr const char* kNoFile = "none";        // value of --peer-file if no peer is installed

/// The files of the folder of peers by the names of the peers. There must be an interpreter for them.
std::map<std::string, std::string> known_peers(const std::string& python) {
  std::map<std::string, std::string> files;
  try {
    python_file(python);
    for (const auto& entry : std::filesystem::directory_iterator(peers_folder())) {
      const std::string name = entry.path().stem().string();
      if (name.starts_with(kPrefix) && is_python(entry.path().string())) {
        files[name.substr(kPrefix.size())] = entry.path().string();
      }
    }
  } catch (const PluginError& e) {
    throw UsageError(fmt::format("--peers: {}", e.what()));
  }
  return files;
}

std::vector<std::string> names_of(const std::map<std::string, std::string>& files) {
  std::vector<std::string> names;
  for (const auto& [name, file] : files) names.push_back(name);
  return names;
}

void say_left_out(const std::string& name, const std::string& why) {
  std::cerr << error_line(fmt::format("peer {}: {}", name, why)) << "\n";
}

}  // namespace

void add_peers_option(CLI::App& command, Program& program) {
  list_option(command, "--peers", program.peers,
              "Run these libraries, too, if the interpreter has them: names of kernels/peers, or all; "
              "comma-separated");
  command.add_option("--peer-file", program.peer_files)
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false)
      ->group("");
}

std::vector<LoadedPlugin> open_peers(Program& program) {
  if (program.peers.empty()) return {};
  if (!program.peer_files.empty()) {  // another process of this program has opened them
    std::erase(program.peer_files, kNoFile);
    return {};
  }
  const auto files = known_peers(program.python);
  std::set<std::string> named(program.peers.begin(), program.peers.end());
  const bool all = named.erase("all") > 0;
  for (const std::string& name : named) {
    if (files.count(name)) continue;
    const std::vector<std::string> list = names_of(files);
    throw UsageError(fmt::format("--peers {}: no such peer; {}there are all, {}", name,
                                 did_you_mean(name, list), fmt::join(list, ", ")));
  }
  std::vector<LoadedPlugin> opened;
  for (const auto& [name, file] : files) {
    if (!all && !named.count(name)) continue;
    try {
      opened.push_back(describe_python_plugin(file, program.python, program.opening_limit_s));
      program.peer_files.push_back(opened.back().path);
    } catch (const PluginAbsent& e) {
      say_left_out(name, e.why());
    } catch (const PluginError& e) {
      if (named.count(name)) {
        throw UsageError(fmt::format("--peers {}: {}", name, e.what()));
      }
      say_left_out(name, fmt::format("left out: {}", e.what()));
    }
  }
  return opened;
}

std::vector<std::string> peer_words(const Program& program) {
  if (program.peers.empty()) return {};
  if (program.peer_files.empty()) return {fmt::format("--peer-file={}", kNoFile)};
  std::vector<std::string> words;
  for (const std::string& file : program.peer_files) words.push_back("--peer-file=" + file);
  return words;
}

std::vector<std::string> with_peers(std::vector<std::string> kernels, const Program& program) {
  if (kernels.empty()) return kernels;
  std::set<std::string> names;
  for (const LoadedPlugin& plugin : program.plugins) {
    if (std::ranges::count(program.peer_files, plugin.path) == 0) continue;
    for (const Kernel* k : plugin.kernels) names.insert(k->name);
  }
  const auto of_peer = [&names](const std::string& kernel) { return names.count(kernel) > 0; };
  if (std::ranges::none_of(kernels, of_peer)) {
    kernels.insert(kernels.end(), names.begin(), names.end());
  }
  return kernels;
}

}  // namespace attnbench::cli
