#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/translate/launched_job.h"

namespace longhaul::translate {

// Each function translates the settings of one system that OtherWord::carry marks as
// Rule. It adds the defaults of that system that differ from the defaults of longhaul.
// The draft already has the copied values.

void translate_nxd_pipeline(const Job& job);
void translate_nxd_zero(const Job& job);
void translate_bert(const Job& job);
void translate_smp(const Job& job);
void translate_megatron(const Job& job);
void translate_torchtitan(const Job& job);
void translate_nanotron(const Job& job);
void translate_axolotl(const Job& job);

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
