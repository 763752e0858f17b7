#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "longhaul/tokenizer/pieces/merge_rules.h"
#include "longhaul/tokenizer/pieces/piece_cache.h"
#include "longhaul/tokenizer/pieces/vocabulary.h"
#include "longhaul/tokenizer/tables/byte_trie.h"

namespace longhaul::tokenizer {

/// Turns one piece of pre-tokenized text into ids. Immutable; any number of threads may
/// use a model.
class PieceModel {
 public:
  virtual ~PieceModel() = default;
  /// Returns the end of the first word of a piece. The words of a piece are encoded one
  /// by one.
  virtual size_t word_end(std::string_view piece) const { return piece.size(); }
  /// Appends the ids of a word, which is valid UTF-8 and not empty. Throws InputError for
  /// a character that the vocabulary cannot express.
  virtual void encode_word(std::string_view word, std::vector<uint32_t>& out) const = 0;
};

/// A model with a cache. For one thread; must not outlive the model.
class PieceSession {
 public:
  explicit PieceSession(const PieceModel& model) : model_(model) {}
  /// Appends the ids of a piece, as encode_word() does for its words.
  void encode(std::string_view piece, std::vector<uint32_t>& out) {
    while (!piece.empty()) {
      const std::string_view word = piece.substr(0, model_.word_end(piece));
      piece.remove_prefix(word.size());
      if (cache_.append(word, out)) continue;
      const size_t start = out.size();
      model_.encode_word(word, out);
      cache_.add(word, out, start);
    }
  }

 private:
  const PieceModel& model_;
  PieceCache cache_;
};

/// The parts of a character-level BPE. The reader has checked ids and merges.
struct CharBpeSpec {
  Vocabulary vocab;
  struct RankedMerge {
    Merge merge;
    uint32_t rank;
  };
  std::vector<RankedMerge> merges;
  std::optional<uint32_t> unknown;
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  /// Ids below this are the vocabulary's own. Ids from here on stand for characters that
  /// merge but are no tokens; such a character is unknown if no merge takes it.
  uint32_t token_count = UINT32_MAX;
};

/// BPE over characters, as SentencePiece trains it (Llama-2, Mistral, T5-like BPE).
class CharBpeModel final : public PieceModel {
 public:
  explicit CharBpeModel(const CharBpeSpec& spec);
  size_t word_end(std::string_view piece) const override;
  void encode_word(std::string_view word, std::vector<uint32_t>& out) const override;

 private:
  void add_symbols(std::string_view word, std::vector<uint32_t>& out) const;
  void resolve_leftovers(std::vector<uint32_t>& out, size_t start) const;
  void find_word_starts(const CharBpeSpec& spec);
  std::optional<uint32_t> char_id(uint32_t code_point) const;

  MergeRules rules_;
  FlatMap<uint32_t> chars_;  // code point -> id
  std::unordered_map<std::string, uint32_t> wholes_;
  ByteTokens bytes_;
  std::optional<uint32_t> unknown_;
  bool fuse_unknown_;
  bool byte_fallback_;
  uint32_t token_count_;
  std::vector<std::string> leftovers_;  // texts of the ids from token_count_ on
  bool words_apart_ = false;
};

struct UnigramSpec {
  struct Entry {
    std::string token;
    double score = 0;
    bool matches = true;        ///< false for control, unused and byte entries
    bool user_defined = false;  ///< always preferred, as SentencePiece does
  };
  std::vector<Entry> entries;  ///< by id
  std::optional<uint32_t> unknown;
  bool byte_fallback = false;
  /// Whether to use SentencePiece's arithmetic, which adds scores in single precision and
  /// restarts from zero if the sum gets large. The score of an unknown character follows
  /// from the least score of entries that match and are not user-defined. Hugging Face
  /// adds in double precision and takes the least score of all entries.
  bool single_precision = false;
};

/// A Unigram model: the ids are the path of tokens with the highest sum of scores.
class UnigramModel final : public PieceModel {
 public:
  explicit UnigramModel(const UnigramSpec& spec);
  void encode_word(std::string_view word, std::vector<uint32_t>& out) const override;

 private:
  /// The best way to the end of a prefix.
  struct Best {
    double score = 0;
    size_t start = SIZE_MAX;
    uint32_t id = 0;
  };
  void find_paths(std::string_view piece, std::vector<Best>& best) const;
  static void begin_anew(std::vector<Best>& best, size_t pos, size_t reached);
  void offer(Best& target, double score, size_t start, uint32_t id) const;
  void add_unknown(std::string_view text, std::vector<uint32_t>& out) const;
  double score_of(uint32_t id, size_t bytes) const;

  std::vector<double> scores_;
  std::vector<bool> user_defined_;
  std::unordered_map<std::string, uint32_t> ids_;
  ByteTrie trie_;
  ByteTokens bytes_;
  std::optional<uint32_t> unknown_;
  bool byte_fallback_;
  bool single_precision_;
  double unknown_score_ = 0;
};

struct WordPieceSpec {
  Vocabulary vocab;
  uint32_t unknown = 0;
  std::string prefix = "##";  ///< prefix of entries inside a word
  uint64_t max_chars = 100;   ///< longer words are unknown
};

/// A WordPiece model: takes the longest entry again and again. A word that cannot be
/// covered in this way is one unknown token.
class WordPieceModel final : public PieceModel {
 public:
  explicit WordPieceModel(const WordPieceSpec& spec);
  void encode_word(std::string_view word, std::vector<uint32_t>& out) const override;

 private:
  ByteTrie starts_;  // entries that may begin a word
  ByteTrie inside_;  // entries that may continue a word, without their prefix
  uint32_t unknown_;
  uint64_t max_chars_;
};

}  // namespace longhaul::tokenizer
