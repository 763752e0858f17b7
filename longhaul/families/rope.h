#pragma once

#include <cstdint>
#include <string>

namespace longhaul {

namespace families {
class ConfigFields;
}  // namespace families

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

/// Reads the rotary embedding from rope_theta, rope_scaling and rope_parameters. Throws
/// InputError for a kind that is not built, a missing parameter, or two places that
/// disagree. `absent_theta` is the base that the class in transformers takes where the
/// file has none.
RopeConfig read_rope(const ConfigFields& fields, double absent_theta = 10000.0);
/// Reads the rotation of the layers of one kind, "full_attention" or "sliding_attention",
/// for families whose rope_parameters has an object for each kind. The base frequency may
/// stand in the field `theta_field` instead; `absent_theta` is taken where the file has
/// none. With `scales` the fields of rope_scaling count, too, as in files before
/// transformers 5. Throws InputError also for what transformers reads otherwise than
/// earlier versions.
RopeConfig read_rope_of_kind(const ConfigFields& fields, const char* kind,
                             const char* theta_field, double absent_theta, bool scales);
/// Returns the kind's name in config.json: "default", "llama3", "linear" or "yarn".
std::string rope_type_name(RopeConfig::Kind kind);

}  // namespace families
}  // namespace longhaul
