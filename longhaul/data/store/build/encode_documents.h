#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/chat/chat_encoder.h"
#include "longhaul/data/store/build/build_store.h"
#include "longhaul/data/store/build/pieces.h"
#include "longhaul/data/store/build/shard_writer.h"
#include "longhaul/data/store/special_tokens.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// A record that was left out as broken.
struct BadRecord {
  RecordPlace place;
  RecordProblem problem = RecordProblem::None;
  std::string detail;
};

/// How often a part has what chat::Finding names, and where first.
struct ChatFinding {
  int64_t count = 0;
  RecordPlace first;
};
using ChatFindings = std::array<ChatFinding, chat::kFindings>;
/// Adds what stands behind the others in the order of the input.
void add_findings(ChatFindings& to, const ChatFindings& more);

/// The encoded documents of a piece, which a worker makes.
struct EncodedPiece {
  explicit EncodedPiece(int token_bytes)
      : sides{ShardPiece(token_bytes), ShardPiece(token_bytes)} {}
  Sides<ShardPiece> sides;
  std::vector<BadRecord> bad;
  std::vector<int> files;                     ///< files of which a record was used
  std::map<RecordProblem, int64_t> left_out;  ///< bad and empty records by cause
  int64_t duplicates = 0;
  int64_t padding = 0;
  int64_t tokens = 0;
  /// The beginning of the first document that is text.
  std::optional<std::string> first_text;
  ChatFindings findings;
};

/// A hash of 128 bits of a document's content; 0 for a record without a document.
struct ContentHash {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const ContentHash&) const = default;
};

/// One bit for each record of a part: 1 when the record is left out as a duplicate.
using DuplicateBits = std::vector<uint64_t>;

/// Makes a store's documents from records, for the workers of a build. Immutable; any
/// thread may call it.
class DocumentEncoder {
 public:
  /// `tokenizer` may be null. Then only records of token ids are documents. `inputs` must
  /// outlive this object.
  DocumentEncoder(const tokenizer::Tokenizer* tokenizer, const InputOptions& inputs,
                  const BuildOptions& options);

  /// Returns the policy for special tokens in words.
  const std::string& special_description() const { return special_.description; }
  int token_bytes() const { return token_bytes_; }
  int64_t vocab_size() const { return vocab_size_; }

  /// Encodes the records of a piece without the records that `duplicates` marks.
  /// `duplicates` may be null.
  EncodedPiece encode(Piece& piece, const DuplicateBits* duplicates) const;
  /// Returns a hash of the document of each record of the piece.
  std::vector<ContentHash> hash(Piece& piece) const;

 private:
  ParsedRecord parse(RawRecord& record) const;
  /// Reads the record in parsed.text. Returns nothing where it is broken, and sets
  /// parsed.problem.
  static std::optional<chat::ChatRecord> parse_chat(ParsedRecord& parsed);
  /// Adds a chat, or both sides of a pair, or sets parsed.problem.
  void add_chat(ParsedRecord& parsed, const RecordPlace& place,
                EncodedPiece& result) const;
  /// Returns what the tokenizer cannot express; empty if the text was added.
  std::string add_text(const std::string& text, const RecordPlace& place,
                       EncodedPiece& result) const;
  void refuse_ids_with_option_of_texts() const;
  void add_ids(const ParsedRecord& parsed, const RecordPlace& place,
               EncodedPiece& result) const;
  bool is_held_out(std::string_view content) const;

  const tokenizer::Tokenizer* tokenizer_;
  const InputOptions& inputs_;
  std::unique_ptr<const chat::ChatEncoder> chats_;  // null: records are no chats
  SpecialTokens special_;
  bool newlines_to_spaces_;
  std::string option_of_texts_;  ///< what ready ids cannot obey; empty: nothing
  std::optional<tokenizer::TokenId> bos_;
  std::optional<tokenizer::TokenId> eos_;
  int64_t vocab_size_;
  int token_bytes_;
  uint64_t holdout_below_;
};

}  // namespace longhaul::data
