#pragma once

#include "longhaul/families/decoder.h"

namespace longhaul::families {

/// The mixtures of experts of a decoder (families::Experts).
struct ExpertSettings {
  int64_t experts = 0;
  int64_t top_k = 0;  ///< experts that a token is sent to
  int64_t intermediate_size = 0;
  bool normalised = true;
  /// Names of the mixture within its layer, and of the projections within an expert.
  std::string layer = "mlp.";
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
};

/// The fields that read_experts reads.
inline constexpr const char* kExpertFields =
    "num_experts num_experts_per_tok num_local_experts output_router_logits "
    "router_aux_loss_coef";

/// What a family's class in transformers takes for absent fields of its experts.
struct AbsentExperts {
  const char* number_field;  ///< the field of the number of experts that is the usual one
  int64_t experts = 0;
  int64_t top_k = 0;
};

/// Reads how many experts each layer has, how many of them a token is sent to, and for
/// the network the loss that balances them. The number of experts stands in
/// num_local_experts or in num_experts, which transformers 5 treats as one field.
ExpertSettings read_experts(const ConfigFields& fields, const AbsentExperts& absent,
                            Network& network);
/// Puts a mixture of experts into the place of the layer's feed-forward.
void put_experts(const ExpertSettings& settings, const DecoderLayer& layer);

}  // namespace longhaul::families
