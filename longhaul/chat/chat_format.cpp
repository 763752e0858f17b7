#include "longhaul/chat/chat_format.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"

namespace longhaul::chat {
namespace {

constexpr const char* kConfigName = "tokenizer_config.json";
constexpr const char* kMapName = "special_tokens_map.json";
constexpr const char* kDefault = "default";

/// Returns a JSON object of a file, or an empty one where there is no file.
Json object_in(const fs::path& file) {
  if (!fs::exists(file)) return Json::object();
  Json json = read_json(file);
  if (!json.is_object()) fail_input("chat", "{}: not a JSON object", file.string());
  return json;
}

/// Returns the special tokens that templates see, as transformers does: the second file
/// counts unless the first lists its added tokens.
std::map<std::string, std::string> special_tokens_in(const fs::path& dir) {
  std::map<std::string, std::string> tokens;
  const Json config = object_in(dir / kConfigName);
  const Json map = object_in(dir / kMapName);
  const bool config_first = config.contains("added_tokens_decoder");
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token",
                           "pad_token", "cls_token", "mask_token"}) {
    for (const Json* json :
         {config_first ? &config : &map, config_first ? &map : &config}) {
      const auto found = json->find(name);
      if (found == json->end() || tokens.contains(name)) continue;
      if (found->is_string()) tokens[name] = found->get<std::string>();
      if (found->is_object() && found->contains("content") &&
          (*found)["content"].is_string()) {
        tokens[name] = (*found)["content"].get<std::string>();
      }
    }
  }
  return tokens;
}

}  // namespace

ChatFormat::ChatFormat(const fs::path& dir) : special_tokens_(special_tokens_in(dir)) {
  const fs::path file = dir / "chat_template.jinja";
  if (fs::exists(file)) add(kDefault, file.string(), read_text(file, kMostTemplateBytes));
  const fs::path more = dir / "additional_chat_templates";
  if (fs::is_directory(more)) {
    std::set<fs::path> files;  // in one order on all machines, since the hash has it
    for (const auto& entry : fs::directory_iterator(more)) {
      if (entry.path().extension() == ".jinja") files.insert(entry.path());
    }
    for (const fs::path& one : files) {
      add(one.stem().string(), one.string(), read_text(one, kMostTemplateBytes));
    }
  }
  if (templates_.empty()) {
    const Json config = object_in(dir / kConfigName);
    const auto found = config.find("chat_template");
    const std::string place = (dir / kConfigName).string() + ": chat_template";
    if (found != config.end() && found->is_string()) {
      add(kDefault, place, found->get<std::string>());
    } else if (found != config.end() && found->is_array()) {
      for (const Json& named : *found) {
        if (!named.is_object() || !named.value("name", Json()).is_string() ||
            !named.value("template", Json()).is_string()) {
          fail_input("chat", "{}: an entry without 'name' and 'template'", place);
        }
        const auto name = named["name"].get<std::string>();
        add(name, fmt::format("{} '{}'", place, name),
            named["template"].get<std::string>());
      }
    }
  }
  if (templates_.empty()) {
    fail_input(
        "chat",
        "{}: no chat template (chat_template.jinja, or chat_template in "
        "tokenizer_config.json); a base model has none: copy one of the model that "
        "is to be made, or name that model's tokenizer",
        dir.string());
  }
  hash_ = hash_hex(hash_ + json_text(Json(special_tokens_)));
}

ChatFormat::ChatFormat(const std::string& source,
                       std::map<std::string, std::string> special_tokens)
    : special_tokens_(std::move(special_tokens)) {
  add(kDefault, "the template", source);
  hash_ = hash_hex(hash_ + json_text(Json(special_tokens_)));
}

void ChatFormat::add(const std::string& name, const std::string& place,
                     const std::string& source) {
  templates_.erase(name);  // The last of two templates with one name counts.
  templates_.try_emplace(name, source, place);
  hash_ += fmt::format("{} {}\n", name, hash_hex(source));
}

const ChatTemplate& ChatFormat::template_of(const Conversation& conversation) const {
  const auto of_tools = templates_.find("tool_use");
  if (conversation.has_tools() && of_tools != templates_.end()) return of_tools->second;
  const auto found = templates_.find(kDefault);
  if (found != templates_.end()) return found->second;
  throw InputError("chat", "none of the model's templates is named 'default'");
}

Rendered ChatFormat::render(const Conversation& conversation, bool add_generation_prompt,
                            const Day& day) const {
  return template_of(conversation)
      .render(conversation, conversation.size(), add_generation_prompt, special_tokens_,
              day);
}

bool ChatFormat::prints_day() const {
  for (const auto& [name, one] : templates_) {
    if (one.prints_day()) return true;
  }
  return false;
}

}  // namespace longhaul::chat
