// The JSON Schema of the format: https://json-schema.org/draft/2020-12. It states the structure. Only the
// parser checks what depends on several values at once (equal lengths in zip, heads that divide).
#include "harness/config/batch_value.h"
#include "harness/config/keys.h"
#include "harness/config/models.h"
#include "harness/config/sweep_file.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;

Json reference(const std::string& name) { return {{"$ref", "#/$defs/" + name}}; }

Json list_of(const Json& items) { return {{"type", "array"}, {"minItems", 1}, {"items", items}}; }

Json described(const std::string& text, const Json& schema) {
  Json with_text = {{"description", text}};
  with_text.update(schema);
  return with_text;
}

Json object(const std::string& text, const Json& properties) {
  return {
      {"description", text}, {"type", "object"}, {"additionalProperties", false}, {"properties", properties}};
}

}  // namespace

std::string json_schema() {
  Json defs = Json::object();      // $defs: one value of each key, then the parts of a file
  Json assigned = Json::object();  // each key with a value or an axis
  Json zipped = Json::object();    // each key with an axis
  for (const SweepKey& key : sweep_keys()) {
    const Json value = reference(key.name);
    defs[key.name] = described(key.doc, key.schema);
    assigned[key.name] = {{"description", key.doc}, {"anyOf", Json::array({value, list_of(value)})}};
    zipped[key.name] = list_of(value);
  }

  defs["lengths"] = lengths_schema();

  Json zip = object("Lists of equal length whose values move together, as one axis.", zipped);
  zip["minProperties"] = 1;
  Json excluded =
      object("A case is left out when all of these hold; a list means any of its values.", assigned);
  excluded["minProperties"] = 1;
  const Json text = {{"type", "string"}, {"minLength", 1}};

  Json in_sweep = Json::object();
  in_sweep["name"] = described("Unique in the file; default: sweep1, sweep2, ...", text);
  in_sweep.update(assigned);
  const Json model = {{"anyOf", Json::array({Json{{"enum", model_names()}},
                                             Json{{"type", "string"}, {"pattern", "^[^/]+/[^/]+$"}}})}};
  const std::string model_text = "Stands for the keys of a model; a key beside it wins.";
  in_sweep["model"] = described(model_text, {{"anyOf", Json::array({model, list_of(model)})}});
  in_sweep["zip"] = zip;
  in_sweep["exclude"] = list_of(excluded);
  Json sample = object("Legal cases drawn by the file's seed, no two alike.",
                       {{"sample", {{"type", "integer"}, {"minimum", 1}, {"maximum", kMaxSample}}}});
  sample["required"] = Json::array({"sample"});
  in_sweep["cover"] = {
      {"description",
       "product (default): every combination of the axes; pairwise, 3: cases in which every legal pair of "
       "values of two axes, or triple of three, meets; {sample: N}: N legal cases, drawn"},
      {"anyOf", Json::array({Json{{"enum", {"product", "pairwise", 3}}}, sample})}};
  defs["sweep"] = object("Every list is an axis, and axes multiply.", in_sweep);

  Json defaults = assigned;
  defaults["model"] = described(model_text, model);

  const Json check_word = {{"enum", {"full", "sampled", "off", "invariants"}}};
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "attnbench sweep file"}};
  schema.update(
      object("Cases for `attnbench run`.",
             {{"name", described("Name of the file in reports.", text)},
              {"seed",
               {{"description", "Seed of all values and drawn lengths; --seed overrides it."},
                {"type", "integer"},
                {"minimum", 0},
                {"maximum", UINT64_MAX}}},
              {"check", described("What --check says where the command line does not.",
                                  {{"anyOf", Json::array({check_word, list_of(check_word)})}})},
              {"defaults", object("Settings of every sweep that does not set the same key.", defaults)},
              {"sweeps", list_of(reference("sweep"))}}));
  schema["required"] = Json::array({"name", "sweeps"});
  schema["$defs"] = defs;
  return schema.dump(2) + "\n";
}

}  // namespace attnbench
