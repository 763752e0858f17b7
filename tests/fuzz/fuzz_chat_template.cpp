#include <cstddef>
#include <cstdint>
#include <string>

#include "longhaul/base/error.h"
#include "longhaul/chat/chat_template.h"

// Takes any bytes as a chat template and renders a conversation with tools. A text with
// spans inside of it comes out, or an InputError, and never a crash.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longhaul;
  using namespace longhaul::chat;
  static const Conversation conversation(
      OrderedJson::parse(R"([{"role": "system", "content": "be kind"},
        {"role": "user", "content": "<b>Grüße</b>"},
        {"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls":
          [{"id": "1", "type": "function", "function": {"name": "f", "arguments":
            {"a": [1, 2.5, null, true], "b": {"c": "d"}}}}]},
        {"role": "tool", "name": "f", "tool_call_id": "1", "content": "{}"},
        {"role": "assistant", "content": [{"type": "text", "text": "done"}]}])"),
      OrderedJson::parse(R"([{"type": "function", "function": {"name": "f",
        "parameters": {"type": "object", "properties": {"a": {"type": "array"}}}}}])"),
      nullptr, nullptr);
  try {
    const ChatTemplate one(std::string(reinterpret_cast<const char*>(data), size), "it");
    const Rendered result =
        one.render(conversation, conversation.size(), true,
                   {{"bos_token", "<s>"}, {"eos_token", "</s>"}}, {2026, 11, 30});
    size_t end = 0;
    for (const DataSpan& span : result.data) {
      if (span.begin < end || span.end <= span.begin) __builtin_trap();
      end = span.end;
    }
    if (end > result.text.size()) __builtin_trap();
    for (const TextSpan& span : result.generated) {
      if (span.begin >= span.end || span.end > result.text.size()) __builtin_trap();
    }
  } catch (const InputError&) {
  }
  return 0;
}
