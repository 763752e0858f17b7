// These rules translate systems A to D of docs/migrating.md.
#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/run/step_record.h"
#include "longhaul/translate/flag_rules.h"

namespace longhaul::translate {
namespace {

using config::Array;
using config::Value;

constexpr const char* kFixed = "fixed in their code";

Value patterns(std::initializer_list<const char*> names) {
  Array items;
  for (const char* name : names) items.push_back(Plain(name));
  return {std::move(items), ""};
}

/// Puts a number, with 0 for -1 ("off", "all"). Defaults of the scripts are not put: a
/// checkpoint every 100,000 steps, all of which are kept, is unusual for a run.
void put_zero_for_minus_one(const Job& job, const std::string& key, const char* name) {
  Known<int64_t> ours = job.whole(name);
  if (ours.value && *ours.value < 0) {
    ours.from += fmt::format(" {}", *ours.value);
    ours.value = 0;
  }
  job.put(key, ours);
}

void put_resume(const Job& job, const Said* said) {
  if (said == nullptr) return;
  if (said->variable) return job.draft().fill("checkpoint.resume", not_looked_up(*said));
  if (said->text() == "latest_if_exists") {
    return job.draft().put("checkpoint.resume", "latest", said->as_written());
  }
  const int64_t step = whole_of(*said, said->text());
  if (step >= 0) {
    return job.draft().put(
        "checkpoint.resume", step,
        said->shown +
            "; longhaul import STEP --format checkpoint imports their checkpoint");
  }
  job.draft().put("checkpoint.resume", "latest",
                  said->as_written() + " would be \"never\": begin anew at each start");
}

/// Puts --resume_ckpt, which continues from the newest checkpoint or from that of a step.
void put_resume_flag(const Job& job, const char* step) {
  const Known<bool> resume = job.on("resume_ckpt");
  if (const Said* const said = job.find(step)) return put_resume(job, said);
  if (!resume.value && resume.given) {
    job.draft().fill("checkpoint.resume", resume.from);
  } else if (resume.value_or(false)) {
    job.draft().put("checkpoint.resume", "latest", resume.from);
  }
}

/// Asks for the weights that a run starts from, which the scripts keep as shards.
void fill_weights(const Job& job, const std::string& place, const std::string& shown) {
  job.draft().fill("init.weights",
                   "a Hugging Face directory of the weights; the shards in {} ({}) "
                   "become one by longhaul import SHARDS --config MODEL --out DIR",
                   place, shown);
}

void put_pretrained(const Job& job) {
  if (const Said* const dir = job.find("pretrained_weight_dir")) {
    fill_weights(job, dir->text(), dir->shown);
  }
  const Known<int64_t> weights = job.whole("pretrained_weight", 0);
  if (weights.given && !weights.value)
    return job.draft().fill("init.weights", weights.from);
  if (weights.value_or(0) <= 0) return;
  const Said* const dir = job.find("checkpoint_dir");
  const std::string folder = dir == nullptr ? "checkpoint_dir" : dir->text();
  fill_weights(job, (fs::path(folder) / "pretrained_weight").string(), weights.from);
}

/// Notes that without the flag the scripts' weights, moments and gradients are bf16 with
/// stochastic rounding.
void note_precision(const Job& job) {
  const Known<bool> fp32 = job.on("use_gpu_compatible_precision");
  if (!fp32.given || fp32.value_or(true)) return;
  job.draft().leave(
      "--use_gpu_compatible_precision 0 is precision.master = \"bf16_sr\", "
      "precision.moments = "
      "\"bf16\" and precision.gradients = \"bf16\"; here all three are fp32");
}

void put_sharding(const Job& job, const Known<bool>& zero1) {
  if (!zero1.value) return job.draft().fill("parallel.zero", zero1.from);
  const Value value{int64_t{*zero1.value ? 1 : 0}, ""};
  if (zero1.given) return job.draft().put("parallel.zero", value, zero1.from);
  job.draft().put_default("parallel.zero", value, zero1.from);
}

void put_recompute(const Job& job, const Known<bool>& selective) {
  if (!selective.value) return job.draft().fill("memory.recompute", selective.from);
  job.draft().put("memory.recompute", *selective.value ? "selective" : "full",
                  selective.given ? selective.from : "their default, without the flag");
}

void put_sequence(const Job& job, const Known<bool>& sequence) {
  if (job.draft().whole("parallel.tp", 1) > 1) job.put("parallel.sequence", sequence);
}

void put_layers(const Job& job, const std::string& layers) {
  for (const auto& [name, field] :
       {std::pair<std::string, const char*>{layers, "num_hidden_layers"},
        {"hidden_size", "hidden_size"}}) {
    const Known<int64_t> number = job.whole(name, -1);
    if (number.value && *number.value > 0) {
      job.draft().override_field(field, *number.value, number.from);
    } else if (number.given && !number.value) {
      job.draft().leave(number.from + ": set model.override's " + field);
    }
  }
}

void put_stop_after(const Job& job) {
  const Known<int64_t> stop = job.whole("steps_this_run", -1);
  if (!stop.value) return job.draft().fill("run.stop_after", stop.from);
  if (*stop.value > 0 && *stop.value != job.draft().whole("run.steps", -1)) {
    job.put("run.stop_after", stop);
  }
}

void put_micro_batches(const Job& job) {
  const Known<int64_t> batch = job.whole("train_batch_size", 16);
  const Known<int64_t> parts = job.whole("num_microbatches", 8);
  job.put_global_size(batch);
  const Said* const all = job.find("train_batch_size");
  const Said* const split = job.find("num_microbatches");
  const bool equal = all != nullptr && split != nullptr && all->shell_value > 0 &&
                     all->shell_value == split->shell_value;
  if (equal && !batch.value) {
    return job.draft().put("batch.micro_size", int64_t{1},
                           all->shown + " and " + split->shown + " are the same number");
  }
  if (!batch.value || !parts.value) {
    return job.draft().fill(
        "batch.micro_size",
        "sequences of one forward pass, train_batch_size / num_microbatches; {}",
        batch.value ? parts.from : batch.from);
  }
  if (*parts.value < 1 || *batch.value < 1 || *batch.value % *parts.value != 0) {
    fail_input("flags",
               "train_batch_size {} does not divide into num_microbatches {}; their "
               "script would fail too",
               *batch.value, *parts.value);
  }
  job.draft().put(
      "batch.micro_size", *batch.value / *parts.value,
      fmt::format("{} {} / {} {}", batch.from, *batch.value, parts.from, *parts.value));
}

/// Puts the settings of AdamW as the scripts without pipelines use it.
void put_hf_adamw(const Job& job, bool old_filter) {
  Draft& draft = job.draft();
  draft.put("optimizer.convention", "hf", "the form of their AdamW");
  draft.put("optimizer.eps", 1e-6, kFixed);
  draft.put_default("optimizer.weight_decay", 0.01);
  if (old_filter) {
    draft.put("optimizer.no_decay", patterns({"*bias", "*LayerNorm*"}),
              "their filter, which Llama's norms pass");
  }
}

void put_linear(const Job& job, int64_t warmup) {
  job.draft().put("schedule.kind", "linear", "their only schedule");
  job.draft().put_default("schedule.warmup_steps", warmup);
}

}  // namespace

void translate_nxd_pipeline(const Job& job) {
  Draft& draft = job.draft();
  job.put_tensorboard("tb_dir");
  job.put_results("metrics_file", "nxd");
  draft.put_default("data.seq_len", int64_t{4096});
  draft.put_default("run.steps", int64_t{100});
  job.put("parallel.tp", job.whole("tensor_parallel_size", 8));
  job.put("parallel.pp", job.whole("pipeline_parallel_size", 1));
  job.put("parallel.cp", job.whole("context_parallel_size", 1));
  const Known<int64_t> stages = job.whole("virtual_pipeline_size", 1);
  if (stages.value_or(0) > 1) {
    job.put("parallel.virtual_stages", stages);
    draft.put("parallel.pipeline", "interleaved", stages.from);
  } else if (!stages.value) {
    draft.fill("parallel.virtual_stages", stages.from);
  }
  put_sequence(job, job.on("use_sequence_parallel", true));
  put_sharding(job, job.on("use_zero1_optimizer", false));
  put_micro_batches(job);
  put_recompute(job, job.on("use_selective_checkpoint", false));
  put_layers(job, "num_layer");

  job.put_betas("beta1", "beta2", 0.9, 0.95);
  Known<double> decay = job.real("weight_decay", 0.01);
  if (decay.given && decay.value && *decay.value != 0.01) {
    decay.from += "; their code used 0.01 whatever it said";
  }
  job.put("optimizer.weight_decay", decay);
  draft.put("schedule.kind", "cosine", "their only schedule");
  draft.fill("schedule.warmup_steps",
             "--warmup_steps, for which their script has no default");
  draft.fill("schedule.min_lr", "--min_lr, for which their script has no default");
  Known<int64_t> constant = job.whole("constant_steps", 0);
  if (constant.value_or(1) != 0) job.put("schedule.constant_steps", constant);

  put_zero_for_minus_one(job, "checkpoint.every", "checkpoint_freq");
  put_zero_for_minus_one(job, "checkpoint.keep", "num_kept_checkpoint");
  put_resume(job, job.find("loading_step"));
  note_precision(job);
  put_pretrained(job);
  const Known<bool> async = job.on("async_checkpoint_saving");
  if (async.given) job.put("checkpoint.async", async);
  job.leave("trace_file_path", "profile.steps names the steps whose timeline is written");
}

void translate_nxd_zero(const Job& job) {
  Draft& draft = job.draft();
  job.put_results("metrics_file", "nxd-zero1");
  const std::string& script = job.source().script;
  const bool neox = script.find("gpt_neox") != std::string::npos;
  // Arcee's script is one of the older scripts of neuronx-distributed (NxD).
  const bool old = neox || script.starts_with("tp_zero1_llama2_7b");
  draft.put_default("run.seed", int64_t{12349});
  draft.put_default("data.seq_len", int64_t{2048});
  draft.put_default("optimizer.lr", 4e-4);
  job.put("parallel.tp", job.whole("tensor_parallel_size", 2));
  job.put("parallel.cp", job.whole("context_parallel_size", 1));
  put_sequence(job, neox ? Known<bool>{true, "part of their model"}
                         : job.on("sequence_parallel_enabled", false));
  put_sharding(job, neox ? Known<bool>{true, "part of their script"}
                         : job.on("use_zero_1", false));
  put_recompute(job, job.on("selective_checkpoint_enabled", false));
  put_layers(job, "num_layers");

  const Known<int64_t> micro = job.whole("batch_size", 8);
  job.put("batch.micro_size", micro);
  const Known<int64_t> steps = job.whole("grad_accum_usteps", 64);
  job.put_global_size(micro, "batch_size", steps, "grad_accum_usteps");
  put_stop_after(job);
  note_precision(job);

  put_hf_adamw(job, old);
  job.put_betas("beta1", "beta2", 0.9, 0.999);
  put_linear(job, 2000);
  put_zero_for_minus_one(job, "checkpoint.every", "checkpoint_freq");
  put_zero_for_minus_one(job, "checkpoint.keep", "num_kept_checkpoint");
  put_resume_flag(job, "loading_step");
  if (neox) {
    job.leave("sequence_parallel_enabled", "part of their model");
    job.leave("use_zero_1", "part of their script");
  }
  put_pretrained(job);
  if (const Said* const dir = job.find("pretrained_checkpoint_dir")) {
    if (job.on("load_pretrained_checkpoint", false).value_or(true)) {
      fill_weights(job, dir->text(), dir->shown);
    }
  } else if (job.find("load_pretrained_checkpoint") != nullptr) {
    fill_weights(job, "pretrained_checkpoint_dir", "--load_pretrained_checkpoint");
  }
}

/// Puts the throughput below which the other system's script fails, which is 95 % of the
/// flag's value, in sequences a second.
void put_expected_rate(const Job& job) {
  constexpr const char* kName = "expected_average_throughput";
  const Known<double> rate = job.real(kName);
  const int64_t length = job.draft().whole("data.seq_len", 0);
  if (!rate.value || length < 1) {
    job.leave(kName, "run.expect takes it, in tokens a second of all ranks");
  } else if (*rate.value <= 0.0) {
    job.leave(kName, "0 sets no limit");
  } else {
    const config::Table floor{
        {run::kTokensPerSecondKey, "", {*rate.value * static_cast<double>(length), ""}},
        {"tolerance", "", {0.05, ""}}};
    job.draft().put(
        "run.expect", floor,
        fmt::format("{}, sequences of {} tokens a second", rate.from, length));
  }
}

void translate_bert(const Job& job) {
  Draft& draft = job.draft();
  job.put_results("metrics_file", "bert");
  const bool phase2 = job.on("phase2", false).value_or(false);
  draft.put_default("run.seed", int64_t{12349});
  draft.put_default("run.steps", int64_t{28125});
  draft.put_default("optimizer.lr", 4e-4);
  draft.put_default(
      "data.seq_len", int64_t{phase2 ? 512 : 128},
      phase2 ? "the length of phase 2's data" : "the length of phase 1's data");
  draft.put("parallel.zero", int64_t{0}, "replicated");
  const Known<int64_t> micro = job.whole("batch_size", 8);
  const Known<int64_t> steps = job.whole("grad_accum_usteps", 64);
  job.put("batch.micro_size", micro);
  job.put_global_size(micro, "batch_size", steps, "grad_accum_usteps");
  put_stop_after(job);

  const Known<std::string> optimizer = job.text("optimizer", "AdamW_FP32OptimParams");
  if (!optimizer.value) {
    draft.fill("optimizer.kind", optimizer.from);
  } else if (*optimizer.value == "LAMB") {
    draft.put("optimizer.kind", "lamb", optimizer.from);
    draft.put("optimizer.eps", 1e-6, kFixed);
    draft.put("optimizer.weight_decay", 0.01, kFixed);
    draft.put("optimizer.no_decay", patterns({"*bias", "*LayerNorm*"}), "their filter");
  } else if (optimizer.value->starts_with("AdamW")) {
    put_hf_adamw(job, true);
  } else {
    fail_input("flags",
               "--optimizer {}: their script has AdamW, AdamW_FP32OptimParams, "
               "AdamW_FP32ParamsCopy and LAMB",
               one_line(*optimizer.value));
  }
  job.put_betas(0.9, 0.999);
  put_linear(job, 2000);
  const Known<bool> fp32 = job.on("enable_fp32", false);
  const Known<bool> autocast = job.on("enable_pt_autocast");
  if (!fp32.value) {
    draft.fill("precision.compute", fp32.from);
  } else if (*fp32.value) {
    draft.put("precision.compute", "fp32", fp32.from);
  } else if (autocast.value_or(false)) {
    draft.put("precision.compute", "bf16", autocast.from);
  }
  if (job.on("disable_dropout", false).value_or(false)) {
    for (const char* field : {"hidden_dropout_prob", "attention_probs_dropout_prob"}) {
      draft.override_field(field, 0.0, "--disable_dropout");
    }
  }
  draft.put_default("checkpoint.keep", int64_t{1});
  draft.put("model.config", "recipes/models/bert-large-uncased",
            "bert-large-uncased, which their code loads");
  if (job.find("data_dir") == nullptr) {
    draft.fill("data.train",
               "their default: ~/examples_datasets/"
               "bert_pretrain_wikicorpus_tokenized_hdf5_seqlen128");
  }
  const Said* const path = job.find("resume_ckpt_path");
  if (phase2) {
    draft.fill("init.weights",
               "the weights of phase 1: its run.dir, or the Hugging Face directory that "
               "longhaul import {} --config MODEL --out DIR makes",
               path == nullptr ? "CHECKPOINT.pt" : path->text());
  } else if (path != nullptr) {
    job.leave("resume_ckpt_path",
              "longhaul import CHECKPOINT.pt --format checkpoint, then "
              "checkpoint.resume, goes on from it");
  }
  put_expected_rate(job);
  job.leave("debug", "model.override makes a model smaller");
  job.leave({"snapshot_step_list", "snapshot_rank_list", "snapshot_dump_dir"},
            "debug.capture writes tensors of some steps");
  put_resume_flag(job, "resume_step");
}

}  // namespace longhaul::translate
