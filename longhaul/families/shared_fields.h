#pragma once

#include <cstdint>
#include <optional>

#include "longhaul/families/family.h"
#include "longhaul/families/plausible_sizes.h"

// Fields of config.json that several families have.

namespace longhaul::families {

/// Reads widths, layers and heads under the names that most config.json have.
template <typename Settings>
void read_outline(const ConfigFields& fields, Settings& s) {
  s.hidden_size = fields.required_integer("hidden_size", 1, kMaxWidth);
  s.intermediate_size = fields.required_integer("intermediate_size", 1, kMaxWidth);
  s.num_hidden_layers = fields.required_integer("num_hidden_layers", 1, kMaxLayers);
  s.num_attention_heads = fields.required_integer("num_attention_heads", 1, kMaxWidth);
}

/// Reads what read_outline reads, and checks that the heads share the hidden width
/// evenly.
template <typename Settings>
void read_outline_of_even_heads(const ConfigFields& fields, Settings& s) {
  read_outline(fields, s);
  if (s.hidden_size % s.num_attention_heads != 0) {
    fields.fail("hidden_size", "= {} does not divide by num_attention_heads = {}",
                s.hidden_size, s.num_attention_heads);
  }
}

/// Returns the form of GELU that "hidden_act" names: the tanh form (gelu_new, gelu_fast,
/// gelu_pytorch_tanh) or the exact form (gelu, or an absent field). Throws InputError for
/// anything else.
Activation read_gelu(const ConfigFields& fields);

/// Returns the row of the embedding that pad_token_id names, for a family whose class in
/// transformers passes it to torch's Embedding as padding_idx. A negative number counts
/// from the end, null names no row, and `absent` is what an absent field stands for. A
/// number that names no row becomes `config`'s training_problem. Throws InputError for
/// what is no number.
std::optional<int64_t> read_padding_row(const ConfigFields& fields, ModelConfig& config,
                                        std::optional<int64_t> absent = {});

}  // namespace longhaul::families
