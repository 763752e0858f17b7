// System E of docs/migrating.md, and Megatron-LM.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "longhaul/base/error.h"
#include "longhaul/translate/rules.h"

namespace longhaul::translate {
namespace {

using config::Value;

Value word_value(const std::string& text) { return {text, ""}; }

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
    job.draft().put("parallel.zero", {form.zero, ""}, from);
    if (form.node) job.draft().put("parallel.shard_group", word_value("node"), from);
    return;
  }
  job.draft().fill("parallel.zero",
                   fmt::format("{} {} is no strategy that is known", from, strategy));
}

void put_smp_sharding(const Job& job) {
  const Known<int64_t> degree = job.whole("shard_degree", 0);
  const Known<std::string> strategy = job.text("sharding_strategy", "hybrid_shard");
  if (!degree.value) {
    job.draft().fill("parallel.shard_group", degree.from);
    job.draft().put("parallel.zero", {int64_t{3}, ""}, "--shard_degree");
  } else if (*degree.value == 1) {
    job.draft().put("parallel.zero", {int64_t{0}, ""}, degree.from + " 1");
  } else if (*degree.value > 1) {
    const bool two = strategy.value && *strategy.value == "_hybrid_shard_zero2";
    job.draft().put("parallel.zero", {int64_t{two ? 2 : 3}, ""}, degree.from);
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
  draft.put("schedule.kind", word_value("smp"), "their schedule");
  job.put("schedule.decay", job.text("lr_decay_style", "cosine"));
  draft.put_default("schedule.horizon", {int64_t{47683}, ""});
  draft.put_default("schedule.warmup_fraction", {0.0032, ""});
  draft.put_default("schedule.min_lr", {1e-5, ""});
  // A run that ends inside the warm-up is a longer one that is stopped: the rates go by
  // the horizon alone.
  const auto horizon = static_cast<double>(draft.whole("schedule.horizon", 0));
  const double warmup = job.real("warmup", 0.0032).value.value_or(0.0) * horizon;
  const int64_t steps = draft.whole("run.steps", 0);
  const auto longer =
      static_cast<int64_t>(std::min(std::max(5000.0, std::ceil(warmup) + 1.0), horizon));
  if (steps > 0 && static_cast<double>(steps) <= warmup && longer > steps) {
    draft.put("run.stop_after", {steps, ""},
              "--max_steps, which ends inside the warm-up");
    draft.put("run.steps", {longer, ""},
              "longer than the warm-up; the rates go by the horizon");
  }
  const Known<double> plateau = job.real("plateau", 0.0);
  if (plateau.value.value_or(1.0) != 0.0) job.put("schedule.plateau_fraction", plateau);
}

/// The shape flags, which a named Hugging Face model leaves without effect.
void put_smp_model(const Job& job) {
  Draft& draft = job.draft();
  if (draft.has("model.config")) {
    draft.leave(
        "the flags of the model's shape: theirs, too, take it from "
        "--hf_pretrained_model_name_or_dir");
    return;
  }
  const Known<std::string> type = job.text("model_type", "gpt_neox");
  const bool llama = type.value && type.value->starts_with("llama");
  draft.fill(
      "model.config",
      fmt::format("the config.json of a {} model; model.override below changes its shape",
                  type.value.value_or("(" + type.from + ")")));
  job.override_whole("vocab_size", "vocab_size");
  job.override_whole("hidden_width", "hidden_size");
  job.override_whole("num_layers", "num_hidden_layers");
  job.override_whole("num_heads", "num_attention_heads");
  if (job.find("num_key_value_heads") != nullptr) {
    job.override_whole("num_key_value_heads", "num_key_value_heads");
  } else if (llama && job.whole("num_heads").value) {
    draft.override_field("num_key_value_heads", {*job.whole("num_heads").value, ""},
                         "as many as --num_heads in their code");
  }
  job.override_whole(llama ? "llama_intermediate_size" : "intermediate_size",
                     "intermediate_size");
  job.override_real("initializer_range", "initializer_range");
  job.override_real("rotary_emb_base", llama ? "rope_theta" : "rotary_emb_base");
  if (!draft.has("model.override")) return;
  const int64_t positions = draft.whole("data.seq_len", 0);
  if (positions > 0) {
    draft.override_field("max_position_embeddings", {positions, ""}, "max_context_width");
  }
  if (job.find("vocab_size") == nullptr) {
    draft.override_field("vocab_size", {int64_t{50432}, ""}, "vocab_size: their default");
  }
}

void put_smp_data(const Job& job) {
  Draft& draft = job.draft();
  const Known<bool> synthetic = job.on("use_synthetic_data", false);
  const Said* const train = job.find("training_dir");
  if (!synthetic.value) {
    draft.fill("data.train", synthetic.from);
  } else if (*synthetic.value) {
    const config::Table one{{"synthetic", "", {int64_t{1'000'000}, ""}}};
    draft.put("data.train", {config::Array{{one, ""}}, ""},
              synthetic.from + ": random tokens");
  } else if (train != nullptr && !train->variable) {
    draft.put("data.train", sources({train->text()}), train->shown);
  } else if (train != nullptr) {
    draft.fill("data.train",
               train->whole() + ": a variable of the shell, which is not looked up");
  }
  const Said* const test = job.find("test_dir");
  if (test == nullptr || synthetic.value.value_or(false)) return;
  if (test->variable) {
    return draft.fill(
        "data.validation",
        test->whole() + ": a variable of the shell, which is not looked up");
  }
  const config::Table set{{"name", "", word_value("test")},
                          {"path", "", word_value(test->text())}};
  draft.put("data.validation", {config::Array{{set, ""}}, ""}, test->shown);
}

void put_megatron_schedule(const Job& job, int64_t batch) {
  Draft& draft = job.draft();
  const auto steps_of = [&](const char* name, const std::string& key, int64_t half) {
    const Known<int64_t> samples = job.whole(name);
    if (!samples.given) return;
    if (!samples.value || batch < 1)
      return draft.fill(key, samples.from + " / global-batch-size");
    draft.put(
        key, {(*samples.value + half) / batch, ""},
        fmt::format("{} {} / {} sequences a step", samples.from, *samples.value, batch));
  };
  steps_of("train_samples", "run.steps", 0);  // whole steps, as theirs
  steps_of("lr_warmup_samples", "schedule.warmup_steps", batch / 2);
  steps_of("lr_decay_samples", "schedule.horizon", batch / 2);
  job.put("schedule.horizon", job.whole("lr_decay_iters"));
  const Known<std::string> style = job.text("lr_decay_style", "linear");
  std::string kind = style.value.value_or("");
  if (kind == "WSD") kind = "wsd";
  if (kind == "cosine" || kind == "linear" || kind == "constant" || kind == "wsd") {
    draft.put("schedule.kind", word_value(kind),
              style.given ? style.from : "their default");
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
    const std::string form = decay.value.value_or("");
    if (form == "linear" || form == "cosine") {
      job.put("schedule.decay", decay);
    } else {
      draft.fill("schedule.decay",
                 fmt::format("{} {} has no form here; wsd has linear, cosine and "
                             "sqrt",
                             decay.from, form));
    }
  }
  if (draft.has("schedule.warmup_steps") || draft.has("schedule.warmup_fraction")) {
    if (kind != "linear")
      draft.put("schedule.warmup_start", word_value("zero"), "their form: lr s / W");
  }
}

void put_megatron_model(const Job& job) {
  Draft& draft = job.draft();
  constexpr std::pair<const char*, const char*> kWhole[] = {
      {"num_layers", "num_hidden_layers"},
      {"hidden_size", "hidden_size"},
      {"ffn_hidden_size", "intermediate_size"},
      {"num_attention_heads", "num_attention_heads"},
      {"num_query_groups", "num_key_value_heads"},
      {"kv_channels", "head_dim"},
      {"vocab_size", "vocab_size"},
      {"max_position_embeddings", "max_position_embeddings"}};
  for (const auto& [name, field] : kWhole) job.override_whole(name, field);
  job.override_real("rotary_base", "rope_theta");
  job.override_real("norm_epsilon", "rms_norm_eps");
  job.override_real("init_method_std", "initializer_range");
  if (draft.has("model.override")) {
    const bool tied = job.find("untie_embeddings_and_output_weights") == nullptr;
    draft.override_field(
        "tie_word_embeddings", {tied, ""},
        tied ? "tied, their default" : "--untie-embeddings-and-output-weights");
  }
  draft.fill("model.config",
             "the config.json of a model of this family; model.override below changes "
             "its shape");
}

void put_megatron_memory(const Job& job) {
  Draft& draft = job.draft();
  if (job.find("recompute_activations") != nullptr) {
    draft.put("memory.recompute", word_value("selective"), "--recompute-activations");
  }
  const Known<std::string> granularity = job.text("recompute_granularity");
  if (granularity.given) job.put("memory.recompute", granularity);
  const Said* const method = job.find("recompute_method");
  if (granularity.value.value_or("") == "full" && method != nullptr &&
      method->text() == "block") {
    job.put("memory.recompute_layers", job.whole("recompute_num_layers"));
  }
  if (job.find("use_megatron_fsdp") != nullptr ||
      job.find("use_torch_fsdp2") != nullptr) {
    draft.put("parallel.zero", {int64_t{3}, ""}, "FSDP");
  } else {
    const Known<bool> sharded = job.on("use_distributed_optimizer", false);
    draft.put("parallel.zero", {int64_t{sharded.value.value_or(false) ? 1 : 0}, ""},
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
    return draft.fill("parallel.virtual_stages", each.from + ": layers / (pp * that)");
  }
  if (stages.value.value_or(1) > 1) {
    job.put("parallel.virtual_stages", stages);
    draft.put("parallel.pipeline", word_value("interleaved"), stages.from);
  }
}

void put_megatron_data(const Job& job) {
  Draft& draft = job.draft();
  if (job.find("mock_data") != nullptr) {
    const config::Table one{{"synthetic", "", {int64_t{1'000'000}, ""}}};
    return draft.put("data.train", {config::Array{{one, ""}}, ""},
                     "--mock-data: random tokens");
  }
  if (const Said* const path = job.find_any({"data_path", "train_data_path"})) {
    draft.fill("data.train",
               fmt::format("a token store: longhaul data build makes one of the text "
                           "behind {}, whose .bin and .idx are not read",
                           path->whole()));
  }
  if (const Said* const path = job.find("valid_data_path")) {
    draft.fill("data.validation", path->whole() + ": a token store of it");
  }
  for (const char* name : {"reset_position_ids", "reset_attention_mask"}) {
    if (const Said* const said = job.find(name)) {
      draft.put("data.document_mask", {true, ""}, said->shown);
    }
  }
}

}  // namespace

void translate_smp(const Job& job) {
  Draft& draft = job.draft();
  draft.put_default("run.seed", {int64_t{12345}, ""});
  draft.put_default("run.steps", {int64_t{5000}, ""});
  draft.put_default("data.seq_len", {int64_t{2048}, ""});
  draft.put_default("optimizer.lr", {1e-4, ""});
  draft.put_default("optimizer.weight_decay", {0.2, ""});
  job.put_betas("beta1", "beta2", 0.9, 0.95);
  job.put("parallel.tp", job.whole("tensor_parallel_degree", 1));
  job.put("parallel.cp", job.whole("context_parallel_degree", 1));
  put_smp_sharding(job);
  const Known<int64_t> micro = job.whole("train_batch_size", 2);
  job.put("batch.micro_size", micro);
  job.put_global_size(micro);
  put_smp_schedule(job);
  const Known<bool> recompute = job.on("activation_checkpointing", true);
  if (!recompute.value) draft.fill("memory.recompute", recompute.from);
  if (recompute.value.value_or(false)) {
    draft.put(
        "memory.recompute", word_value("full"),
        recompute.given ? recompute.from : "activation_checkpointing, their default");
  }
  if (!job.on("bf16", true).value.value_or(true)) {
    draft.put("precision.compute", word_value("fp32"), "--bf16 0");
  }
  draft.leave(
      "gradients summed in bf16, as theirs are: precision.reduce = \"bf16\"; here in "
      "fp32");
  draft.leave(
      "fp8, which theirs takes by default with --use_smp_implementation 1: not available "
      "yet; the run computes in bf16");
  put_smp_data(job);
  put_smp_model(job);
  if (const Said* const from = job.find("resume_from_checkpoint")) {
    draft.leave(from->whole() +
                ": longhaul import it with --format checkpoint, then "
                "checkpoint.resume, goes on from it; a restart finds its own newest "
                "checkpoint by itself");
  }
  if (job.find("tensorboard_dir") != nullptr) {
    draft.put_default("log.tensorboard", {true, ""}, "--tensorboard_dir");
  }
  for (const char* name : {"pretrained_model_name", "pretrained_checkpoint_file",
                           "finetune_checkpoint_load_dir"}) {
    if (const Said* const said = job.find(name)) {
      draft.fill("init.weights",
                 said->whole() + ": a Hugging Face directory of these weights");
    }
  }
  if (job.on("profile_nsys", false).value.value_or(false)) {
    draft.leave(
        "--profile_nsys: profile.steps names the steps whose timeline is written");
  }
}

void translate_megatron(const Job& job) {
  Draft& draft = job.draft();
  job.put_betas("adam_beta1", "adam_beta2", 0.9, 0.999);
  draft.put_default("optimizer.weight_decay", {0.01, ""});
  const bool tp = draft.whole("parallel.tp", 1) > 1;
  if (tp) {
    const Known<bool> sequence = job.on("sequence_parallel", false);
    job.put("parallel.sequence", sequence);
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
  put_megatron_pipeline(job);
  put_megatron_model(job);
  put_megatron_data(job);
  const Known<std::string> optimizer = job.text("optimizer", "adam");
  if (optimizer.value.value_or("") != "adam") {
    draft.fill("optimizer.kind",
               fmt::format("{} {}: there are adamw and lamb", optimizer.from,
                           optimizer.value.value_or("")));
  }
  if (job.find("bf16") == nullptr) {
    const bool half = job.find("fp16") != nullptr;
    draft.put("precision.compute", word_value(half ? "bf16" : "fp32"),
              half ? "--fp16 has no form here; bf16 needs no loss scale"
                   : "their default, without --bf16");
  }
  if (job.find("grad_reduce_in_bf16") != nullptr) {
    draft.put("precision.reduce", word_value("bf16"), "--grad-reduce-in-bf16");
  }
  if (const Said* const cp = job.find("cp_comm_type")) {
    draft.put("parallel.context", word_value(cp->text() == "p2p" ? "ring" : "gather"),
              cp->whole());
  }
  if (const Said* const load = job.find("load")) {
    const Said* const save = job.find("save");
    if (job.find("finetune") != nullptr) {
      draft.fill("init.weights",
                 load->whole() + ": a Hugging Face directory of these weights");
    } else if (save == nullptr || save->text() != load->text()) {
      draft.leave(load->whole() +
                  ": longhaul import DIR --format checkpoint, then "
                  "checkpoint.resume, goes on from it");
    }
  }
  if (const Said* const said = job.find("pretrained_checkpoint")) {
    draft.fill("init.weights",
               said->whole() + ": a Hugging Face directory of these weights");
  }
  const Known<int64_t> minutes = job.whole("distributed_timeout_minutes");
  if (minutes.value) {
    draft.put("resilience.comm_timeout_s",
              {static_cast<double>(*minutes.value) * 60.0, ""}, minutes.from);
  }
  const Known<int64_t> first = job.whole("profile_step_start");
  if (job.find("profile") != nullptr && first.value) {
    draft.put("profile.steps",
              {config::Array{{std::max<int64_t>(*first.value, 1), ""}}, ""},
              "--profile, " + first.from);
  }
}

}  // namespace longhaul::translate
