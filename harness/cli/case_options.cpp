#include "harness/cli/case_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <unordered_set>

#include "harness/cli/common.h"
#include "harness/cli/installed.h"
#include "harness/cli/option.h"
#include "harness/cli/pattern.h"
#include "harness/cli/trace_folder.h"
#include "harness/cli/usage_error.h"
#include "harness/config/batch_spec.h"
#include "harness/config/keys.h"
#include "harness/config/sweep_file.h"
#include "harness/interop/captured_file.h"
#include "harness/results/text.h"

namespace attnbench::cli {
namespace {

bool is_mapping(const std::string& text) { return !text.empty() && text.front() == '{'; }

/// "{batch: 8q1s4k}" of 8q1s4k, which is no id and no file; else the example.
std::string mapping_of(const std::string& text, const std::string& example) {
  try {
    parse_batch_spec(text);
    return fmt::format("{{batch: {}}}", text);
  } catch (const BatchSpecError&) {
    return example;
  }
}

/// The id, or id/kernel, with its batch as ids write it, if a case has that: "q1s4k" for "1q1s4096". Else as it is.
std::string with_short_batch(const std::string& id, const std::vector<std::string>& known) {
  for (std::size_t begin = 0, end; begin < id.size(); begin = end + 1) {
    end = std::min(id.find('/', begin), id.size());
    try {
      const std::string label = batch_label(parse_batch_spec(id.substr(begin, end - begin)));
      const std::string whole = id.substr(0, begin) + label;
      if (std::ranges::find(known, whole) != known.end()) return whole + id.substr(end);
    } catch (const BatchSpecError&) {  // another part of the id
    }
  }
  return id;
}

/// Keeps the cases with one of these ids, in the order of the file.
void keep_ids(const std::vector<std::string>& ids, Cases& cases) {
  std::vector<std::string> known;
  for (const Case& c : cases.cases) known.push_back(c.id);
  std::unordered_set<std::string> wanted;
  for (const std::string& given : ids) {
    const std::string id = with_short_batch(given, known), parent = id.substr(0, id.rfind('/'));
    if (std::ranges::find(known, id) != known.end()) {
      wanted.insert(id);
    } else if (std::ranges::find(known, parent) != known.end()) {
      wanted.insert(parent);
      const std::string kernel = id.substr(parent.size() + 1);
      if (!cases.kernel.empty() && cases.kernel != kernel) {
        throw UsageError(
            fmt::format("--case names two kernels, {} and {}: give ids alone and choose with --kernel",
                        cases.kernel, kernel));
      }
      cases.kernel = kernel;
    } else {
      const std::string mapping = mapping_of(id, "");
      throw UsageError(fmt::format(
          "--case {}: no case has this id; {}attnbench list prints them, with the same --set, which changes ids{}",
          id, did_you_mean(id, known),
          mapping.empty() ? "" : fmt::format("; a case of its own: --case '{}'", mapping)));
    }
  }
  std::erase_if(cases.cases, [&](const Case& c) { return !wanted.count(c.id); });
}

/// Without a batch, a sweep would measure empty launches and pass.
void require_batch(const Sweep& sweep) {
  const auto is_batch = [](const Setting& s) { return s.key == "batch"; };
  const auto sets_it = [&](const std::vector<Setting>& settings) {
    return std::ranges::any_of(settings, is_batch);
  };
  if (sets_it(sweep.fixed)) return;
  for (const Axis& axis : sweep.axes) {
    if (sets_it(axis.points[0])) return;
  }
  throw ConfigError(
      fmt::format("{}: error: key 'batch' is missing in sweep '{}': lengths of its sequences, such as 4q512 "
                  "(an empty batch is 0q0)",
                  sweep.place, sweep.name));
}

std::string check_text(const SweepFile& file) {
  return file.check.empty() ? "sampled" : fmt::format("{}", fmt::join(file.check, ","));
}

/// One run checks all its cases in the same way: with the words of the files, if these mean the same.
void take_check(const std::string& path, const SweepFile& file, const std::string& first_path,
                const SweepFile& first, Cases& out) {
  if (out.check.empty()) out.check = file.check;
  const auto meaning = [](const SweepFile& f) {
    std::set<std::string> words(f.check.begin(), f.check.end());
    if (!words.count("full") && !words.count("off")) words.insert("sampled");
    return words;
  };
  if (meaning(file) == meaning(first) || !out.check_conflict.empty()) return;
  out.check_conflict =
      fmt::format("{} is checked {}, {} {}", first_path, check_text(first), path, check_text(file));
}

/// Traces and tensors have the keys that their files say.
void refuse_overrides(const std::string& path, const CaseOptions& o) {
  if (o.overrides.empty()) return;
  throw UsageError(
      fmt::format("--set replaces keys of sweep files; the cases of {} are as the files say", path));
}

/// "; --filter 'decode' looks in ids, such as ...": also whether it is the name of a sweep, and its ids.
std::string filter_note(const std::string& filter, const std::function<bool(const std::string&)>& found,
                        const std::vector<Case>& cases, bool overridden) {
  if (cases.empty()) return "";
  const auto of_sweep = std::ranges::find_if(cases, [&](const Case& c) { return found(c.sweep); });
  if (of_sweep == cases.end()) {
    try {
      const std::string label = batch_label(parse_batch_spec(filter));
      if (label != filter) return fmt::format("; ids write this batch {}", label);
    } catch (const BatchSpecError&) {  // another expression
    }
    return fmt::format("; --filter looks in ids{}, such as {} (attnbench list prints them all)",
                       overridden ? " as --set makes them" : "", one_line(cases.front().id));
  }
  return fmt::format(
      "; --filter '{}' is found in the name of sweep '{}', but it looks in ids alone: give a part that the ids of "
      "this sweep share, such as {}, or put the sweep in a file of its own",
      one_line(filter), one_line(of_sweep->sweep), one_line(of_sweep->id));
}

/// Notes that the last of several --set of a key holds, so that scripts can append theirs.
void note_repeated_keys(const std::vector<std::string>& overrides) {
  std::map<std::string, std::string> last;
  for (const std::string& o : overrides) {
    std::string& held = last[o.substr(0, o.find('='))];
    if (!held.empty())
      std::cerr << fmt::format("note: --set {} replaces --set {}\n", one_line(o), one_line(held));
    held = o;
  }
}

/// Notes the keys of --set that apply to none of the cases.
void note_idle_overrides(const std::vector<std::string>& overrides, const std::vector<Case>& cases) {
  for (const std::string& o : overrides) {
    const SweepKey* key = find_sweep_key(o.substr(0, o.find('=')));
    const auto applies = [key](const Case& c) { return key->applies(c.params); };
    if (key == nullptr || cases.empty() || std::ranges::any_of(cases, applies)) continue;
    std::cerr << fmt::format(
        "note: --set {} changes no case; see when it applies in the table of 'attnbench list --keys'\n",
        one_line(o));
  }
}

}  // namespace

void CaseOptions::add(CLI::App& command) {
  option(command, "config", configs, "CONFIG",
         "Sweeps: YAML files (format: configs/README.md), or names of those that come with attnbench, "
         "such as quickstart; folders of FlashInfer traces, or captured tensors (.safetensors; "
         "harness/interop/README.md)")
      ->transform(sweep_path);
  option(command, "--case", chosen, "ID|YAML",
         "One case: its id (or id/kernel) in CONFIG, or a mapping of its own: "
         "'{kv: paged, batch: 8q1s4k}'. May be repeated")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);  // a file may follow
  option(command, "--set", overrides, "KEY=VALUE",
         "Replace a key in every sweep: --set dtype=fp16, --set block_size=16,64")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);  // a file may follow
  add_seed_option(command, seed);
  option(command, "--filter", filter, "REGEX",
         "Only cases in whose id, as 'attnbench list' prints it, this regular expression (RE2) is "
         "found. A sweep's name is no part of ids: take what its ids share");
}

CLI::Option* add_seed_option(CLI::App& command, std::optional<uint64_t>& seed) {
  return option(command, "--seed", seed, "N", "Seed of all values and drawn lengths; overrides the file's")
      ->check([](const std::string& text) {  // CLI11 would accept -1 as the largest number
        const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
        uint64_t n = 0;
        const bool fits =
            digits && std::from_chars(text.data(), text.data() + text.size(), n).ec == std::errc();
        return fits ? "" : fmt::format("a whole number from 0 to {} required, given '{}'", UINT64_MAX, text);
      });
}

int Cases::exit_code() const {
  const bool whole = std::ranges::all_of(traces, [](const auto& t) { return t.errors.empty(); });
  return whole ? 0 : kExitUsage;
}

Checks checks_of(const std::vector<std::string>& words) {
  const auto asked = [&](const char* word) { return std::ranges::find(words, word) != words.end(); };
  return {asked("full")  ? CheckMode::kFull
          : asked("off") ? CheckMode::kOff
                         : CheckMode::kSampled,
          asked("invariants")};
}

Cases load_cases(const CaseOptions& o) {
  if (!o.notes_said) note_repeated_keys(o.overrides);
  std::vector<std::string> ids;
  std::ranges::copy_if(o.chosen, std::back_inserter(ids), [](const auto& s) { return !is_mapping(s); });
  if (o.configs.empty() && !ids.empty()) {
    if (ids.front().find(": ") != std::string::npos)
      throw UsageError(fmt::format("--case {}: a case of its own is in braces: --case '{{{}}}'", ids.front(),
                                   ids.front()));
    throw UsageError(fmt::format(
        "--case {}: this is an id, which needs the CONFIG that it is of; a case of its own is a mapping in "
        "braces: --case '{}'",
        ids.front(), mapping_of(ids.front(), "{batch: 4q512}")));
  }
  if (o.configs.empty() && o.chosen.empty()) {
    throw UsageError("nothing to run: give a CONFIG, such as quickstart, or --case '{batch: 4q512}'");
  }
  Cases out;
  std::unordered_set<std::string> seen;
  const auto keep = [&](Case c) {
    if (!seen.insert(c.id).second) {
      out.duplicates.push_back(c.id);
      return;
    }
    c.overridden = !o.overrides.empty();
    out.cases.push_back(std::move(c));
  };
  const auto take = [&](const SweepFile& file) {
    out.name += (out.name.empty() ? "" : "+") + file.name;
    for (const Sweep& sweep : file.sweeps) require_batch(sweep);
    Expansion e = expand(file);
    // With --set other values stand in the sweep than those that the file excludes some of.
    if (o.overrides.empty())
      e.notes.insert(e.notes.end(), e.idle_exclusions.begin(), e.idle_exclusions.end());
    for (const std::string& note : e.notes) {
      if (!o.notes_said) std::cerr << one_line(note) << "\n";
    }
    out.duplicates.insert(out.duplicates.end(), e.duplicates.begin(), e.duplicates.end());
    out.excluded += e.excluded;
    out.cover.add(e.cover);
    for (Case& c : e.cases) keep(std::move(c));
  };
  std::optional<SweepFile> first;
  for (const std::string& path : o.configs) {
    if (path.starts_with('{'))
      throw UsageError(fmt::format("{0}: a mapping is no file: give it as --case '{0}'", path));
    if (path.ends_with('}') && !std::filesystem::exists(path))
      throw UsageError(fmt::format("{}: a mapping is one word, in quotes: --case '{{batch: q4}}'", path));
    if (const std::string mapping = mapping_of(path, ""); !mapping.empty() && !std::filesystem::exists(path))
      throw UsageError(fmt::format("{}: a batch is no file: give it as --case '{}'", path, mapping));
    if (std::filesystem::is_directory(path)) {
      refuse_overrides(path, o);
      out.traces.push_back(load_trace(path, o.seed.value_or(1), o.notes_said));
      out.name += (out.name.empty() ? "" : "+") + trace_name(path);
      for (const Case& c : out.traces.back().cases) keep(c);
      continue;
    }
    if (std::filesystem::path(path).extension() == ".safetensors") {
      refuse_overrides(path, o);
      Case c = read_tensor_case(path, o.seed.value_or(1));
      out.name += (out.name.empty() ? "" : "+") + std::filesystem::path(path).stem().string();
      keep(std::move(c));
      continue;
    }
    if (std::string wrong = unknown_sweep(path); !wrong.empty()) throw ConfigError(wrong);
    SweepFile file = load_sweep_file(path, o.overrides, o.seed);
    take(file);
    if (!first) first = file;
    take_check(path, file, first->path, *first, out);
  }
  if (!ids.empty()) keep_ids(ids, out);
  for (const std::string& text : o.chosen) {
    if (!is_mapping(text)) continue;
    take(parse_inline_case(text, o.overrides, o.seed));
  }
  if (!o.notes_said) note_idle_overrides(o.overrides, out.cases);
  if (!o.filter.empty()) {
    const auto found = finder("--filter", o.filter);
    out.filter_note = filter_note(o.filter, found, out.cases, !o.overrides.empty());
    out.filtered =
        static_cast<int64_t>(std::erase_if(out.cases, [&](const Case& c) { return !found(c.id); }));
  }
  return out;
}

std::vector<std::string> kernels_to_run(const std::vector<std::string>& named, const Cases& cases) {
  if (cases.kernel.empty()) return named;
  if (named.empty() || named == std::vector{cases.kernel}) return {cases.kernel};
  throw UsageError(fmt::format("--case names the kernel {}, --kernel names {}: drop one of them",
                               cases.kernel, fmt::join(named, ", ")));
}

void say_nothing_matched(const Cases& cases) {
  std::cerr << error_line(fmt::format("nothing matched: {} filtered out, {} excluded{}",
                                      counted(cases.filtered, "case"), cases.excluded,
                                      cases.filtered > 0 ? cases.filter_note : ""))
            << "\n";
}

void say_duplicates(const Cases& cases) {
  const auto n = std::ssize(cases.duplicates);
  if (n == 0) return;
  std::cerr << fmt::format("{} dropped{} {}\n", counted(n, "duplicate case"), n == 1 ? ":" : ", such as",
                           one_line(cases.duplicates.front()));
}

}  // namespace attnbench::cli
