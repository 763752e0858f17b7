// This file has the names of settings in the systems A to D of docs/migrating.md, and the
// environment variables that their scripts read.
#include "longhaul/dictionary/tables.h"

namespace longhaul::dictionary {
namespace {

using enum Carry;

constexpr std::string_view kHeads =
    "several ranks hold the same key head where there are more tp ranks than key heads";
constexpr std::string_view kPipeline = "how a pipeline moves tensors is no setting";
constexpr std::string_view kAttention = "no form of attention holds s x s";
constexpr std::string_view kMasters =
    "masters are always saved, bf16 copies of them never";
constexpr std::string_view kPrecision =
    "bf16 with fp32 masters, moments, accumulation and reduction is the default";
constexpr std::string_view kRuntime = "only that runtime uses it";
constexpr std::string_view kLibrary = "the run's MPI or NCCL reads its own variables";
constexpr std::string_view kGraph = "there is no graph to compile and no cache to delete";
constexpr std::string_view kCloud = "longhaul needs no such setting";

constexpr OtherWord kNxdPipeline[] = {
    {"training_dir", Copy, "data.train"},
    {"training_config", Copy, "model.config"},
    {"seq_len", Copy, "data.seq_len"},
    {"num_layer hidden_size", Rule, "model.override"},
    {"seed", Copy, "run.seed"},
    {"tensor_parallel_size", Rule, "parallel.tp"},
    {"pipeline_parallel_size", Rule, "parallel.pp"},
    {"virtual_pipeline_size", Rule, "parallel.virtual_stages parallel.pipeline"},
    {"context_parallel_size", Rule, "parallel.cp"},
    {"use_sequence_parallel", Rule, "parallel.sequence"},
    {"kv_replicator qkv_linear fuse_qkv", None, "", kHeads},
    {"train_batch_size num_microbatches", Rule, "batch.global_size batch.micro_size"},
    {"fuse_microbatches deallocate_pipeline_outputs transpose_nki_inputs", None, "",
     kPipeline},
    {"max_steps", Copy, "run.steps"},
    {"lr", Copy, "optimizer.lr"},
    {"min_lr", Copy, "schedule.min_lr"},
    {"warmup_steps", Copy, "schedule.warmup_steps"},
    {"constant_steps", Rule, "schedule.constant_steps"},
    {"beta1 beta2", Rule, "optimizer.betas"},
    {"weight_decay", Rule, "optimizer.weight_decay"},
    {"use_zero1_optimizer", Rule, "parallel.zero"},
    {"use_fp32_optimizer use_gpu_compatible_precision use_amp", Rule, "precision.compute",
     kPrecision},
    {"use_meta_device_init use_deferred_init", None, "", kOwnPart},
    {"use_selective_checkpoint", Rule, "memory.recompute"},
    {"use_flash_attention", None, "", kAttention},
    {"checkpoint_dir", Copy, "checkpoint.dir"},
    {"checkpoint_freq", Rule, "checkpoint.every"},
    {"num_kept_checkpoint", Rule, "checkpoint.keep"},
    {"loading_step", Rule, "checkpoint.resume"},
    {"pretrained_weight pretrained_weight_dir", Rule, "init.weights"},
    {"save_load_xser", None, "", "checkpoints are safetensors"},
    {"async_checkpoint_saving", Rule, "checkpoint.async"},
    {"use_master_weight_in_ckpt avoid_saving_lower_precision_weights", None, "",
     kMasters},
    {"tb_dir", Rule, "log.tensorboard_dir"},
    {"metrics_file", Rule, "log.results"},
    {"logging_interval", Copy, "log.every"},
    {"trace_file_path", Rule, "profile.steps"},
};

constexpr OtherWord kNxdZero[] = {
    {"model_path", Copy, "model.config"},
    {"data_dir", Copy, "data.train"},
    {"output_dir", Copy, "run.dir"},
    {"metrics_file", Rule, "log.results"},
    {"batch_size", Rule, "batch.micro_size"},
    {"grad_accum_usteps", Rule, "batch.global_size"},
    {"max_steps", Copy, "run.steps"},
    {"steps_this_run", Rule, "run.stop_after"},
    {"seed", Copy, "run.seed"},
    {"lr", Copy, "optimizer.lr"},
    {"warmup_steps", Copy, "schedule.warmup_steps"},
    {"print_grad_norm", None, "", "the gradient norm is always logged"},
    {"tensor_parallel_size", Rule, "parallel.tp"},
    {"context_parallel_size", Rule, "parallel.cp"},
    {"seq_len", Copy, "data.seq_len"},
    {"use_mix_precision use_gpu_compatible_precision", Rule, "precision.compute",
     kPrecision},
    {"use_zero_1", Rule, "parallel.zero"},
    {"num_layers hidden_size", Rule, "model.override"},
    {"sequence_parallel_enabled", Rule, "parallel.sequence"},
    {"selective_checkpoint_enabled", Rule, "memory.recompute"},
    {"use_meta_device_init", None, "", kOwnPart},
    {"logging_interval", Copy, "log.every"},
    {"qkv_linear fuse_qkv kv_replicator separate_qkv", None, "", kHeads},
    {"weight_decay", Copy, "optimizer.weight_decay"},
    {"beta1 beta2", Rule, "optimizer.betas"},
    {"checkpoint_dir", Copy, "checkpoint.dir"},
    {"checkpoint_freq", Rule, "checkpoint.every"},
    {"num_kept_checkpoint", Rule, "checkpoint.keep"},
    {"resume_ckpt loading_step", Rule, "checkpoint.resume"},
    {"pretrained_weight pretrained_weight_dir load_pretrained_checkpoint "
     "pretrained_checkpoint_dir",
     Rule, "init.weights"},
    {"use_flash_attention", None, "", kAttention},
    {"transpose_nki_inputs", None, "", kPipeline},
};

constexpr OtherWord kBert[] = {
    {"data_dir", Copy, "data.train"},
    {"max_pred_len", Rule, "data.train", "the number of predictions comes from the file"},
    {"output_dir", Copy, "run.dir"},
    {"metrics_file", Rule, "log.results"},
    {"optimizer", Rule, "optimizer.kind"},
    {"batch_size grad_accum_usteps", Rule, "batch.micro_size batch.global_size"},
    {"max_steps", Copy, "run.steps"},
    {"steps_this_run", Rule, "run.stop_after"},
    {"warmup_steps", Copy, "schedule.warmup_steps"},
    {"lr", Copy, "optimizer.lr"},
    {"seed", Copy, "run.seed"},
    {"seq_len", Copy, "data.seq_len"},
    {"phase2", Rule, "init.weights"},
    {"phase1_end_step", Rule, "init.weights", "the second run counts its steps from 1"},
    {"resume_ckpt_path", Rule, "checkpoint.resume init.weights"},
    {"resume_ckpt resume_step", Rule, "checkpoint.resume"},
    {"shards_per_ckpt", Rule, "checkpoint.every",
     "checkpoint.every counts steps, not shards"},
    {"num_ckpts_to_keep", Copy, "checkpoint.keep"},
    {"minimal_ckpt", Rule, "checkpoint.keep", "a checkpoint is always whole"},
    {"enable_pt_autocast enable_fp32", Rule, "precision.compute"},
    {"disable_dropout", Rule, "model.override"},
    {"print_grad_norm", None, "", "the gradient norm is always logged"},
    {"expected_average_throughput", Rule, "run.expect"},
    {"snapshot_step_list snapshot_rank_list snapshot_dump_dir", Rule, "debug.capture"},
    {"debug", Rule, "model.override"},
    {"torch_xla_compile", None, "", kGraph},
};

constexpr OtherWord kEnvironment[] = {
    {"gbs", Rule, "batch.global_size"},
    {"mbs", Rule, "batch.micro_size"},
    {"bs acc_steps", Rule, "batch.global_size"},
    {"num_microbatches", Rule, "batch.micro_size"},
    {"pp_degree", Rule, "parallel.pp"},
    {"vpp_degree", Rule, "parallel.virtual_stages"},
    {"tp_degree", Rule, "parallel.tp"},
    {"seq_len", Copy, "data.seq_len"},
    {"total_steps", Copy, "run.steps"},
    {"steps_this_run", Rule, "run.stop_after"},
    {"warmup_steps", Copy, "schedule.warmup_steps"},
    {"lr", Copy, "optimizer.lr"},
    {"model_path", Copy, "model.config"},
    {"data_path", Copy, "data.train"},
    {"model_size llama_version llama_config_verison llama_config_version", Rule,
     "model.config"},
    {"use_mix_precision", Rule, "parallel.zero", kPrecision},
    {"use_zero_1", Rule, "parallel.zero"},
    {"gpu_compatible_precision", Rule, "parallel.zero", kPrecision},
    {"perf_test early_exit_steps", Rule, "run.stop_after checkpoint.every"},
    {"dp", Rule, "parallel.tp", "dp is what is left of the ranks"},
    {"batch_size", Rule, "batch.micro_size"},
    {"grad_accum_usteps", Rule, "batch.global_size"},
    {"max_steps", Copy, "run.steps"},
    {"warm_up", Copy, "schedule.warmup_steps"},
    {"output_dir", Copy, "run.dir"},
    {"training_dir", Copy, "data.train"},
    {"test_dir", Rule, "data.validation"},
    {"sm_channel_train", Copy, "data.train"},
    {"sm_channel_test", Rule, "data.validation"},
    {"checkpoint_dir", Copy, "checkpoint.dir"},
    {"train_batch_size", Rule, "batch.micro_size"},
    {"shard_degree", Rule, "parallel.shard_group"},
    {"xla_downcast_bf16 xla_use_bf16", Rule,
     "precision.compute precision.moments precision.gradients"},
    {"neuron_rt_stochastic_rounding_*", Rule, "precision.master",
     "not needed with fp32 masters"},
    {"neuron_extract_graphs_only neuron_cc_flags neuron_compile_cache_url "
     "neuron_parallel_compile",
     None, "", kGraph},
    {"neuron_* xla_* tpu_* num_neuroncores bucket_cap_mb", None, "", kRuntime},
    {"malloc_arena_max", None, "", "files are mapped and buffers bounded"},
    {"fi_* ccom_socket_ifname nccl_* torch_* rdmav_* cuda_device_max_connections", None,
     "", kLibrary},
    {"cuda_visible_devices omp_num_threads", None, "",
     "the variable still reaches the run"},
    {"pytorch_*", None, "",
     "it sets PyTorch's allocator, which the variable still reaches"},
    {"processes_per_node world_size world_size_job nodeid node_id rank_node ntasks "
     "hostname ips hosts master_addr master_address master_port distributed_args "
     "ip_local_reserved_ports ngpu log_rank slurm_* ompi_comm_world_* force_torchrun "
     "nproc_per_node nnodes node_rank",
     None, "", kStarts},
    {"pod_uid artifact_path shared_path_prefix", Rule, "run.dir",
     "run.dir names the run"},
    {"log_path output_log explicit_logdir nemo_expm_version script_dir extra_args", None,
     "", "the log lies in run.dir"},
    {"wandb_*", None, "", "metrics and event files lie in run.dir"},
    {"hf_* transformers_cache cache_dir tf_grpc_default_options", None, "", kCloud},
    {"pythonpath", None, "", "longhaul runs no Python"},
};

}  // namespace

std::span<const OtherWord> nxd_pipeline_words() { return kNxdPipeline; }
std::span<const OtherWord> nxd_zero_words() { return kNxdZero; }
std::span<const OtherWord> bert_words() { return kBert; }
std::span<const OtherWord> environment_words() { return kEnvironment; }

}  // namespace longhaul::dictionary
