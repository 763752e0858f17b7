// This file has names that several trainers use for settings. A newcomer types them into
// a run file or as a flag.
#include "longhaul/dictionary/tables.h"

namespace longhaul::dictionary {
namespace {

using enum Carry;

constexpr std::string_view kShape =
    "config.json says it, and model.override = { num_hidden_layers = 4 } changes a field";
constexpr std::string_view kTwoModels =
    "model.config is the shape, init.weights the weights to begin from";
constexpr std::string_view kSources =
    "a list of sources, as data.train = [{ path = \"data/wiki\" }]; text becomes a token "
    "store before the run, by longhaul data build";
constexpr std::string_view kZero =
    "0 shards nothing, 1 the optimizer's state, 2 the gradients too, 3 the weights too";
constexpr std::string_view kRates = "it is a rate: their share x optimizer.lr";
constexpr std::string_view kLauncher =
    "srun or mpirun says how many ranks there are and where, as mpirun -n 8 longhaul "
    "train run.toml";
constexpr std::string_view kNoFp16 =
    "there is no fp16: a run computes in bf16, the default, or in fp32 "
    "(precision.compute)";
constexpr std::string_view kNoNumber = "it has no effect on training";
constexpr std::string_view kBegins =
    "checkpoint.resume goes on from a run's own checkpoint, init.weights begins at step "
    "0 from other weights";
constexpr std::string_view kWeightOfBalance =
    "even loads make the term num_experts_per_tok here, and layers are averaged: "
    "Megatron-LM's coefficient x layers / num_experts_per_tok";
constexpr std::string_view kAlone =
    "a run file stands alone, and --set section.key=value changes a key of it";

constexpr OtherWord kCommon[] = {
    // The names here set the length of a run and the size of a batch.
    {"steps max_steps num_steps n_steps train_steps training_steps train_iters max_iters "
     "num_iterations num_training_steps max_train_steps",
     Copy, "run.steps"},
    // Without their section, "steps" and "interval" would mean the length of the run.
    {"log.steps log.interval log.freq log.frequency", Copy, "log.every"},
    {"checkpoint.steps checkpoint.freq checkpoint.frequency", Copy, "checkpoint.every"},
    {"validation.interval validation.frequency", Copy, "validation.every"},
    {"num_train_epochs num_epochs train_epochs n_epochs", Copy, "run.epochs"},
    {"total_steps", Rule, "run.steps schedule.horizon",
     "run.steps is the run's length, schedule.horizon where the rate's decay ends"},
    {"max_tokens total_tokens train_tokens num_tokens token_budget max_duration", Rule,
     "run.steps", "tokens / (batch.global_size x data.seq_len)"},
    {"batch_size train_batch_size batchsize bs", Rule,
     "batch.global_size batch.micro_size",
     "batch.global_size counts the sequences of a step over all ranks, batch.micro_size "
     "those of a rank's forward pass"},
    {"global_batch_size gbs", Copy, "batch.global_size"},
    {"data_loader.global_batch_size global_train_batch_tokens", Rule, "batch.global_size",
     "sequences, not tokens: tokens / data.seq_len"},
    {"micro_batch_size per_device_train_batch_size per_gpu_train_batch_size "
     "train_micro_batch_size_per_gpu device_train_microbatch_size device_batch_size "
     "microbatch_size micro_batch mbs",
     Copy, "batch.micro_size"},
    {"rank_microbatch_size", Rule, "batch.micro_size",
     "sequences, not tokens: tokens / data.seq_len"},
    {"gradient_accumulation_steps gradient_accumulation grad_accumulation_steps "
     "grad_accumulation grad_accum_steps grad_accum_usteps grad_accum grad_acc_steps "
     "accumulate_grad_batches gradient_accumulation_iters accumulation_steps "
     "accumulation batch_accumulation_per_replica num_microbatches update_freq",
     Rule, "batch.global_size",
     "the accumulation follows: batch.global_size / (batch.micro_size x data-parallel "
     "ranks)"},
    {"auto_find_batch_size auto_scale_batch_size", None, "",
     "longhaul config RUN --ranks N shows what a batch takes"},
    {"rampup_batch_size batch_size_warmup", None, "",
     "the batch has one size from the first step on"},

    // The names here set the learning rate and its schedule.
    {"learning_rate max_lr peak_lr", Copy, "optimizer.lr"},
    {"min_learning_rate eta_min min_decay_lr", Copy, "schedule.min_lr"},
    {"min_lr_ratio min_lr_rate min_lr_factor lr_min lr_min_ratio cosine_min_lr_ratio "
     "alpha_f final_lr final_lr_fraction",
     Rule, "schedule.min_lr", kRates},
    {"warmup lr_warmup", Rule, "schedule.warmup_steps schedule.warmup_fraction",
     "a number of steps, or a share of the horizon"},
    {"warmup_ratio lr_warmup_fraction warmup_proportion", Copy,
     "schedule.warmup_fraction"},
    {"lr_warmup_steps lr_warmup_iters num_warmup_steps warmup_iters", Copy,
     "schedule.warmup_steps"},
    {"lr_scheduler_type lr_scheduler lr_schedule lr_decay_style scheduler scheduler_type",
     Rule, "schedule.kind", "cosine, linear, constant, wsd or smp"},
    {"lr_scheduler_kwargs", Rule, "schedule.min_lr schedule.decay schedule.decay_steps",
     "each of its entries is a key of [schedule]"},
    {"schedule.type", Rule, "schedule.kind", "cosine, linear, constant, wsd or smp"},
    {"lr_decay_iters", Copy, "schedule.horizon"},
    {"t_max", Rule, "schedule.horizon", "the step at which the rate's decay ends"},
    {"num_cycles lr_power", None, "", "a schedule has neither restarts nor powers"},

    // The names here set the optimizer and its update.
    {"optim optimizer optimizer_name optimizer_type", Rule, "optimizer.kind",
     "adamw or lamb"},
    {"optimizer.type", Rule, "optimizer.kind", "adamw or lamb"},
    {"optim_args", Rule, "optimizer.betas optimizer.eps",
     "each argument is a key of [optimizer]"},
    {"adam_beta1 adam_beta2 beta1 beta2 beta_1 beta_2 adam_betas", Rule,
     "optimizer.betas", "both stand there, as optimizer.betas = [0.9, 0.95]"},
    {"adam_epsilon adam_eps epsilon", Copy, "optimizer.eps"},
    {"wd adam_weight_decay", Copy, "optimizer.weight_decay"},
    {"decay", Rule, "schedule.decay optimizer.weight_decay",
     "schedule.decay is the form of the rate's decay, optimizer.weight_decay that of the "
     "weights"},
    {"max_grad_norm clip_norm clip_grad clip_grad_norm grad_clip grad_norm_clip "
     "grad_clip_norm gradient_clip gradient_clipping gradient_clip_val max_norm",
     Copy, "optimizer.clip"},
    {"z_loss_weight z_loss_multiplier z_loss_coeff", Copy, "optimizer.z_loss"},
    {"label_smoothing label_smoothing_factor", None, "",
     "the loss is the plain cross-entropy"},
    {"momentum nesterov", None, "", "optimizer.kind is adamw or lamb"},
    {"ema ema_decay use_ema", None, "", "no averages of weights are kept"},
    {"freeze frozen frozen_layers freeze_layers unfrozen_parameters", Rule,
     "optimizer.groups",
     "by names, as optimizer.groups = [{ match = \"embed\", frozen = true }]"},

    // The names here set where a run lies and how it starts.
    {"out output output_dir out_dir run_dir work_dir exp_dir default_root_dir "
     "dump_folder",
     Copy, "run.dir"},
    {"checkpoint_dir ckpt_dir", Copy, "checkpoint.dir"},
    {"save save_dir save_path save_folder checkpoint_folder checkpoint_path", Rule,
     "run.dir checkpoint.dir",
     "checkpoints lie in run.dir/checkpoints, or where checkpoint.dir says"},
    {"run.name run_name experiment_name exp_name project_name", Rule, "run.dir",
     "a run is named by its directory"},
    {"random_seed rng_seed manual_seed global_seed seed_everything", Copy, "run.seed"},
    {"data_seed", Rule, "run.seed", "run.seed orders the data too"},
    {"accelerator use_cpu no_cuda", Rule, "run.device",
     "auto, cpu, cuda, neuron or plugin"},
    {"num_threads n_threads cpu_threads", Copy, "run.threads"},
    {"deterministic_mode full_determinism use_deterministic_algorithms", Copy,
     "run.deterministic"},

    // The names here set the model.
    {"model model_name_or_path model_name pretrained_model_name_or_path base_model "
     "model_id hf_model hf_assets_path",
     Rule, "model.config init.weights", kTwoModels},
    {"model_config model_config_path config_name", Copy, "model.config"},
    {"model.path", Rule, "model.config init.weights", kTwoModels},
    {"load load_path load_checkpoint load_from_checkpoint from_checkpoint "
     "init_from_checkpoint checkpoint ckpt pretrained_checkpoint restore_from_path "
     "checkpoint.path",
     Rule, "checkpoint.resume init.weights", kBegins},
    {"include includes extends defaults _base_ base_config", None, "", kAlone},
    {"_target_ _component_ _class_", None, "", "a run file names no classes"},
    {"from_scratch", Rule, "init.weights", "weights are random where it is left out"},
    {"config_overrides hf_overrides model_overrides override_config", Rule,
     "model.override", "a table, as model.override = { num_hidden_layers = 4 }"},
    {"num_layers n_layers n_layer num_hidden_layers hidden_size hidden_dim d_model "
     "n_embd num_attention_heads num_heads n_heads n_head num_key_value_heads "
     "num_query_groups n_kv_heads intermediate_size ffn_hidden_size ffn_dim "
     "mlp_hidden_size head_dim vocab_size rope_theta rotary_base "
     "max_position_embeddings rms_norm_eps norm_epsilon tie_word_embeddings "
     "initializer_range init_method_std sliding_window n_positions hidden_act "
     "activation_function rope_scaling tie_embeddings",
     Rule, "model.config model.override", kShape},
    {"dropout attention_dropout hidden_dropout resid_pdrop attn_pdrop embd_pdrop", None,
     "", "a field of config.json, in families that have one (model.override)"},
    {"attn_implementation attention_implementation flash_attention flash_attention_2 "
     "flash_attn use_flash_attention_2 use_flash_attn attention_backend sdpa "
     "sdp_attention xformers xformers_attention flex_attention eager_attention "
     "use_liger_kernel liger_kernel use_fused_kernels cut_cross_entropy lmhead_chunks",
     None, "", kKernels},
    {"trust_remote_code", None, "", "no code of a model's directory runs"},
    {"use_cache", None, "", "training keeps no keys and values"},

    // The names here set mixtures of experts.
    {"num_experts num_local_experts num_moe_experts moe_num_experts n_routed_experts "
     "num_experts_per_tok num_experts_per_token experts_per_token moe_router_topk "
     "moe_top_k moe_topk moe_intermediate_size moe_ffn_hidden_size norm_topk_prob "
     "decoder_sparse_step mlp_only_layers moe_layer_freq",
     Rule, "model.config model.override", kShape},
    {"router_aux_loss_coef moe_aux_loss_coef", Copy, "experts.balance_weight"},
    {"moe_aux_loss_coeff router_aux_loss_coeff router_aux_loss_weight aux_loss_coef "
     "aux_loss_coeff aux_loss_weight aux_loss_alpha load_balance_loss_weight "
     "load_balance_loss_coef load_balancing_loss_weight load_balancing_loss_coef "
     "lb_loss_weight moe_loss_weight",
     Rule, "experts.balance_weight", kWeightOfBalance},
    {"moe_z_loss moe_z_loss_coeff moe_z_loss_coef moe_z_loss_weight moe_zloss_weight "
     "router_z_loss router_z_loss_coeff router_z_loss_coef router_z_loss_weight",
     Rule, "experts.z_loss", "layers are averaged: Megatron-LM's coefficient x layers"},
    {"moe_router_load_balancing_type router_load_balancing_type moe_load_balancing "
     "load_balancing_type lb_loss_granularity",
     Rule, "experts.balance", "sequence, global, pooled, off, or model, the default"},
    {"output_router_logits", Rule, "experts.balance model.override",
     "balance = \"model\", the default, follows this field of config.json"},
    {"load_balance_coeff expert_bias use_expert_bias bias_gamma "
     "moe_router_enable_expert_bias moe_router_bias_update_rate router_bias_update_rate",
     None, "", kNoBias},
    {"moe_router_score_function score_function score_func scoring_func "
     "moe_router_topk_scaling_factor routed_scaling_factor route_scale "
     "moe_router_num_groups moe_router_group_topk n_group topk_group "
     "moe_router_topk_limited_devices moe_shared_expert_intermediate_size "
     "shared_expert_intermediate_size n_shared_experts num_shared_experts "
     "enable_shared_expert moe_router_force_load_balancing moe_force_load_balance",
     None, "", kNoSuchMixture},
    {"moe_router_dtype router_dtype", None, "", kRouterProduct},
    {"capacity_factor expert_capacity_factor moe_capacity_factor "
     "moe_expert_capacity_factor moe_train_capacity_factor train_capacity_factor "
     "eval_capacity_factor expert_capacity min_capacity drop_tokens "
     "moe_token_drop_policy moe_token_dropping moe_pad_expert_input_to_capacity",
     None, "", kDropless},
    {"moe_token_dispatcher_type token_dispatcher_type moe_enable_deepep use_deepep "
     "moe_flex_dispatcher_backend moe_all_to_all_dispatcher moe_shared_expert_overlap "
     "expert_parallel_comm_backend",
     None, "", kRowsOfExperts},
    {"moe_grouped_gemm grouped_gemm use_grouped_mm moe_permute_fusion moe_router_fusion "
     "experts_implementation",
     None, "", kKernels},
    {"router_jitter_noise router_jitter moe_router_jitter moe_input_jitter_eps "
     "jitter_eps",
     None, "", kNoJitter},
    {"moe moe_*", None, "",
     "config.json says what a mixture of experts is, [experts] how its loads are "
     "balanced, and parallel.ep over which ranks it lies"},

    // The names here set the data.
    {"data data_path train_data train_data_path train_file train_files", Copy,
     "data.train"},
    {"dataset dataset_name dataset_path dataset_dir dataset_folder datasets data_dir "
     "data_paths training_dir train_dir",
     Rule, "data.train", kSources},
    {"data.path", Rule, "data.train", kSources},
    {"blend data_blend data_weights dataset_weights mixture", Rule, "data.train",
     "a source has a weight, as { path = \"data/wiki\", weight = 0.3 }"},
    {"mock_data synthetic use_synthetic_data", Rule, "data.train",
     "data.train = [{ synthetic = 1000 }] is random tokens"},
    {"validation_file validation_data valid_file valid_data valid_data_path val_file "
     "val_data val_data_path eval_file eval_data eval_dataset data.val data.valid",
     Rule, "data.validation",
     "a list of sets, as data.validation = [{ name = \"wiki\", path = \"data/wiki-val\" "
     "}]"},
    {"val_set_size validation_split_percentage val_split test_size", None, "",
     "longhaul data build --holdout 1% sets documents aside before the run"},
    {"seq_length sequence_length sequence_len max_length max_seq_len max_seq_length "
     "max_sequence_length model_max_length context_length context_len context_window "
     "ctx_len cutoff_len block_size seqlen",
     Copy, "data.seq_len"},
    {"context", Rule, "parallel.context data.seq_len",
     "parallel.context is how keys reach the ranks of cp, data.seq_len the tokens of a "
     "sequence"},
    {"packing sample_packing pack_sequences", Rule, "data.pack data.document_mask",
     "whole puts whole documents into a row; else every row is packed full, and "
     "data.document_mask = true keeps documents apart"},
    {"intra_document_masking", Copy, "data.document_mask"},
    {"reset_position_ids reset_attention_mask", Rule, "data.document_mask",
     "true: attention and positions stop at document boundaries"},
    {"pad_to_sequence_len pad_to_max_length padding padding_side pad_token "
     "group_by_length",
     None, "", "every sequence is packed full, so that nothing is padded"},
    {"num_workers dataloader_num_workers preprocessing_num_workers data_num_workers "
     "dataloader_pin_memory pin_memory dataloader_prefetch_factor prefetch_factor "
     "dataloader_drop_last persistent_workers",
     None, "", "the run reads data without further processes"},
    {"tokenizer tokenizer_name tokenizer_name_or_path tokenizer_path tokenizer_model "
     "tokenizer_type vocab_file merge_file",
     None, "", kTokenizerOfData},
    {"text_column text_column_name text_field text_key dataset_text_field", None, "",
     "longhaul data build --field NAME says which field holds the text"},
    {"shuffle_data shuffle_dataset shuffle_merged_datasets", Copy, "data.shuffle"},
    {"streaming use_fast_tokenizer keep_linebreaks overwrite_cache", None, "",
     kTokenizerOfData},

    // The names here set number formats.
    {"dtype precision torch_dtype bf16 bfloat16 mixed_precision amp use_amp autocast "
     "model_dtype "
     "param_dtype compute_dtype matmul_dtype mixed_precision_param precision.mixed",
     Rule, "precision.compute", "bf16, the default, or fp32"},
    {"fp32 float32", Rule, "precision.compute", "fp32, or bf16, the default"},
    {"fp16 float16 half half_precision fp16_opt_level fp16_backend", None, "", kNoFp16},
    {"fp8 float8 use_fp8 fp8_recipe mxfp8 nvfp4 fp4", None, "", kNoFp8},
    {"tf32 allow_tf32 use_tf32", None, "", "products are bf16, or fp32 in full"},
    {"loss_scale initial_loss_scale min_loss_scale loss_scale_window", None, "",
     "bf16 needs no loss scale"},
    {"reduce_dtype grad_reduce_dtype mixed_precision_reduce", Rule, "precision.reduce",
     "fp32, the default, or bf16"},
    {"grad_dtype gradient_dtype accumulate_grad_in_fp32", Rule, "precision.gradients",
     "fp32, the default, or bf16"},
    {"exp_avg_dtype exp_avg_sq_dtype moments_dtype opt_m_dtype opt_v_dtype "
     "optimizer_dtype",
     Rule, "precision.moments", "fp32, the default, or bf16, for both moments"},
    {"master_dtype master_weights main_params_dtype", Rule, "precision.master",
     "fp32, the default, or bf16_sr"},
    {"load_in_8bit load_in_4bit quantization quantize quantization_config bnb_*", None,
     "", "weights are never quantized"},
    {"adapter lora lora_* peft peft_* use_peft use_lora use_dora", Rule, "adapter.kind",
     "lora or dora"},
    {"lora_r lora_rank", Copy, "adapter.rank"},
    {"lora_alpha", Copy, "adapter.alpha"},
    {"lora_dropout", Copy, "adapter.dropout"},
    {"use_rslora", Copy, "adapter.rslora"},
    {"target_modules lora_target_modules", Copy, "adapter.modules"},
    {"modules_to_save lora_modules_to_save", Copy, "adapter.save"},
    {"qlora qlora_*", None, "", "weights are never quantized"},
    {"sft chat_template train_on_inputs train_on_prompt completion_only_loss "
     "assistant_only_loss mask_history roles_to_train",
     None, "", kChats},
    {"dpo rl rlhf loss_type pref_loss dpo_loss_type", Rule, "preference.loss",
     "the loss of pairs: sigmoid is DPO"},
    {"rl_beta pref_beta dpo_beta", Copy, "preference.beta"},
    {"grpo ppo kto reward_model", None, "", kNoReinforcement},
    {"neftune_noise_alpha", None, "", "embeddings get no noise"},

    // The names here set the parallel layout.
    {"tensor_model_parallel_size tensor_parallel_size tensor_parallel_degree "
     "tensor_parallel tp_size tp_degree",
     Copy, "parallel.tp"},
    {"pipeline_model_parallel_size pipeline_parallel_size pipeline_parallel_degree "
     "pipeline_parallel pp_size pp_degree",
     Copy, "parallel.pp"},
    {"context_parallel_size context_parallel_degree context_parallel cp_size cp_degree",
     Copy, "parallel.cp"},
    {"dp dp_size dp_degree data_parallel data_parallel_size data_parallel_degree ddp",
     None, "", "data-parallel ranks follow: ranks / (pp x cp x tp)"},
    {"data_parallel_shard_degree data_parallel_replicate_degree dp_shard dp_replicate "
     "dp_shard_size dp_replicate_size hybrid_shard",
     Rule, "parallel.shard_group parallel.zero",
     "parallel.shard_group says how many ranks share one copy, parallel.zero what is "
     "sharded"},
    {"sequence_parallel use_sequence_parallel enable_sequence_parallel "
     "sequence_parallel_enabled",
     Rule, "parallel.sequence",
     "true, the default, or false; it matters with tp above 1"},
    {"sequence_parallel_size sequence_parallel_degree", Rule,
     "parallel.cp parallel.sequence",
     "parallel.cp splits sequences over ranks, parallel.sequence works inside the tp "
     "group"},
    {"zero_stage", Copy, "parallel.zero"},
    {"fsdp fsdp2 use_fsdp full_shard shard_grad_op deepspeed deepspeed_config ds_config "
     "zero_optimization zero_level zero1 zero2 zero3 shard_weights shard_gradients "
     "sharding_strategy shard_strategy fsdp_sharding_strategy "
     "data_parallel_sharding_strategy use_distributed_optimizer reshard_after_forward "
     "fsdp_reshard_after_forward",
     Rule, "parallel.zero", kZero},
    {"fsdp_config auto_wrap_policy fsdp_auto_wrap_policy wrapping_strategy "
     "fsdp_transformer_layer_cls_to_wrap backward_prefetch limit_all_gathers",
     None, "", kUnits},
    {"cpu_offload offload_optimizer offload_param enable_cpu_offload fsdp_offload_params "
     "fsdp_cpu_offload optimizer_cpu_offload offload_master memory.offload",
     None, "",
     "weights and optimizer state stay on the device; memory.offload_activations moves "
     "activations alone"},
    {"ddp_bucket_cap_mb ddp_find_unused_parameters find_unused_parameters", None, "",
     "a unit is a bucket"},
    {"ddp_backend distributed_backend dist_backend", None, "",
     "MPI on CPUs, NCCL on GPUs"},
    {"ep ep_size ep_degree expert_parallel expert_parallel_size expert_parallel_degree "
     "expert_model_parallel_size moe_expert_parallel_size",
     Copy, "parallel.ep"},
    {"etp expert_tensor_parallel_size expert_tensor_parallel_degree", Rule, "parallel.tp",
     kExpertsOverTp},
    {"pipeline_parallel_schedule pipeline_schedule pp_schedule pp_engine", Rule,
     "parallel.pipeline", "gpipe, 1f1b, interleaved or zb-h1"},
    {"partition", Rule, "parallel.partition",
     "the layers of each pipeline stage; Slurm's partition is an option of longhaul "
     "submit"},
    {"gpus num_gpus n_gpus ngpus ngpu gpus_per_node num_gpus_per_node nproc "
     "nproc_per_node np ranks nodes nnodes num_nodes n_nodes num_machines world_size "
     "num_processes devices node_rank machine_rank local_rank master_addr master_port "
     "rdzv_backend rdzv_endpoint",
     None, "", kLauncher},

    // The names here set memory and speed.
    {"gradient_checkpointing enable_gradient_checkpointing grad_checkpointing "
     "activation_checkpointing activation_checkpoint activations_checkpoint_granularity "
     "recompute_activations recompute_granularity recompute_layer recompute_block "
     "recompute_att recompute_swiglu use_checkpointing",
     Rule, "memory.recompute", "none, the default, selective or full"},
    {"torch_compile torch_compile_backend torch_compile_mode compile use_compile "
     "compile_model use_cuda_graphs enable_cuda_graph",
     None, "", kNoCompiler},
    {"torch_empty_cache_steps empty_cache", None, "",
     "no cache is emptied between steps"},
    {"low_cpu_mem_usage device_map", None, "", kOwnPart},

    // The names here set checkpoints.
    {"save_steps save_interval save_every save_freq save_every_n_steps "
     "every_n_train_steps checkpoint_interval checkpointing_steps checkpoint_every "
     "ckpt_interval",
     Copy, "checkpoint.every"},
    {"save_strategy", Rule, "checkpoint.every", "a number of steps"},
    {"save_total_limit num_kept_checkpoints max_checkpoints keep_last_n_checkpoints "
     "ckpt_keep_n",
     Copy, "checkpoint.keep"},
    {"resume_from_checkpoint resume_from resume_path resume_step resume_checkpoint_path "
     "auto_resume auto_resume_from_checkpoints resume load_step ckpt_path "
     "overwrite_output_dir save_overwrite",
     Rule, "checkpoint.resume",
     "the same command goes on from the newest checkpoint by itself; the key says "
     "latest, the default, never (begin anew), a step or a path"},
    {"async_save async_checkpoint", Rule, "checkpoint.async", "true is the default"},
    {"save_safetensors save_only_model save_optimizer ckpt_format checkpoint_format "
     "checkpoint.format dist_ckpt_format stage3_gather_16bit_weights_on_model_save",
     None, "", kOneCheckpoint},
    {"load_best_model_at_end metric_for_best_model greater_is_better", None, "",
     "the newest checkpoints are kept, and longhaul eval judges each"},
    {"ignore_data_skip", None, "", "a resume goes on in the data where it was"},
    {"push_to_hub hub_* cache_dir model_revision use_auth_token", None, "", kHub},

    // The names here set logs and validation.
    {"logging_steps logging_interval log_interval log_freq log_steps log_every "
     "log_every_n_steps print_every print_freq",
     Copy, "log.every"},
    {"report_to wandb use_wandb wandb_* mlflow comet trackio swanlab log_dir log_file",
     None, "", kTracked},
    {"tb_dir logdir tensorboard_dir tensorboard_log_dir logging_dir", Copy,
     "log.tensorboard_dir"},
    {"log_level_replica remove_unused_columns save_on_each_node prediction_loss_only "
     "include_num_input_tokens_seen jit_mode_eval ray_scope "
     "logging_strategy logging_first_step logging_nan_inf_filter log_level "
     "log_on_each_node disable_tqdm verbose debug",
     None, "", kNoNumber},
    {"eval_steps eval_interval eval_every eval_every_n_steps eval_freq val_interval "
     "validation_interval validation_freq",
     Copy, "validation.every"},
    {"eval_strategy evaluation_strategy val_check_interval", Rule, "validation.every",
     "a number of steps"},
    {"eval_iters validation_batches eval_batches", Copy, "validation.batches"},
    {"limit_val_batches max_eval_samples eval_num_steps", Rule, "validation.batches",
     "a number of batches of batch.global_size sequences; 0: the whole set"},
    {"per_device_eval_batch_size eval_batch_size val_batch_size", None, "",
     "validation takes batches of batch.global_size"},
    {"dry_run check_config validate_config", None, "",
     "longhaul config RUN --ranks N checks a run without starting it"},
    {"do_train do_eval do_predict", None, "",
     "longhaul train trains, and validates where data.validation is given"},
    {"early_stopping early_stopping_patience", Rule, "data.validation",
     "stop_above of a set ends a run that gets worse"},
    {"profile profiler profiling enable_profiling use_profiler", Rule, "profile.steps",
     "the steps whose timeline is written, as profile.steps = [10]"},

    // The names here set what happens after failures.
    {"comm_timeout nccl_timeout dist_timeout distributed_timeout ddp_timeout timeout "
     "distributed_timeout_minutes",
     Rule, "resilience.comm_timeout_s", "seconds"},
    {"skip_nan skip_nan_updates check_for_nan_in_loss_and_grad", Rule,
     "resilience.on_bad_step", "stop, the default, skip or rollback"},
};

}  // namespace

std::span<const OtherWord> common_words() { return kCommon; }

}  // namespace longhaul::dictionary
