#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/data/tokenizer/flat_maps.h"
#include "longhaul/data/tokenizer/merge_rules.h"

namespace longhaul::data {

/// What tokenizer.json says about the model; ids and merges are checked by the reader.
struct BpeSpec {
  /// Entries as written, by id; holes are empty optionals.
  std::vector<std::optional<std::string>> vocab;
  std::vector<Merge> merges;  ///< by rank
  std::optional<uint32_t> unknown;
  bool fuse_unknown = false;
  bool ignore_merges = false;
};

/// Byte-level BPE of one piece. Immutable; any number of threads.
class BpeModel {
 public:
  explicit BpeModel(const BpeSpec& spec);

  /// What one call of encode keeps between pieces: scratch memory and a cache of the
  /// pieces that are not one token. Not shared between threads.
  class Session {
   public:
    explicit Session(const BpeModel& model) : model_(model) {}
    /// Appends the ids of a piece. InputError: a byte that the vocabulary lacks.
    void encode(std::string_view piece, std::vector<uint32_t>& out);

   private:
    struct Entry {
      uint64_t hash = 0;
      uint32_t key = 0;
      uint32_t key_size = 0;
      uint32_t ids = 0;
      uint32_t id_count = 0;
    };
    void remember(Entry& entry, uint64_t hash, std::string_view piece,
                  const uint32_t* ids, size_t count);
    const BpeModel& model_;
    std::vector<Entry> entries_;
    std::string keys_;
    std::vector<uint32_t> ids_;
  };

 private:
  struct Whole {
    uint64_t hash = 0;
    uint32_t start = 0;
    uint32_t size = 0;  // 0: an empty slot
    uint32_t id = 0;
  };

  std::optional<uint32_t> whole(std::string_view piece, uint64_t hash) const;
  void add_whole(std::string_view bytes, uint32_t id);
  void add_symbols(std::string_view piece, std::vector<uint32_t>& out) const;

  MergeRules rules_;
  std::array<std::optional<uint32_t>, 256> bytes_;
  std::optional<uint32_t> unknown_;
  bool fuse_unknown_;
  std::vector<Whole> wholes_;
  std::string whole_text_;
};

}  // namespace longhaul::data
