#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::tokenizer {

using TokenId = uint32_t;

/// Text to ids and back, exactly as Hugging Face tokenizers does it with the same
/// tokenizer.json, or sentencepiece with the same tokenizer.model. Immutable after
/// loading; encode and decode may be called from many threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// `path`: a tokenizer.json, a SentencePiece `.model`, or a directory that holds one of
  /// them (tokenizer.json counts first). InputError names the component that is not
  /// supported or the byte where the file is wrong.
  static std::unique_ptr<Tokenizer> load(const fs::path& path);

  /// Appends the ids of `text` to `out`. With special tokens the post-processor's own
  /// rule is applied (for example Llama-3's BOS). Added tokens found in the text become
  /// their ids in either case, as in Hugging Face. `text` is valid UTF-8; else InputError
  /// with the byte offset.
  virtual void encode(std::string_view text, bool add_special_tokens,
                      std::vector<TokenId>& out) const = 0;
  std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const;

  /// As Hugging Face's decode (invalid UTF-8 becomes U+FFFD).
  virtual std::string decode(const std::vector<TokenId>& ids,
                             bool skip_special_tokens) const = 0;
  /// The bytes that one token adds behind others (added tokens: their text). Text that is
  /// shown token by token comes from a StreamDecoder.
  virtual std::string token_bytes(TokenId id) const = 0;

  /// Ids are below this: model vocabulary and added tokens.
  virtual int64_t vocab_size() const = 0;
  virtual std::optional<TokenId> token_to_id(std::string_view token) const = 0;
  virtual std::optional<std::string> id_to_token(TokenId id) const = 0;

  /// What the post-processor puts before and after a single text.
  virtual std::vector<TokenId> special_prefix() const = 0;
  virtual std::vector<TokenId> special_suffix() const = 0;
  /// The tokens that tokenizer_config.json or special_tokens_map.json beside the file
  /// call bos and eos, else those of generation_config.json or config.json; nothing if
  /// none does.
  virtual std::optional<TokenId> bos_id() const = 0;
  virtual std::optional<TokenId> eos_id() const = 0;

  /// A hash of everything that decides the ids: equal for equal tokenizers.
  virtual const std::string& fingerprint() const = 0;
  /// What AutoTokenizer of transformers would do otherwise because of what stands beside
  /// the file, a sentence for each: for whoever makes ids of text to say.
  virtual const std::vector<std::string>& warnings() const = 0;
  /// The file that was read, first, and the tokenizer's other files around it (settings,
  /// added tokens, chat templates: format/side_files.h), to be carried along by
  /// copy_tokenizer_files.
  virtual const std::vector<fs::path>& files() const = 0;
};

/// Copies a tokenizer's files into a directory, which is made: their names there, with a
/// folder where they lie in one. All of it is durable.
std::vector<std::string> copy_tokenizer_files(const Tokenizer& tokenizer,
                                              const fs::path& dir);

/// The tokenizer's own file in a directory: tokenizer.json, else tokenizer.model (or one
/// of the other names that SentencePiece files are published under).
std::optional<fs::path> find_tokenizer_file(const fs::path& dir);

/// Why nobody can read the tokenizer's own file of a directory: a SentencePiece model
/// that is cut short or corrupt. Empty where there is none, and where it is whole, also
/// if it is of a kind that is not supported here. Damage of a tokenizer.json shows in its
/// grammar (side_file_problems).
std::string damaged_tokenizer(const fs::path& dir);

}  // namespace longhaul::tokenizer
