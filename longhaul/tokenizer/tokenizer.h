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

/// Turns text into ids and back, exactly as Hugging Face tokenizers does with the same
/// tokenizer.json, or sentencepiece with the same tokenizer.model. Immutable after
/// loading; many threads may call encode and decode at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Loads a tokenizer.json, a SentencePiece `.model`, or the first of these in a
  /// directory. Throws InputError that names the component that is not supported, or the
  /// byte at which the file is wrong.
  static std::unique_ptr<Tokenizer> load(const fs::path& path);

  /// Appends the ids of `text` to `out`. With special tokens the post-processor's rule is
  /// applied (for example Llama-3's BOS). Added tokens in the text become their ids in
  /// either case, as in Hugging Face. Throws InputError with the byte offset if `text` is
  /// not valid UTF-8.
  virtual void encode(std::string_view text, bool add_special_tokens,
                      std::vector<TokenId>& out) const = 0;
  std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const;

  /// Returns the text of Hugging Face's decode; invalid UTF-8 becomes U+FFFD.
  virtual std::string decode(const std::vector<TokenId>& ids,
                             bool skip_special_tokens) const = 0;
  /// Returns the bytes that a token adds to the text when it follows other tokens. For an
  /// added token these are its text. Use StreamDecoder to show text token by token.
  virtual std::string token_bytes(TokenId id) const = 0;

  /// Returns the bound of all ids, those of the model and of added tokens.
  virtual int64_t vocab_size() const = 0;
  virtual std::optional<TokenId> token_to_id(std::string_view token) const = 0;
  virtual std::optional<std::string> id_to_token(TokenId id) const = 0;

  /// Returns what the post-processor puts before or after a single text.
  virtual std::vector<TokenId> special_prefix() const = 0;
  virtual std::vector<TokenId> special_suffix() const = 0;
  /// Returns the bos or eos token of tokenizer_config.json or special_tokens_map.json
  /// beside the file, else of generation_config.json or config.json, else nothing.
  virtual std::optional<TokenId> bos_id() const = 0;
  virtual std::optional<TokenId> eos_id() const = 0;

  /// Returns a hash of everything that decides the ids, the same for equal tokenizers.
  virtual const std::string& fingerprint() const = 0;
  /// Returns a sentence for each way in which AutoTokenizer of transformers would differ
  /// because of the files beside the tokenizer's own file. Programs that tokenize text
  /// show these.
  virtual const std::vector<std::string>& warnings() const = 0;
  /// Returns the file that was read, then the tokenizer's other files (settings, added
  /// tokens, chat templates: format/side_files.h), all of which copy_tokenizer_files
  /// copies.
  virtual const std::vector<fs::path>& files() const = 0;
};

/// Returns the ids of a text that a model is to continue, with the special tokens that
/// stand in front of a text if `add_special_tokens` asks for them. Throws InputError of
/// `area` for ids past `vocab_size`, which are those of another model's tokenizer.
std::vector<int64_t> prompt_ids(const std::string& area, const Tokenizer& tokenizer,
                                std::string_view text, int64_t vocab_size,
                                bool add_special_tokens);

/// Copies a tokenizer's files durably into a directory, which is created, and returns
/// their names there. The name of a file in a folder includes the folder.
std::vector<std::string> copy_tokenizer_files(const Tokenizer& tokenizer,
                                              const fs::path& dir);

/// Returns the tokenizer's own file in a directory: tokenizer.json, else tokenizer.model
/// or another published name of SentencePiece files.
std::optional<fs::path> find_tokenizer_file(const fs::path& dir);

/// Returns why a directory's SentencePiece model cannot be read, if it is cut short or
/// corrupt. Returns an empty text if there is none or if it is whole, even if its kind is
/// not supported. side_file_problems finds damage of a tokenizer.json.
std::string damaged_tokenizer(const fs::path& dir);

}  // namespace longhaul::tokenizer
