#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/format/shard_split.h"

namespace longhaul {

// The tensors that a unit's forward pass keeps for its backward pass. UnitMaker
// (families/layers/unit_maker.h) makes the list from the same calls that declare the
// unit's parameters. The list follows the operations of ops/, and a test compares the
// list with what a run allocates.

/// The purpose of a tensor that a forward pass keeps. Reports sum the bytes of each kind.
enum class KeptKind {
  Input,        ///< the activation that the unit before handed on
  Norms,        ///< statistics, normed values and results
  Attention,    ///< queries, keys, values, rotations, result, log-sum-exp
  FeedForward,  ///< inner features and their products
  Head,         ///< the gradient of the head's input, which its forward forms
  PutOff,       ///< what deferred weight gradients need
  Batch,        ///< targets
};
inline constexpr size_t kKeptKinds = 7;
/// Returns the kind's name in reports, such as "attention".
const char* kept_name(KeptKind kind);

/// Bytes of kept tensors by kind.
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

/// The form in which a forward pass runs, as [run], [memory] and [precision] decide.
struct ForwardForm {
  enum class Recompute {
    None,
    Selective,  ///< attention's core and the feed-forward's product are recomputed
    Full,       ///< a block keeps only its input
  };
  bool fused = true;
  int64_t compute_bytes = 2;  ///< bytes of an element of activations: 2 or 4
  Recompute recompute = Recompute::None;
};

/// What the rows of a tensor stand for.
enum class KeptRows {
  Tokens,
  Masked,     ///< the tokens that were masked out, which BERT predicts
  Sequences,  ///< the first tokens of sequences
  Routed,     ///< the tokens that come to the experts of a rank
};

/// The share of masked tokens that is assumed before data is read. BERT's published
/// recipes mask at most 20 tokens of 128, and at most 80 of 512.
inline constexpr double kMaskedShare = 20.0 / 128.0;

/// Tokens of a micro batch that a rank works on, inside and outside of the layers whose
/// features are split (outside they are fewer with sequence parallelism), and sequences
/// of the micro batch.
struct TokenCounts {
  int64_t inside = 0;
  int64_t outside = 0;
  int64_t sequences = 0;
  /// Rows that come to the experts of this rank, over the mean of the ranks of `ep`.
  double imbalance = 1.0;

  /// Returns the rows of a tensor where features are split.
  int64_t rows(KeptRows kind) const;
};

/// The forms of a forward pass in which an operation keeps a tensor. The composite form
/// has two cases, because fp32 activations need no fp32 copies.
struct KeptIn {
  bool fused = false;
  bool composite_16 = false;
  bool composite_32 = false;
  bool selective = true;  ///< kept with selective recomputation
  bool plain = true;      ///< kept without selective recomputation

  bool holds(const ForwardForm& form) const;
  bool operator==(const KeptIn&) const = default;
};

/// A tensor of `width` elements for each of its rows.
struct KeptTensor {
  KeptKind kind = KeptKind::Input;
  int64_t width = 0;
  std::optional<format::ShardSplit> split = {};  ///< how the width is split over tp ranks
  bool outside = false;           ///< has the rows of tokens outside of tp-split layers
  bool fp32 = false;              ///< fp32, not the compute dtype
  std::vector<KeptIn> when = {};  ///< kept in any of these forms; empty: never
  /// For a deferred weight gradient: another entry of the list is the same tensor, unless
  /// sequence parallelism splits tokens.
  bool shared = false;
  bool is_input =
      false;  ///< for a deferred weight gradient: the tensor is the unit's input
  KeptRows rows = KeptRows::Tokens;
  int64_t each = 1;  ///< rows of each token: the number of experts that it is sent to

  int64_t bytes(const ForwardForm& form, const TokenCounts& tokens,
                const format::TpRank& rank) const;
  bool operator==(const KeptTensor&) const = default;
};

/// What a unit's forward pass does beside its products: which tensors it keeps, and where
/// it communicates with other ranks.
struct UnitForward {
  std::vector<KeptTensor> tensors;  ///< the inputs first, which the unit before hands on
  size_t inputs = 0;                ///< the number of inputs
  /// Tensors that deferred weight gradients keep: for every linear layer its input and
  /// the gradient of its result.
  std::vector<KeptTensor> put_off;
  int enters = 0;  ///< times that the pass enters tp-split layers (nn::SplitRegion)
  int leaves = 0;  ///< times that the pass leaves such layers
  /// The number of activations that enter tp-split layers. Sequence
  /// parallelism does not keep them but gathers them again.
  int taken = 0;
  /// Indices in `tensors` of the keys and values of attention, which are kept for the
  /// queries of other positions (ops::KeptPositions).
  std::vector<size_t> kept_positions = {};
  int64_t routed = 0;  ///< experts that each token is sent to; 0: the unit has none
  int64_t routes = 0;  ///< experts among which the unit's router chooses
  int64_t logits = 0;  ///< width of the head's result
  int64_t logits_copies = 1;  ///< tensors of that width that exist at once for a chunk
  KeptRows logits_of = KeptRows::Tokens;

  /// Returns the bytes that are kept from a forward to its backward pass. `whole_block`:
  /// full recomputation runs the unit again.
  KeptBytes kept(const ForwardForm& form, const TokenCounts& tokens,
                 const format::TpRank& rank, bool whole_block) const;
  /// Returns the bytes that are kept from a backward pass to its deferred weight
  /// gradients.
  KeptBytes kept_put_off(const ForwardForm& form, const TokenCounts& tokens,
                         const format::TpRank& rank) const;
  bool operator==(const UnitForward&) const = default;
};

/// The most logits that exist at once on a CPU. Only a chunk of kFewestLogitsRows rows
/// may have more.
inline constexpr int64_t kLogitsElements = int64_t{1} << 24;
/// The most bytes of logits that exist at once on a device other than a CPU. Only a chunk
/// of kFewestLogitsRows rows may have more. On such a device a product should have
/// thousands of rows, and the head's fp32 gradient should be read and written seldom.
inline constexpr int64_t kDeviceLogitsBytes = int64_t{1} << 30;
/// The fewest rows of a chunk, however large the vocabulary is. The head's weights and
/// their gradient pass through memory once a chunk, which took as long as the products of
/// 260 rows (with AMX).
inline constexpr int64_t kFewestLogitsRows = 512;
/// Larger chunks have a multiple of this many rows: whole tiles of a GPU's products.
inline constexpr int64_t kLogitsRowsMultiple = 256;
/// Returns how many rows of logits exist at once: as many as `elements` allows, but not
/// fewer than `fewest`. `vocabulary` is the number of columns of a rank. If the
/// vocabulary is split, it is the whole size divided by the ranks, rounded down, plus
/// one, so that ranks agree.
int64_t logits_rows(int64_t tokens, int64_t vocabulary,
                    int64_t elements = kLogitsElements,
                    int64_t fewest = kFewestLogitsRows);

}  // namespace longhaul
