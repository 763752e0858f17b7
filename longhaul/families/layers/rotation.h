#pragma once

#include <cstdint>

namespace longhaul {

/// The settings of a rotary position embedding, in one form for all spellings of sources.
struct RopeConfig {
  enum class Kind { Plain, Llama3, Linear, Yarn };
  Kind kind = Kind::Plain;
  double theta = 0.0;
  /// Used by Llama3, Linear and Yarn.
  double factor = 1.0;
  /// Used by Llama3 only (Llama 3.1 model card; transformers modeling_rope_utils).
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  /// Used by Llama3 and Yarn.
  int64_t original_max_position_embeddings = 0;
  /// Used by Yarn only (Peng et al., "YaRN", section 3.2; transformers
  /// modeling_rope_utils). A frequency with at least beta_fast turns within the original
  /// positions is kept, one with at most beta_slow turns is divided by `factor`, and
  /// those between are blended. `truncate` rounds the bounds of the blend to whole
  /// frequencies.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
  /// Used by Yarn only: the factor of cosines and sines. The file gives it, or it follows
  /// from `factor`, mscale and mscale_all_dim.
  double attention_factor = 1.0;

  bool operator==(const RopeConfig&) const = default;
};

namespace families {

/// A rotary position embedding of the first `features` features of each head.
struct Rotation {
  RopeConfig rope;
  int64_t features = 0;
  bool operator==(const Rotation&) const = default;
};

}  // namespace families
}  // namespace longhaul
