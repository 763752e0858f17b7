// This file has the words that other systems use for values of settings and for sections.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "longhaul/base/text.h"
#include "longhaul/dictionary/tables.h"
#include "longhaul/dictionary/words.h"

namespace longhaul::dictionary {
namespace {

/// Values of other systems that mean one value of longhaul, or none of its values.
struct OtherValue {
  std::string_view keys;    ///< with spaces between them
  std::string_view values;  ///< in lower case and with _ for -
  std::string_view ours;    ///< the value as TOML; empty: there is none
  std::string_view note = {};
};

constexpr std::string_view kFormats =
    "precision.compute precision.master precision.moments precision.gradients "
    "precision.reduce";
constexpr std::string_view kTwoKinds = "no other optimizer is there";
constexpr std::string_view kFiveKinds = "no other schedule is there";
constexpr std::string_view kNoRestarts =
    "a schedule has no restarts; schedule.continue goes on after its end";
constexpr std::string_view kFourOrders = "no other order is there";

constexpr std::string_view kAutomatic =
    "optimizer.lr batch.global_size batch.micro_size data.seq_len run.steps parallel.tp "
    "parallel.pp parallel.cp parallel.zero schedule.warmup_steps";

constexpr OtherValue kValues[] = {
    {kFormats, "float32 float torch.float32 32 32_true f32 fp32_full single", "\"fp32\""},
    {"precision.compute precision.moments precision.gradients precision.reduce",
     "bfloat16 torch.bfloat16 bf16_mixed bf16_true amp_bf16 true bf", "\"bf16\""},
    {"precision.master", "bfloat16 torch.bfloat16 bf16", "",
     "masters in bf16 are rounded stochastically: \"bf16_sr\""},
    {kFormats, "fp16 float16 torch.float16 half 16 16_mixed amp_fp16 f16", "",
     "there is no fp16; bf16 needs no loss scale"},
    {kFormats, "tf32", "", "products are bf16, or fp32 in full"},
    {kFormats, "int8 int4 nf4 fp4", "", "weights are never quantized"},
    {kFormats, "float8 fp8_e4m3 e4m3 e5m2 hybrid mxfp8", "", kNoFp8},

    {"optimizer.kind",
     "adamw_torch adamw_torch_fused adamw_torch_xla adamw_apex_fused fusedadam "
     "adamw_fused fused_adamw decoupledadamw torch_adamw skipstepadamw "
     "torch.optim.adamw optim.adamw",
     "\"adamw\""},
    {"optimizer.kind", "adamw_hf", "",
     "it is \"adamw\" with optimizer.convention = \"hf\""},
    {"optimizer.kind",
     "adam fused_adam torch_adam torch.optim.adam distributed_fused_adam", "",
     "it is \"adamw\", whose weight decay is decoupled"},
    {"optimizer.kind", "fusedlamb fused_lamb", "\"lamb\""},
    {"optimizer.kind",
     "adamw_8bit adamw_bnb_8bit paged_adamw paged_adamw_8bit paged_adamw_32bit "
     "adamw_torch_8bit adamw_torch_4bit came_pytorch ademamix",
     "", "optimizer state is fp32 or bf16 (precision.moments), of adamw or lamb"},
    {"optimizer.kind",
     "sgd adafactor adagrad rmsprop lion muon sophia shampoo soap galore_adamw "
     "schedule_free_adamw lars adan prodigy lomo",
     "", kTwoKinds},

    {"schedule.kind",
     "cosine_with_min_lr cosinewithwarmup cosine_decay cosine_annealing cosineannealing "
     "cosineannealinglr warmupcosinelr cosine_with_warmup",
     "", "it is \"cosine\" with schedule.warmup_steps and schedule.min_lr"},
    {"schedule.kind", "linear_with_warmup linear_decay linearwithwarmup warmupdecaylr",
     "", "it is \"linear\" with schedule.warmup_steps"},
    {"schedule.kind", "constant_with_warmup constantwithwarmup warmuplr", "",
     "it is \"constant\" with schedule.warmup_steps"},
    {"schedule.kind", "warmup_stable_decay trapezoidal stable", "\"wsd\""},
    {"schedule.kind", "none", "\"constant\""},
    {"schedule.kind",
     "cosine_with_restarts cosine_warmup_with_restarts cosineannealingwarmrestarts "
     "cosine_annealing_warm_restarts sgdr",
     "", kNoRestarts},
    {"schedule.kind",
     "polynomial inverse_sqrt inverse_square_root inv_sqrt_with_warmup rex one_cycle "
     "onecycle step multistep reduce_lr_on_plateau greedy",
     "", kFiveKinds},
    {"schedule.kind", "sqrt 1_sqrt minus_sqrt exponential plateau", "",
     "it is a form of a decay: schedule.decay, with kind wsd or smp"},
    {"schedule.decay", "1_sqrt minus_sqrt one_minus_sqrt", "\"sqrt\""},
    {"schedule.decay", "exp", "\"exponential\""},
    {"schedule.warmup_start", "linear cosine", "", "a warm-up is linear"},

    {"parallel.zero", "full_shard fully_shard fsdp fsdp2 zero3 stage3 stage_3 zero_3",
     "3"},
    {"parallel.zero", "shard_grad_op zero2 stage2 stage_2 zero_2", "2"},
    {"parallel.zero", "zero1 stage1 stage_1 zero_1 distributed_optimizer", "1"},
    {"parallel.zero", "no_shard ddp zero0 none", "0"},
    {"parallel.zero", "hybrid_shard hsdp", "",
     "it is 3 with parallel.shard_group = \"node\""},
    {"parallel.zero", "_hybrid_shard_zero2 hybrid_shard_zero2", "",
     "it is 2 with parallel.shard_group = \"node\""},
    {"parallel.shard_group", "full_shard global all", "\"world\""},
    {"parallel.shard_group", "hybrid_shard hsdp machine host local", "\"node\""},
    {"parallel.pipeline",
     "afab all_forward_all_backward allforwardallbackwardpipelineengine", "\"gpipe\""},
    {"parallel.pipeline", "one_forward_one_backward onefoneb schedule1f1b", "\"1f1b\""},
    {"parallel.pipeline", "interleaved1f1b interleaved_1f1b scheduleinterleaved1f1b",
     "\"interleaved\""},
    {"parallel.pipeline",
     "zbvzerobubble interleavedzerobubble dualpipe dualpipev loopedbfs zbv zb_v", "",
     kFourOrders},
    {"parallel.context", "p2p", "\"ring\""},
    {"parallel.context", "allgather all_gather", "\"gather\""},
    {"parallel.context", "a2a alltoall all_to_all ulysses a2a+p2p", "",
     "heads are split by parallel.tp; over sequences there are ring and gather"},

    {"experts.balance", "seq_aux_loss sequence_aux_loss seq_aux instance",
     "\"sequence\""},
    {"experts.balance", "aux_loss local_batch micro_batch", "",
     "it is \"sequence\", which is the same with one sequence in a micro batch"},
    {"experts.balance", "global_aux_loss global_batch", "",
     "it is \"global\", which takes the loads of the step before"},
    {"experts.balance", "transformers hf load_balancing_loss_func", "\"pooled\""},
    {"experts.balance", "none false no null", "\"off\""},
    {"experts.balance", "auto default", "\"model\""},
    {"experts.balance", "true yes on", "",
     "it says how: \"sequence\", \"global\" or \"pooled\""},
    {"experts.balance", "sinkhorn s_base balanced expert_bias bias loss_free noaux_tc",
     "", "a term of the loss balances experts: \"sequence\", \"global\" or \"pooled\""},

    {"memory.recompute", "true block layer all uniform", "\"full\""},
    {"memory.recompute", "false off no", "\"none\""},
    {"memory.recompute", "op core_attn attention", "\"selective\""},
    {"run.device", "gpu nvidia", "\"cuda\""},
    {"run.device", "0 cuda:0 cuda:1 gpu:0 cuda0", "",
     "a rank takes the device of its place among the ranks of its machine; none is named "
     "by a number"},
    {"run.device", "trainium trn trn2 trn3 nc", "\"neuron\""},
    {"run.device", "hip rocm xla tpu mps npu hpu xpu", "",
     "other devices than CPUs and CUDA's come as a library: run.device_plugin"},
    {"checkpoint.resume", "auto true last newest yes", "\"latest\""},
    {"checkpoint.every validation.every", "epoch steps", "", "it is a number of steps"},
    {"optimizer.clip optimizer.weight_decay optimizer.z_loss", "none null false no off",
     "0"},
    {kAutomatic, "auto", "",
     "no value is found by itself in a run; `longhaul new MODEL DATA` chooses values for "
     "a machine"},
    {"run.threads", "all auto", "",
     "0 takes OMP_NUM_THREADS, and else the rank's share of the CPUs"},
    {"parallel.zero", "true", "",
     "it is 1, 2 or 3: 1 shards the optimizer's state, 2 the gradients too, 3 the "
     "weights too"},
    {"checkpoint.resume", "false none no off", "\"never\""},
    {"resilience.on_bad_step", "ignore continue", "\"skip\""},
    {"resilience.on_bad_step", "raise error abort fail", "\"stop\""},
};

struct OtherSection {
  std::string_view names;  ///< in lower case and with _ for -
  std::string_view ours;   ///< sections; empty: there is none
  std::string_view note = {};
};

constexpr OtherSection kSections[] = {
    {"lr_scheduler scheduler lr_schedule learning_rate lr", "schedule optimizer"},
    {"training train trainer training_arguments training_args training_parameters "
     "hyperparameters",
     "run batch optimizer"},
    {"general job global system hardware", "run"},
    {"exp_manager experiment", "run checkpoint log"},
    {"train_module", "optimizer schedule batch parallel"},
    {"strategy model_parallel megatron accelerate accelerator fabric", "parallel run"},
    {"optim adam adamw", "optimizer"},
    {"tokens", "batch data run"},
    {"datasets dataset dataloader data_loader data_stages corpus", "data"},
    {"parallelism distributed dist fsdp fsdp_config deepspeed zero ddp mesh "
     "tensor_parallel pipeline_parallel context_parallel",
     "parallel"},
    {"activation_checkpoint activation_checkpointing recompute recomputation "
     "gradient_checkpointing",
     "memory"},
    {"mixed_precision dtype amp", "precision"},
    {"checkpoints checkpointing ckpt save saving resume", "checkpoint"},
    {"logging logger loggers metrics tensorboard monitoring monitor", "log"},
    {"eval evals evaluation valid val", "validation data"},
    {"profiler profiling", "profile"},
    {"fault_tolerance ft comm communication nccl", "resilience"},
    {"pretrained base_model initialization", "init"},
    {"wandb mlflow comet trackio", "", kTracked},
    {"lora peft adapters peft_config lora_config", "adapter"},
    {"qlora", "", "weights are never quantized"},
    {"rl rlhf dpo trl", "preference"},
    {"sft chat chat_template", "", kChats},
    {"grpo ppo kto", "", kNoReinforcement},
    {"tokenizer", "", kTokenizerOfData},
    {"float8 fp8 mx", "", kNoFp8},
    {"quantization quantize bnb", "", "weights are never quantized"},
    {"moe mixture_of_experts expert_parallel router", "experts parallel model"},
    {"compile torch_compile", "", kNoCompiler},
    {"hub huggingface", "", kHub},
    {"inference generation sampling", "", "longhaul generate continues a text"},
    {"ema", "", "no averages of weights are kept"},
    {"distillation distill teacher", "",
     "a run has one model, and the loss is that of its tokens"},
    {"env environment", "",
     "a run file sets no variables; they stand before the command"},
    {"hf", "", kHub},
    {"callbacks hooks plugins", "", "no code of others runs in a run"},
    {"launch launcher slurm cluster", "",
     "srun, mpirun or longhaul submit says how many ranks there are and where"},
};

}  // namespace

std::string other_value_hint(std::string_view key, std::string_view value) {
  const std::string wanted = word_name(value);
  for (const OtherValue& entry : kValues) {
    if (!has_word(entry.keys, key) || !has_word(entry.values, wanted)) continue;
    if (!entry.ours.empty()) return fmt::format("; did you mean {}?", entry.ours);
    return fmt::format("; {}", entry.note);
  }
  return "";
}

std::string other_section_hint(std::string_view section) {
  const std::string wanted = word_name(section);
  for (const OtherSection& entry : kSections) {
    if (!has_word(entry.names, wanted)) continue;
    if (entry.ours.empty()) {
      return fmt::format("; other trainers have it, and no section takes its place: {}",
                         entry.note);
    }
    std::vector<std::string> ours = split_words(entry.ours);
    for (std::string& name : ours) name = fmt::format("[{}]", name);
    return fmt::format("; here {} {} such settings", fmt::join(ours, " and "),
                       ours.size() > 1 ? "have" : "has");
  }
  return "";
}

}  // namespace longhaul::dictionary
