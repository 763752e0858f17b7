#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace longhaul {

namespace families {
class ConfigFields;
struct Field;
}  // namespace families

/// Rotary position embedding, whatever form the source wrote it in.
struct RopeConfig {
  enum class Kind { Plain, Llama3, Linear };
  Kind kind = Kind::Plain;
  double theta = 0.0;
  /// Llama3 and Linear.
  double factor = 1.0;
  /// Llama3 only (Llama 3.1 model card; transformers modeling_rope_utils).
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 0;

  bool operator==(const RopeConfig&) const = default;
};

namespace families {

/// Rotary embedding from rope_theta, rope_scaling and rope_parameters. InputError for a
/// kind that is not built, a missing parameter, or two places that disagree.
RopeConfig read_rope(const ConfigFields& fields);
/// "default", "llama3", "linear": as config.json has it.
std::string rope_type_name(RopeConfig::Kind kind);
/// For Family::settings.
std::vector<Field> rope_settings(const RopeConfig& rope);

}  // namespace families
}  // namespace longhaul
