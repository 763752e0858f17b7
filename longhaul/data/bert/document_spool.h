#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// Documents that are sentences of tokens, one after the other.
struct SentenceList {
  std::vector<tokenizer::TokenId> tokens;
  std::vector<uint32_t> sentence_tokens;     ///< by sentence: tokens, at least 1
  std::vector<uint32_t> document_sentences;  ///< by document: sentences, at least 1
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
  /// All ids are below `vocab_size`. A token takes two bytes up to a size of 65536, else
  /// four.
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

/// The mapped files of a SpoolWriter: any document can be read at once. Immutable; any
/// thread may read.
class DocumentSpool {
 public:
  /// InputError when the files do not have the sizes that follow from `counts`.
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
  MappedFile sentences_;  // by sentence: its end in tokens, u64
  MappedFile documents_;  // by document: its end in sentences, u64
};

/// Returns the paths of the spool's files.
std::vector<fs::path> spool_files(const fs::path& dir);

}  // namespace longhaul::data
