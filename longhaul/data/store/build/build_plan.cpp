#include <fmt/format.h>

#include <fstream>

#include "longhaul/base/hash.h"
#include "longhaul/base/json.h"
#include "longhaul/data/store/build/build_directory.h"
#include "longhaul/data/store/self_test.h"
#include "longhaul/data/store/store_fields.h"

namespace longhaul::data {
namespace {

constexpr const char* kInputList = "inputs.jsonl";
constexpr const char* kDay = "day";

Json describe_file(const InputFile& file) {
  Json json = {{"path", file.path.string()}, {"bytes", file.stored_bytes}};
  if (file.object) {
    json["version"] = file.version();
  } else {
    json["modified_ns"] = file.modified_ns;
  }
  return json;
}

void write_input_list(const fs::path& path, const InputSet& inputs) {
  std::string text;
  for (const InputFile& file : inputs.files())
    text += json_text(describe_file(file)) + "\n";
  write_text_atomic(path, text);
}

std::string describe_change(const Json& before, const Json& now) {
  const std::string path = now.at("path").get<std::string>();
  if (before.at("path") != now.at("path")) {
    return fmt::format("the inputs held {} where they now hold {}",
                       before.at("path").get<std::string>(), path);
  }
  if (before.at("bytes") != now.at("bytes")) {
    return fmt::format("{} had {} bytes and has {}", path,
                       before.at("bytes").get<uint64_t>(),
                       now.at("bytes").get<uint64_t>());
  }
  return fmt::format("{} was {} since then", path,
                     now.contains("version") ? "replaced" : "written to");
}

/// Describes the first input file that differs from the list in the directory of the
/// build.
std::string first_changed_file(const fs::path& list, const InputSet& inputs) {
  std::ifstream file(list);
  std::string line;
  size_t index = 0;
  while (std::getline(file, line)) {
    const Json before = parse_json(line, list.string());
    if (index == inputs.files().size()) {
      return before.at("path").get<std::string>() + " is no longer among the inputs";
    }
    const Json now = describe_file(inputs.files()[index++]);
    if (before != now) return describe_change(before, now);
  }
  if (index < inputs.files().size()) {
    return inputs.files()[index].path.string() + " was not among the inputs";
  }
  return "the inputs are read in another way";
}

}  // namespace

std::string BuildPlan::key() const { return hash_hex(json_text(Json(facts))); }

BuildPlan make_plan(const BuildOptions& options, const InputSet& inputs,
                    const DocumentEncoder& encoder, const tokenizer::Tokenizer* tokenizer,
                    uint64_t part_bytes, size_t parts) {
  BuildPlan plan;
  auto& facts = plan.facts;
  facts["store version"] = std::to_string(kStoreVersion);
  facts["inputs"] = inputs.fingerprint();
  facts["field"] = options.inputs.field;
  facts["tokenizer"] = tokenizer == nullptr ? "none" : tokenizer->fingerprint();
  facts["ids of the self-test"] =
      tokenizer == nullptr ? "none" : make_self_test(*tokenizer, {}).hash();
  facts["vocabulary"] = std::to_string(encoder.vocab_size());
  facts["special tokens"] = encoder.special_description();
  facts["holdout"] = fmt::format("{}", options.holdout);
  facts["drop duplicates"] = options.drop_duplicates ? "yes" : "no";
  if (options.chat) {
    facts["chat template"] = options.chat->format->hash();
    facts["targets"] = targets_name(options.chat->targets);
    facts[kDay] = options.chat->day ? chat::day_text(*options.chat->day) : "";
  }
  facts["part bytes"] = std::to_string(part_bytes);
  facts["parts"] = std::to_string(parts);
  return plan;
}

std::string day_of_plan(const fs::path& directory) {
  const fs::path file = directory / "plan.json";
  if (!fs::exists(file)) return {};
  const Json plan = read_json(file);
  const auto facts = plan.find("facts");
  return facts == plan.end() || !facts->is_object() ? "" : facts->value(kDay, "");
}

std::string agree_on_plan(const ResumableBuild& build, const BuildPlan& plan,
                          const InputSet& inputs) {
  const fs::path list = build.work() / kInputList;
  // Several processes may arrive at once, and all processes write the same list.
  if (!fs::exists(build.plan_file())) write_input_list(list, inputs);
  const Json begun = build.agree_on_plan({{"facts", plan.facts}});
  const auto before = store_fields(begun, build.plan_file())
                          .get<std::map<std::string, std::string>>("facts");
  std::string text;
  for (const std::string& name : ResumableBuild::changed_entries(before, plan.facts)) {
    if (!text.empty()) text += "; ";
    if (name == "inputs") {
      text += "inputs: " + first_changed_file(list, inputs);
    } else {
      const auto old = before.find(name);
      text += fmt::format("{}: '{}', now '{}'", name,
                          old == before.end() ? "" : old->second, plan.facts.at(name));
    }
  }
  return text;
}

}  // namespace longhaul::data
