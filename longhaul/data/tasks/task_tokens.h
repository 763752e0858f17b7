#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/data/tasks/task_file.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// A pass over tokens that belongs to a request. The last `scored` of its tokens are what
/// the model is asked for; the tokens before them are their context.
struct TaskPart {
  int32_t request = 0;  ///< number in the file
  int32_t tokens = 0;   ///< at least 2; the model sees all but the last one
  int32_t scored = 0;   ///< at least 1
};

/// The requests of a task as tokens.
struct TaskTokens {
  int64_t requests = 0;
  std::vector<TaskPart> parts;  ///< those of one request side by side, in order
  std::vector<int32_t> ids;     ///< of all parts, one after another

  /// Returns the same as bytes, for another rank of the same program.
  std::string bytes() const;
  static TaskTokens of(std::string_view bytes);
};

/// What encode_task tells besides.
struct TaskEncoding {
  TaskTokens tokens;
  int64_t cut = 0;  ///< requests whose context lost tokens at its left
};

/// Encodes the requests as lm-eval does (`_encode_pair`, `hf`) with `seq_len` as the
/// model's length:
///
/// - White space at the end of a context goes over to the continuation.
/// - The continuation's tokens are those of the whole text behind as many as the context
///   alone has.
/// - Special tokens are added as the tokenizer says, but not to a text that begins with
///   the prefix token.
/// - An empty context is the prefix token: the tokenizer's bos, else its eos.
/// - Where a part is longer than seq_len + 1 tokens, its left end is cut off.
/// - A rolling log-likelihood is that of windows of seq_len tokens, of which the last one
///   reaches back over tokens that count already.
///
/// Throws InputError with the doc_id for ids of `vocab_size` and above, a continuation
/// without tokens or longer than seq_len, and a missing prefix token; and where no
/// request has a token. Takes the texts of the requests away.
TaskEncoding encode_task(TaskFile& task, const tokenizer::Tokenizer& tokenizer,
                         int64_t seq_len, int64_t vocab_size);

}  // namespace longhaul::data
