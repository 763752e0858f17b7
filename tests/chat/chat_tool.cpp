// This program renders the conversations that stand on its input, one JSON object a line,
// and prints a JSON object for each: {"text", "generated"}, or {"error"}. With a
// tokenizer as its argument each line has a "record" instead, and the answer has "sides",
// each with "ids" and "is_target", and "findings".
#include <fmt/format.h>

#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "longhaul/base/error.h"
#include "longhaul/chat/chat_encoder.h"

namespace {

using namespace longhaul;
using namespace longhaul::chat;

OrderedJson rendered(const OrderedJson& line, const ChatFormat& format) {
  const auto member = [&](const char* name) { return line.value(name, OrderedJson()); };
  const Conversation conversation(member("messages"), member("tools"),
                                  member("documents"), member("variables"));
  const Rendered result =
      format.template_of(conversation)
          .render(conversation, conversation.size(),
                  line.value("add_generation_prompt", false), format.special_tokens(),
                  parse_day(line.value("day", "2026-11-30")));
  OrderedJson spans = OrderedJson::array();
  for (const TextSpan& span : result.generated) spans.push_back({span.begin, span.end});
  return {{"text", result.text}, {"generated", spans}};
}

OrderedJson encoded(const OrderedJson& line, const ChatFormat& format,
                    const tokenizer::Tokenizer& tokenizer) {
  const std::string name = line.value("targets", "assistant");
  const Targets targets = name == "all"    ? Targets::All
                          : name == "last" ? Targets::Last
                                           : Targets::Assistant;
  const ChatEncoder encoder(tokenizer, format, targets,
                            parse_day(line.value("day", "2026-11-30")));
  const EncodedRecord record =
      encoder.encode(parse_chat_record(line.at("record").dump()));
  OrderedJson out = {{"sides", OrderedJson::array()},
                     {"findings", OrderedJson::object()}};
  for (const EncodedChat& side : record.sides) {
    out["sides"].push_back({{"ids", side.tokens}, {"is_target", side.is_target}});
  }
  for (size_t i = 0; i < kFindings; ++i) {
    out["findings"][std::string(finding_name(static_cast<Finding>(i)))] =
        record.findings[i];
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  if (argc > 1) tokenizer = tokenizer::Tokenizer::load(argv[1]);
  std::map<std::string, std::unique_ptr<ChatFormat>> formats;
  std::string text;
  while (std::getline(std::cin, text)) {
    OrderedJson answer;
    try {
      const OrderedJson line = OrderedJson::parse(text);
      const auto source = line.at("template").get<std::string>();
      std::map<std::string, std::string> special;
      const OrderedJson named = line.value("special_tokens", OrderedJson::object());
      for (const auto& [name, token] : named.items()) {
        special[name] = token.get<std::string>();
      }
      auto& format = formats[source];
      if (!format) format = std::make_unique<ChatFormat>(source, special);
      answer = tokenizer ? encoded(line, *format, *tokenizer) : rendered(line, *format);
    } catch (const Error& error) {
      answer = {{"error", error.what()}};
    }
    fmt::print("{}\n", json_text(answer));
  }
}
