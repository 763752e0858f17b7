#include "longhaul/data/bert/read_documents.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/data/bert/ordered_workers.h"

namespace longhaul::data {
namespace {

/// Raw text that one worker takes at a time, and the part of the inputs that is open at a
/// time.
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
constexpr uint64_t kPartBytes = uint64_t{64} << 20;
constexpr size_t kMaxPieceRecords = 4096;

struct Dropped {
  RecordProblem problem = RecordProblem::None;
  RecordPlace place;
  std::string detail;
};

struct EncodedPiece {
  SentenceList documents;
  std::vector<Dropped> dropped;
  int64_t cut_sentences = 0;
  int64_t special_in_text = 0;
  int64_t empty_documents = 0;
};

class Encoder {
 public:
  Encoder(const InputSet& inputs, const tokenizer::Tokenizer& tokenizer,
          const std::vector<uint8_t>& special, const ReadDocumentsOptions& options)
      : inputs_(inputs), tokenizer_(tokenizer), special_(special), options_(options) {}

  EncodedPiece encode(std::vector<RawRecord>& records) const {
    EncodedPiece piece;
    for (RawRecord& record : records) {
      const RecordPlace place = record.place;
      ParsedRecord parsed = parse_record(record, inputs_.options());
      if (parsed.problem == RecordProblem::None &&
          parsed.kind == ParsedRecord::Kind::Ids) {
        parsed.problem = RecordProblem::FieldNotText;
        parsed.detail = "a list of ids, but sentences are found in text";
      }
      if (parsed.problem != RecordProblem::None) {
        piece.dropped.push_back({parsed.problem, place, parsed.detail});
      } else {
        add_text(parsed.text, piece);
      }
      record = {};
    }
    return piece;
  }

 private:
  void add_text(const std::string& text, EncodedPiece& piece) const {
    bool any = false;
    for (const auto& sentences : split_documents(text, options_.sentences)) {
      uint32_t count = 0;
      for (const std::string_view sentence : sentences) count += add(sentence, piece);
      if (count > 0) piece.documents.document_sentences.push_back(count);
      any = any || count > 0;
    }
    piece.empty_documents += any ? 0 : 1;
  }

  /// Sentences that it became: more than one where it was too long, none without a token.
  uint32_t add(std::string_view sentence, EncodedPiece& piece) const {
    std::vector<tokenizer::TokenId>& tokens = piece.documents.tokens;
    const size_t begin = tokens.size();
    tokenizer_.encode(sentence, false, tokens);
    for (size_t i = begin; i < tokens.size(); ++i) {
      LH_CHECK(tokens[i] < special_.size(), "data", "the tokenizer made id {} of {}",
               tokens[i], special_.size());
      piece.special_in_text += special_[tokens[i]];
    }
    const auto longest = static_cast<size_t>(options_.longest_sentence);
    uint32_t pieces = 0;
    for (size_t at = begin; at < tokens.size(); at += longest, ++pieces) {
      piece.documents.sentence_tokens.push_back(
          static_cast<uint32_t>(std::min(longest, tokens.size() - at)));
    }
    piece.cut_sentences += pieces > 1 ? 1 : 0;
    return pieces;
  }

  const InputSet& inputs_;
  const tokenizer::Tokenizer& tokenizer_;
  const std::vector<uint8_t>& special_;
  const ReadDocumentsOptions& options_;
};

/// Takes encoded pieces in order.
class Collector {
 public:
  Collector(const InputSet& inputs, const ReadDocumentsOptions& options, SpoolWriter& out)
      : inputs_(inputs), options_(options), out_(out) {}

  void take(const EncodedPiece& piece) {
    for (const Dropped& dropped : piece.dropped) {
      const std::string place = inputs_.describe(dropped.place);
      if (options_.bad_records == BadRecords::Fail &&
          dropped.problem != RecordProblem::Empty) {
        fail_record(place, dropped.problem, dropped.detail);
      }
      report.dropped.add(dropped.problem, {place, dropped.detail});
    }
    if (report.dropped.bad() > options_.max_bad_records) {
      throw InputError("data", fmt::format("{} bad records, at most {} are let pass: {}"
                                           "look at them, or allow more with "
                                           "--max-bad-records",
                                           report.dropped.bad(), options_.max_bad_records,
                                           report.dropped.in_one_line()));
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
    }
  }
  ReadDocumentsReport report;

 private:
  const InputSet& inputs_;
  const ReadDocumentsOptions& options_;
  SpoolWriter& out_;
};

std::vector<RawRecord> next_piece(RecordReader& reader) {
  std::vector<RawRecord> records;
  uint64_t bytes = 0;
  RawRecord record;
  while (bytes < kPieceBytes && records.size() < kMaxPieceRecords &&
         reader.next(record)) {
    bytes += record.memory_bytes();
    records.push_back(std::move(record));
    record = {};
  }
  return records;
}

}  // namespace

ReadDocumentsReport read_documents(const InputSet& inputs,
                                   const tokenizer::Tokenizer& tokenizer,
                                   const std::vector<uint8_t>& special_ids,
                                   const ReadDocumentsOptions& options,
                                   SpoolWriter& out) {
  LH_CHECK(options.longest_sentence >= 1 && options.threads >= 1, "data",
           "sentences of {} tokens on {} threads", options.longest_sentence,
           options.threads);
  const Encoder encoder(inputs, tokenizer, special_ids, options);
  Collector collector(inputs, options, out);
  OrderedWorkers<std::vector<RawRecord>, EncodedPiece> workers(
      options.threads,
      [&encoder](std::vector<RawRecord>& records) { return encoder.encode(records); });
  const auto most = 2 * static_cast<size_t>(options.threads) + 2;
  uint64_t bytes_before = 0;
  for (const InputPart& part : inputs.parts(kPartBytes)) {
    const auto reader = inputs.open(part);
    for (auto piece = next_piece(*reader); !piece.empty(); piece = next_piece(*reader)) {
      workers.push(std::move(piece));
      if (workers.pending() >= most) collector.take(workers.pop());
      if (options.progress) {
        options.progress(bytes_before + reader->bytes_read(), inputs.stored_bytes());
      }
    }
    bytes_before += part.stored_bytes;
    collector.add_sources(reader->finished());
  }
  while (workers.pending() > 0) collector.take(workers.pop());
  collector.report.counts = out.counts();
  return std::move(collector.report);
}

}  // namespace longhaul::data
