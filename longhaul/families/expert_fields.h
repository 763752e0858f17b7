#pragma once

#include "longhaul/families/decoder.h"

namespace longhaul::families {

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

/// Reads how many experts each of `layers` layers has, how many of them a token is sent
/// to, and the loss that balances them. The number of experts stands in num_local_experts
/// or in num_experts: transformers 5 takes either name for the other.
ExpertSettings read_experts(const ConfigFields& fields, const AbsentExperts& absent,
                            int64_t layers);

}  // namespace longhaul::families
