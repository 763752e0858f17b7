#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/translate/launched_job.h"

namespace longhaul::translate {

/// Puts parallel.ep if the setting `ranks` is given. An expert lies there on as many
/// ranks as the setting `tensor` says: `otherwise` where that is not given, or as many as
/// parallel.tp. Here an expert lies on the ranks of parallel.tp.
void put_expert_ranks(const Job& job, const std::string& ranks, const std::string& tensor,
                      std::optional<int64_t> otherwise);

/// Cautions of settings of experts and routers that no family here has, or that change
/// the training otherwise. Their names begin with `prefix` ("debug.").
void note_other_mixtures(const Job& job, const std::string& prefix);

/// Puts how Megatron-LM's experts lie on ranks, and how their loads are balanced.
void put_megatron_experts(const Job& job);
/// Does the same for SageMaker Model Parallel's experts.
void put_smp_experts(const Job& job);

}  // namespace longhaul::translate
