#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/format/shard_plan.h"

namespace longhaul {

// What a unit's forward leaves for its backward: a list of tensors, which UnitMaker
// (families/unit_maker.h) makes from the same calls that declare the unit's parameters.
// It follows the forms of ops/; a test compares it with what a run allocates.

/// What a kept tensor is a part of.
enum class KeptKind {
  Input,        ///< of the unit: the activation that came from the one before
  Norms,        ///< statistics, normed values and results
  Attention,    ///< queries, keys, values, rotations, result, log-sum-exp
  FeedForward,  ///< inner features and their products
  Head,         ///< the gradient of the head's input, which its forward forms
  PutOff,       ///< what weight gradients that are put off need
  Batch,        ///< targets
};
inline constexpr size_t kKeptKinds = 7;
/// "attention" ...
const char* kept_name(KeptKind kind);

/// Bytes by kind.
class KeptBytes {
 public:
  int64_t& operator[](KeptKind kind) { return bytes_[static_cast<size_t>(kind)]; }
  int64_t operator[](KeptKind kind) const { return bytes_[static_cast<size_t>(kind)]; }
  KeptBytes& operator+=(const KeptBytes& other);
  int64_t total() const;
  bool operator==(const KeptBytes&) const = default;

 private:
  std::array<int64_t, kKeptKinds> bytes_{};
};

/// In which form a forward runs: what [run], [memory] and [precision] decide.
struct ForwardForm {
  enum class Recompute {
    None,
    Selective,  ///< attention's core and the feed-forward's product run again
    Full,       ///< a block keeps its input only
  };
  bool fused = true;
  int64_t compute_bytes = 2;  ///< of an element of activations: 2 or 4
  Recompute recompute = Recompute::None;
};

/// What a tensor has a row for.
enum class KeptRows {
  Tokens,
  Masked,     ///< tokens that were masked out, which alone are predicted
  Sequences,  ///< their first tokens
};

/// The share of tokens that are masked out, as counted before data is there: 20 of 128
/// and 80 of 512, the most that examples for BERT have in the recipes of their source.
inline constexpr double kMaskedShare = 20.0 / 128.0;

/// Tokens of a micro batch that a rank works on: in the regions where features are
/// split, and outside of them (fewer with sequence parallelism); and its sequences.
struct TokenCounts {
  int64_t inside = 0;
  int64_t outside = 0;
  int64_t sequences = 0;

  /// Of a tensor inside of the regions.
  int64_t rows(KeptRows kind) const;
};

/// Forms in which an operation keeps a tensor. Of the composite form there are two, since
/// fp32 activations are their own fp32 copies.
struct KeptIn {
  bool fused = false;
  bool composite_16 = false;
  bool composite_32 = false;
  /// With selective recomputation; without it.
  bool selective = true;
  bool plain = true;

  bool holds(const ForwardForm& form) const;
};

/// A tensor of `width` elements for each token, or whatever its rows are for.
struct KeptTensor {
  KeptKind kind = KeptKind::Input;
  int64_t width = 0;
  std::optional<ShardUnit> split = {};  ///< of the width, over tp
  bool outside = false;                 ///< of the tokens outside of split regions
  bool fp32 = false;                    ///< else of the compute dtype
  std::vector<KeptIn> when = {};        ///< any of them; empty: never
  /// Of what is put off: one tensor with another one's, unless tokens are split outside
  /// of regions.
  bool shared = false;
  bool is_input = false;  ///< of what is put off: the unit's own input
  KeptRows rows = KeptRows::Tokens;

  int64_t bytes(const ForwardForm& form, const TokenCounts& tokens, const ShardPlan& plan,
                int64_t tp_index) const;
};

/// Elements of a width that rank `tp_index` has.
int64_t width_of_rank(const std::optional<ShardUnit>& split, int64_t width,
                      const ShardPlan& plan, int64_t tp_index);

/// What a unit's forward does beside its products: what it keeps, and where it meets the
/// other ranks of a layout.
struct UnitForward {
  std::vector<KeptTensor> tensors;  ///< first what the unit before hands on
  size_t inputs = 0;                ///< so many of them
  /// What weight gradients that were put off keep, of every linear layer: its input and
  /// the gradient of its result.
  std::vector<KeptTensor> put_off;
  int enters = 0;  ///< into regions with split features
  int leaves = 0;  ///< out of them
  /// Activations that linear layers take as they enter: where tokens are split outside of
  /// regions these are not kept, but gathered once more.
  int taken = 0;
  int64_t keys = 0;    ///< width of the keys of its attentions, and of the values
  int64_t logits = 0;  ///< width of the head's result
  KeptRows logits_of = KeptRows::Tokens;

  /// Kept from a forward to its backward. `whole_block`: the unit is one that full
  /// recomputation runs again.
  KeptBytes kept(const ForwardForm& form, const TokenCounts& tokens,
                 const ShardPlan& plan, int64_t tp_index, bool whole_block) const;
  /// Kept from a backward to weight gradients that were put off.
  KeptBytes kept_put_off(const ForwardForm& form, const TokenCounts& tokens,
                         const ShardPlan& plan, int64_t tp_index) const;
};

/// Elements of the logits that exist at once on a CPU.
inline constexpr int64_t kLogitsElements = int64_t{1} << 24;
/// Bytes of them on another device, which wants thousands of rows in a product, and the
/// head's gradient, in fp32, passed through as seldom as may be.
inline constexpr int64_t kDeviceLogitsBytes = int64_t{1} << 30;
/// However large the vocabulary is: the head's weights and their gradient pass through
/// memory once a chunk, which took as long as the products of 260 rows (with AMX).
inline constexpr int64_t kFewestLogitsRows = 512;
/// Where there are several times as many they are a multiple of this: whole tiles of a
/// GPU's products.
inline constexpr int64_t kLogitsRowsMultiple = 256;
/// Rows of the logits that exist at once: of so many elements, but not fewer than
/// `fewest`. `vocabulary`: columns of a rank; where it is split, of the whole size
/// divided by the ranks, rounded down, and one more: ranks agree.
int64_t logits_rows(int64_t tokens, int64_t vocabulary,
                    int64_t elements = kLogitsElements,
                    int64_t fewest = kFewestLogitsRows);

}  // namespace longhaul
