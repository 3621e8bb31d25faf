#include "harness/config/yaml_read.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <sstream>

namespace attnbench {
namespace {

constexpr int kMaxMergeDepth = 8;  // anchors can be cyclic: "x: &a {<<: *a}"

/// A value as an error shows it.
std::string describe(const YAML::Node& node) {
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "a mapping";
  if (!node.IsScalar()) return "nothing";
  const std::string& text = node.Scalar();
  const std::string shown = text.size() <= 60 ? text : text.substr(0, 57) + "...";
  return fmt::format("{}'{}'", node.Tag() == "?" ? "" : "the string ", shown);
}

/// The text of an unquoted scalar, else an empty text: only an unquoted scalar can be a number or a truth
/// value.
std::string_view plain_text(const YAML::Node& node) {
  if (!node.IsScalar() || node.Tag() != "?") return {};
  return node.Scalar();
}

bool is_integer_text(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return false;
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// 1024 of "k", 1024^2 of "m"; 1 without a suffix.
int64_t unit_of(std::string_view text) {
  return text.ends_with('k') ? 1024 : text.ends_with('m') ? 1024 * 1024 : 1;
}

template <class T>
std::optional<T> parse_whole(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  // from_chars also reads "inf" and "nan", which no key allows.
  if (text.find_first_of("0123456789") == std::string_view::npos) return std::nullopt;
  const std::optional<double> value = parse_whole<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

bool is_bool_text(std::string_view text) { return text == "true" || text == "false"; }

/// A parser's handler that only notes where documents start.
struct DocumentStarts : YAML::EventHandler {
  using Mark = YAML::Mark;
  using Style = YAML::EmitterStyle::value;
  std::vector<Mark> marks;

  void OnDocumentStart(const Mark& mark) override { marks.push_back(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const Mark&, YAML::anchor_t) override {}
  void OnAlias(const Mark&, YAML::anchor_t) override {}
  void OnScalar(const Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const Mark&, const std::string&, YAML::anchor_t, Style) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const Mark&, const std::string&, YAML::anchor_t, Style) override {}
  void OnMapEnd() override {}
};

/// The line of a text that a mark stands in; nothing where the mark is in none.
std::string_view line_of(std::string_view text, const YAML::Mark& mark) {
  if (mark.pos <= 0 || static_cast<std::size_t>(mark.pos) > text.size()) return {};
  const std::size_t newline = text.rfind('\n', static_cast<std::size_t>(mark.pos) - 1);
  const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

/// Whether a line has a number of a batch in braces, as in {1,4}q1s{1k,4k}.
bool has_batch_braces(std::string_view line) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '{' && i > 0 && (line[i - 1] == 'q' || line[i - 1] == 's')) return true;
    if (c == '}' && i + 1 < line.size() && (line[i + 1] == 'q' || line[i + 1] == 's')) return true;
  }
  return false;
}

/// What is often the reason of a syntax error in this line; empty where nothing is known.
const char* syntax_hint(const std::string& text, const YAML::Mark& mark) {
  const std::string_view line = line_of(text, mark);
  if (line.substr(0, line.find_first_not_of(" \t")).find('\t') != line.npos)
    return "this line begins with a tab, where YAML takes spaces only";
  if (has_batch_braces(line)) return "a batch with braces stands in quotes: \"{1,4}q1s{1k,4k}\"";
  return "";
}

/// What yaml-cpp says of the mistakes that people make, in the words of a reader.
std::string in_plain_words(const std::string& message) {
  static const std::map<std::string, std::string> words = {
      {"illegal map value",
       "a 'key: value' cannot stand here; indent it like the other keys of its mapping, or quote a text that "
       "holds ': '"},
      {"illegal map key", "a key cannot stand here; indent it like the other keys of its mapping"},
      {"illegal block entry",
       "a list item '- ' cannot stand here; indent it like the other items of its list"},
      {"illegal flow end", "this bracket closes nothing"},
      {"end of sequence flow not found", "the list that begins with '[' has no ']'"},
      {"end of map flow not found", "the mapping that begins with '{' has no '}'"},
      {"end of sequence not found",
       "the indentation of this line fits nothing above; 'name', 'defaults' and 'sweeps' stand at the left edge, and "
       "the keys of a list item under its first key, not under its '-'"},
      {"end of map not found",
       "the indentation of this line fits nothing above; 'name', 'defaults' and 'sweeps' stand at the left edge, and "
       "the keys of a list item under its first key, not under its '-'"}};
  const auto found = words.find(message);
  return found == words.end() ? message : found->second;
}

/// The one document of a text. YAML::LoadAll is not used to count them: on some stray tokens it finds empty
/// documents without end.
YAML::Node load_document(const std::string& text, const Source& source) {
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    DocumentStarts starts;
    while (starts.marks.size() < 2 && parser.HandleNextDocument(starts)) {
    }
    if (starts.marks.size() == 2) {
      const bool stuck = starts.marks[0].pos == starts.marks[1].pos;
      fail_at(
          source, starts.marks[1],
          stuck ? "YAML syntax: illegal start" : "a second YAML document starts here, expected one in all");
    }
    return starts.marks.empty() ? YAML::Node() : YAML::Load(text);
  } catch (const YAML::DeepRecursion& e) {
    fail_at(source, e.mark, "YAML syntax: nested too deeply; a sweep file needs four levels or so");
  } catch (const YAML::Exception& e) {
    const std::string hint = syntax_hint(text, e.mark);  // the cause, where it is known
    fail_at(source, e.mark, "YAML syntax: " + (hint.empty() ? in_plain_words(e.msg) : hint));
  }
}

Field child(const Field& parent, const std::string& key, const YAML::Node& node, const YAML::Mark& around) {
  // yaml-cpp gives an empty value the place of the next token, often lines below.
  return {key, node, node.IsNull() ? around : node.Mark(), around, parent.source};
}

/// Adds the mapping's entries to `out`. A key that is there already is an error if `own`; in a merged mapping
/// (not `own`) such an entry is dropped.
void collect(const Field& mapping, const std::string& where, bool own, int depth, std::vector<Field>& out) {
  if (!mapping.node.IsMap()) {
    fail_at(*mapping.source, mapping.mark,
            fmt::format("{}: got {}, expected a mapping of keys to values", where, describe(mapping.node)));
  }
  std::vector<Field> merges;
  std::map<std::string, int> line_of;
  for (const auto& pair : mapping.node) {
    const YAML::Node& key_node = pair.first;
    if (!key_node.IsScalar() || key_node.Scalar().empty()) {
      fail_at(*mapping.source, key_node.IsNull() ? mapping.mark : key_node.Mark(),
              fmt::format("{}: a key must be a word, got {}", where, describe(key_node)));
    }
    const std::string& key = key_node.Scalar();
    const auto [seen, is_new] = line_of.emplace(key, key_node.Mark().line + 1);
    if (!is_new) {
      std::string first = mapping.source->has_lines ? fmt::format(" (first on line {})", seen->second) : "";
      fail_at(*mapping.source, key_node.Mark(),
              fmt::format("key '{}' stands twice in {}{}", key, where, first));
    }
    const Field entry = child(mapping, key, pair.second, key_node.Mark());
    if (key == "<<") {
      merges.push_back(entry);
    } else if (own || find_entry(out, key) == nullptr) {
      out.push_back(entry);
    }
  }
  for (const Field& merge : merges) {
    if (depth == kMaxMergeDepth) merge.fail("merges nest too deep");
    const std::vector<Field> mappings = merge.node.IsSequence() ? items_of(merge) : std::vector<Field>{merge};
    for (const Field& merged : mappings) collect(merged, "merge key '<<'", false, depth + 1, out);
  }
}

}  // namespace

std::string place_of(const Source& source, const YAML::Mark& mark) {
  if (!source.has_lines) return source.origin;
  return fmt::format("{}:{}:{}", source.origin, std::max(mark.line, 0) + 1, std::max(mark.column, 0) + 1);
}

void fail_at(const Source& source, const YAML::Mark& mark, const std::string& message) {
  throw ConfigError(fmt::format("{}: error: {}", place_of(source, mark), message));
}

void Field::fail(const std::string& problem) const {
  fail_at(*source, mark, fmt::format("key '{}': {}", key, problem));
}

void Field::fail_expected(const std::string& expected) const {
  const std::string_view text = plain_text(node);
  const bool list = key != "window" && text.find(',') != text.npos;  // a window has a comma of its own
  fail(fmt::format("got {}, expected {}{}", describe(node), expected,
                   list ? fmt::format("; a list is written [{}]", text) : ""));
}

Field load_value(const std::string& text, const std::string& key, const Source& source) {
  const YAML::Node root = load_document(text, source);
  const YAML::Mark mark = root.IsNull() ? YAML::Mark() : root.Mark();
  return {key, root, mark, mark, &source};
}

Field load_mapping(const std::string& text, const Source& source) {
  Field root = load_value(text, "", source);
  if (root.node.IsNull()) fail_at(source, root.mark, "is empty, expected a mapping of keys to values");
  if (!root.node.IsMap()) {
    fail_at(source, root.mark,
            fmt::format("holds {}, expected a mapping of keys to values", describe(root.node)));
  }
  return root;
}

std::vector<Field> entries_of(const Field& mapping, const std::string& where) {
  std::vector<Field> entries;
  collect(mapping, where, true, 0, entries);
  return entries;
}

const Field* find_entry(const std::vector<Field>& entries, std::string_view key) {
  const auto found = std::ranges::find_if(entries, [&](const Field& e) { return e.key == key; });
  return found == entries.end() ? nullptr : &*found;
}

std::vector<Field> items_of(const Field& list) {
  if (!list.node.IsSequence()) list.fail_expected("a list");
  if (list.node.size() == 0) list.fail("the list is empty, expected one value at least");
  std::vector<Field> items;
  for (const YAML::Node& node : list.node) {
    items.push_back(child(list, list.key, node, list.mark));
  }
  return items;
}

void fail_unknown_key(const Field& entry, const std::string& where, const std::vector<std::string>& allowed,
                      const std::string& hint) {
  // The rest of {block_size: 16,64} or {window: 255,0}, or {batch=q4}.
  const bool rest = hint.empty() && entry.node.IsNull() && !nearest_word(entry.key, allowed);
  fail_at(
      *entry.source, entry.key_mark,
      fmt::format(
          "unknown key '{}' in {}{}{}", entry.key, where,
          rest
              ? "; a value is written block_size: 16, a list block_size: [16, 64], a text with a comma window: "
                "\"255,0\""
              : suggest(entry.key, allowed),
          hint));
}

namespace {

/// "; did you mean 'mask'?", or the way to write what was meant; ";" without an idea.
std::string question(std::string_view word, const std::optional<std::string>& nearest,
                     const std::vector<std::string>& allowed) {
  if (const std::size_t comma = word.find(',');
      comma != std::string_view::npos && std::ranges::count(allowed, word.substr(0, comma)))
    return fmt::format("; a list is written [{}];", word);
  if (!nearest) return ";";
  return fmt::format("; did you mean '{}'?", word_of_others(word, allowed).value_or(*nearest));
}

}  // namespace

std::string suggest(std::string_view word, const std::vector<std::string>& allowed) {
  const std::optional<std::string> nearest = nearest_word(word, allowed);
  // Only the list of a sweep's keys is longer. It is spelt out where no key is near.
  constexpr std::size_t kMostListed = 16;
  const std::string all = allowed.size() <= kMostListed || !nearest
                              ? fmt::format("{}", fmt::join(allowed, ", "))
                              : "what `attnbench list --keys` prints";
  return fmt::format("{} allowed: {}", question(word, nearest, allowed), all);
}

int64_t read_integer(const Field& field, int64_t lo, int64_t hi) {
  const std::string_view text = plain_text(field.node);
  const std::optional<int64_t> value = is_integer_text(text) ? parse_whole<int64_t>(text) : std::nullopt;
  if (!value || *value < lo || *value > hi) {
    field.fail_expected(fmt::format("an integer from {} to {}", lo, hi));
  }
  return *value;
}

uint64_t read_unsigned(const Field& field) {
  const std::string_view text = plain_text(field.node);
  const std::optional<uint64_t> value = is_integer_text(text) ? parse_whole<uint64_t>(text) : std::nullopt;
  if (!value) field.fail_expected(fmt::format("an integer from 0 to {}", UINT64_MAX));
  return *value;
}

std::optional<int64_t> parse_length(std::string_view text) {
  const int64_t unit = unit_of(text);
  if (unit > 1) text.remove_suffix(1);
  if (!is_integer_text(text) || (unit > 1 && (text[0] < '1' || text[0] > '9'))) return std::nullopt;
  std::optional<int64_t> value = parse_whole<int64_t>(text);
  if (value && __builtin_mul_overflow(*value, unit, &*value)) return std::nullopt;
  return value;
}

bool is_length(const Field& field) {
  if (!field.node.IsScalar()) return false;
  const bool suffixed = unit_of(field.node.Scalar()) > 1;
  return (suffixed || field.node.Tag() == "?") && parse_length(field.node.Scalar());
}

int64_t read_length(const Field& field, int64_t lo, int64_t hi) {
  const std::optional<int64_t> value = is_length(field) ? parse_length(field.node.Scalar()) : std::nullopt;
  if (!value || *value < lo || *value > hi) {
    field.fail_expected(fmt::format("an integer from {} to {} (1k: 1024, 1m: 1024^2)", lo, hi));
  }
  return *value;
}

std::optional<double> read_number(const Field& field) { return parse_number(plain_text(field.node)); }

bool read_bool(const Field& field) {
  const std::string_view text = plain_text(field.node);
  if (!is_bool_text(text)) field.fail_expected("true or false");
  return text == "true";
}

std::string read_string(const Field& field) {
  if (!field.node.IsScalar() || field.node.Scalar().empty()) field.fail_expected("a text");
  const std::string_view plain = plain_text(field.node);
  if (parse_number(plain) || is_bool_text(plain)) {
    field.fail_expected(fmt::format("a text: put it in quotes, \"{}\"", plain));
  }
  return field.node.Scalar();
}

bool is_plain_integer(const Field& field) { return is_integer_text(plain_text(field.node)); }

}  // namespace attnbench
