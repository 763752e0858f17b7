#include "longhaul/translate/launch_words.h"

#include <algorithm>

#include "longhaul/base/text.h"

namespace longhaul::translate {
namespace {

using dictionary::OtherSystem;

struct KnownScript {
  std::string_view name;  ///< with * where versions differ
  OtherSystem system;
};

constexpr KnownScript kScripts[] = {
    {"run_llama_nxd.py", OtherSystem::NxdPipeline},
    {"tp_zero1_*pretrain.py", OtherSystem::NxdZero},
    {"tp_dp_gpt_neox_*pretrain.py", OtherSystem::NxdZero},
    {"dp_bert_large_hf_pretrain_hdf5.py", OtherSystem::Bert},
    {"tp_dp_bert_large_hf_pretrain_hdf5.py", OtherSystem::Bert},
    {"train_external.py", OtherSystem::Smp},
    {"train_lib.py", OtherSystem::Smp},
    {"pretrain_gpt.py", OtherSystem::Megatron},
    {"pretrain_bert.py", OtherSystem::Megatron},
    {"torchtitan.train", OtherSystem::Torchtitan},
    {"axolotl.cli.train", OtherSystem::Axolotl},
    {"axolotl", OtherSystem::Axolotl},
    {"trl *", OtherSystem::Trl},
    {"trl.scripts.sft", OtherSystem::Trl},
    {"trl.scripts.dpo", OtherSystem::Trl},
    {"sft.py", OtherSystem::Trl},
    {"dpo.py", OtherSystem::Trl},
    {"llamafactory-cli train", OtherSystem::LlamaFactory},
};

struct OtherScript {
  std::string_view name;
  std::string_view answer;
};

/// Scripts that do not train, each with the part of longhaul that does the script's work.
constexpr OtherScript kNoTraining[] = {
    {"convert_checkpoints.py",
     "every layout reads a Hugging Face directory, so nothing is sharded first; "
     "`longhaul import SHARDS --config MODEL --out DIR` makes one of shards"},
    {"nxd_convert_zero_checkpoints*",
     "any layout reads any checkpoint; nothing to convert"},
    {"get_dataset.py",
     "`longhaul data build TEXT --tokenizer DIR --out STORE` makes tokens"},
    {"prepare_hf_dataset.py",
     "`longhaul data build TEXT --tokenizer DIR --out STORE` makes tokens"},
    {"dp_steps_per_epoch.py", "run.epochs counts passes; no number is needed for it"},
    {"preprocess_data.py",
     "`longhaul data build TEXT --tokenizer DIR --out STORE` makes tokens"},
};

/// Options of launchers that take the next word, without dashes in front and with _ for
/// -.
constexpr std::string_view kTakeAValue =
    "nodes ntasks ntasks_per_node cpus_per_task job_name output error partition time "
    "gres gpus_per_node mem account container_image container_mounts container_workdir "
    "container_name mpi cpu_bind chdir nodelist exclude qos constraint export gpus "
    "gpus_per_task wrap comment reservation nproc_per_node nnodes node_rank rdzv_id "
    "rdzv_backend rdzv_endpoint rdzv_conf max_restarts monitor_interval start_method "
    "role log_dir redirects tee local_ranks_filter local_addr master_addr master_port np "
    "host hosts hostfile machinefile map_by bind_to rank_by npernode num_processes "
    "num_machines machine_rank main_process_ip main_process_port mixed_precision "
    "dynamo_backend num_gpus num_nodes include config_file deepspeed_config n N c p J o "
    "e t A w x G C q D H r";

/// Words that stand before a command and do not change it.
constexpr std::string_view kPrefixes =
    "exec nohup time env sudo command neuron_parallel_compile numactl then do else "
    "export uv run poetry pdsh";

/// Flags of Megatron-LM that take no value.
constexpr std::string_view kAlone =
    "bf16 fp16 swiglu use_* no_* disable_* overlap_* untie_* add_* reset_* "
    "group_query_attention sequence_parallel recompute_activations mock_data async_save "
    "apply_* finetune grad_reduce_in_bf16 accumulate_* qk_layernorm squared_relu "
    "manual_gc log_throughput profile cross_entropy_loss_fusion calculate_per_token_loss "
    "fp8_param_gather moe_grouped_gemm moe_use_* moe_permute_fusion moe_router_fusion "
    "moe_enable_deepep moe_shared_expert_overlap moe_pad_expert_input_to_capacity "
    "moe_layer_recompute moe_per_layer_logging moe_router_pre_softmax "
    "moe_router_enable_expert_bias moe_router_force_load_balancing";

constexpr std::string_view kSeveral =
    "data_path train_data_path valid_data_path test_data_path rampup_batch_size "
    "profile_ranks moe_router_load_balancing_type moe_aux_loss_coeff loss_type "
    "lora_target_modules lora_modules_to_save";

/// Returns whether a word matches a pattern of a list with spaces between the patterns.
bool is_one_of(std::string_view patterns, std::string_view word) {
  return std::ranges::any_of(split_words(patterns), [&](const std::string& pattern) {
    return glob_match(pattern, word);
  });
}

}  // namespace

std::optional<OtherSystem> system_of_script(std::string_view script) {
  for (const KnownScript& known : kScripts) {
    if (glob_match(known.name, script)) return known.system;
  }
  return std::nullopt;
}

std::optional<std::string_view> answer_for_script(std::string_view script) {
  for (const OtherScript& other : kNoTraining) {
    if (glob_match(other.name, script)) return other.answer;
  }
  return std::nullopt;
}

std::vector<std::string> known_scripts() {
  std::vector<std::string> names;
  for (const KnownScript& known : kScripts) names.emplace_back(known.name);
  return names;
}

bool has_command(std::string_view script) {
  return script == "trl" || script == "llamafactory-cli";
}
bool takes_a_value(std::string_view option) { return is_one_of(kTakeAValue, option); }
bool is_prefix(std::string_view word) { return is_one_of(kPrefixes, word); }
bool flag_stands_alone(std::string_view flag) { return is_one_of(kAlone, flag); }
bool takes_several_values(std::string_view flag) { return is_one_of(kSeveral, flag); }

}  // namespace longhaul::translate
