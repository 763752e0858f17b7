#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/families/layers/norm.h"

namespace longhaul::families {

/// A table whose rows are looked up.
struct Table {
  std::string name;
  int64_t rows = 0;
  bool operator==(const Table&) const = default;
};

/// The embedding drop(norm(scale * tokens + positions + types)); only tokens are
/// required.
struct Embedding {
  Table tokens;
  std::optional<int64_t> padding_row = {};  ///< see ParameterDescription::padding_row
  std::optional<Table> positions = {};
  std::optional<Table> types = {};  ///< looked up by Batch::segments
  std::optional<Norm> norm = {};
  double dropout = 0.0;
  double scale = 1.0;
  bool rounds_scale = false;  ///< the scale is rounded to the compute dtype first
  bool operator==(const Embedding&) const = default;
};

/// Adds the embedding, whose rows have `width` features, to the unit's description.
void add_embedding(UnitMaker& unit, const Embedding& embedding, int64_t width);

}  // namespace longhaul::families
