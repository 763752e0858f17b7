// These rules translate torchtitan.
#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/translate/flag_rules.h"

namespace longhaul::translate {
namespace {

/// Returns a setting that has several names in different versions.
Known<int64_t> whole_any(const Job& job, const std::vector<std::string>& names,
                         std::optional<int64_t> otherwise = {}) {
  const Said* const said = job.find_any(names);
  return job.whole(said == nullptr ? names.front() : said->name, otherwise);
}

/// Puts parallel.context. torch's alltoall sends each rank's part to the next rank, which
/// is a ring.
void put_titan_context(const Job& job) {
  Draft& draft = job.draft();
  const Said* const said = job.find_any({"parallelism.context_parallel_rotate_method",
                                         "experimental.context_parallel_rotate_method"});
  if (draft.whole("parallel.cp", 1) <= 1) return;
  if (said == nullptr) {
    return draft.put("parallel.context", "gather", "their default, allgather");
  }
  const std::string method = dictionary::word_name(said->text());
  if (method == "allgather" || method == "alltoall") {
    return draft.put("parallel.context", method == "alltoall" ? "ring" : "gather",
                     said->as_written());
  }
  draft.fill("parallel.context",
             said->as_written() + ": their allgather is gather, their alltoall is ring");
}

void put_titan_layout(const Job& job) {
  Draft& draft = job.draft();
  job.put("parallel.tp", whole_any(job, {"parallelism.tensor_parallel_degree",
                                         "training.tensor_parallel_degree",
                                         "training.sequence_parallel_degree"}));
  job.put("parallel.pp", whole_any(job, {"parallelism.pipeline_parallel_degree",
                                         "experimental.pipeline_parallel_degree",
                                         "training.pipeline_parallel_degree"}));
  job.put("parallel.cp", whole_any(job, {"parallelism.context_parallel_degree",
                                         "experimental.context_parallel_degree"}));
  put_titan_context(job);
  put_expert_ranks(job, "parallelism.expert_parallel_degree",
                   "parallelism.expert_tensor_parallel_degree", 1);
  const Known<int64_t> copies = whole_any(job,
                                          {"parallelism.data_parallel_replicate_degree",
                                           "training.data_parallel_replicate_degree"},
                                          1);
  const Known<int64_t> shard = whole_any(
      job,
      {"parallelism.data_parallel_shard_degree", "parallelism.data_parallel_degree",
       "training.data_parallel_shard_degree", "training.data_parallel_degree"},
      -1);
  const std::string type =
      job.text("training.data_parallel_type", "fsdp").value_or("fsdp");
  const bool sharded = shard.value_or(-1) != 1 && type != "ddp";
  const std::string reshard =
      job.text("parallelism.fsdp_reshard_after_forward", "default").value_or("default");
  const bool whole_in_step =
      reshard == "never" || (reshard == "default" && draft.whole("parallel.pp", 1) > 1);
  draft.put("parallel.zero", int64_t{sharded ? (whole_in_step ? 2 : 3) : 0},
            !sharded ? "replicated"
                     : (whole_in_step ? "FSDP, not resharded in a step" : "FSDP"));
  if (!sharded || copies.value_or(1) <= 1) return;
  if (shard.value_or(-1) > 1) {
    job.put("parallel.shard_group", shard);
  } else if (const Known<int64_t> dp = job.replicas();
             dp.value && *dp.value % *copies.value == 0) {
    draft.put("parallel.shard_group", *dp.value / *copies.value,
              fmt::format("{} replicas / {} {}", *dp.value, copies.from, *copies.value));
  } else {
    draft.fill("parallel.shard_group", "data-parallel ranks / {} {}", copies.from,
               *copies.value);
  }
}

void put_titan_batch(const Job& job) {
  Draft& draft = job.draft();
  const Known<int64_t> local =
      whole_any(job, {"training.local_batch_size", "training.batch_size"}, 8);
  const bool pipeline = draft.whole("parallel.pp", 1) > 1;
  const Known<int64_t> parts = job.whole("experimental.pipeline_parallel_microbatches");
  if (pipeline && parts.value && local.value && *parts.value > 0 &&
      *local.value % *parts.value == 0) {
    draft.put("batch.micro_size", *local.value / *parts.value,
              fmt::format("{} / {}", local.from, parts.from));
  } else if (pipeline) {
    Known<int64_t> micro = job.whole("parallelism.pipeline_parallel_microbatch_size", 1);
    micro.given = true;
    job.put("batch.micro_size", micro);
  } else {
    job.put("batch.micro_size",
            local.given ? local : Known<int64_t>{local.value, local.from, true});
  }
  const Known<int64_t> global = job.whole("training.global_batch_size", -1);
  if (global.value && *global.value > 0) return job.put("batch.global_size", global);
  if (!global.value) return draft.fill("batch.global_size", global.from);
  Known<int64_t> replica = local;
  const Known<int64_t> steps = job.whole("training.gradient_accumulation_steps", 1);
  if (replica.value && steps.value && *steps.value > 1) {
    replica.value = *replica.value * *steps.value;
    replica.from += fmt::format(" * {} {} =", steps.from, *steps.value);
  }
  job.put_global_size(replica);
}

/// Puts torchtitan's schedule exactly. W are the steps of the warm-up, D the steps of the
/// decay, and T all steps. For s < W torchtitan's rate after s steps is lr (s + 1) / W.
/// Then the rate is lr, and from T - D on it decays with the progress (s - T + D) / D. A
/// wsd schedule has this form if it warms up for W - 1 steps with warmup_start = nonzero.
void put_titan_shape(const Job& job, const std::string& form) {
  Draft& draft = job.draft();
  const Known<int64_t> total =
      whole_any(job, {"lr_scheduler.total_steps", "training.steps"}, 10000);
  const Known<int64_t> wanted =
      whole_any(job, {"lr_scheduler.warmup_steps", "training.warmup_steps"}, 200);
  const Known<double> ratio = job.real("lr_scheduler.decay_ratio");
  draft.put("schedule.kind", "wsd", "their form: a warm-up, a constant rate, a decay");
  draft.put("schedule.decay", form,
            job.find("lr_scheduler.decay_type") != nullptr ? "lr_scheduler.decay_type"
                                                           : "their default");
  if (!total.value || !wanted.value || (ratio.given && !ratio.value)) {
    draft.put("schedule.warmup_start", "nonzero", "their form");
    draft.fill("schedule.warmup_steps", "lr_scheduler.warmup_steps - 1");
    return draft.fill("schedule.decay_steps",
                      "lr_scheduler.decay_ratio * training.steps; without a ratio "
                      "training.steps - lr_scheduler.warmup_steps");
  }
  const int64_t warmup = std::max<int64_t>(std::min(*wanted.value, *total.value), 0);
  if (*wanted.value > warmup) {
    draft.leave(
        "{} {}: a warm-up longer than the {} steps of the schedule, to which torchtitan "
        "shortens it, too",
        wanted.from, *wanted.value, *total.value);
  }
  draft.put("schedule.warmup_steps", std::max<int64_t>(warmup - 1, 0),
            fmt::format("{} {}, less the step that has the whole rate in both",
                        wanted.from, warmup));
  if (warmup > 1) {
    draft.put("schedule.warmup_start", "nonzero", "their form: lr (s + 1) / W");
  }
  // Python's round rounds halves to even.
  const int64_t room = *total.value - warmup;
  const int64_t decay =
      ratio.value
          ? std::min<int64_t>(
                std::llrint(static_cast<double>(*total.value) * *ratio.value), room)
          : room;
  draft.put("schedule.decay_steps", std::max<int64_t>(decay, 1),
            ratio.value
                ? fmt::format("{} {} of {} steps", ratio.from, *ratio.value, *total.value)
                : "all after the warm-up");
}

void put_titan_schedule(const Job& job) {
  Draft& draft = job.draft();
  const std::string form = job.text("lr_scheduler.decay_type", "linear").value_or("");
  if (form != "linear" && form != "cosine" && form != "sqrt") {
    fail_input("flags",
               "lr_scheduler.decay_type = {}: torchtitan has linear, sqrt and cosine",
               one_line(form));
  }
  if (job.find("training.warmup_steps") != nullptr &&
      job.find("lr_scheduler.warmup_steps") == nullptr) {
    draft.put("schedule.kind", "linear", "their form of 2024");
    draft.put("schedule.warmup_start", "nonzero",
              "their form of 2024: lr (s + 1) / (W + 1)");
  } else {
    put_titan_shape(job, form);
  }
  const Said* const said =
      job.find_any({"lr_scheduler.min_lr_factor", "lr_scheduler.lr_min"});
  if (said == nullptr) return;
  const double factor = real_of(*said, said->text());
  const auto lr = draft.lines().find("optimizer.lr");
  const double* const peak =
      lr == draft.lines().end() ? nullptr : std::get_if<double>(&lr->second.value.data);
  if (factor == 0.0) return;
  if (peak == nullptr)
    return draft.fill("schedule.min_lr", said->shown + " * optimizer.lr");
  draft.put("schedule.min_lr", factor * *peak,
            fmt::format("{} {} * optimizer.lr", said->shown, factor));
}

void put_titan_checkpoints(const Job& job) {
  Draft& draft = job.draft();
  const Said* const enable =
      job.find_any({"checkpoint.enable", "checkpoint.enable_checkpoint"});
  // The first versions had only an interval, and an empty folder for no checkpoints.
  const bool on = enable != nullptr
                      ? truth_of(*enable)
                      : job.find("training.checkpoint_folder") != nullptr &&
                            !job.find("training.checkpoint_folder")->text().empty();
  if (!on) {
    draft.leave(
        "their checkpoints are off; here they are on: checkpoint.every = 0 saves only at "
        "the end, and a run that fails earlier starts at step 1 again");
  } else {
    const Known<int64_t> every =
        whole_any(job, {"checkpoint.interval", "training.checkpoint_interval"}, 500);
    const Said* const unit =
        job.find_any({"checkpoint.interval_type", "training.checkpoint_interval_type"});
    if (unit != nullptr && dictionary::word_name(unit->text()) == "seconds") {
      draft.put("checkpoint.every", int64_t{0}, unit->as_written());
      if (every.value) {
        draft.put("checkpoint.every_minutes", static_cast<double>(*every.value) / 60.0,
                  fmt::format("{} {} seconds", every.from, *every.value));
      } else {
        draft.fill("checkpoint.every_minutes", every.from + ": seconds / 60");
      }
    } else {
      job.put("checkpoint.every", every);
    }
    job.put("checkpoint.keep", job.whole("checkpoint.keep_latest_k", 10));
    const Said* const folder = job.find("checkpoint.folder");
    if (folder != nullptr && folder->text().starts_with('/')) {
      draft.put("checkpoint.dir", folder->text(), folder->shown);
    }
    const Known<std::string> async = job.text("checkpoint.async_mode");
    if (async.value)
      draft.put("checkpoint.async", *async.value != "disabled", async.from);
    const Known<int64_t> step = job.whole("checkpoint.load_step", -1);
    if (step.value && *step.value >= 0)
      draft.put("checkpoint.resume", *step.value, step.from);
  }
  if (const Said* const path = job.find("checkpoint.initial_load_path")) {
    draft.fill("init.weights",
               "a Hugging Face directory of these weights; longhaul import {} --config "
               "MODEL --out DIR makes one of a DCP checkpoint",
               path->text());
  }
}

void put_titan_data(const Job& job) {
  Draft& draft = job.draft();
  const Said* const path = job.find("training.dataset_path");
  const std::string what = path != nullptr
                               ? path->text()
                               : job.text("training.dataset", "c4_test").value_or("");
  draft.fill("data.train",
             "a token store or a data set of ids: longhaul data build makes one of the "
             "text of {}",
             what);
  const Said* const on = job.find_any({"validation.enable", "validation.enabled"});
  if (on == nullptr || !truth_of(*on)) return;
  const Said* const held =
      job.find_any({"validation.dataset_path", "validation.dataset"});
  draft.fill("data.validation", "a token store of {}",
             held == nullptr ? "c4_validation" : held->text());
  job.put("validation.every", job.whole("validation.freq", 10));
  Known<int64_t> batches = job.whole("validation.steps", -1);
  if (batches.value && *batches.value < 0)
    batches = {0, batches.from + " -1: the whole set", true};
  job.put("validation.batches", batches);
}

void put_titan_model(const Job& job) {
  Draft& draft = job.draft();
  const Said* const assets = job.find("model.hf_assets_path");
  if (assets != nullptr && !assets->variable) {
    return draft.put("model.config", assets->text(), assets->shown);
  }
  draft.fill("model.config", "the Hugging Face directory or config.json of {} {}",
             job.text("model.name", "llama3").value_or(""),
             job.text("model.flavor", "debugmodel").value_or(""));
}

}  // namespace

void translate_torchtitan(const Job& job) {
  Draft& draft = job.draft();
  draft.put_default("run.steps", int64_t{10000});
  draft.put_default("data.seq_len", int64_t{2048});
  draft.put_default("optimizer.lr", 8e-4);
  put_titan_layout(job);
  put_titan_batch(job);
  job.put_betas("optimizer.beta1", "optimizer.beta2", 0.9, 0.95);
  draft.put("optimizer.no_decay", config::Array{}, "their decay is on all weights");
  const std::string optimizer = job.text("optimizer.name", "AdamW").value_or("");
  if (optimizer != "AdamW") {
    draft.fill("optimizer.kind", "optimizer.name {}: there are adamw and lamb",
               optimizer);
  }
  put_titan_schedule(job);
  put_titan_checkpoints(job);
  put_titan_data(job);
  put_titan_model(job);
  note_other_mixtures(job, "debug.");
  note_other_mixtures(job, "training.debug_");
  const std::string recompute =
      job.text("activation_checkpoint.mode", "selective").value_or("");
  if (recompute != "none") {
    draft.put("memory.recompute", recompute,
              job.find("activation_checkpoint.mode") == nullptr
                  ? "their default"
                  : "activation_checkpoint.mode");
  }
  if (job.text("training.mixed_precision_param", "bfloat16").value_or("") == "float32") {
    draft.put("precision.compute", "fp32", "training.mixed_precision_param");
  }
  if (job.text("training.mixed_precision_reduce", "float32").value_or("") == "bfloat16") {
    draft.put("precision.reduce", "bf16", "training.mixed_precision_reduce");
  }
  const Said* const dtype = job.find("training.dtype");
  if (dtype != nullptr && dtype->text() != "float32") {
    draft.leave(
        "CAUTION {}: their weights, gradients and moments are of this type, without a "
        "copy in fp32; here they are fp32 and take more memory. Setting precision.master "
        "= \"bf16_sr\" with moments and gradients \"bf16\" takes theirs, and rounds "
        "stochastically",
        dtype->as_written());
  }
  const Said* const profile =
      job.find_any({"profiling.enable_profiling", "profiling.run_profiler"});
  if (profile != nullptr && truth_of(*profile)) {
    job.put(
        "profile.every",
        whole_any(job, {"profiling.profile_freq", "profiling.profile_every_x_iter"}, 10));
  }
  const Said* const pipeline = job.find_any({"parallelism.pipeline_parallel_schedule",
                                             "experimental.pipeline_parallel_schedule"});
  const Known<std::string> schedule = job.text(
      pipeline == nullptr ? "parallelism.pipeline_parallel_schedule" : pipeline->name);
  if (schedule.value && draft.whole("parallel.pp", 1) > 1) {
    const std::string name = dictionary::word_name(*schedule.value);
    if (name == "gpipe" || name == "1f1b") {
      draft.put("parallel.pipeline", name, schedule.from);
    } else if (name == "interleaved1f1b") {
      draft.put("parallel.pipeline", "interleaved", schedule.from);
      draft.put("parallel.virtual_stages", int64_t{2},
                "two stages a rank, their default");
    } else {
      draft.fill("parallel.pipeline",
                 "{} {}: there are gpipe, 1f1b, interleaved and zb-h1", schedule.from,
                 *schedule.value);
    }
  }
  if (!job.all("model.converters").empty()) {
    draft.leave("model.converters: fp8 is not available yet; the run computes in bf16");
  }
}

}  // namespace longhaul::translate
