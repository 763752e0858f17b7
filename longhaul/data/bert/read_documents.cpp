#include "longhaul/data/bert/read_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "longhaul/base/error.h"
#include "longhaul/data/input/wrong_files.h"
#include "longhaul/data/store/build/pieces.h"
#include "longhaul/system/cpus.h"

namespace longhaul::data {
namespace {

/// Stored bytes of one part of the inputs. One part is open at a time.
constexpr uint64_t kPartBytes = uint64_t{64} << 20;

struct Dropped {
  RecordProblem problem = RecordProblem::None;
  RecordPlace place;
  std::string detail;
};

struct SentencePiece {
  SentenceList documents;
  std::vector<Dropped> dropped;
  int64_t cut_sentences = 0;
  int64_t special_in_text = 0;
  int64_t empty_documents = 0;
  std::vector<int> files;  ///< files of which a record was used
};

/// Splits records into sentences and tokenizes the sentences. Any thread may call
/// encode().
class SentenceEncoder {
 public:
  SentenceEncoder(const InputSet& inputs, const tokenizer::Tokenizer& tokenizer,
                  const std::vector<uint8_t>& special, SentenceRule rule, int64_t longest)
      : inputs_(inputs),
        tokenizer_(tokenizer),
        special_(special),
        rule_(rule),
        longest_(static_cast<size_t>(longest)) {}

  SentencePiece encode(Piece& raw) const {
    SentencePiece piece;
    for (RawRecord& record : raw.records) {
      const RecordPlace place = record.place;
      ParsedRecord parsed = parse_record(record, inputs_.options());
      if (parsed.problem == RecordProblem::None &&
          parsed.kind == ParsedRecord::Kind::Ids) {
        parsed.problem = RecordProblem::FieldNotText;
        parsed.detail = "it is a list of ids, but sentences are found only in text";
      }
      if (parsed.problem != RecordProblem::None) {
        piece.dropped.push_back({parsed.problem, place, parsed.detail});
      } else {
        add_record(parsed.text, place, piece);
      }
      record = {};
    }
    return piece;
  }

 private:
  void add_record(const std::string& text, const RecordPlace& place,
                  SentencePiece& piece) const {
    SentenceList& all = piece.documents;
    const std::array sizes = {all.tokens.size(), all.sentence_tokens.size(),
                              all.document_sentences.size()};
    const std::array counts = {piece.cut_sentences, piece.special_in_text};
    try {
      add_text(text, piece);
    } catch (const InputError& error) {  // nothing of the text stays
      all.tokens.resize(sizes[0]);
      all.sentence_tokens.resize(sizes[1]);
      all.document_sentences.resize(sizes[2]);
      piece.cut_sentences = counts[0];
      piece.special_in_text = counts[1];
      piece.dropped.push_back({RecordProblem::NotTokenized, place, error.message()});
      return;
    }
    if (piece.files.empty() || piece.files.back() != place.file) {
      piece.files.push_back(place.file);
    }
  }

  void add_text(const std::string& text, SentencePiece& piece) const {
    bool any = false;
    for (const auto& sentences : split_documents(text, rule_)) {
      uint32_t count = 0;
      for (const std::string_view sentence : sentences) count += add(sentence, piece);
      if (count > 0) piece.documents.document_sentences.push_back(count);
      any = any || count > 0;
    }
    piece.empty_documents += any ? 0 : 1;
  }

  /// Adds a sentence. Returns the number of added sentences: several if the sentence was
  /// too long, 0 if the sentence has no token.
  uint32_t add(std::string_view sentence, SentencePiece& piece) const {
    std::vector<tokenizer::TokenId>& tokens = piece.documents.tokens;
    const size_t begin = tokens.size();
    tokenizer_.encode(sentence, false, tokens);
    for (size_t i = begin; i < tokens.size(); ++i) {
      LH_CHECK(tokens[i] < special_.size(), "data", "the tokenizer made id {} of {}",
               tokens[i], special_.size());
      piece.special_in_text += special_[tokens[i]];
    }
    uint32_t pieces = 0;
    for (size_t at = begin; at < tokens.size(); at += longest_, ++pieces) {
      piece.documents.sentence_tokens.push_back(
          static_cast<uint32_t>(std::min(longest_, tokens.size() - at)));
    }
    piece.cut_sentences += pieces > 1 ? 1 : 0;
    return pieces;
  }

  const InputSet& inputs_;
  const tokenizer::Tokenizer& tokenizer_;
  const std::vector<uint8_t>& special_;
  SentenceRule rule_;
  size_t longest_;
};

/// Takes the encoded pieces in the order of the inputs, writes their documents and adds
/// up their counts.
class Collector {
 public:
  Collector(const InputSet& inputs, const ReadDocumentsOptions& options, SpoolWriter& out)
      : inputs_(inputs), options_(options), out_(out), files_(inputs) {}

  void take(const SentencePiece& piece) {
    for (const Dropped& dropped : piece.dropped) {
      if (dropped.problem != RecordProblem::Empty) {
        if (options_.bad_records == BadRecords::Fail) {
          fail_record(inputs_, dropped.place, dropped.problem, dropped.detail);
        }
        files_.drop(dropped.place, dropped.problem, dropped.detail);
      }
      report.dropped.add(dropped.problem,
                         {inputs_.describe(dropped.place), dropped.detail});
    }
    for (const int file : piece.files) files_.use(file);
    if (report.dropped.bad() > options_.max_bad_records) {
      fail_input("data",
                 "{} bad records, but at most {} are allowed: {}correct them, or allow "
                 "more with --max-bad-records",
                 report.dropped.bad(), options_.max_bad_records,
                 report.dropped.in_one_line());
    }
    out_.add(piece.documents);
    report.cut_sentences += piece.cut_sentences;
    report.special_in_text += piece.special_in_text;
    report.empty_documents += piece.empty_documents;
  }
  void add_sources(const std::vector<FinishedRange>& ranges) {
    for (const FinishedRange& range : ranges) {
      const InputFile& file = inputs_.files()[static_cast<size_t>(range.range.file)];
      report.sources.push_back({{"path", file.path.string()},
                                {"begin", range.range.begin},
                                {"bytes", range.stored_bytes},
                                {"hash", range.hash},
                                {"records", range.records}});
      records_[range.range.file] += range.records;
    }
  }
  /// Throws InputError for a file of which no record was used. Must be called after the
  /// last part.
  void check_files() const {
    for (const auto& [file, records] : records_) files_.check(file, records);
  }
  ReadDocumentsReport report;

 private:
  const InputSet& inputs_;
  const ReadDocumentsOptions& options_;
  SpoolWriter& out_;
  FilesInUse files_;
  std::map<int, int64_t> records_;  ///< by file
};

}  // namespace

ReadDocumentsReport read_documents(
    const InputSet& inputs, const tokenizer::Tokenizer& tokenizer,
    const std::vector<uint8_t>& special_ids, const ReadDocumentsOptions& options,
    int64_t longest_sentence, const std::function<void(uint64_t, uint64_t)>& progress,
    SpoolWriter& out) {
  LH_CHECK(longest_sentence >= 1, "data", "sentences of {} tokens", longest_sentence);
  const SentenceEncoder encoder(inputs, tokenizer, special_ids, options.sentences,
                                longest_sentence);
  Collector collector(inputs, options, out);
  const int threads = system::threads_of(options.threads);
  system::WorkerPool pool(threads);
  // The budget sets no limit, since the number of pieces limits the memory.
  MemoryBudget memory(UINT64_MAX / 2);
  const std::atomic<bool> never = false;
  Workshop shop{pool, memory, 2 * static_cast<size_t>(threads) + 2, never};
  uint64_t bytes_before = 0;
  for (const InputPart& part : inputs.parts(kPartBytes)) {
    const auto reader = inputs.open(part);
    PieceLine<SentencePiece> line(
        shop, [&](Piece& piece) { return encoder.encode(piece); },
        [&](SentencePiece& piece) {
          collector.take(piece);
          progress(bytes_before + reader->bytes_read(), inputs.stored_bytes());
        });
    line.run(*reader);
    bytes_before += part.stored_bytes;
    collector.add_sources(reader->finished());
  }
  collector.check_files();
  collector.report.counts = out.counts();
  return std::move(collector.report);
}

}  // namespace longhaul::data
