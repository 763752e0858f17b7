#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace longhaul::run {

// These types name a rank's place in the mesh, and the groups in which ranks exchange
// tensors. Records, logs and verdicts use the same names.

/// A rank's place along each axis of the mesh. "Rank" alone always is the world rank.
struct Place {
  int pp = 0;
  int dp = 0;
  int cp = 0;
  int tp = 0;
  auto operator<=>(const Place&) const = default;
};
/// Returns the text of records, errors and logs: "pp 1 dp 0 cp 0 tp 3".
std::string to_string(const Place& place);
/// Returns the place that to_string() has written; nothing for any other text, such as
/// that of a rank that has no place yet.
std::optional<Place> parse_place(const std::string& text);

/// Some of the axes of a mesh, as bits.
enum Axes : unsigned {
  kTpAxis = 1,
  kCpAxis = 2,
  kDpAxis = 4,
  kPpAxis = 8,
  kDataAxes = kDpAxis | kCpAxis,
  kAllAxes = 15,
};
/// Returns the axes that are not among these.
constexpr Axes other_axes(Axes axes) { return static_cast<Axes>(kAllAxes & ~axes); }
/// Returns the place with 0 along these axes. It is the same for all ranks that differ
/// only along these axes.
Place without(Place place, Axes axes);

/// The groups of ranks that exchange tensors.
enum class GroupKind {
  Pp,
  Dp,
  Cp,
  Tp,
  Data,            ///< dp x cp: ranks that see different data of the same weights
  Shard,           ///< ranks of Data that share one copy of the state (ZeRO)
  Replicas,        ///< ranks of Data with the same shard in each shard group
  Tied,            ///< the first and the last stage of Pp where both hold an embedding
  KeyReplicas,     ///< ranks of Tp that hold the same key heads
  Ep,              ///< neighbours in Data that together have all experts
  ExpertData,      ///< ranks of Data that have the same experts
  ExpertShard,     ///< ranks of ExpertData that share one copy of the experts' state
  ExpertReplicas,  ///< ranks of ExpertData with the same shard of the experts' state
};
inline constexpr int kGroupKinds = 13;
/// Returns the name of a kind's groups: "tp", "key replicas".
const char* group_name(GroupKind kind);
/// Returns the kind of the groups of this name; nothing for other groups, such as the
/// world.
std::optional<GroupKind> group_of_name(std::string_view name);
/// Returns the axes along which the ranks of a group of this kind may differ.
Axes axes_of(GroupKind kind);

}  // namespace longhaul::run
