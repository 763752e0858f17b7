#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "longhaul/data/store/store.h"
#include "longhaul/data/tokenizer/tokenizer.h"

namespace longhaul::data {

/// Writes a token store in a temporary directory beside its place and moves it there at
/// the end: a store is complete or absent. Without commit() the temporary directory is
/// removed. Not thread-safe.
class StoreWriter {
 public:
  /// `replace`: a token store that stands at `out` is replaced by commit(). InputError
  /// when something stands there otherwise; anything but a token store is never replaced.
  StoreWriter(fs::path out, const Tokenizer& tokenizer, bool replace,
              int64_t tokens_per_shard = int64_t{1} << 29);
  ~StoreWriter();
  StoreWriter(StoreWriter&&) noexcept;

  /// One document: its tokens (at least one), special tokens included.
  void add(std::span<const TokenId> tokens, uint64_t text_bytes);
  int64_t tokens() const;
  int64_t documents() const;

  /// Ends all files and makes them durable. `info` brings what the writer cannot know:
  /// special_tokens, selection, origins, dropped, special_tokens_in_text.
  void finish(StoreInfo info);
  /// Moves the finished store to its place.
  void commit();
  const fs::path& out() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::data
