#include "harness/session/messages.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "harness/config/captured.h"
#include "harness/error.h"
#include "harness/interop/captured_file.h"
#include "harness/results/json.h"

namespace attnbench {

std::optional<std::string> LineBuffer::next() {
  const std::size_t end = text_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = text_.substr(0, end);
  text_.erase(0, end + 1);
  return line;
}

bool write_line(int fd, std::string text) {
  text += '\n';
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = write(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    done += static_cast<std::size_t>(n);
  }
  return true;
}

Message case_message(const Case& item, const std::string& kernel, int64_t index, bool experiments,
                     std::optional<uint64_t> alone) {
  Message blocks, served;
  if (item.params.blocks) blocks = item.params.blocks->ids();
  if (item.params.served) served = served_json(*item.params.served);
  return {{"run",
           {{"case", lengths_yaml(item.params)},
            {"blocks", std::move(blocks)},
            {"served", std::move(served)},
            {"tensors", item.params.captured ? item.params.captured->path() : ""},
            {"id", item.id},
            {"sweep", item.sweep},
            {"seed", item.seed},
            {"batch", item.batch},
            {"file", item.file},
            {"overridden", item.overridden},
            {"kernel", kernel},
            {"index", index},
            {"experiments", experiments},
            {"alone", alone ? Message(*alone) : Message(nullptr)}}}};
}

namespace {

/// The captured tensors of the file; they are kept, because a case comes once for each kernel.
std::shared_ptr<const CapturedTensors> tensors_of(const std::string& path, uint64_t seed) {
  static std::string last;
  static std::shared_ptr<const CapturedTensors> tensors;
  if (path != last) tensors = read_tensor_case(path, seed).params.captured;
  last = path;
  return tensors;
}

}  // namespace

Case case_from_message(const Message& run) {
  const auto seed = run.at("seed").get<uint64_t>();
  const auto id = run.at("id").get<std::string>();
  Expansion e = expand(parse_inline_case(run.at("case").get<std::string>(), {}, seed));
  if (const Message& s = run.at("served"); !s.is_null() && e.cases.size() == 1) {
    give_served(e.cases.front(), served_from_json(nlohmann::json(s)), !run.at("blocks").is_null());
  }
  if (const Message& blocks = run.at("blocks"); !blocks.is_null() && e.cases.size() == 1) {
    give_blocks(e.cases.front(), blocks.get<GivenBlocks::Ids>());
  }
  if (const auto path = run.at("tensors").get<std::string>(); !path.empty() && e.cases.size() == 1) {
    give_tensors(e.cases.front(), tensors_of(path, seed));
  }
  if (e.cases.size() != 1 || e.cases.front().id != id) {
    throw Error(fmt::format("the mapping of case {} reads back as {}", id,
                            e.cases.empty() ? "nothing" : e.cases.front().id),
                kExitFailure);
  }
  Case item = std::move(e.cases.front());
  item.sweep = run.at("sweep").get<std::string>();
  item.seed = seed;
  item.batch = run.at("batch").get<std::string>();
  item.file = run.at("file").get<std::string>();
  item.overridden = run.at("overridden").get<bool>();
  return item;
}

Record whole_record(const Message& entry, const Case& item) {
  Record record = record_from_json(entry, item);
  Message written = Message::parse(dump_json(record_to_json(record)));
  // The sizes of a family are known only when all records exist.
  for (const char* key : {"family_index", "per_family_instance_index"}) written[key] = entry.at(key);
  if (written != entry) {
    const auto lost = nlohmann::json::diff(nlohmann::json(entry), nlohmann::json(written));
    throw std::logic_error("harness/results/json.cpp does not read back what it writes: " +
                           (lost.empty() ? "the order of fields" : lost[0]["path"].get<std::string>()));
  }
  return record;
}

Message phase_message(const Reached& reached) {
  return {{"phase", static_cast<int>(reached.phase)},
          {"launch_s", reached.launch_s},
          {"invariant", reached.invariant}};
}

Reached reached_from_message(const Message& message) {
  const int phase = message.at("phase").get<int>();
  if (phase < 0 || phase > static_cast<int>(Phase::kTiming)) throw Error("no such phase", kExitFailure);
  return {static_cast<Phase>(phase), message.at("launch_s").get<double>(),
          message.at("invariant").get<std::string>()};
}

}  // namespace attnbench
