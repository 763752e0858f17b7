#pragma once

#include <cstdint>
#include <string>

#include "longhaul/families/layers/rotation.h"

namespace longhaul::families {

class ConfigFields;

/// Reads the rotary embedding from rope_theta, rope_scaling and rope_parameters. Throws
/// InputError for a kind that the program lacks, a missing parameter, or two places that
/// disagree. `absent_theta` is the base that the class in transformers takes if the file
/// has none.
RopeConfig read_rope(const ConfigFields& fields, double absent_theta = 10000.0);
/// Reads the rotation of a family that may rotate a part of each head:
/// partial_rotary_factor stands in rope_scaling, rope_parameters or outside of both.
/// Throws InputError also if two places disagree.
Rotation read_part_rope(const ConfigFields& fields, int64_t head_dim);
/// Reads the rotation of the layers of one kind, "full_attention" or "sliding_attention",
/// for families whose rope_parameters has an object for each kind. The base frequency may
/// stand in the field `theta_field` instead; `absent_theta` is taken if the file has
/// none. With `scales` the fields of rope_scaling are read too, which files had before
/// transformers 5. Throws InputError also for a field that transformers 5 reads in
/// another sense than earlier versions.
RopeConfig read_rope_of_kind(const ConfigFields& fields, const char* kind,
                             const char* theta_field, double absent_theta, bool scales);
/// Returns how many features of a head are rotated if `part` of them are, rounded down as
/// transformers does. Throws InputError with the field's name unless the number is even
/// and above 0.
int64_t rotated_features(const ConfigFields& fields, const std::string& name, double part,
                         int64_t head_dim);
/// Returns the kind's name in config.json: "default", "llama3", "linear" or "yarn".
std::string rope_type_name(RopeConfig::Kind kind);

}  // namespace longhaul::families
