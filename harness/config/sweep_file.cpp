// From YAML to SweepFile: the top level, defaults, sweeps, zip, exclude, and the overrides of --set.
#include "harness/config/sweep_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/emitter.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>

#include "harness/config/keys.h"
#include "harness/config/models.h"
#include "harness/config/near_file.h"
#include "harness/config/yaml_read.h"
#include "harness/plain_file.h"

namespace attnbench {
namespace {

constexpr uint64_t kDefaultSeed = 1;  // ValueSpec has the same default

/// One key with a value or a list of values, as it stands in defaults, a sweep or --set.
struct Assignment {
  std::string key;
  bool is_axis = false;
  std::vector<Setting> values;  ///< one value if it is no axis
};

/// Mistakes of one file. Reading goes on behind each, so that one run names them all.
class Mistakes {
 public:
  /// Runs `read`, and notes the mistake that it throws. `read` may be a part of another one.
  template <class Read>
  void note(Read read) {
    try {
      read();
    } catch (const ConfigError& e) {
      for (const std::string& mistake : e.mistakes()) {
        // A model is read where it is used, by several keys: its mistakes are named once.
        if (std::ranges::find(texts_, mistake) != texts_.end()) continue;
        if (texts_.size() < kMostNamed) texts_.push_back(mistake);
      }
    }
  }

  void throw_if_any() const {
    if (!texts_.empty()) throw ConfigError(texts_);
  }

 private:
  static constexpr std::size_t kMostNamed = 20;  ///< more than a screen helps nobody
  std::vector<std::string> texts_;
};

std::string flow_text(const YAML::Node& node) {
  YAML::Emitter out;
  out.SetMapFormat(YAML::Flow);
  out.SetSeqFormat(YAML::Flow);
  out << node;
  return out.c_str();
}

/// One setting, except for a value that stands for several.
std::vector<Setting> read_settings(const SweepKey& key, const Field& field, uint64_t seed) {
  std::vector<KeyValue> values =
      key.read_several ? key.read_several(field, seed) : std::vector{key.read(field, seed)};
  std::vector<Setting> settings;
  for (KeyValue& value : values) {
    settings.push_back({key.name, std::move(value.text), std::move(value.apply), field.place(),
                        field.node.IsMap() ? flow_text(field.node) : ""});
  }
  return settings;
}

/// A value, a list of values, or a value that stands for several.
Assignment read_assignment(const SweepKey& key, const Field& field, uint64_t seed) {
  Assignment a{key.name, field.node.IsSequence(), {}};
  const std::vector<Field> items = a.is_axis ? items_of(field) : std::vector<Field>{field};
  Mistakes mistakes;
  for (const Field& item : items) {
    mistakes.note([&] {
      std::vector<Setting> settings = read_settings(key, item, seed);
      std::move(settings.begin(), settings.end(), std::back_inserter(a.values));
    });
  }
  mistakes.throw_if_any();
  a.is_axis = a.is_axis || a.values.size() > 1;
  return a;
}

void add_to_sweep(const Assignment& a, Sweep& sweep) {
  if (!a.is_axis) {
    sweep.fixed.push_back(a.values[0]);
    return;
  }
  Axis axis;
  for (const Setting& value : a.values) axis.points.push_back({value});
  sweep.axes.push_back(std::move(axis));
}

/// Removes the key from the sweep, wherever it is set; a zip loses that column.
void remove_from_sweep(const std::string& key, Sweep& sweep) {
  const auto is_key = [&](const Setting& s) { return s.key == key; };
  std::erase_if(sweep.fixed, is_key);
  for (Axis& axis : sweep.axes) {
    for (auto& point : axis.points) std::erase_if(point, is_key);
  }
  std::erase_if(sweep.axes, [](const Axis& axis) { return axis.points[0].empty(); });
}

const SweepKey& require_key(const Field& entry, const std::string& where,
                            const std::vector<std::string>& more_allowed = {}) {
  const SweepKey* key = find_sweep_key(entry.key);
  if (key != nullptr) return *key;
  const std::vector<std::string> allowed = sweep_key_names(more_allowed);
  std::string hint;
  if (entry.key == "seed") {
    hint = "; seed belongs at the top level of the file, or in --seed";
  } else if (entry.key == "name" || entry.key == "zip" || entry.key == "exclude" || entry.key == "cover") {
    hint = fmt::format("; {} belongs in a sweep", entry.key);
  }
  fail_unknown_key(entry, where, allowed, hint);
}

/// The keys that `model: NAME` stands for, as if they stood in its place.
std::vector<Field> keys_of_model(const Field& field) {
  const std::string name = read_string(field);
  const Model* model = find_model(name);
  if (model == nullptr) field.fail(fmt::format("unknown model '{}'{}", name, suggest(name, model_names())));
  std::vector<Field> out;
  for (const auto& [key, value] : model->keys) {
    Field entry = field;
    entry.key = key;
    entry.node = YAML::Load(value);
    out.push_back(std::move(entry));
  }
  return out;
}

/// Replaces a `model` by its keys, except those that stand among the entries. A list of models stays.
std::vector<Field> with_keys_of_model(const std::vector<Field>& entries) {
  std::vector<Field> out;
  for (const Field& entry : entries) {
    if (entry.key != "model" || entry.node.IsSequence()) {
      out.push_back(entry);
      continue;
    }
    for (Field& key : keys_of_model(entry)) {
      if (find_entry(entries, key.key.c_str()) == nullptr) out.push_back(std::move(key));
    }
  }
  return out;
}

/// The axis of a list of models: each point sets the keys of one, except those in `beside`.
Axis read_models(const Field& field, const std::vector<Field>& beside, uint64_t seed) {
  Axis axis;
  for (const Field& item : items_of(field)) {
    axis.points.emplace_back();
    for (const Field& key : keys_of_model(item)) {
      if (find_entry(beside, key.key.c_str()) != nullptr) continue;
      for (Setting& s : read_settings(*find_sweep_key(key.key), key, seed))
        axis.points.back().push_back(std::move(s));
    }
  }
  return axis;
}

/// {a: [..], b: [..]}: one axis, point i of which sets each key to its i-th value.
Axis read_zip(const Field& field, const std::string& sweep, uint64_t seed) {
  const std::string where = fmt::format("zip of {}", sweep);
  Axis axis;
  std::string first;
  for (const Field& entry : entries_of(field, where)) {
    const SweepKey key = require_key(entry, where);
    const Assignment column = read_assignment(key, entry, seed);
    if (!column.is_axis) entry.fail_expected("a list, as everything in zip");
    if (axis.points.empty()) {
      axis.points.resize(column.values.size());
      first = key.name;
    } else if (axis.points.size() != column.values.size()) {
      entry.fail(fmt::format("has {} values, but '{}' in the same zip has {}: they move together",
                             column.values.size(), first, axis.points.size()));
    }
    for (std::size_t i = 0; i < column.values.size(); ++i) axis.points[i].push_back(column.values[i]);
  }
  if (axis.points.empty()) field.fail("the mapping is empty, expected keys with lists of equal length");
  return axis;
}

std::vector<Exclusion> read_exclude(const Field& field, const std::string& sweep, uint64_t seed) {
  const std::string where = fmt::format("exclude of {}", sweep);
  if (!field.node.IsSequence()) field.fail_expected("a list of mappings, [{key: value, ...}, ...]");
  std::vector<Exclusion> exclude;
  Mistakes mistakes;
  for (const Field& item : items_of(field)) {
    mistakes.note([&] {
      Exclusion exclusion;
      for (const Field& entry : entries_of(item, where)) {
        exclusion.any_of_each.push_back(read_assignment(require_key(entry, where), entry, seed).values);
      }
      if (exclusion.any_of_each.empty()) item.fail("an empty mapping would exclude every case");
      exclude.push_back(std::move(exclusion));
    });
  }
  mistakes.throw_if_any();
  return exclude;
}

SweepCover read_cover(const Field& field, const std::string& sweep) {
  static const std::vector<std::string> allowed = {"product", "pairwise", "3", "{sample: COUNT}"};
  SweepCover cover;
  if (field.node.IsMap()) {
    const std::string where = fmt::format("cover of {}", sweep);
    for (const Field& entry : entries_of(field, where)) {
      if (entry.key != "sample") fail_unknown_key(entry, where, {"sample"});
      cover.sample = read_integer(entry, 1, kMaxSample);
    }
    if (cover.sample == 0) field.fail("the mapping is empty, expected {sample: COUNT}");
    return cover;
  }
  if (is_plain_integer(field) && field.node.Scalar() == "3") {
    cover.strength = 3;
    return cover;
  }
  if (field.node.IsScalar() && field.node.Scalar() == "3") field.fail("got a text; write 3 without quotes");
  if (!field.node.IsScalar() || read_number(field))
    field.fail_expected("product, pairwise, 3 or {sample: COUNT}");
  const std::string word = read_string(field);
  if (word == "sample") field.fail("a sample needs a count: write {sample: COUNT}");
  if (word == "pairwise") cover.strength = 2;
  if (word != "product" && word != "pairwise")
    field.fail(fmt::format("unknown word '{}'{}", word, suggest(word, allowed)));
  return cover;
}

Sweep read_sweep(const Field& field, const std::string& default_name, const std::vector<Assignment>& defaults,
                 uint64_t seed) {
  const std::vector<Field> entries = with_keys_of_model(entries_of(field, "a sweep"));
  Sweep sweep;
  const Field* name = find_entry(entries, "name");
  sweep.name = name != nullptr ? read_string(*name) : default_name;
  sweep.place = field.place();
  const std::string where = fmt::format("sweep '{}'", sweep.name);

  // Own settings first: they decide which defaults hold.
  Sweep own;
  std::set<std::string> set_outside;
  std::set<std::string> set_in_zip;
  const auto read_entry = [&](const Field& entry) {
    if (entry.key == "name") return;
    if (entry.key == "zip") {
      own.axes.push_back(read_zip(entry, where, seed));
      for (const Setting& s : own.axes.back().points[0]) set_in_zip.insert(s.key);
    } else if (entry.key == "exclude") {
      sweep.exclude = read_exclude(entry, where, seed);
    } else if (entry.key == "cover") {
      sweep.cover = read_cover(entry, where);
    } else if (entry.key == "model") {  // a list
      own.axes.push_back(read_models(entry, entries, seed));
      for (const auto& point : own.axes.back().points) {
        for (const Setting& s : point) set_outside.insert(s.key);  // defaults of these keys do not hold
      }
    } else {
      const SweepKey key = require_key(entry, where, {"name", "model", "zip", "exclude", "cover"});
      add_to_sweep(read_assignment(key, entry, seed), own);
      set_outside.insert(key.name);
    }
  };
  Mistakes mistakes;
  for (const Field& entry : entries) mistakes.note([&] { read_entry(entry); });
  mistakes.throw_if_any();
  for (Setting& s : own.fixed) s.own = true;
  for (Axis& axis : own.axes) {
    for (auto& point : axis.points) {
      for (Setting& s : point) s.own = true;
    }
  }
  for (const std::string& key : set_in_zip) {
    if (!set_outside.contains(key)) continue;
    const Field& outside = *find_entry(entries, key);
    fail_at(*outside.source, outside.key_mark,
            fmt::format("key '{}' of {} stands in its zip, too; expected it in one place", key, where));
  }

  for (const Assignment& a : defaults) {
    if (!set_outside.contains(a.key) && !set_in_zip.contains(a.key)) add_to_sweep(a, sweep);
  }
  std::move(own.fixed.begin(), own.fixed.end(), std::back_inserter(sweep.fixed));
  std::move(own.axes.begin(), own.axes.end(), std::back_inserter(sweep.axes));
  return sweep;
}

std::vector<Assignment> read_defaults(const Field& field, uint64_t seed) {
  std::vector<Assignment> defaults;
  Mistakes mistakes;
  for (const Field& entry : with_keys_of_model(entries_of(field, "defaults"))) {
    mistakes.note([&] {
      if (entry.key == "model") entry.fail("a list of models belongs in a sweep; defaults take one model");
      defaults.push_back(read_assignment(require_key(entry, "defaults"), entry, seed));
    });
  }
  mistakes.throw_if_any();
  return defaults;
}

SweepFile read_file(const Field& root, std::optional<uint64_t> seed) {
  const std::vector<std::string> allowed = {"name", "seed", "check", "defaults", "sweeps"};
  const std::vector<Field> entries = entries_of(root, "the top level");
  if (find_entry(entries, "benchmarks") != nullptr) {
    fail_at(*root.source, root.mark,
            "this is a results file, not a sweep: attnbench compare and report read it");
  }
  Mistakes mistakes;
  for (const Field& entry : entries) {
    if (std::ranges::find(allowed, entry.key) != allowed.end()) continue;
    const bool in_sweep = find_sweep_key(entry.key) != nullptr;
    mistakes.note([&] {
      fail_unknown_key(entry, "the top level", allowed,
                       in_sweep ? fmt::format("; {} belongs in a sweep or in defaults", entry.key) : "");
    });
  }
  for (const char* key : {"name", "sweeps"}) {
    if (find_entry(entries, key) != nullptr) continue;
    mistakes.note(
        [&] { fail_at(*root.source, root.mark, fmt::format("key '{}' is missing at the top level", key)); });
  }

  SweepFile file;
  file.path = root.source->origin;
  const auto with = [&](const char* key, const auto& read) {
    if (const Field* entry = find_entry(entries, key)) mistakes.note([&] { read(*entry); });
  };
  with("name", [&](const Field& entry) { file.name = read_string(entry); });
  with("seed", [&](const Field& entry) { file.seed = read_unsigned(entry); });
  if (seed) file.seed = seed;
  with("check", [&](const Field& entry) {
    if (entry.node.IsSequence()) {
      for (const Field& item : items_of(entry)) file.check.push_back(read_string(item));
    } else {
      file.check = {read_string(entry)};
    }
    if (const auto wrong = wrong_check(file.check)) entry.fail(*wrong);
  });
  const uint64_t draw_seed = file.seed.value_or(kDefaultSeed);

  std::vector<Assignment> defaults;
  with("defaults", [&](const Field& entry) { defaults = read_defaults(entry, draw_seed); });
  std::set<std::string> names;
  with("sweeps", [&](const Field& entry) {
    std::size_t number = 0;
    for (const Field& item : items_of(entry)) {
      const std::string default_name = fmt::format("sweep{}", ++number);
      mistakes.note([&] {
        file.sweeps.push_back(read_sweep(item, default_name, defaults, draw_seed));
        const std::string& name = file.sweeps.back().name;
        if (!names.insert(name).second) item.fail(fmt::format("sweep name '{}' is given twice", name));
      });
    }
  });
  mistakes.throw_if_any();
  return file;
}

/// Whether a value of --set may be a list without its brackets, as 16,64 is.
bool is_bare_list(const std::string& value) {
  return value.find(',') != value.npos && value.find_first_of("[]{}\"'") == value.npos;
}

/// Whether a value of --set is a spec such as {1,4}q1s1k, which YAML would read as the start of a mapping.
bool is_bare_product(const std::string& value) {
  return value.find('{') != value.npos && value.find_first_of(":[\"' ") == value.npos;
}

void apply_override(const std::string& text, SweepFile& file) {
  const Source source{"--set " + text, false};
  const std::size_t equals = text.find('=');
  if (equals == text.npos) fail_at(source, YAML::Mark(), "expected key=value, such as dtype=fp16");
  Field field{text.substr(0, equals), {}, {}, {}, &source};
  const std::string value = text.substr(equals + 1);
  if (field.key == "batch" && is_bare_product(value)) {
    field.node = value;
  } else {
    field = load_value(value, field.key, source);
  }
  if (field.key == "seed") fail_at(source, field.mark, "the seed is set by --seed");
  if (field.key == "model")
    fail_at(source, field.mark, "a model stands for several keys; set them one by one");
  const SweepKey key = require_key(field, "--set");
  const uint64_t seed = file.seed.value_or(kDefaultSeed);
  Assignment a;
  try {
    a = read_assignment(key, field, seed);
  } catch (const ConfigError&) {  // a window has a comma of its own
    if (!is_bare_list(value)) throw;
    a = read_assignment(key, load_value("[" + value + "]", field.key, source), seed);
  }
  for (Sweep& sweep : file.sweeps) {
    remove_from_sweep(key.name, sweep);
    add_to_sweep(a, sweep);
    sweep.overridden = true;
  }
}

/// Largest file that is read.
constexpr std::size_t kMostBytes = std::size_t{64} << 20;

std::string read_all(const std::string& path) {
  const auto cannot_read = [&]() -> ConfigError {
    return ConfigError(
        fmt::format("{}: error: cannot read: {}{}", path, std::strerror(errno), near_file(path)));
  };
  if (const std::string why = why_no_file(path, "a sweep file"); !why.empty())
    throw ConfigError(fmt::format("{}: error: {}", path, why));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw cannot_read();
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, file.get())) {
    text.append(buffer, n);
    if (text.size() > kMostBytes) {
      throw ConfigError(
          fmt::format("{}: error: larger than {} MiB; this is no sweep file", path, kMostBytes >> 20));
    }
  }
  if (std::ferror(file.get())) throw cannot_read();
  return text;
}

}  // namespace

ConfigError::ConfigError(const std::vector<std::string>& mistakes)
    : Error(fmt::format("{}", fmt::join(mistakes, "\n")), kExitUsage, ""), mistakes_(mistakes) {}

std::optional<std::string> wrong_check(const std::vector<std::string>& words) {
  const std::vector<std::string> known = {"full", "sampled", "off", "invariants"};
  std::set<std::string> modes;
  for (const std::string& word : words) {
    if (std::ranges::find(known, word) == known.end())
      return fmt::format("unknown word '{}'{}", word, suggest(word, known));
    if (word != "invariants") modes.insert(word);
  }
  if (modes.size() > 1)
    return fmt::format("'{}' and '{}' exclude each other", *modes.begin(), *modes.rbegin());
  const bool invariants = std::ranges::find(words, "invariants") != words.end();
  if (invariants && modes.contains("off"))
    return "'invariants' compares with a verified launch: write 'sampled' or 'full' beside it, not 'off'";
  return std::nullopt;
}

SweepFile parse_sweep_text(const std::string& text, const std::string& origin,
                           const std::vector<std::string>& overrides, std::optional<uint64_t> seed) {
  const Source source{origin, true, std::filesystem::path(origin).parent_path()};
  SweepFile file = read_file(load_mapping(text, source), seed);
  for (const std::string& o : overrides) apply_override(o, file);
  return file;
}

SweepFile load_sweep_file(const std::string& path, const std::vector<std::string>& overrides,
                          std::optional<uint64_t> seed) {
  return parse_sweep_text(read_all(path), path, overrides, seed);
}

SweepFile parse_inline_case(const std::string& mapping, const std::vector<std::string>& overrides,
                            std::optional<uint64_t> seed) {
  const Source source{"--case", true};
  SweepFile file;
  file.path = source.origin;
  file.name = "case";
  file.seed = seed;
  const Field root = load_mapping(mapping, source);
  file.sweeps.push_back(read_sweep(root, "case", {}, seed.value_or(kDefaultSeed)));
  for (const std::string& o : overrides) apply_override(o, file);
  return file;
}

}  // namespace attnbench
