#include "longhaul/data/tasks/task_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"

namespace longhaul::data {
namespace {

using Ids = std::vector<int32_t>;

/// Returns whether a code point is one that Python's str.isspace() names.
bool is_blank(uint32_t point) {
  const auto within = [&](uint32_t first, uint32_t last) {
    return point >= first && point <= last;
  };
  return within(0x09, 0x0D) || within(0x1C, 0x20) || point == 0x85 || point == 0xA0 ||
         point == 0x1680 || within(0x2000, 0x200A) || within(0x2028, 0x2029) ||
         point == 0x202F || point == 0x205F || point == 0x3000;
}

/// Returns how many bytes at the end of valid UTF-8 are white space.
size_t blank_bytes(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
    while (begin > 0 && (byte(begin) & 0xC0U) == 0x80U) --begin;
    const size_t size = end - begin;
    uint32_t point = size == 1 ? byte(begin) : byte(begin) & (0xFFU >> (size + 1));
    for (size_t i = begin + 1; i < end; ++i) point = (point << 6U) | (byte(i) & 0x3FU);
    if (!is_blank(point)) break;
    end = begin;
  }
  return text.size() - end;
}

/// Returns the token that stands for an empty context. A tokenizer_config.json that says
/// null has no bos token for lm-eval, even if the model's config names one.
std::optional<tokenizer::TokenId> prefix_token(const tokenizer::Tokenizer& tokenizer) {
  for (const fs::path& file : tokenizer.files()) {
    if (file.filename() != "tokenizer_config.json") continue;
    const Json config = read_json(file);
    const auto bos = config.find("bos_token");
    if (bos != config.end() && bos->is_null()) return tokenizer.eos_id();
  }
  const auto bos = tokenizer.bos_id();
  return bos ? bos : tokenizer.eos_id();
}

class TaskEncoder {
 public:
  TaskEncoder(const TaskFile& task, const tokenizer::Tokenizer& tokenizer,
              int64_t seq_len, int64_t vocab_size)
      : task_(task),
        tokenizer_(tokenizer),
        seq_len_(seq_len),
        vocab_size_(vocab_size),
        prefix_(prefix_token(tokenizer)) {
    if (prefix_) prefix_text_ = tokenizer.decode({*prefix_}, false);
  }

  void add(const TaskQuestion& question, size_t number, const TaskRequest& request) {
    doc_id_ = question.doc_id;
    request_ = static_cast<int32_t>(number);
    if (task_.kind == TaskKind::Rolling) {
      add_windows(encode(request.continuation));
    } else {
      add_pair(request.context, request.continuation);
    }
  }
  TaskEncoding take() { return std::move(made_); }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    fail_input("tasks", "{}: doc_id {}: {}", task_.path.string(), doc_id_,
               fmt::format(text, std::forward<Args>(args)...));
  }

  Ids ids_of(std::string_view text, bool special) const {
    const std::vector<tokenizer::TokenId> found = tokenizer_.encode(text, special);
    const auto wrong = std::ranges::find_if(
        found, [&](auto id) { return static_cast<int64_t>(id) >= vocab_size_; });
    if (wrong != found.end()) {
      refuse("the tokenizer gives id {}, and the model's vocabulary has {} ids", *wrong,
             vocab_size_);
    }
    return {found.begin(), found.end()};
  }
  Ids encode(std::string_view text) const {
    return ids_of(text, /*special=*/!prefix_ || !text.starts_with(prefix_text_));
  }
  int32_t prefix() const {
    if (prefix_ && static_cast<int64_t>(*prefix_) < vocab_size_) {
      return static_cast<int32_t>(*prefix_);
    }
    refuse(
        "the text begins without a context, for which the tokenizer has no bos and no "
        "eos token{}; name one in tokenizer_config.json",
        prefix_ ? " of the model's vocabulary" : "");
  }

  void add_pair(std::string context, std::string continuation) {
    Ids before;
    Ids scored;
    if (context.empty()) {
      scored = ids_of(continuation, /*special=*/false);
      before = {prefix()};
      // A continuation that begins with the prefix token has its context already.
      if (!scored.empty() && scored.front() == before.front())
        scored.erase(scored.begin());
    } else {
      const size_t kept = context.size() - blank_bytes(context);
      continuation.insert(0, context, kept);
      context.resize(kept);
      if (context != last_context_) {  // mostly the choices of one question
        last_ids_ = encode(context);
        last_context_ = context;
      }
      before = last_ids_;
      scored = encode(context + continuation);
      const auto shared = std::min(before.size(), scored.size());
      scored.erase(scored.begin(), scored.begin() + static_cast<std::ptrdiff_t>(shared));
    }
    if (before.empty() || scored.empty()) {
      refuse("the {} \"{}\" has no token of its own, and lm-eval refuses that, too",
             before.empty() ? "context" : "continuation",
             before.empty() ? context : continuation);
    }
    add_part(std::move(before), scored);
  }

  void add_windows(const Ids& ids) {
    const auto length = static_cast<size_t>(seq_len_);
    for (size_t begin = 0; begin < ids.size(); begin += length) {
      const size_t end = std::min(begin + length, ids.size());
      const size_t from = end > length ? end - length - 1 : 0;
      Ids before;
      if (begin == 0) {
        before = {prefix()};
      } else {
        before.assign(ids.begin() + static_cast<std::ptrdiff_t>(from),
                      ids.begin() + static_cast<std::ptrdiff_t>(begin));
      }
      add_part(std::move(before), {ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                   ids.begin() + static_cast<std::ptrdiff_t>(end)});
    }
  }

  /// Adds a part, without what is too long at the left of `before`.
  void add_part(Ids before, const Ids& scored) {
    if (std::ssize(scored) > seq_len_) {
      refuse(
          "a continuation has {} tokens, and a sequence has {}; lm-eval refuses that, "
          "too: take a longer sequence",
          scored.size(), seq_len_);
    }
    const int64_t room = seq_len_ + 1 - std::ssize(scored);
    if (std::ssize(before) > room) {
      before.erase(before.begin(), before.end() - room);
      ++made_.cut;
    }
    TaskTokens& tokens = made_.tokens;
    tokens.parts.push_back({request_, static_cast<int32_t>(before.size() + scored.size()),
                            static_cast<int32_t>(scored.size())});
    tokens.ids.insert(tokens.ids.end(), before.begin(), before.end());
    tokens.ids.insert(tokens.ids.end(), scored.begin(), scored.end());
  }

  const TaskFile& task_;
  const tokenizer::Tokenizer& tokenizer_;
  int64_t seq_len_;
  int64_t vocab_size_;
  std::optional<tokenizer::TokenId> prefix_;
  std::string prefix_text_;
  int64_t doc_id_ = 0;
  int32_t request_ = 0;
  std::optional<std::string> last_context_;
  Ids last_ids_;  ///< of last_context_
  TaskEncoding made_;
};

template <typename Value>
void append(std::string& bytes, const std::vector<Value>& values) {
  const auto raw = std::as_bytes(std::span(values));
  bytes.append(reinterpret_cast<const char*>(raw.data()), raw.size());
}

}  // namespace

std::string TaskTokens::bytes() const {
  std::string out;
  append(out, std::vector<int64_t>{requests, std::ssize(parts), std::ssize(ids)});
  append(out, parts);
  append(out, ids);
  return out;
}

TaskTokens TaskTokens::of(std::string_view bytes) {
  const auto take = [&](void* to, size_t size) {
    LH_CHECK(size <= bytes.size(), "tasks", "{} bytes of tokens, {} are left", size,
             bytes.size());
    std::memcpy(to, bytes.data(), size);
    bytes.remove_prefix(size);
  };
  int64_t sizes[3];
  take(sizes, sizeof(sizes));
  TaskTokens tokens;
  tokens.requests = sizes[0];
  tokens.parts.resize(static_cast<size_t>(sizes[1]));
  tokens.ids.resize(static_cast<size_t>(sizes[2]));
  take(tokens.parts.data(), tokens.parts.size() * sizeof(TaskPart));
  take(tokens.ids.data(), tokens.ids.size() * sizeof(int32_t));
  return tokens;
}

TaskEncoding encode_task(TaskFile& task, const tokenizer::Tokenizer& tokenizer,
                         int64_t seq_len, int64_t vocab_size) {
  TaskEncoder encoder(task, tokenizer, seq_len, vocab_size);
  for (const TaskQuestion& question : task.questions) {
    for (size_t i = question.first; i < question.end; ++i) {
      encoder.add(question, i, task.requests[i]);
      task.requests[i].context = {};
      task.requests[i].continuation = {};
    }
  }
  TaskEncoding made = encoder.take();
  made.tokens.requests = std::ssize(task.requests);
  if (made.tokens.parts.empty()) {
    fail_input("tasks", "{}: no text has a token, so that there is nothing to score",
               task.path.string());
  }
  return made;
}

}  // namespace longhaul::data
