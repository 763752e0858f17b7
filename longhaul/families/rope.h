#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace longhaul {

namespace families {
class ConfigFields;
}  // namespace families

/// Rotary position embedding, whatever form the source wrote it in.
struct RopeConfig {
  enum class Kind { Plain, Llama3, Linear, Yarn };
  Kind kind = Kind::Plain;
  double theta = 0.0;
  /// Llama3, Linear and Yarn.
  double factor = 1.0;
  /// Llama3 only (Llama 3.1 model card; transformers modeling_rope_utils).
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  /// Llama3 and Yarn.
  int64_t original_max_position_embeddings = 0;
  /// Yarn only (Peng et al., "YaRN", section 3.2; transformers modeling_rope_utils):
  /// turns within the original positions from which on a frequency is kept, and up to
  /// which it is divided by `factor`; whether the bounds of the blend between them are
  /// rounded to whole frequencies.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
  /// Yarn only: cosines and sines are multiplied with it. The file says it, or it follows
  /// from `factor`, mscale and mscale_all_dim.
  double attention_factor = 1.0;

  bool operator==(const RopeConfig&) const = default;
};

namespace families {

/// Rotary embedding from rope_theta, rope_scaling and rope_parameters. InputError for a
/// kind that is not built, a missing parameter, or two places that disagree.
/// `absent_theta`: what the class in transformers takes where nothing says the base.
RopeConfig read_rope(const ConfigFields& fields, double absent_theta = 10000.0);
/// The rotation of layers of a kind, "full_attention" or "sliding_attention", of families
/// whose rope_parameters has an object for each: the object's, else that of the fields
/// `theta_field` (with `absent_theta` where it is absent) and, with `scales`,
/// rope_scaling, as files before transformers 5 have it.
RopeConfig read_rope_of_kind(const ConfigFields& fields, const char* kind,
                             const char* theta_field, double absent_theta, bool scales);
/// "default", "llama3", "linear", "yarn": as config.json has it.
std::string rope_type_name(RopeConfig::Kind kind);

}  // namespace families
}  // namespace longhaul
