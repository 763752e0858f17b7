#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/data/store/token_store.h"

namespace longhaul::data {

/// How a store's documents become rows of whole documents.
struct WholeRows {
  int64_t seq_len = 0;  ///< positions of a row, at most 10^9
  /// Cuts a document that is longer than a row; else leaves it out. Each side of a pair
  /// that does not fit then keeps at most seq_len / 2 tokens.
  bool cut = false;
  fs::path cache;  ///< the directory where plans are kept; empty: plans are not kept
  bool keeps_new = true;  ///< whether a plan goes into the cache that lacks it
};

/// The tokens [begin, begin + tokens) of a store, which stand in a row.
struct RowPart {
  int64_t begin = 0;
  int64_t tokens = 0;
};

/// What a store's rows are made of: its documents, or in a store of pairs its pairs,
/// whose sides are the documents 2 i and 2 i + 1. Immutable; any thread may read.
class RowUnits {
 public:
  /// Throws InputError if the store has too many units. The store must outlive this
  /// object.
  RowUnits(const TokenStore& store, const WholeRows& how);

  int64_t size() const { return store_.info().documents / sides_; }
  /// Returns the number of documents in a unit.
  size_t sides() const { return sides_; }
  const char* word() const { return sides_ == 2 ? "pair" : "document"; }
  /// Returns how many tokens a unit has in the store, and the part of each side that a
  /// row would hold, which is empty if the unit is too long for a row. Throws InputError
  /// for a store with damaged ends of documents.
  struct Unit {
    int64_t tokens = 0;
    std::array<RowPart, 2> kept = {};
    int64_t num_kept() const { return kept[0].tokens + kept[1].tokens; }
  };
  Unit at(int64_t number) const;
  /// Returns whether each side has a target among its kept tokens. A side's first token
  /// is no target, whatever the store says, since no token of the side comes before it.
  bool has_targets(const Unit& unit) const;

 private:
  const TokenStore& store_;
  WholeRows how_;
  size_t sides_;
};

/// The row of what is in no row.
inline constexpr uint32_t kNoRow = UINT32_MAX;

/// Returns the row of each item by best fit decreasing: the items are taken from the
/// longest to the shortest, and of equally long ones the first comes first. Each goes
/// to a row where the least room remains afterwards, or to a new row if it fits nowhere.
/// Rows are numbered by their first item. `lengths` are at most `room`; an item of length
/// 0 is in no row. For n items it takes O(n log n) time.
std::vector<uint32_t> best_fit_rows(std::span<const int32_t> lengths, int64_t room);

/// What a plan counts.
struct RowCounts {
  int64_t rows = 0;
  int64_t units = 0;   ///< documents, or pairs, in rows
  int64_t tokens = 0;  ///< tokens in rows; all other positions are padding
  struct Some {
    int64_t count = 0;
    int64_t first = 0;  ///< the number of the first of them
  };
  Some too_long;  ///< units left out since they are longer than a row
  Some no_target;
  Some cut;
  int64_t tokens_cut = 0;
  bool operator==(const RowCounts&) const = default;
};

/// What to do about a plan that does not fit its store; the end of a message.
inline constexpr std::string_view kRemovePlan =
    "remove the file, and the next start makes the plan anew";

/// Says which documents stand in which row. The plan follows from the store's tokens and
/// WholeRows alone, so it is the same on all machines. Immutable; any thread may read.
class RowPlan {
 public:
  /// Takes the plan from the cache, or makes it and, with keeps_new, puts it there. A
  /// file that is damaged or belongs to another plan is replaced. Processes that make a
  /// plan at the same time make the same file, and each renames a whole one. Making it
  /// reads where the documents end and which tokens are targets. It takes at most 32
  /// bytes of memory a unit, and 64 bytes for each position of a row. A kept plan is
  /// mapped, and its hash is compared.
  RowPlan(const RowUnits& units, const TokenStore& store, const WholeRows& how);

  const RowCounts& counts() const { return counts_; }
  /// Returns the units of a row in ascending order.
  std::span<const uint32_t> units_of(int64_t row) const;
  /// Returns a hash of the store's fingerprint and of WholeRows without the cache.
  const std::string& key() const { return key_; }
  /// Returns the file in the cache; empty if the plan is not there.
  const fs::path& file() const { return file_; }

 private:
  /// Takes the content of a file, which `owner` keeps. Returns false, and takes nothing,
  /// unless it is this plan's and whole.
  bool take(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

  std::string key_;
  fs::path file_;
  std::shared_ptr<const void> owner_;  ///< of what the spans show
  RowCounts counts_;
  std::span<const uint32_t> ends_;   ///< by row, the place behind its last unit
  std::span<const uint32_t> units_;  ///< of all rows, one row after another
};

}  // namespace longhaul::data
