#pragma once

#include <span>

#include "longhaul/dictionary/words.h"

// The tables of the dictionary, which words_of() returns.

namespace longhaul::dictionary {

// Reasons why longhaul has no key for a name; several tables give them.
inline constexpr std::string_view kKernels = "run.fused is the only setting of kernels";
inline constexpr std::string_view kStarts =
    "ranks and addresses come from srun or mpirun";
inline constexpr std::string_view kOwnPart = "a rank only ever allocates its own part";
inline constexpr std::string_view kNoFp8 =
    "fp8 is not available yet; the run computes in bf16";
inline constexpr std::string_view kExpertsOverTp =
    "the ranks of parallel.tp split experts as they split dense feed-forwards";
inline constexpr std::string_view kExpertsOfModel =
    "config.json says it, as num_local_experts or num_experts, num_experts_per_tok and "
    "moe_intermediate_size";
inline constexpr std::string_view kNoSuchMixture =
    "no family here has it; a router takes the softmax over all experts, and no expert "
    "is shared";
inline constexpr std::string_view kNoBias =
    "a term of the loss balances experts (experts.balance), and no bias does";
inline constexpr std::string_view kRouterProduct =
    "the logits of a router are of precision.compute, and their softmax is fp32";
inline constexpr std::string_view kRowsOfExperts =
    "tokens go to the ranks of their experts in one grouped exchange";
inline constexpr std::string_view kDropless =
    "no token is dropped, so that an expert needs no capacity";
inline constexpr std::string_view kSaysRecompute =
    "memory.recompute says what is computed again";
inline constexpr std::string_view kNoJitter = "a router's input gets no noise";
inline constexpr std::string_view kHub = "longhaul fetches nothing and sends nothing";
inline constexpr std::string_view kTracked =
    "metrics and event files lie in run.dir, and `longhaul docs watching#tensorboard` "
    "has a script that sends them to wandb";
inline constexpr std::string_view kNoCompiler = "there is no graph to compile";
inline constexpr std::string_view kOneCheckpoint =
    "checkpoints have one form, and are always whole";
inline constexpr std::string_view kNoSuchForm = "longhaul has no form of it";
inline constexpr std::string_view kChats =
    "longhaul data build CHATS --chat --tokenizer MODEL makes a token store of chats, "
    "and its --targets says what is learned";
inline constexpr std::string_view kOwnTemplate =
    "the model's own chat template writes the text, which longhaul data inspect STORE "
    "--show 3 prints: compare it with theirs";
inline constexpr std::string_view kNoReinforcement =
    "longhaul trains on text, chats and pairs of answers ([preference]), and not on "
    "rewards";
inline constexpr std::string_view kUnits =
    "a unit is a block, and the next one is fetched meanwhile";
inline constexpr std::string_view kLooksAtFiles = "data.train looks at the files";
inline constexpr std::string_view kTokenizerOfData =
    "text becomes tokens before the run: longhaul data build TEXT --tokenizer DIR";

std::span<const OtherWord> common_words();
std::span<const OtherWord> nxd_pipeline_words();
std::span<const OtherWord> nxd_zero_words();
std::span<const OtherWord> bert_words();
std::span<const OtherWord> smp_words();
std::span<const OtherWord> megatron_words();
std::span<const OtherWord> torchtitan_words();
std::span<const OtherWord> nanotron_words();
std::span<const OtherWord> axolotl_words();
std::span<const OtherWord> tuning_words();
std::span<const OtherWord> environment_words();

}  // namespace longhaul::dictionary
