#include "longhaul/chat/chat_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::chat {
namespace {

/// Returns a member that is there and not null; else a null pointer.
const OrderedJson* member(const OrderedJson& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

OrderedJson message_of(const char* role, const OrderedJson& content) {
  return {{"role", role}, {"content", content}};
}

std::string text_in(const OrderedJson& object, const char* name) {
  const OrderedJson* found = member(object, name);
  if (found == nullptr) return {};
  if (!found->is_string()) fail_input("chat", "'{}' is no text", name);
  return found->get<std::string>();
}

/// Throws InputError for a turn of the assistant that the data exclude from what is
/// learned.
void refuse_excluded(const OrderedJson& message, std::string_view role, size_t number) {
  if (role != "assistant" && role != "model") return;  // never learned
  for (const char* name : {"weight", "train", "training"}) {
    const OrderedJson* found = member(message, name);
    if (found == nullptr || *found == 1 || *found == true) continue;
    fail_input(
        "chat",
        "message {} has {} {}, which is not read: the turn would be learned; leave "
        "the record out, or end the chat before the message",
        number, name, json_text(*found).substr(0, 40));
  }
}

/// Checks a list of messages: each has a role, and its content is a text, null, absent or
/// a list of texts.
OrderedJson checked_messages(const OrderedJson& list, const char* name) {
  if (!list.is_array() || list.empty()) {
    fail_input("chat", "'{}' is no list of messages, or an empty one", name);
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const OrderedJson& message = list[i];
    const OrderedJson* role = message.is_object() ? member(message, "role") : nullptr;
    if (role == nullptr || !role->is_string()) {
      fail_input("chat", "message {} of '{}' has no role", i + 1, name);
    }
    refuse_excluded(message, role->get_ref<const std::string&>(), i + 1);
    const OrderedJson* content = member(message, "content");
    if (content == nullptr || content->is_string()) continue;
    if (!content->is_array()) {
      fail_input("chat", "the content of message {} is neither text nor a list", i + 1);
    }
    for (const OrderedJson& part : *content) {
      const bool is_text =
          part.is_object() && part.value("type", OrderedJson()) == "text";
      if (!is_text) {
        fail_input("chat",
                   "message {} holds {}; texts alone are read, no images or sounds",
                   i + 1, json_text(part).substr(0, 80));
      }
    }
  }
  return list;
}

/// Returns the role of ShareGPT's `from`.
const char* role_of_speaker(const std::string& from, size_t place) {
  static const std::map<std::string, const char*> kRoles = {{"human", "user"},
                                                            {"user", "user"},
                                                            {"gpt", "assistant"},
                                                            {"assistant", "assistant"},
                                                            {"chatgpt", "assistant"},
                                                            {"bing", "assistant"},
                                                            {"bard", "assistant"},
                                                            {"model", "assistant"},
                                                            {"system", "system"},
                                                            {"tool", "tool"},
                                                            {"function_response", "tool"},
                                                            {"observation", "tool"}};
  const auto found = kRoles.find(from);
  if (found != kRoles.end()) return found->second;
  fail_input("chat", "entry {} is from '{}'; known are human, gpt, system and tool",
             place, from);
}

OrderedJson from_share_gpt(const OrderedJson& record, const OrderedJson& entries) {
  OrderedJson messages = OrderedJson::array();
  if (const std::string system = text_in(record, "system"); !system.empty()) {
    messages.push_back(message_of("system", system));
  }
  if (!entries.is_array() || entries.empty()) {
    throw InputError("chat", "'conversations' is no list, or an empty one");
  }
  if (entries[0].is_object() && entries[0].contains("role")) {
    for (const OrderedJson& message : entries) messages.push_back(message);
    return checked_messages(messages, "conversations");
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].is_object()) fail_input("chat", "entry {} is no object", i + 1);
    const std::string from = text_in(entries[i], "from");
    const OrderedJson* value = member(entries[i], "value");
    if (value == nullptr || !value->is_string()) {
      fail_input("chat", "entry {} has no text 'value'", i + 1);
    }
    const char* role = role_of_speaker(from, i + 1);
    refuse_excluded(entries[i], role, i + 1);
    messages.push_back(message_of(role, *value));
  }
  return messages;
}

OrderedJson from_alpaca(const OrderedJson& record) {
  const OrderedJson* history = member(record, "history");
  if (history != nullptr && !history->empty()) {
    throw InputError("chat", "'history' is not read; write the turns as 'messages'");
  }
  OrderedJson messages = OrderedJson::array();
  if (const std::string system = text_in(record, "system"); !system.empty()) {
    messages.push_back(message_of("system", system));
  }
  std::string asked = text_in(record, "instruction");
  if (const std::string input = text_in(record, "input"); !input.empty()) {
    asked += (asked.empty() ? "" : "\n") + input;
  }
  messages.push_back(message_of("user", asked));
  messages.push_back(message_of("assistant", text_in(record, "output")));
  return messages;
}

/// Sets the texts or messages of the parts that are there. Throws where some are text and
/// some are messages.
void set_parts(ChatRecord& out, const OrderedJson* prompt, const char* chosen_name,
               const OrderedJson& chosen, const OrderedJson* rejected) {
  out.plain = chosen.is_string();
  const auto take = [&](const OrderedJson& json, const char* name) {
    if (out.plain != json.is_string()) {
      fail_input("chat", "'{}' and '{}' must all be texts, or all lists of messages",
                 name, chosen_name);
    }
    return out.plain ? json : checked_messages(json, name);
  };
  if (prompt != nullptr) out.prompt = take(*prompt, "prompt");
  out.chosen = take(chosen, chosen_name);
  if (rejected != nullptr) out.rejected = take(*rejected, "rejected");
}

size_t size_of(const OrderedJson& part) {
  return part.is_string() ? part.get_ref<const std::string&>().size() : part.size();
}

/// Returns how many items, or bytes, two sides have in common at their beginning, by the
/// rules of TRL: a side that is the beginning of the other keeps its last item. A
/// character of a text is not cut.
size_t common_beginning(const OrderedJson& a, const OrderedJson& b) {
  size_t same = 0;
  const size_t most = std::min(size_of(a), size_of(b));
  if (!a.is_string()) {
    while (same < most && a[same] == b[same]) ++same;
    return same == most && most > 0 ? most - 1 : same;
  }
  const auto& left = a.get_ref<const std::string&>();
  const auto& right = b.get_ref<const std::string&>();
  while (same < most && left[same] == right[same]) ++same;
  const auto inside = [&](const std::string& text) {
    return same < text.size() &&
           (static_cast<unsigned char>(text[same]) & 0xC0U) == 0x80U;
  };
  const bool one_is_all = same == most;
  if (one_is_all && same > 0) --same;
  while (same > 0 && (inside(left) || inside(right))) --same;
  // The space belongs to the first word of what follows.
  if (same > 0 && !one_is_all && left[same - 1] == ' ') --same;
  return same;
}

OrderedJson slice_of(const OrderedJson& whole, size_t begin, size_t end) {
  if (whole.is_string()) {
    return whole.get_ref<const std::string&>().substr(begin, end - begin);
  }
  OrderedJson out = OrderedJson::array();
  for (size_t i = begin; i < end; ++i) out.push_back(whole[i]);
  return out;
}

bool begins_with(const OrderedJson& list, const OrderedJson& beginning) {
  return list.size() >= beginning.size() &&
         std::equal(beginning.begin(), beginning.end(), list.begin());
}

void read_pair(const OrderedJson& record, ChatRecord& out) {
  out.kind = ChatRecord::Kind::Pair;
  const OrderedJson& chosen = *member(record, "chosen");
  const OrderedJson& rejected = *member(record, "rejected");
  const OrderedJson* prompt = member(record, "prompt");
  // Some data name the first question beside two whole conversations.
  if (prompt != nullptr && prompt->is_string() && !chosen.is_string()) prompt = nullptr;
  set_parts(out, prompt, "chosen", chosen, &rejected);
  if (out.chosen == out.rejected) {
    throw InputError("chat", "'chosen' and 'rejected' are equal");
  }
  if (prompt != nullptr) {
    if (!out.plain && begins_with(out.chosen, out.prompt) &&
        begins_with(out.rejected, out.prompt)) {
      throw InputError("chat",
                       "'chosen' and 'rejected' begin with the messages of 'prompt', "
                       "which would be read twice; leave 'prompt' out");
    }
    return;
  }
  const size_t same = common_beginning(out.chosen, out.rejected);
  if (same == 0 && member(record, "prompt") != nullptr) {
    throw InputError("chat",
                     "'prompt' is a text, and the messages of 'chosen' and 'rejected' do "
                     "not begin with it; write 'prompt' as a list of messages");
  }
  if (same == 0) {
    throw InputError("chat",
                     "there is no 'prompt', and 'chosen' and 'rejected' begin with "
                     "different ones");
  }
  out.prompt = slice_of(out.chosen, 0, same);
  out.chosen = slice_of(out.chosen, same, size_of(out.chosen));
  out.rejected = slice_of(out.rejected, same, size_of(out.rejected));
}

/// Returns a list that may stand as JSON in a text.
OrderedJson list_in(const OrderedJson& record, const char* name) {
  const OrderedJson* found = member(record, name);
  if (found == nullptr) return nullptr;
  OrderedJson list = *found;
  if (list.is_string()) {
    const auto& text = found->get_ref<const std::string&>();
    if (text.empty()) return nullptr;
    list = parse_ordered_json(text, fmt::format("'{}'", name));
  }
  if (list.is_null()) return nullptr;
  if (!list.is_array()) fail_input("chat", "'{}' is no list", name);
  return list;
}

std::string names_of(const OrderedJson& record) {
  std::string names;
  for (const auto& [key, value] : record.items()) {
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", key.substr(0, 40));
    if (names.size() > 200) return names + ", ...";
  }
  return names.empty() ? "none" : names;
}

}  // namespace

std::string ChatRecord::text() const {
  return json_text(OrderedJson{prompt, chosen, rejected, tools, documents, variables});
}

ChatRecord parse_chat_record(std::string_view json) {
  return chat_record_of(parse_ordered_json(json, "the record"));
}

ChatRecord chat_record_of(const OrderedJson& record) {
  if (!record.is_object()) throw InputError("chat", "the record is no JSON object");
  ChatRecord out;
  out.tools = list_in(record, "tools");
  out.documents = list_in(record, "documents");
  if (const OrderedJson* found = member(record, "chat_template_kwargs")) {
    out.variables = *found;
  }
  if (member(record, "chosen") != nullptr && member(record, "rejected") != nullptr) {
    read_pair(record, out);
  } else if (member(record, "prompt") != nullptr &&
             member(record, "completion") != nullptr) {
    out.kind = ChatRecord::Kind::Completion;
    set_parts(out, member(record, "prompt"), "completion", *member(record, "completion"),
              nullptr);
  } else if (const OrderedJson* messages = member(record, "messages")) {
    out.prompt = checked_messages(*messages, "messages");
  } else if (const OrderedJson* entries = member(record, "conversations")) {
    out.prompt = from_share_gpt(record, *entries);
  } else if (member(record, "instruction") != nullptr &&
             member(record, "output") != nullptr) {
    out.prompt = from_alpaca(record);
  } else {
    fail_input("chat",
               "no chat: there is neither 'messages' nor 'conversations', 'instruction' "
               "with 'output', 'prompt' with 'completion', or 'chosen' with 'rejected' "
               "(its fields: {})",
               names_of(record));
  }
  return out;
}

}  // namespace longhaul::chat
