// These rules translate system E of docs/migrating.md, and Megatron-LM.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "longhaul/base/text.h"
#include "longhaul/translate/flag_rules.h"

namespace longhaul::translate {
namespace {

/// Puts parallel.zero and parallel.shard_group by the name of FSDP's strategy.
void put_strategy(const Job& job, const std::string& strategy, const std::string& from) {
  struct Form {
    const char* name;
    int64_t zero;
    bool node;
  };
  constexpr Form kForms[] = {{"no_shard", 0, false},
                             {"shard_grad_op", 2, false},
                             {"full_shard", 3, false},
                             {"hybrid_shard", 3, true},
                             {"_hybrid_shard_zero2", 2, true}};
  for (const Form& form : kForms) {
    if (strategy != form.name) continue;
    job.draft().put("parallel.zero", form.zero, from);
    if (form.node) job.draft().put("parallel.shard_group", "node", from);
    return;
  }
  job.draft().fill("parallel.zero", "{} {} is no strategy that is known", from, strategy);
}

void put_smp_sharding(const Job& job) {
  const Known<int64_t> degree = job.whole("shard_degree", 0);
  const Known<std::string> strategy = job.text("sharding_strategy", "hybrid_shard");
  if (!degree.value) {
    job.draft().fill("parallel.shard_group", degree.from);
    job.draft().put("parallel.zero", int64_t{3}, "--shard_degree");
  } else if (*degree.value == 1) {
    job.draft().put("parallel.zero", int64_t{0}, degree.from + " 1");
  } else if (*degree.value > 1) {
    const bool two = strategy.value && *strategy.value == "_hybrid_shard_zero2";
    job.draft().put("parallel.zero", int64_t{two ? 2 : 3}, degree.from);
    job.put("parallel.shard_group", degree);
  } else if (!strategy.value) {
    job.draft().fill("parallel.zero", strategy.from);
  } else {
    put_strategy(
        job, *strategy.value,
        strategy.given ? strategy.from : "sharding_strategy hybrid_shard, their default");
  }
}

void put_smp_schedule(const Job& job) {
  Draft& draft = job.draft();
  draft.put("schedule.kind", "smp", "their schedule");
  job.put("schedule.decay", job.text("lr_decay_style", "cosine"));
  draft.put_default("schedule.horizon", int64_t{47683});
  draft.put_default("schedule.warmup_fraction", 0.0032);
  draft.put_default("schedule.min_lr", 1e-5);
  // A run that ends during its warm-up is translated into a longer run that is stopped
  // early. The rates depend on the horizon only.
  const auto horizon = static_cast<double>(draft.whole("schedule.horizon", 0));
  const double warmup = job.real("warmup", 0.0032).value_or(0.0) * horizon;
  const int64_t steps = draft.whole("run.steps", 0);
  const auto longer =
      static_cast<int64_t>(std::min(std::max(5000.0, std::ceil(warmup) + 1.0), horizon));
  if (steps > 0 && static_cast<double>(steps) <= warmup && longer > steps) {
    draft.put("run.stop_after", steps, "--max_steps, which ends inside the warm-up");
    draft.put("run.steps", longer,
              "longer than the warm-up; the rates go by the horizon");
  }
  const Known<double> plateau = job.real("plateau", 0.0);
  if (plateau.value_or(1.0) != 0.0) job.put("schedule.plateau_fraction", plateau);
}

/// Puts the flags that only models of some types have. For models of other types the
/// flags are noted as not carried over.
void put_smp_fields_of_types(const Job& job, const std::string& type) {
  if (type == "gpt_neox") {
    job.override_real("rotary_pct", "rotary_pct");
  } else if (type == "mistral") {
    job.override_whole("sliding_window", "sliding_window");
  } else if (type == "mixtral") {
    for (const char* name :
         {"sliding_window", "num_local_experts", "num_experts_per_tok"}) {
      job.override_whole(name, name);
    }
  } else if (type == "gpt2") {
    for (const char* name : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) {
      job.override_real(name, name);
    }
  }
  constexpr std::pair<const char*, const char*> kOfTypes[] = {
      {"rotary_pct", "gpt_neox"},
      {"sliding_window", "mistral mixtral"},
      {"num_local_experts", "mixtral"},
      {"num_experts_per_tok", "mixtral"},
      {"resid_pdrop", "gpt2"},
      {"embd_pdrop", "gpt2"},
      {"attn_pdrop", "gpt2"}};
  for (const auto& [name, owners] : kOfTypes) {
    if (has_word(owners, type)) continue;
    job.leave(name, fmt::format("only --model_type {} has it",
                                fmt::join(split_words(owners), " or ")));
  }
}

/// Puts the flags of the model's shape. A named Hugging Face model leaves these without
/// effect.
void put_smp_model(const Job& job) {
  Draft& draft = job.draft();
  if (draft.has("model.config")) {
    job.leave({"model_type", "vocab_size", "hidden_width", "num_layers", "num_heads",
               "num_key_value_heads", "llama_intermediate_size", "intermediate_size",
               "initializer_range", "rotary_emb_base", "rotary_pct", "sliding_window",
               "resid_pdrop", "embd_pdrop", "attn_pdrop", "num_local_experts",
               "num_experts_per_tok"},
              "their script, too, takes it from --hf_pretrained_model_name_or_dir");
    return;
  }
  const Known<std::string> type = job.text("model_type", "gpt_neox");
  const bool llama = type.value && type.value->starts_with("llama");
  draft.fill("model.config",
             "the config.json of a {} model; model.override below changes its shape",
             type.value_or("(" + type.from + ")"));
  const bool shape = job.find_any({"hidden_width", "num_layers", "num_heads"}) != nullptr;
  job.override_whole("vocab_size", "vocab_size",
                     shape ? std::optional<int64_t>(50432) : std::nullopt);
  job.override_whole("hidden_width", "hidden_size");
  job.override_whole("num_layers", "num_hidden_layers");
  job.override_whole("num_heads", "num_attention_heads");
  if (job.find("num_key_value_heads") != nullptr) {
    job.override_whole("num_key_value_heads", "num_key_value_heads");
  } else if (llama && job.whole("num_heads").value) {
    draft.override_field("num_key_value_heads", *job.whole("num_heads").value,
                         "as many as --num_heads in their code");
  }
  job.override_whole(llama ? "llama_intermediate_size" : "intermediate_size",
                     "intermediate_size");
  job.leave(llama ? "intermediate_size" : "llama_intermediate_size",
            "only another --model_type has it");
  job.override_real("initializer_range", "initializer_range");
  job.override_real("rotary_emb_base", llama ? "rope_theta" : "rotary_emb_base");
  put_smp_fields_of_types(job, type.value_or(""));
  if (!draft.has("model.override")) return;
  const int64_t positions = draft.whole("data.seq_len", 0);
  if (positions > 0) {
    draft.override_field("max_position_embeddings", positions, "max_context_width");
  }
}

void put_smp_data(const Job& job) {
  Draft& draft = job.draft();
  const Known<bool> synthetic = job.on("use_synthetic_data", false);
  const Said* const train = job.find("training_dir");
  if (!synthetic.value) {
    draft.fill("data.train", synthetic.from);
  } else if (*synthetic.value) {
    draft.put("data.train", synthetic_source(), synthetic.from + ": random tokens");
  } else if (train != nullptr && !train->variable) {
    draft.put("data.train", sources({train->text()}), train->shown);
  } else if (train != nullptr) {
    draft.fill("data.train", not_looked_up(*train));
  }
  const Said* const test = job.find("test_dir");
  if (test == nullptr || synthetic.value_or(false)) return;
  if (test->variable) return draft.fill("data.validation", not_looked_up(*test));
  const config::Table set{{"name", "", Plain("test")}, {"path", "", Plain(test->text())}};
  draft.put("data.validation", config::Array{{set, ""}}, test->shown);
}

void put_megatron_schedule(const Job& job, int64_t batch) {
  Draft& draft = job.draft();
  const auto steps_of = [&](const char* name, const std::string& key, int64_t half) {
    const Known<int64_t> samples = job.whole(name);
    if (!samples.given) return;
    if (!samples.value || batch < 1)
      return draft.fill(key, samples.from + " / global-batch-size");
    draft.put(
        key, (*samples.value + half) / batch,
        fmt::format("{} {} / {} sequences a step", samples.from, *samples.value, batch));
  };
  steps_of("train_samples", "run.steps", 0);  // whole steps, as theirs
  steps_of("lr_warmup_samples", "schedule.warmup_steps", batch / 2);
  steps_of("lr_decay_samples", "schedule.horizon", batch / 2);
  job.put("schedule.horizon", job.whole("lr_decay_iters"));
  const Known<std::string> style = job.text("lr_decay_style", "linear");
  std::string kind = style.value_or("");
  if (kind == "WSD") kind = "wsd";
  if (kind == "cosine" || kind == "linear" || kind == "constant" || kind == "wsd") {
    draft.put("schedule.kind", kind, style.given ? style.from : "their default");
  } else {
    draft.fill("schedule.kind",
               style.value ? fmt::format("{} {} has no form here; there are cosine, "
                                         "linear, constant and wsd",
                                         style.from, kind)
                           : style.from);
  }
  if (kind == "wsd") {
    job.put("schedule.decay_steps", job.whole("lr_wsd_decay_iters"));
    const Known<std::string> decay = job.text("lr_wsd_decay_style", "exponential");
    const std::string form = decay.value_or("");
    if (form == "linear" || form == "cosine") {
      job.put("schedule.decay", decay);
    } else if (!decay.value) {
      draft.fill("schedule.decay", decay.from);
    } else {
      draft.fill("schedule.decay",
                 "{} {} has no form here; wsd has linear, cosine and sqrt", decay.from,
                 form);
    }
  } else {
    job.leave({"lr_wsd_decay_iters", "lr_wsd_decay_style"},
              "only --lr-decay-style WSD reads it");
  }
  if (draft.has("schedule.warmup_steps") || draft.has("schedule.warmup_fraction")) {
    if (kind != "linear")
      draft.put("schedule.warmup_start", "zero", "their form: lr s / W");
  }
}

/// Puts the widths that Megatron-LM derives if they are not given: of heads, of groups of
/// heads, and of the MLP.
void put_megatron_widths(const Job& job, bool shape) {
  Draft& draft = job.draft();
  const Known<int64_t> heads = job.whole("num_attention_heads");
  const Known<int64_t> hidden = job.whole("hidden_size");
  const Known<bool> grouped = job.on("group_query_attention", false);
  const Known<bool> gated = job.on("swiglu", false);
  if (!grouped.value) {
    draft.leave(grouped.from + ": set model.override's num_key_value_heads");
  } else if (*grouped.value) {
    job.override_whole("num_query_groups", "num_key_value_heads", 1);
  } else {
    job.leave("num_query_groups",
              "their script reads it only with --group-query-attention");
    if (shape && heads.value) {
      draft.override_field("num_key_value_heads", *heads.value,
                           "as many as heads, their default");
    }
  }
  std::optional<int64_t> width;
  if (hidden.value && gated.value && *hidden.value > 0 && *hidden.value < (1 << 28)) {
    // 8 h / 3, cut to a multiple of 64.
    width = *gated.value ? *hidden.value * 8 / 3 / 64 * 64 : *hidden.value * 4;
  } else if (!gated.value && job.find("ffn_hidden_size") == nullptr) {
    draft.leave(gated.from + ": set model.override's intermediate_size");
  }
  job.override_whole("ffn_hidden_size", "intermediate_size", width);
  std::optional<int64_t> channels;
  if (hidden.value && heads.value && *heads.value > 0) {
    channels = *hidden.value / *heads.value;
  }
  job.override_whole("kv_channels", "head_dim", channels);
}

void put_megatron_model(const Job& job) {
  Draft& draft = job.draft();
  constexpr std::pair<const char*, const char*> kWhole[] = {
      {"num_layers", "num_hidden_layers"},
      {"hidden_size", "hidden_size"},
      {"num_attention_heads", "num_attention_heads"},
      {"vocab_size", "vocab_size"},
      {"max_position_embeddings", "max_position_embeddings"}};
  for (const auto& [name, field] : kWhole) job.override_whole(name, field);
  // Without flags of the model's shape the values of config.json are kept, so that no
  // default of Megatron-LM is put.
  const bool shape = draft.has("model.override");
  put_megatron_widths(job, shape);
  const auto theirs = [&](double value) {
    return shape ? std::optional<double>(value) : std::nullopt;
  };
  job.override_real("rotary_base", "rope_theta", theirs(10000.0));
  job.override_real("norm_epsilon", "rms_norm_eps", theirs(1e-5));
  job.override_real("init_method_std", "initializer_range", theirs(0.02));
  const Known<bool> untied = job.on("untie_embeddings_and_output_weights", false);
  if (!untied.value) {
    draft.leave(untied.from + ": set model.override's tie_word_embeddings");
  } else if (shape || untied.given) {
    draft.override_field("tie_word_embeddings", !*untied.value,
                         untied.given ? untied.from : "tied, their default");
  }
  // If attention_dropout is given, the line about this flag says the same.
  if (job.find("attention_dropout") == nullptr) {
    draft.leave(
        "attention_dropout 0.1, their default: set model.override's "
        "attention_dropout to train with it");
  }
  if (job.find("hidden_dropout") == nullptr) {
    draft.leave(
        "hidden_dropout 0.1, their default: longhaul's decoders have no such dropout");
  }
  draft.fill("model.config",
             "the config.json of a model of this family; model.override below changes "
             "its shape");
}

void put_megatron_memory(const Job& job) {
  Draft& draft = job.draft();
  if (job.find("recompute_activations") != nullptr) {
    draft.put("memory.recompute", "selective", "--recompute-activations");
  }
  const Known<std::string> granularity = job.text("recompute_granularity");
  if (granularity.given) job.put("memory.recompute", granularity);
  const Said* const method = job.find("recompute_method");
  if (granularity.value_or("") == "full" && method != nullptr &&
      method->text() == "block") {
    job.put("memory.recompute_layers", job.whole("recompute_num_layers"));
  } else {
    job.leave("recompute_num_layers",
              "memory.recompute_layers takes its place only with full and block");
  }
}

/// Puts parallel.zero. Megatron reads the strategy only with its own FSDP, and the
/// default differs between its versions.
void put_megatron_sharding(const Job& job) {
  Draft& draft = job.draft();
  const Known<bool> sharded = job.on("use_distributed_optimizer", false);
  const Known<bool> torch_fsdp = job.on("use_torch_fsdp2", false);
  const Known<bool> older = job.on("use_custom_fsdp");  // the older name
  Known<bool> fsdp = job.on("use_megatron_fsdp", false);
  if (older.given) fsdp = older;
  if (!torch_fsdp.value || !fsdp.value) {
    return draft.fill("parallel.zero", draft.hidden() +
                                           " may say it; without FSDP theirs is 1 with "
                                           "--use-distributed-optimizer, else 0");
  }
  if (*fsdp.value) {
    const Said* const strategy = job.find("data_parallel_sharding_strategy");
    constexpr const char* kStages[] = {"no_shard", "optim", "optim_grads",
                                       "optim_grads_params"};
    for (int64_t zero = 0; strategy != nullptr && zero < 4; ++zero) {
      if (strategy->text() != kStages[zero]) continue;
      return draft.put("parallel.zero", zero, fsdp.from + ", " + strategy->as_written());
    }
    return draft.fill(
        "parallel.zero",
        strategy == nullptr
            ? std::string("--data-parallel-sharding-strategy: no_shard is 0, optim 1, "
                          "optim_grads 2, optim_grads_params 3; its default "
                          "differs between their versions")
            : strategy->as_written() +
                  ": no_shard is 0, optim 1, optim_grads 2, optim_grads_params 3");
  }
  job.leave("data_parallel_sharding_strategy",
            "their script reads it only with --use-megatron-fsdp");
  if (*torch_fsdp.value) {
    draft.put("parallel.zero", int64_t{3}, torch_fsdp.from);
  } else if (!sharded.value) {
    draft.fill("parallel.zero", sharded.from);
  } else {
    draft.put("parallel.zero", int64_t{*sharded.value ? 1 : 0},
              sharded.given ? sharded.from
                            : "their default, without --use-distributed-optimizer");
  }
}

void put_megatron_pipeline(const Job& job) {
  Draft& draft = job.draft();
  Known<int64_t> stages = job.whole("num_virtual_stages_per_pipeline_rank");
  const Known<int64_t> layers = job.whole("num_layers");
  const Known<int64_t> each = job.whole("num_layers_per_virtual_pipeline_stage");
  if (each.value && layers.value && *each.value > 0) {
    const int64_t pp = draft.whole("parallel.pp", 1);
    stages = {*layers.value / (*each.value * std::max<int64_t>(pp, 1)),
              fmt::format("--num-layers {} / ({} {} * pp {})", *layers.value, each.from,
                          *each.value, pp),
              true};
  } else if (each.given) {
    return draft.fill("parallel.virtual_stages",
                      each.from + ": layers / (pp * this number)");
  }
  if (stages.value_or(1) > 1) {
    job.put("parallel.virtual_stages", stages);
    draft.put("parallel.pipeline", "interleaved", stages.from);
  }
}

void put_megatron_data(const Job& job) {
  Draft& draft = job.draft();
  for (const char* name : {"reset_position_ids", "reset_attention_mask"}) {
    if (const Said* const said = job.find(name)) {
      draft.put("data.document_mask", true, said->shown);
    }
  }
  if (job.find("mock_data") != nullptr) {
    draft.put("data.train", synthetic_source(), "--mock-data: random tokens");
    job.leave({"data_path", "train_data_path", "valid_data_path"},
              "--mock-data takes random tokens");
    return;
  }
  for (const char* name : {"data_path", "train_data_path"}) {
    const Said* const path = job.find(name);
    if (path == nullptr) continue;
    draft.fill("data.train",
               "a token store: longhaul data build makes one of the text behind {}, "
               "whose .bin and .idx are not read",
               path->as_written());
  }
  job.ask("valid_data_path", "data.validation", ": a token store of it");
}

void put_megatron_profile(const Job& job) {
  constexpr int64_t kMostSteps = 16;
  if (job.find("profile") == nullptr) {
    job.leave({"profile_step_start", "profile_step_end"},
              "their script reads it only with --profile");
    return;
  }
  const Known<int64_t> start = job.whole("profile_step_start", 10);
  const Known<int64_t> end = job.whole("profile_step_end", 12);
  if (!start.value || !end.value) {
    return job.draft().fill("profile.steps", start.value ? end.from : start.from);
  }
  const int64_t first = std::clamp<int64_t>(*start.value, 1, 1'000'000'000);
  const int64_t last = std::clamp<int64_t>(*end.value, first + 1, first + kMostSteps);
  config::Array steps;
  for (int64_t step = first; step < last; ++step) steps.push_back({step, ""});
  job.draft().put(
      "profile.steps", std::move(steps),
      fmt::format("--profile, from step {} to before {}", *start.value, *end.value));
}

}  // namespace

void translate_smp(const Job& job) {
  Draft& draft = job.draft();
  draft.put_default("run.seed", int64_t{12345});
  draft.put_default("run.steps", int64_t{5000});
  draft.put_default("data.seq_len", int64_t{2048});
  draft.put_default("optimizer.lr", 1e-4);
  draft.put_default("optimizer.weight_decay", 0.2);
  job.put_betas("beta1", "beta2", 0.9, 0.95);
  job.put("parallel.tp", job.whole("tensor_parallel_degree", 1));
  job.put("parallel.cp", job.whole("context_parallel_degree", 1));
  put_smp_experts(job);
  put_smp_sharding(job);
  const Known<int64_t> micro = job.whole("train_batch_size", 2);
  job.put("batch.micro_size", micro);
  job.put_global_size(micro);
  put_smp_schedule(job);
  const Known<bool> recompute = job.on("activation_checkpointing", true);
  if (!recompute.value) draft.fill("memory.recompute", recompute.from);
  if (recompute.value_or(false)) {
    draft.put(
        "memory.recompute", "full",
        recompute.given ? recompute.from : "activation_checkpointing, their default");
  }
  const Known<bool> bf16 = job.on("bf16", true);
  if (!bf16.value) draft.fill("precision.compute", bf16.from);
  if (!bf16.value_or(true)) {
    draft.put("precision.compute", "fp32", "--bf16 0");
  }
  draft.leave(
      "their script sums gradients in bf16, as precision.reduce = \"bf16\" does; this "
      "run sums them in fp32");
  draft.leave(
      "fp8, which their script takes by default with --use_smp_implementation 1, is not "
      "available yet; the run computes in bf16");
  put_smp_data(job);
  put_smp_model(job);
  job.leave(
      "resume_from_checkpoint",
      "longhaul import it with --format checkpoint, then checkpoint.resume, goes on "
      "from it; a restart finds its own newest checkpoint by itself");
  job.put_tensorboard("tensorboard_dir");
  const Known<bool> finetune = job.on("finetune");
  if (finetune.value_or(finetune.given)) {
    draft.fill("init.weights",
               finetune.from + ": a Hugging Face directory of the weights to start from");
  }
  for (const char* name : {"pretrained_model_name", "pretrained_checkpoint_file",
                           "finetune_checkpoint_load_dir"}) {
    job.ask(name, "init.weights", ": a Hugging Face directory of these weights");
  }
  if (job.on("profile_nsys").value_or(false)) {
    job.leave("profile_nsys", "profile.steps names the steps whose timeline is written");
  }
}

void translate_megatron(const Job& job) {
  Draft& draft = job.draft();
  job.put_betas("adam_beta1", "adam_beta2", 0.9, 0.999);
  draft.put_default("optimizer.weight_decay", 0.01);
  const bool tp = draft.whole("parallel.tp", 1) > 1;
  if (tp) {
    const Known<bool> sequence = job.on("sequence_parallel", false);
    job.put("parallel.sequence", sequence);
  } else {
    job.leave("sequence_parallel", "their script, too, needs tensor parallelism for it");
  }
  const Known<int64_t> micro = job.whole("micro_batch_size");
  const Known<int64_t> global = job.whole("global_batch_size");
  if (global.given) {
    job.put("batch.global_size", global);
  } else if (micro.given) {
    job.put_global_size(micro);  // theirs: one micro batch a replica
  }
  put_megatron_schedule(job, draft.whole("batch.global_size", 0));
  put_megatron_memory(job);
  put_megatron_sharding(job);
  put_megatron_pipeline(job);
  put_megatron_experts(job);
  put_megatron_model(job);
  put_megatron_data(job);
  const Known<std::string> optimizer = job.text("optimizer", "adam");
  if (!optimizer.value) {
    draft.fill("optimizer.kind", optimizer.from);
  } else if (*optimizer.value != "adam") {
    draft.fill("optimizer.kind", "{} {}: there are adamw and lamb", optimizer.from,
               *optimizer.value);
  }
  const Known<bool> bf16 = job.on("bf16", false);
  const Known<bool> fp16 = job.on("fp16", false);
  if (fp16.value_or(false)) {
    draft.put("precision.compute", "bf16",
              "--fp16: longhaul has no fp16, and bf16 needs no loss scale");
  } else if (!bf16.value) {
    draft.fill("precision.compute", bf16.from);
  } else if (!*bf16.value) {
    draft.put("precision.compute", "fp32", "their default, without --bf16");
  }
  if (job.find("grad_reduce_in_bf16") != nullptr) {
    draft.put("precision.reduce", "bf16", "--grad-reduce-in-bf16");
  }
  if (const Said* const cp = job.find("cp_comm_type")) {
    draft.put("parallel.context", cp->text() == "p2p" ? "ring" : "gather",
              cp->as_written());
  }
  const Said* const load = job.find("load");
  const Said* const save = job.find("save");
  if (load == nullptr) {
    job.leave("finetune", "without --load there is nothing to begin from");
  } else if (job.find("finetune") != nullptr) {
    job.ask("load", "init.weights", ": a Hugging Face directory of these weights");
  } else if (save == nullptr || save->text() != load->text()) {
    job.leave("load",
              "longhaul import DIR --format checkpoint, then checkpoint.resume, goes on "
              "from it");
  }
  job.ask("pretrained_checkpoint", "init.weights",
          ": a Hugging Face directory of these weights");
  const Known<int64_t> minutes = job.whole("distributed_timeout_minutes");
  if (minutes.value) {
    draft.put("resilience.comm_timeout_s", static_cast<double>(*minutes.value) * 60.0,
              minutes.from);
  }
  job.put_tensorboard("tensorboard_dir");
  job.put("checkpoint.async", job.on("async_save"));
  put_megatron_profile(job);
}

}  // namespace longhaul::translate
