#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "longhaul/families/description/losses.h"

namespace longhaul::data {

/// The label of a position without a target.
inline constexpr int32_t kIgnore = -100;
/// The field of the ids in records that hold token ids, unless another name is given.
inline constexpr const char* kIdsField = "input_ids";

/// Two documents of a row, of which the first, the chosen side, is preferred.
struct Pair {
  int64_t number = 0;  ///< of the pair in its source
  /// What the reference gives to the targets of each side, as sums of log-probabilities;
  /// zeros until a ReferencedSource has them.
  std::array<double, 2> reference{};
};

/// A batch of sequences in plain memory, row-major [num_sequences, seq_len].
struct TokenBatch {
  int64_t num_sequences = 0;
  int64_t seq_len = 0;
  std::vector<int32_t> tokens;
  /// By term of the loss (TokenSource::losses): the target, or kIgnore, of each position
  /// or of each sequence.
  std::vector<std::vector<int32_t>> targets;
  /// Positions inside the document (with document_mask) or inside the sequence.
  std::vector<int32_t> positions;
  /// By position i, the first index of the row that position i may attend to: with
  /// document_mask the start of the position's document inside the row, else 0. Position
  /// i attends to the j with document_start[i] <= j <= i.
  std::vector<int32_t> document_start;
  std::vector<int32_t> segments;  ///< by position; empty: the data has no segments
  /// By position i, one past the last index of the row that position i may attend to. The
  /// end may lie behind i. Position i attends to the j with document_start[i] <= j <
  /// document_end[i]. Padding begins at document_end. An empty vector means that the data
  /// is causal.
  std::vector<int32_t> document_end;
  /// By position, 0 for the padding at the end of a causal row and 1 for all others.
  /// Padding does not count in the statistics by which the routers of experts are
  /// measured and balanced. An empty vector means that no row has padding.
  std::vector<int32_t> real;
  /// The pairs of each row, in their order. An empty vector means that the data has no
  /// pairs. Then `sides` is empty too.
  std::vector<std::vector<Pair>> pairs;
  /// By position, 2 p for the chosen side of pair p of the row, 2 p + 1 for its rejected
  /// side, and -1 for a position of no pair.
  std::vector<int32_t> sides;
  /// The number of each sequence in the run, and the index of each position in its row.
  /// Dropout draws its random numbers from both. Both are empty in a batch that belongs
  /// to no run.
  std::vector<int64_t> sequences;
  std::vector<int32_t> index;

  /// Makes room for `rows` rows of `length` positions with one term of the loss, the next
  /// token of each position. All fields that the data may lack stay empty.
  void resize(int64_t rows, int64_t length);
  /// Returns the number of a term's targets that are not kIgnore. The targets of the
  /// first term of data with pairs are the pairs.
  int64_t num_targets(size_t term) const;
  /// Returns the number of positions that are not padding.
  int64_t num_real() const;
};

/// Positions of a sequence whose tokens are of one document.
struct DocumentPart {
  /// The directory of the document's token store. Empty: the source knows no documents,
  /// and each of its sequences counts as one.
  std::string store;
  int64_t document = 0;  ///< number in the store, or of the sequence in the source
  int64_t offset = 0;    ///< the document's token that stands first here
  int64_t begin = 0;     ///< its position in the sequence
  int64_t tokens = 0;
  std::string file;    ///< the document's name, as TokenStore::name_of; empty: none
  int64_t record = 0;  ///< belongs to `file`; without a file it is `document`
};

/// A set of sequences of one length with random access, which a Loader reads. Immutable
/// after keep_losses and limit_ids: any thread may read.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t num_sequences() const = 0;
  virtual int64_t seq_len() const = 0;
  /// Returns the terms of a model's loss (ModelDescription::losses) that the source has
  /// targets for, in the order of TokenBatch::targets.
  virtual std::vector<std::string> losses() const { return {kNextToken}; }
  /// Returns the number of pairs, whose numbers are below; 0 for data without pairs.
  virtual int64_t num_pairs() const { return 0; }
  /// Keeps only the targets of the terms `wanted`, if losses() begins with these terms;
  /// else does nothing.
  virtual void keep_losses(const std::vector<std::string>& /*wanted*/) {}
  /// Returns a number that all ids are below; 0 if the format does not say such a number.
  /// Then each row must be checked when it is read.
  virtual int64_t max_token_id() const = 0;
  /// Refuses ids of `vocab_size` and above with InputError: at once if max_token_id() is
  /// known, else in read().
  virtual void limit_ids(int64_t vocab_size);
  /// Gives the batch room for `rows` rows with the fields that read() fills. Sources that
  /// agree in seq_len() and losses() give batches of one shape.
  virtual void shape(TokenBatch& batch, int64_t rows) const {
    batch.resize(rows, seq_len());
  }
  /// Copies sequence `index`, 0 <= index < num_sequences(), to row `row` of a batch that
  /// shape() has made.
  virtual void read(int64_t index, TokenBatch& batch, int64_t row) const = 0;
  /// Returns what sequence `index` is made of, in order, without padding. Reads no
  /// tokens.
  virtual std::vector<DocumentPart> documents(int64_t index) const;
  /// Returns the sequences, ascending, that hold a token of a part's document from
  /// part.offset on, up to part.tokens tokens of it.
  virtual std::vector<int64_t> sequences_with(const DocumentPart& part) const;
  /// Returns all of each document of this name; nothing if the source has none.
  virtual std::vector<DocumentPart> documents_named(const std::string& file,
                                                    int64_t record) const;
  /// Returns the first sequence behind `index` whose read needs other files than the read
  /// of `index`, if the source fetches its files one after another; else num_sequences().
  virtual int64_t next_piece(int64_t /*index*/) const { return num_sequences(); }
  /// Begins to fetch what the read of a sequence needs, and returns at once.
  virtual void fetch_ahead(int64_t /*index*/) const {}
  /// Checks every row that read() might refuse, until `stop` is true, and throws
  /// InputError for a bad row. Reads all of the data if max_token_id() is 0.
  virtual void check_rows(const std::atomic<bool>& stop) const { (void)stop; }
  /// Returns name, kind and size in one line, for logs.
  virtual std::string describe() const = 0;
  /// Returns a hash that changes when the tokens change. The hash is made of stored
  /// hashes or sizes, without reading all data.
  virtual std::string fingerprint() const = 0;
  /// Returns the fingerprint of the tokenizer that made the ids; empty if unknown.
  virtual std::string tokenizer_fingerprint() const { return {}; }
};

/// Joins one or more sources into one source, in their order. All parts must have one
/// length. The fingerprint is a hash of the parts' fingerprints in their order.
std::unique_ptr<TokenSource> concatenated_source(
    std::vector<std::unique_ptr<TokenSource>> parts);

/// Makes a source of `sequences` sequences of uniformly random tokens below `vocab_size`,
/// which depend on the seed and the sequence's index only.
std::unique_ptr<TokenSource> synthetic_source(int64_t sequences, int64_t seq_len,
                                              int64_t vocab_size, uint64_t seed);

/// One row of a batch that a source fills. Each span holds seq_len elements.
struct BatchRow {
  std::span<int32_t> tokens;
  std::span<int32_t> targets;
  std::span<int32_t> positions;
  std::span<int32_t> document_start;
};

/// Returns a row of a batch. Throws an internal error unless index, row and length fit.
BatchRow batch_row(const TokenSource& source, int64_t index, TokenBatch& batch,
                   int64_t row);

/// Fills positions with 0, 1, 2 ... and document_start with 0, so that attention covers
/// the whole row.
void fill_plain_positions(const BatchRow& row);

/// Marks all positions of a row from `length` on as padding.
void set_real_length(TokenBatch& batch, int64_t row, int64_t length);

}  // namespace longhaul::data
