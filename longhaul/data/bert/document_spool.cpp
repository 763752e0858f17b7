#include "longhaul/data/bert/document_spool.h"

#include <fmt/format.h>

#include <cstring>

#include "longhaul/base/error.h"

namespace longhaul::data {
namespace {

constexpr int64_t kNarrowVocabulary = 65536;

template <typename Value>
void write_values(File& file, const std::vector<Value>& values) {
  file.write(std::as_bytes(std::span(values)));
}

MappedFile map_exactly(const fs::path& path, uint64_t bytes) {
  MappedFile file(path);
  if (file.bytes().size() != bytes) {
    fail_input(
        "data",
        "{}: the file has {} bytes, expected {}; remove the directory and build again",
        path.string(), file.bytes().size(), bytes);
  }
  return file;
}

int64_t value_at(const MappedFile& file, int64_t index) {
  uint64_t value = 0;
  std::memcpy(&value, file.bytes().data() + static_cast<size_t>(index) * sizeof(value),
              sizeof(value));
  return static_cast<int64_t>(value);
}

}  // namespace

std::vector<fs::path> spool_files(const fs::path& dir) {
  return {dir / "spool_tokens.bin", dir / "spool_sentences.bin",
          dir / "spool_documents.bin"};
}

SpoolWriter::SpoolWriter(const fs::path& dir, int64_t vocab_size)
    : wide_(vocab_size > kNarrowVocabulary),
      tokens_(File::create(spool_files(dir)[0])),
      sentences_(File::create(spool_files(dir)[1])),
      documents_(File::create(spool_files(dir)[2])) {}

void SpoolWriter::add(const SentenceList& list) {
  if (wide_) {
    write_values(tokens_, list.tokens);
  } else {
    write_values(tokens_, std::vector<uint16_t>(list.tokens.begin(), list.tokens.end()));
  }
  std::vector<uint64_t> ends;
  ends.reserve(list.sentence_tokens.size());
  for (const uint32_t count : list.sentence_tokens) {
    counts_.tokens += count;
    ends.push_back(static_cast<uint64_t>(counts_.tokens));
  }
  write_values(sentences_, ends);
  ends.clear();
  for (const uint32_t count : list.document_sentences) {
    counts_.sentences += count;
    ends.push_back(static_cast<uint64_t>(counts_.sentences));
  }
  write_values(documents_, ends);
  counts_.documents += static_cast<int64_t>(list.document_sentences.size());
}

void SpoolWriter::finish() {
  for (File* const file : {&tokens_, &sentences_, &documents_}) {
    file->sync();
    file->close();
  }
}

DocumentSpool::DocumentSpool(const fs::path& dir, int64_t vocab_size,
                             const SpoolCounts& counts)
    : wide_(vocab_size > kNarrowVocabulary), counts_(counts) {
  const std::vector<fs::path> files = spool_files(dir);
  tokens_ = map_exactly(files[0], static_cast<uint64_t>(counts.tokens) * (wide_ ? 4 : 2));
  sentences_ = map_exactly(files[1], static_cast<uint64_t>(counts.sentences) * 8);
  documents_ = map_exactly(files[2], static_cast<uint64_t>(counts.documents) * 8);
}

int64_t DocumentSpool::first_sentence(int64_t document) const {
  return document == 0 ? 0 : value_at(documents_, document - 1);
}

int64_t DocumentSpool::sentence_begin(int64_t sentence) const {
  return sentence == 0 ? 0 : value_at(sentences_, sentence - 1);
}

int64_t DocumentSpool::num_sentences(int64_t document) const {
  return value_at(documents_, document) - first_sentence(document);
}

int64_t DocumentSpool::sentence_tokens(int64_t document, int64_t sentence) const {
  const int64_t place = first_sentence(document) + sentence;
  return value_at(sentences_, place) - sentence_begin(place);
}

void DocumentSpool::append_sentence(int64_t document, int64_t sentence,
                                    std::vector<int32_t>& out) const {
  const int64_t place = first_sentence(document) + sentence;
  const auto begin = static_cast<size_t>(sentence_begin(place));
  const auto end = static_cast<size_t>(value_at(sentences_, place));
  const std::byte* const data = tokens_.bytes().data();
  if (wide_) {
    const auto* const ids = reinterpret_cast<const uint32_t*>(data);
    out.insert(out.end(), ids + begin, ids + end);
  } else {
    const auto* const ids = reinterpret_cast<const uint16_t*>(data);
    out.insert(out.end(), ids + begin, ids + end);
  }
}

}  // namespace longhaul::data
