#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/data/sources/token_source.h"
#include "longhaul/data/tasks/task_tokens.h"

namespace longhaul::data {

/// The requests of a task as rows. Each row holds as many parts as fit, which do not see
/// each other, and then padding, as rows of whole documents do. Only scored tokens are
/// targets. Parts of one scored token behind the same tokens, as the letters of a
/// question are, stand once and share their place. The terms of a batch come in twos, as
/// many as most parts share a place: the tokens, and the number of the request of each;
/// kIgnore where fewer share it. Immutable; any thread may read.
class TaskRows final : public TokenSource {
 public:
  /// Throws an internal error for a part of more than seq_len + 1 tokens.
  TaskRows(TaskTokens tokens, int64_t seq_len, int64_t vocab_size);

  /// Returns the number of requests, whose numbers are below it.
  int64_t num_requests() const { return tokens_.requests; }

  int64_t num_sequences() const override { return std::ssize(ends_); }
  int64_t seq_len() const override { return seq_len_; }
  std::vector<std::string> losses() const override;
  int64_t max_token_id() const override { return vocab_size_; }
  void shape(TokenBatch& batch, int64_t rows) const override;
  void read(int64_t index, TokenBatch& batch, int64_t row) const override;
  std::string describe() const override;
  std::string fingerprint() const override;

 private:
  TaskTokens tokens_;
  int64_t seq_len_;
  int64_t vocab_size_;
  std::vector<size_t> begins_;   ///< by part, its first token in tokens_.ids
  std::vector<uint32_t> order_;  ///< the parts of all rows, one row after another
  /// By part, the next part that shares its place; 0: none.
  std::vector<uint32_t> next_;
  size_t most_shared_ = 1;
  std::vector<size_t> ends_;  ///< by row, the place behind its last part in order_
};

}  // namespace longhaul::data
