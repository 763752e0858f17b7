#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "longhaul/families/losses.h"

namespace longhaul::data {

/// The label that is no target.
inline constexpr int32_t kIgnore = -100;
/// Where records of ready ids hold them, unless another name is given.
inline constexpr const char* kIdsField = "input_ids";

/// A batch of sequences in plain memory, row-major [num_sequences, seq_len].
struct TokenBatch {
  int64_t num_sequences = 0;
  int64_t seq_len = 0;
  std::vector<int32_t> tokens;
  /// By term of the loss (TokenSource::losses): what each position, or each sequence, has
  /// to predict, or kIgnore.
  std::vector<std::vector<int32_t>> targets;
  /// Position inside the document (document_mask) or the sequence.
  std::vector<int32_t> positions;
  /// Per position, the first index of its row that it may attend to (its document's
  /// start inside the row with document_mask, else 0): attention to j holds for
  /// document_start[i] <= j <= i.
  std::vector<int32_t> document_start;
  std::vector<int32_t> segments;  ///< per position; empty: the data has none
  /// Per position, one past the last index of its row that it may attend to, which may
  /// lie behind it: document_start[i] <= j < document_end[i]. Padding begins there.
  /// Empty: the data is causal.
  std::vector<int32_t> document_end;
  /// The number of each sequence in the run, and each position's index in its row: what
  /// dropout goes by. Empty: of no run.
  std::vector<int64_t> sequences;
  std::vector<int32_t> index;

  /// One term: the next token of each position; the data has neither segments nor ends.
  void resize(int64_t rows, int64_t length);
  /// Of a term, all but kIgnore.
  int64_t num_targets(size_t term) const;
};

/// A set of sequences of one length with random access. Once its ids are limited it is
/// immutable: any thread may read.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t num_sequences() const = 0;
  virtual int64_t seq_len() const = 0;
  /// What its targets are for, in the order of TokenBatch::targets: terms of a model's
  /// loss (ModelDescription::losses).
  virtual std::vector<std::string> losses() const { return {kNextToken}; }
  /// Leaves out the targets of all but the first terms, where those are `wanted`; else
  /// nothing.
  virtual void keep_losses(const std::vector<std::string>& /*wanted*/) {}
  /// All ids are below this; 0 where the format does not say it, so that each row has to
  /// be looked at when it is read.
  virtual int64_t max_token_id() const = 0;
  /// Refuses ids from `vocab_size` on (InputError): now where max_token_id() is known,
  /// else from read(), before the row is used.
  virtual void limit_ids(int64_t vocab_size);
  /// Gives the batch `rows` rows with the fields that read() fills: the same for sources
  /// that agree in seq_len() and losses().
  virtual void shape(TokenBatch& batch, int64_t rows) const {
    batch.resize(rows, seq_len());
  }
  /// Fills row `row` of a batch of that shape with sequence `index`, 0 <= index <
  /// num_sequences().
  virtual void read(int64_t index, TokenBatch& batch, int64_t row) const = 0;
  /// Looks at every row that read() might refuse, as read() would (InputError), until
  /// `stop`: where max_token_id() is 0 that reads all of the data.
  virtual void check_rows(const std::atomic<bool>& stop) const { (void)stop; }
  /// Name, kind and size in one line, for logs.
  virtual std::string describe() const = 0;
  /// Hash that changes when the tokens do (from stored hashes or sizes; no full scan).
  virtual std::string fingerprint() const = 0;
  /// Fingerprint of the tokenizer that made it; empty if unknown.
  virtual std::string tokenizer_fingerprint() const { return {}; }
};

}  // namespace longhaul::data
