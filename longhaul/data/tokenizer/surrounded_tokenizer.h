#pragma once

#include <vector>

#include "longhaul/data/tokenizer/tokenizer.h"

namespace longhaul::data {

/// Which tokens open and close a document, and the files that say so.
struct TokenizerSurroundings {
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::vector<fs::path> files;
};

/// A tokenizer that is told what lies beside its file.
class SurroundedTokenizer : public Tokenizer {
 public:
  void set_surroundings(TokenizerSurroundings around) { around_ = std::move(around); }

  std::optional<TokenId> bos_id() const override { return around_.bos; }
  std::optional<TokenId> eos_id() const override { return around_.eos; }
  const std::vector<fs::path>& files() const override { return around_.files; }

 private:
  TokenizerSurroundings around_;
};

/// Reads the files beside a tokenizer's own file.
TokenizerSurroundings read_surroundings(const fs::path& file, const Tokenizer& tokenizer);

}  // namespace longhaul::data
