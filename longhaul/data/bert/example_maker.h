#pragma once

#include <cstdint>
#include <vector>

#include "longhaul/base/json/json_fields.h"
#include "longhaul/data/bert/document_spool.h"
#include "longhaul/data/bert/masking.h"
#include "longhaul/data/bert/shards/shard.h"

namespace longhaul::data {

/// Number of special tokens around the two texts of an example: [CLS] and two [SEP].
inline constexpr int64_t kAroundPair = 3;

struct ExampleOptions {
  int64_t seq_len = 128;
  MaskOptions mask;
  /// Share of the documents whose examples are made for a random length. The examples of
  /// the other documents are made for the full length.
  double short_share = 0.1;
  uint64_t seed = 12345;
};

/// Counts of examples and their tokens, summed over any number of examples.
struct ExampleCounts {
  int64_t examples = 0;
  int64_t random_next = 0;  ///< examples whose second text is from another document
  /// Tokens without padding, with special tokens.
  int64_t tokens = 0;
  int64_t cut_tokens = 0;      ///< tokens cut off from pairs that were too long
  int64_t short_examples = 0;  ///< examples below the full length
  MaskCounts masks;

  void add(const ExampleCounts& other);
  Json to_json() const;
  /// Throws InputError when a field is absent or is no integer.
  static ExampleCounts from_json(const JsonFields& fields);
};

/// The rows of a BertShard in the making, column by column.
class ExampleRows {
 public:
  ExampleRows(int64_t seq_len, int64_t predictions);
  /// Adds a row. `tokens` has [CLS] and both [SEP]; the first `first_tokens` tokens
  /// belong to the first text. `masked` is sorted by position. `random_next` is true when
  /// the second text is from another document.
  void add(const std::vector<int32_t>& tokens, int64_t first_tokens, int32_t pad,
           const std::vector<MaskedToken>& masked, bool random_next);
  int64_t size() const { return static_cast<int64_t>(next_sentence_.size()); }
  /// Makes a shard of the rows so far. Row i of the shard is row order[i] of this object.
  BertShard shard(const std::vector<int64_t>& order) const;
  ExampleCounts counts;

 private:
  int64_t seq_len_;
  int64_t predictions_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> masked_ids_;
  std::vector<int8_t> mask_;
  std::vector<int8_t> segments_;
  std::vector<int8_t> next_sentence_;
};

/// Makes the examples of a document as BERT's published recipe does. Sentences are
/// gathered up to a length and split in two texts after a random sentence. In half of the
/// cases, and when only one sentence was gathered, the second text comes from another
/// document. The unused sentences are then used for the next example. Pairs that are too
/// long lose tokens at a random end of the longer text. Immutable; any thread may call
/// it.
class ExampleMaker {
 public:
  /// Throws InputError when the spool has fewer than two documents.
  ExampleMaker(const DocumentSpool& spool, const BertVocabulary& vocabulary,
               const ExampleOptions& options);
  /// Adds the examples of one document in one pass over the documents. `pass` and
  /// `document` alone determine the examples.
  void make(int64_t pass, int64_t document, ExampleRows& rows) const;

 private:
  struct Pair;
  void second_from_elsewhere(int64_t document, int64_t wanted, Draws& draws,
                             std::vector<int32_t>& out) const;
  void finish(Pair& pair, Draws& draws, ExampleRows& rows) const;

  const DocumentSpool& spool_;
  const BertVocabulary& vocabulary_;
  ExampleOptions options_;
};

}  // namespace longhaul::data
