#include "longhaul/data/store/build_store.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/store/ordered_workers.h"
#include "longhaul/data/store/store_writer.h"

namespace longhaul::data {
namespace {

/// Raw text that one worker takes at a time.
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
/// Any constant will do; it must never change, or holdouts would.
constexpr uint64_t kHoldoutSeed = 0x6C6F6E676861756CULL;

struct Piece {
  std::vector<RawRecord> records;
};

struct EncodedDocument {
  size_t tokens = 0;
  uint64_t text_bytes = 0;
  bool held_out = false;
};

struct Dropped {
  RecordProblem problem;
  int file;
  int64_t line;
  std::string detail;
};

struct EncodedPiece {
  std::vector<TokenId> tokens;
  std::vector<EncodedDocument> documents;
  std::vector<Dropped> dropped;
  int64_t special_in_text = 0;
};

class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, const BuildOptions& options)
      : tokenizer_(tokenizer),
        field_(options.field),
        special_(resolve_special_tokens(tokenizer, options.special)),
        bos_(tokenizer.bos_id()),
        eos_(tokenizer.eos_id()),
        holdout_below_(
            static_cast<uint64_t>(std::ldexp(std::min(options.holdout, 0.9999), 64))) {}

  const SpecialTokens& special() const { return special_; }

  EncodedPiece encode(Piece& piece) const {
    EncodedPiece result;
    for (RawRecord& record : piece.records) {
      const ParsedRecord parsed = parse_record(record, field_);
      if (parsed.problem != RecordProblem::None) {
        result.dropped.push_back(
            {parsed.problem, record.file, record.line, parsed.detail});
        continue;
      }
      add(parsed.text, result);
      record.bytes = {};
    }
    return result;
  }

 private:
  void add(const std::string& text, EncodedPiece& result) const {
    std::vector<TokenId>& tokens = result.tokens;
    const size_t begin = tokens.size();
    tokens.insert(tokens.end(), special_.before.begin(), special_.before.end());
    const size_t inside = tokens.size();
    tokenizer_.encode(text, false, tokens);
    for (size_t i = inside; i < tokens.size(); ++i) {
      if (tokens[i] == bos_ || tokens[i] == eos_) ++result.special_in_text;
    }
    tokens.insert(tokens.end(), special_.after.begin(), special_.after.end());
    const bool held_out =
        XXH3_64bits_withSeed(text.data(), text.size(), kHoldoutSeed) < holdout_below_;
    result.documents.push_back({tokens.size() - begin, text.size(), held_out});
  }

  const Tokenizer& tokenizer_;
  std::string field_;
  SpecialTokens special_;
  std::optional<TokenId> bos_;
  std::optional<TokenId> eos_;
  uint64_t holdout_below_;
};

/// Writes encoded pieces in order.
class Builder {
 public:
  Builder(const Tokenizer& tokenizer, const BuildOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        reader_(options.files),
        encoder_(tokenizer, options),
        train_(options.out, tokenizer, options.force, options.tokens_per_shard) {
    if (options.holdout > 0) {
      validation_ = std::make_unique<StoreWriter>(
          holdout_path(train_.out()), tokenizer, options.force, options.tokens_per_shard);
    }
  }

  BuildReport run() {
    const int threads =
        options_.threads > 0
            ? options_.threads
            : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    OrderedWorkers<Piece, EncodedPiece> workers(
        threads, [this](Piece& piece) { return encoder_.encode(piece); });
    const auto most = 2 * static_cast<size_t>(threads) + 2;
    for (Piece piece = next_piece(); !piece.records.empty(); piece = next_piece()) {
      workers.push(std::move(piece));
      if (workers.pending() >= most) write(workers.pop());
    }
    while (workers.pending() > 0) write(workers.pop());
    check_not_empty();
    return finish();
  }

 private:
  Piece next_piece() {
    Piece piece;
    uint64_t bytes = 0;
    RawRecord record;
    while (bytes < kPieceBytes && reader_.next(record)) {
      bytes += record.bytes.size() + 1;
      piece.records.push_back(std::move(record));
    }
    return piece;
  }

  void write(const EncodedPiece& piece) {
    for (const Dropped& dropped : piece.dropped) {
      const std::string place = record_place(reader_.files(), dropped.file, dropped.line);
      if (options_.bad_records == BadRecords::Fail &&
          dropped.problem != RecordProblem::Empty) {
        fail_record(place, dropped.problem, dropped.detail);
      }
      dropped_.add(dropped.problem, {place, dropped.detail});
    }
    std::span<const TokenId> rest = piece.tokens;
    for (const EncodedDocument& document : piece.documents) {
      const auto tokens = rest.first(document.tokens);
      rest = rest.subspan(document.tokens);
      if (tokens.empty()) {
        dropped_.add(RecordProblem::Empty, {"a text without tokens", {}});
      } else {
        (document.held_out ? *validation_ : train_).add(tokens, document.text_bytes);
      }
    }
    special_in_text_ += piece.special_in_text;
    if (options_.progress) {
      options_.progress(reader_.bytes_read(), reader_.total_bytes(),
                        train_.tokens() + (validation_ ? validation_->tokens() : 0));
    }
  }

  void check_not_empty() const {
    const int64_t held_out = validation_ ? validation_->documents() : 0;
    if (train_.documents() + held_out == 0) {
      throw InputError("data", fmt::format("{} files hold no document with text; {}name "
                                           "files that do",
                                           options_.files.size(), dropped_.describe()));
    }
    if (validation_ && (held_out == 0 || train_.documents() == 0)) {
      throw InputError(
          "data",
          fmt::format("a holdout of {}% of {} documents left one side empty ({} held "
                      "out); choose another --holdout",
                      options_.holdout * 100, train_.documents() + held_out, held_out));
    }
  }

  StoreInfo known(const std::string& selection) const {
    StoreInfo info;
    info.special_tokens = encoder_.special().description;
    info.selection = selection;
    info.special_tokens_in_text = special_in_text_;
    for (const SourceFile& file : reader_.finished()) {
      info.origins.push_back({file.path.string(), file.bytes, file.hash, file.records});
    }
    for (const auto& [problem, count] : dropped_.counts) {
      info.dropped[std::string(problem_name(problem))] = count;
    }
    return info;
  }

  BuildReport finish() {
    const double percent = options_.holdout * 100;
    if (validation_) {
      validation_->finish(
          known(fmt::format("the {}% of the documents held out", percent)));
      train_.finish(known(fmt::format("all documents but the {}% held out", percent)));
      validation_->commit();
    } else {
      train_.finish(known("all documents"));
    }
    train_.commit();
    BuildReport report;
    report.train_path = train_.out();
    report.train = read_store_info(train_.out());
    if (validation_) {
      report.validation_path = validation_->out();
      report.validation = read_store_info(validation_->out());
    }
    report.dropped = std::move(dropped_);
    return report;
  }

  const Tokenizer& tokenizer_;
  const BuildOptions& options_;
  RecordReader reader_;
  Encoder encoder_;
  StoreWriter train_;
  std::unique_ptr<StoreWriter> validation_;
  DroppedRecords dropped_;
  int64_t special_in_text_ = 0;
};

}  // namespace

fs::path holdout_path(const fs::path& out) {
  fs::path path = out.has_filename() ? out : out.parent_path();
  path += "-val";
  return path;
}

BuildReport build_store(const Tokenizer& tokenizer, const BuildOptions& options) {
  LH_CHECK(options.holdout >= 0.0 && options.holdout < 1.0, "data", "holdout of {}",
           options.holdout);
  if (options.files.empty()) throw InputError("data", "no input files; name some");
  return Builder(tokenizer, options).run();
}

}  // namespace longhaul::data
