#pragma once

#include "longhaul/families/config_fields.h"
#include "longhaul/families/limits.h"

namespace longhaul::families {

/// Reads widths, layers and heads under the names that most config.json have.
template <typename Settings>
void read_outline(const ConfigFields& fields, Settings& s) {
  s.hidden_size = fields.required_integer("hidden_size", 1, kMaxWidth);
  s.intermediate_size = fields.required_integer("intermediate_size", 1, kMaxWidth);
  s.num_hidden_layers = fields.required_integer("num_hidden_layers", 1, kMaxLayers);
  s.num_attention_heads = fields.required_integer("num_attention_heads", 1, kMaxWidth);
}

/// Does the same, and checks that the heads share the hidden width evenly.
template <typename Settings>
void read_outline_of_even_heads(const ConfigFields& fields, Settings& s) {
  read_outline(fields, s);
  if (s.hidden_size % s.num_attention_heads != 0) {
    fields.fail("hidden_size", "= {} does not divide by num_attention_heads = {}",
                s.hidden_size, s.num_attention_heads);
  }
}

}  // namespace longhaul::families
