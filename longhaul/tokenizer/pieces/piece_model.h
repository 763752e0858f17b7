#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace longhaul::tokenizer {

/// Turns one piece of pre-tokenized text into ids. Immutable; any number of threads may
/// use a model.
class PieceModel {
 public:
  virtual ~PieceModel() = default;

  /// The caches and scratch memory of one call of encode. For one thread; must not
  /// outlive the model.
  class Session {
   public:
    virtual ~Session() = default;
    /// Appends the ids of a piece, which is valid UTF-8 and not empty. Throws InputError
    /// for a character that the vocabulary cannot express.
    virtual void encode(std::string_view piece, std::vector<uint32_t>& out) = 0;
  };
  virtual std::unique_ptr<Session> session() const = 0;
};

}  // namespace longhaul::tokenizer
