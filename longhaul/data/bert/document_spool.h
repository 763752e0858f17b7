#pragma once

#include <cstdint>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// Documents that are lists of tokenized sentences. The vectors hold the documents one
/// after the other.
struct SentenceList {
  std::vector<tokenizer::TokenId> tokens;
  std::vector<uint32_t> sentence_tokens;  ///< by sentence: number of tokens, at least 1
  /// By document: number of sentences, at least 1.
  std::vector<uint32_t> document_sentences;
};

struct SpoolCounts {
  int64_t documents = 0;
  int64_t sentences = 0;
  int64_t tokens = 0;
  bool operator==(const SpoolCounts&) const = default;
};

/// Writes documents front to back to three files of a directory, in little memory.
class SpoolWriter {
 public:
  /// Makes the files in `dir`. All ids must be below `vocab_size`. A token takes two
  /// bytes for a vocabulary of up to 65536 ids, else four bytes.
  SpoolWriter(const fs::path& dir, int64_t vocab_size);
  void add(const SentenceList& documents);
  const SpoolCounts& counts() const { return counts_; }
  /// Makes the files durable.
  void finish();

 private:
  bool wide_;
  File tokens_;
  File sentences_;
  File documents_;
  SpoolCounts counts_;
};

/// The mapped files of a SpoolWriter, with random access to any document. Immutable; any
/// thread may read.
class DocumentSpool {
 public:
  /// Throws InputError when the files do not have the sizes that follow from `counts`.
  DocumentSpool(const fs::path& dir, int64_t vocab_size, const SpoolCounts& counts);

  const SpoolCounts& counts() const { return counts_; }
  int64_t num_sentences(int64_t document) const;
  /// Returns the number of tokens of one sentence of a document.
  int64_t sentence_tokens(int64_t document, int64_t sentence) const;
  /// Appends the tokens of one sentence of a document to `out`.
  void append_sentence(int64_t document, int64_t sentence,
                       std::vector<int32_t>& out) const;

 private:
  int64_t first_sentence(int64_t document) const;
  int64_t sentence_begin(int64_t sentence) const;
  bool wide_;
  SpoolCounts counts_;
  MappedFile tokens_;
  // The number of the token after the last token of each sentence, u64.
  MappedFile sentences_;
  // The number of the sentence after the last sentence of each document, u64.
  MappedFile documents_;
};

/// Returns the paths of the spool's files.
std::vector<fs::path> spool_files(const fs::path& dir);

}  // namespace longhaul::data
