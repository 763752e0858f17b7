#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// Documents as sentences of tokens, one after the other.
struct SentenceList {
  std::vector<tokenizer::TokenId> tokens;
  std::vector<uint32_t> sentence_tokens;     ///< per sentence, each at least 1
  std::vector<uint32_t> document_sentences;  ///< per document, each at least 1
};

struct SpoolCounts {
  int64_t documents = 0;
  int64_t sentences = 0;
  int64_t tokens = 0;
  bool operator==(const SpoolCounts&) const = default;
};

/// Writes documents to three files of a directory, front to back, in little memory.
class SpoolWriter {
 public:
  /// All ids are below `vocab_size`; up to 65536 a token takes two bytes.
  SpoolWriter(const fs::path& dir, int64_t vocab_size);
  void add(const SentenceList& documents);
  const SpoolCounts& counts() const { return counts_; }
  /// The files are on the disk afterwards.
  void finish();

 private:
  bool wide_;
  File tokens_;
  File sentences_;
  File documents_;
  SpoolCounts counts_;
};

/// The documents of a SpoolWriter, mapped: any of them at once, whatever there are.
/// Immutable; any thread may read.
class DocumentSpool {
 public:
  /// InputError when the files have not the sizes that `counts` ask for.
  DocumentSpool(const fs::path& dir, int64_t vocab_size, const SpoolCounts& counts);

  const SpoolCounts& counts() const { return counts_; }
  int64_t num_sentences(int64_t document) const;
  /// Tokens of one sentence of a document.
  int64_t sentence_tokens(int64_t document, int64_t sentence) const;
  /// Appends them to `out`.
  void append_sentence(int64_t document, int64_t sentence,
                       std::vector<int32_t>& out) const;

 private:
  int64_t first_sentence(int64_t document) const;
  int64_t sentence_begin(int64_t sentence) const;
  bool wide_;
  SpoolCounts counts_;
  MappedFile tokens_;
  MappedFile sentences_;  // end of each in tokens, u64
  MappedFile documents_;  // end of each in sentences, u64
};

/// The names of the spool's files.
std::vector<fs::path> spool_files(const fs::path& dir);

}  // namespace longhaul::data
