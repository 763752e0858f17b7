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
void translate_trl(const Job& job);
void translate_llama_factory(const Job& job);

/// Puts parallel.ep if the setting `ranks` is given. In the other system an expert lies
/// on as many ranks as the setting `tensor` says. Where that is not given, an expert lies
/// on `otherwise` ranks, or else on as many ranks as parallel.tp says. In longhaul an
/// expert always lies on the ranks of parallel.tp.
void put_expert_ranks(const Job& job, const std::string& ranks, const std::string& tensor,
                      std::optional<int64_t> otherwise);

/// Adds a caution for each setting of experts or routers that no family of longhaul has,
/// or that would change the training in another way. The names of these settings begin
/// with `prefix` ("debug.").
void note_other_mixtures(const Job& job, const std::string& prefix);

/// Puts how Megatron-LM's experts lie on ranks, and how their loads are balanced.
void put_megatron_experts(const Job& job);
/// Puts how the experts of SageMaker Model Parallel lie on ranks, and how their loads are
/// balanced.
void put_smp_experts(const Job& job);

}  // namespace longhaul::translate
