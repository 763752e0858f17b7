#pragma once

#include <cstdint>
#include <optional>

#include "longhaul/families/family.h"
#include "longhaul/families/network.h"

// Fields of config.json that several families have.

namespace longhaul::families {

/// The sizes of a model, under the names that most config.json have for them.
struct Outline {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  double initializer_range = 0.02;
};

/// Reads widths, layers and heads.
void read_outline(const ConfigFields& fields, Outline& outline);
/// Reads what read_outline reads, and checks that the heads share the hidden width
/// evenly.
void read_outline_of_even_heads(const ConfigFields& fields, Outline& outline);

/// Returns a network of these sizes, which has no layers yet.
Network begin_network(const Outline& outline, int64_t key_heads, int64_t max_positions);

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
