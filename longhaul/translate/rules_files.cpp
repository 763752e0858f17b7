// torchtitan and nanotron.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "longhaul/base/error.h"
#include "longhaul/translate/rules.h"

namespace longhaul::translate {
namespace {

using config::Value;

Value name_value(const std::string& text) { return {text, ""}; }

/// The same setting by the names of several versions.
Known<int64_t> whole_any(const Job& job, const std::vector<std::string>& names,
                         std::optional<int64_t> otherwise = {}) {
  const Said* const said = job.find_any(names);
  return job.whole(said == nullptr ? names.front() : said->name, otherwise);
}

/// torch's alltoall sends each rank's part to the next rank, which is a ring.
void put_titan_context(const Job& job) {
  Draft& draft = job.draft();
  const Said* const said = job.find_any({"parallelism.context_parallel_rotate_method",
                                         "experimental.context_parallel_rotate_method"});
  if (draft.whole("parallel.cp", 1) <= 1) return;
  if (said == nullptr) {
    return draft.put("parallel.context", name_value("gather"),
                     "their default, allgather");
  }
  const std::string method = config::word_name(said->text());
  if (method == "allgather" || method == "alltoall") {
    return draft.put("parallel.context",
                     name_value(method == "alltoall" ? "ring" : "gather"), said->whole());
  }
  draft.fill("parallel.context",
             said->whole() + ": their allgather is gather, their alltoall is ring");
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
      job.text("training.data_parallel_type", "fsdp").value.value_or("fsdp");
  const bool sharded = shard.value.value_or(-1) != 1 && type != "ddp";
  const std::string reshard =
      job.text("parallelism.fsdp_reshard_after_forward", "default")
          .value.value_or("default");
  const bool whole_in_step =
      reshard == "never" || (reshard == "default" && draft.whole("parallel.pp", 1) > 1);
  draft.put("parallel.zero", {int64_t{sharded ? (whole_in_step ? 2 : 3) : 0}, ""},
            !sharded ? "replicated"
                     : (whole_in_step ? "FSDP, not resharded in a step" : "FSDP"));
  if (!sharded || copies.value.value_or(1) <= 1) return;
  if (shard.value.value_or(-1) > 1) {
    job.put("parallel.shard_group", shard);
  } else if (const Known<int64_t> dp = job.replicas();
             dp.value && *dp.value % *copies.value == 0) {
    draft.put("parallel.shard_group", {*dp.value / *copies.value, ""},
              fmt::format("{} replicas / {} {}", *dp.value, copies.from, *copies.value));
  } else {
    draft.fill("parallel.shard_group",
               fmt::format("data-parallel ranks / {} {}", copies.from, *copies.value));
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
    draft.put("batch.micro_size", {*local.value / *parts.value, ""},
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

/// Puts torchtitan's schedule exactly. With W steps of warm-up, D of decay and T in all,
/// its rate after s steps is lr (s + 1) / W for s < W, then lr, and from T - D on it
/// decays by (s - T + D) / D. That is wsd with a warm-up of W - 1 steps from (s + 1) / W
/// on.
void put_titan_shape(const Job& job, const std::string& form) {
  Draft& draft = job.draft();
  const Known<int64_t> total =
      whole_any(job, {"lr_scheduler.total_steps", "training.steps"}, 10000);
  const Known<int64_t> wanted =
      whole_any(job, {"lr_scheduler.warmup_steps", "training.warmup_steps"}, 200);
  const Known<double> ratio = job.real("lr_scheduler.decay_ratio");
  draft.put("schedule.kind", name_value("wsd"),
            "their form: a warm-up, a constant rate, a decay");
  draft.put("schedule.decay", name_value(form),
            job.find("lr_scheduler.decay_type") != nullptr ? "lr_scheduler.decay_type"
                                                           : "their default");
  if (!total.value || !wanted.value || (ratio.given && !ratio.value)) {
    draft.put("schedule.warmup_start", name_value("nonzero"), "their form");
    draft.fill("schedule.warmup_steps", "lr_scheduler.warmup_steps - 1");
    return draft.fill("schedule.decay_steps",
                      "lr_scheduler.decay_ratio * training.steps; without a ratio "
                      "training.steps - lr_scheduler.warmup_steps");
  }
  const int64_t warmup = std::max<int64_t>(std::min(*wanted.value, *total.value), 0);
  if (*wanted.value > warmup) {
    draft.leave(
        fmt::format("{} {}: a warm-up longer than the {} steps of the schedule, to which "
                    "torchtitan shortens it, too",
                    wanted.from, *wanted.value, *total.value));
  }
  draft.put("schedule.warmup_steps", {std::max<int64_t>(warmup - 1, 0), ""},
            fmt::format("{} {}, less the step that has the whole rate in both",
                        wanted.from, warmup));
  if (warmup > 1) {
    draft.put("schedule.warmup_start", name_value("nonzero"),
              "their form: lr (s + 1) / W");
  }
  // Python's round, to the even number from a half.
  const int64_t room = *total.value - warmup;
  const int64_t decay =
      ratio.value
          ? std::min<int64_t>(
                std::llrint(static_cast<double>(*total.value) * *ratio.value), room)
          : room;
  draft.put("schedule.decay_steps", {std::max<int64_t>(decay, 1), ""},
            ratio.value
                ? fmt::format("{} {} of {} steps", ratio.from, *ratio.value, *total.value)
                : "all after the warm-up");
}

void put_titan_schedule(const Job& job) {
  Draft& draft = job.draft();
  const std::string form =
      job.text("lr_scheduler.decay_type", "linear").value.value_or("");
  if (form != "linear" && form != "cosine" && form != "sqrt") {
    throw InputError("flags",
                     fmt::format("lr_scheduler.decay_type = {}: torchtitan has linear, "
                                 "sqrt and cosine",
                                 one_line(form)));
  }
  if (job.find("training.warmup_steps") != nullptr &&
      job.find("lr_scheduler.warmup_steps") == nullptr) {
    draft.put("schedule.kind", name_value("linear"), "their form of 2024");
    draft.put("schedule.warmup_start", name_value("nonzero"),
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
  draft.put("schedule.min_lr", {factor * *peak, ""},
            fmt::format("{} {} * optimizer.lr", said->shown, factor));
}

void put_titan_checkpoints(const Job& job) {
  Draft& draft = job.draft();
  const Said* const enable =
      job.find_any({"checkpoint.enable", "checkpoint.enable_checkpoint"});
  // The first versions had an interval alone, with an empty folder for none.
  const bool on = enable != nullptr
                      ? truth_of(*enable)
                      : job.find("training.checkpoint_folder") != nullptr &&
                            !job.find("training.checkpoint_folder")->text().empty();
  if (!on) {
    draft.leave(
        "their checkpoints are off; here they are on: checkpoint.every = 0 saves at the "
        "end "
        "alone, and a run that breaks then starts at step 1");
  } else {
    const Known<int64_t> every =
        whole_any(job, {"checkpoint.interval", "training.checkpoint_interval"}, 500);
    const Said* const unit =
        job.find_any({"checkpoint.interval_type", "training.checkpoint_interval_type"});
    if (unit != nullptr && config::word_name(unit->text()) == "seconds" && every.value) {
      draft.put("checkpoint.every", {int64_t{0}, ""}, unit->whole());
      draft.put("checkpoint.every_minutes",
                {static_cast<double>(*every.value) / 60.0, ""},
                fmt::format("{} {} seconds", every.from, *every.value));
    } else if (unit != nullptr && config::word_name(unit->text()) == "seconds") {
      draft.put("checkpoint.every", {int64_t{0}, ""}, unit->whole());
      draft.fill("checkpoint.every_minutes", every.from + ": seconds / 60");
    } else {
      job.put("checkpoint.every", every);
    }
    job.put("checkpoint.keep", job.whole("checkpoint.keep_latest_k", 10));
    const Said* const folder = job.find("checkpoint.folder");
    if (folder != nullptr && folder->text().starts_with('/')) {
      draft.put("checkpoint.dir", name_value(folder->text()), folder->shown);
    }
    const Known<std::string> async = job.text("checkpoint.async_mode");
    if (async.value)
      draft.put("checkpoint.async", {*async.value != "disabled", ""}, async.from);
    const Known<int64_t> step = job.whole("checkpoint.load_step", -1);
    if (step.value && *step.value >= 0)
      draft.put("checkpoint.resume", {*step.value, ""}, step.from);
  }
  if (const Said* const path = job.find("checkpoint.initial_load_path")) {
    draft.fill(
        "init.weights",
        fmt::format(
            "a Hugging Face directory of these weights; longhaul import {} --config "
            "MODEL --out DIR makes one of a DCP checkpoint",
            path->text()));
  }
}

void put_titan_data(const Job& job) {
  Draft& draft = job.draft();
  const Said* const path = job.find("training.dataset_path");
  const std::string what =
      path != nullptr ? path->text()
                      : job.text("training.dataset", "c4_test").value.value_or("");
  draft.fill("data.train",
             fmt::format("a token store or a data set of ids: longhaul data build makes "
                         "one of the text of {}",
                         what));
  const Said* const on = job.find_any({"validation.enable", "validation.enabled"});
  if (on == nullptr || !truth_of(*on)) return;
  const Said* const held =
      job.find_any({"validation.dataset_path", "validation.dataset"});
  draft.fill("data.validation",
             fmt::format("a token store of {}",
                         held == nullptr ? "c4_validation" : held->text()));
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
    return draft.put("model.config", name_value(assets->text()), assets->shown);
  }
  draft.fill("model.config",
             fmt::format("the Hugging Face directory or config.json of {} {}",
                         job.text("model.name", "llama3").value.value_or(""),
                         job.text("model.flavor", "debugmodel").value.value_or("")));
}

/// All values that list entries of one name have.
std::vector<std::string> values_of(const Job& job, const std::string& name) {
  std::vector<std::string> out;
  for (const Said* said : job.all(name)) {
    for (const std::string& value : said->values) out.push_back(value);
  }
  return out;
}

const std::string kNanotronRate = "optimizer.learning_rate_scheduler.";

std::string nanotron_decay_form(const Job& job) {
  const std::string style =
      job.text(kNanotronRate + "lr_decay_style", "linear").value.value_or("");
  if (style == "linear" || style == "cosine") return style;
  if (style == "1-sqrt") return "sqrt";
  throw InputError("flags",
                   fmt::format("{}lr_decay_style: {}: nanotron has linear, cosine and "
                               "1-sqrt",
                               kNanotronRate, one_line(style)));
}

/// Puts the warm-up: linear from rate 0, or steps at the whole rate.
void put_nanotron_warmup(const Job& job, int64_t warmup) {
  Draft& draft = job.draft();
  const std::string style =
      job.text(kNanotronRate + "lr_warmup_style", "linear").value.value_or("");
  if (style == "constant") {
    return draft.put("schedule.warmup_steps", {int64_t{0}, ""},
                     kNanotronRate + "lr_warmup_style constant: the whole rate at once");
  }
  if (warmup > 0) {
    return draft.put("schedule.warmup_start", name_value("zero"), "their form: lr s / W");
  }
  draft.leave(kNanotronRate +
              "lr_warmup_steps 0: their linear warm-up gives step 1 alone the rate 0, "
              "here step 1 has the whole rate");
}

/// Puts a decay of `length` steps after `first` steps.
void put_nanotron_decay(const Job& job, int64_t warmup, int64_t first, int64_t length) {
  Draft& draft = job.draft();
  const std::string form = nanotron_decay_form(job);
  const std::string from = job.find(kNanotronRate + "lr_decay_style") != nullptr
                               ? kNanotronRate + "lr_decay_style"
                               : "their default";
  const bool stable = first > draft.whole("schedule.warmup_steps", 0);
  if (!stable && form != "sqrt") {
    draft.put("schedule.kind", name_value(form), from);
  } else {
    draft.put("schedule.kind", name_value("wsd"),
              first == warmup ? "the decay begins after lr_warmup_steps"
                              : kNanotronRate + "lr_decay_starting_step");
    draft.put("schedule.decay", name_value(form), from);
    draft.put("schedule.decay_steps", {length, ""},
              job.find(kNanotronRate + "lr_decay_steps") != nullptr
                  ? kNanotronRate + "lr_decay_steps"
                  : "lr_decay_steps, absent: their train_steps - lr_warmup_steps");
  }
  const int64_t steps = draft.whole("run.steps", 1);
  if (first + length == steps) return;
  draft.put("schedule.horizon", {first + length, ""},
            fmt::format("where their decay ends: {} + {}", first, length));
  if (first + length > steps && job.find(kNanotronRate + "lr_decay_steps") == nullptr) {
    draft.leave(fmt::format(
        "CAUTION lr_decay_starting_step {} without lr_decay_steps: nanotron decays over "
        "train_steps - lr_warmup_steps = {} steps, up to step {}, and the run ends at "
        "{}. "
        "So does this one; schedule.decay_steps = {} without schedule.horizon ends the "
        "decay with the run",
        first, length, first + length, steps, std::max<int64_t>(steps - first, 1)));
  }
}

void put_nanotron_schedule(const Job& job) {
  Draft& draft = job.draft();
  const int64_t steps = draft.whole("run.steps", 1);
  const int64_t warmup = draft.whole("schedule.warmup_steps", 0);
  const int64_t first =
      job.whole(kNanotronRate + "lr_decay_starting_step", warmup).value.value_or(warmup);
  const int64_t length =
      std::max<int64_t>(job.whole(kNanotronRate + "lr_decay_steps", steps - warmup)
                            .value.value_or(steps - warmup),
                        1);
  put_nanotron_warmup(job, warmup);
  const Known<double> low = job.real(kNanotronRate + "min_decay_lr");
  const Known<double> peak = job.real(kNanotronRate + "learning_rate");
  if (!low.given || (low.value && peak.value && *low.value == *peak.value)) {
    nanotron_decay_form(job);
    return draft.put("schedule.kind", name_value("constant"),
                     low.given ? "min_decay_lr is learning_rate"
                               : "min_decay_lr, absent: their rate does not fall");
  }
  put_nanotron_decay(job, warmup, first, length);
  job.put("schedule.min_lr", low);
  if (first < warmup) {
    draft.leave(
        fmt::format("CAUTION {}lr_decay_starting_step {} lies in the warm-up of {} "
                    "steps: their rate leaps after it, here it does not",
                    kNanotronRate, first, warmup));
  }
}

void put_nanotron_model(const Job& job) {
  Draft& draft = job.draft();
  const std::string at = "model.model_config.";
  for (const char* field :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings",
        "bos_token_id", "eos_token_id"}) {
    job.override_whole(at + field, field);
  }
  for (const char* field : {"rms_norm_eps", "rope_theta"})
    job.override_real(at + field, field);
  const Known<std::string> act = job.text(at + "hidden_act");
  if (act.value) draft.override_field("hidden_act", name_value(*act.value), act.from);
  const Known<bool> tied = job.on(at + "tie_word_embeddings");
  if (tied.value)
    draft.override_field("tie_word_embeddings", {*tied.value, ""}, tied.from);
  job.override_real("model.init_method.std", "initializer_range");
  draft.fill(
      "model.config",
      "the config.json of a Llama (or of the model's family); model.override below has "
      "their shape");
  if (const Said* const path = job.find("model.init_method.path")) {
    draft.fill("init.weights",
               path->whole() + ": a Hugging Face directory of these weights");
  }
}

void put_nanotron_data(const Job& job) {
  Draft& draft = job.draft();
  std::vector<std::string> names;
  for (const char* key : {"hf_dataset_or_datasets", "dataset_folder", "dataset_path"}) {
    for (const std::string& value :
         values_of(job, std::string("data_stages.data.dataset.") + key)) {
      if (std::ranges::find(names, value) == names.end()) names.push_back(value);
    }
  }
  const std::vector<std::string> weights =
      values_of(job, "data_stages.data.dataset.dataset_weights");
  const std::string shares =
      weights.empty() ? ""
                      : fmt::format(" as {{ path, weight }} each, with the weights {}",
                                    fmt::join(weights, ", "));
  if (names.empty()) {
    const config::Table one{{"synthetic", "", {int64_t{1'000'000}, ""}}};
    draft.put("data.train", {config::Array{{one, ""}}, ""},
              "no data set is named: random tokens");
  } else {
    draft.fill("data.train",
               fmt::format("token stores or data sets of ids: longhaul data build makes "
                           "them of the text of {}{}",
                           fmt::join(names, ", "), shares));
  }
  for (const Said* stage : job.all("data_stages.start_training_step")) {
    if (!stage->values.empty() && whole_of(*stage, stage->text()) > 1) {
      draft.leave(fmt::format(
          "{}: data.changes gives the sources of data.train other weights from "
          "a step on",
          stage->whole()));
    }
  }
}

}  // namespace

void translate_torchtitan(const Job& job) {
  Draft& draft = job.draft();
  draft.put_default("run.steps", {int64_t{10000}, ""});
  draft.put_default("data.seq_len", {int64_t{2048}, ""});
  draft.put_default("optimizer.lr", {8e-4, ""});
  put_titan_layout(job);
  put_titan_batch(job);
  job.put_betas("optimizer.beta1", "optimizer.beta2", 0.9, 0.95);
  draft.put("optimizer.no_decay", {config::Array{}, ""}, "their decay is on all weights");
  const std::string optimizer = job.text("optimizer.name", "AdamW").value.value_or("");
  if (optimizer != "AdamW") {
    draft.fill("optimizer.kind",
               fmt::format("optimizer.name {}: there are adamw and lamb", optimizer));
  }
  put_titan_schedule(job);
  put_titan_checkpoints(job);
  put_titan_data(job);
  put_titan_model(job);
  const std::string recompute =
      job.text("activation_checkpoint.mode", "selective").value.value_or("");
  if (recompute != "none") {
    draft.put("memory.recompute", name_value(recompute),
              job.find("activation_checkpoint.mode") == nullptr
                  ? "their default"
                  : "activation_checkpoint.mode");
  }
  if (job.text("training.mixed_precision_param", "bfloat16").value.value_or("") ==
      "float32") {
    draft.put("precision.compute", name_value("fp32"), "training.mixed_precision_param");
  }
  if (job.text("training.mixed_precision_reduce", "float32").value.value_or("") ==
      "bfloat16") {
    draft.put("precision.reduce", name_value("bf16"), "training.mixed_precision_reduce");
  }
  const Said* const dtype = job.find("training.dtype");
  if (dtype != nullptr && dtype->text() != "float32") {
    draft.leave(fmt::format(
        "CAUTION {}: their weights, gradients and moments are of this type, without a "
        "copy "
        "in fp32; here they are fp32 and take more memory. precision.master = "
        "\"bf16_sr\" "
        "with moments and gradients \"bf16\" takes theirs, and rounds stochastically",
        dtype->whole()));
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
    const std::string name = config::word_name(*schedule.value);
    if (name == "gpipe" || name == "1f1b") {
      draft.put("parallel.pipeline", name_value(name), schedule.from);
    } else if (name == "interleaved1f1b") {
      draft.put("parallel.pipeline", name_value("interleaved"), schedule.from);
      draft.put("parallel.virtual_stages", {int64_t{2}, ""},
                "two stages a rank, their default");
    } else {
      draft.fill("parallel.pipeline",
                 fmt::format("{} {}: there are gpipe, 1f1b, interleaved and zb-h1",
                             schedule.from, *schedule.value));
    }
  }
  if (!job.all("model.converters").empty()) {
    draft.leave("model.converters: fp8 is not available yet; the run computes in bf16");
  }
}

void translate_nanotron(const Job& job) {
  Draft& draft = job.draft();
  const Known<int64_t> micro = job.whole("tokens.micro_batch_size");
  const Known<int64_t> steps = job.whole("tokens.batch_accumulation_per_replica", 1);
  const Known<int64_t> dp = job.whole("parallelism.dp");
  if (micro.value && steps.value && dp.value) {
    draft.put(
        "batch.global_size", {*micro.value * *steps.value * *dp.value, ""},
        fmt::format("micro_batch_size {} * batch_accumulation_per_replica {} * dp {}",
                    *micro.value, *steps.value, *dp.value));
  }
  const std::string mode =
      config::word_name(job.text("parallelism.tp_mode", "ALL_REDUCE").value.value_or(""));
  if (draft.whole("parallel.tp", 1) > 1) {
    draft.put("parallel.sequence", {mode == "reduce_scatter", ""},
              "parallelism.tp_mode " + mode);
  }
  const Known<std::string> engine = job.text("parallelism.pp_engine", "afab");
  if (draft.whole("parallel.pp", 1) > 1) {
    draft.put("parallel.pipeline",
              name_value(engine.value.value_or("") == "afab" ? "gpipe" : "1f1b"),
              engine.given ? engine.from : "afab, their default");
  }
  if (job.on("parallelism.recompute_layer", false).value.value_or(false)) {
    draft.put("memory.recompute", name_value("full"), "parallelism.recompute_layer");
  }
  const std::string factory =
      job.find("optimizer.optimizer_factory.adam_beta1") != nullptr
          ? "optimizer.optimizer_factory."
          : "optimizer.";
  job.put_betas(factory + "adam_beta1", factory + "adam_beta2", 0.9, 0.95);
  const std::string name = config::word_name(
      job.text("optimizer.optimizer_factory.name", "adamW").value.value_or(""));
  if (name != "adamw") draft.fill("optimizer.kind", name + ": there are adamw and lamb");
  const std::vector<std::string> excluded =
      values_of(job, "optimizer.weight_decay_exclude_named_params");
  if (excluded.empty()) {
    draft.put("optimizer.no_decay", {config::Array{}, ""},
              "their decay is on all weights");
  } else {
    draft.fill("optimizer.no_decay",
               fmt::format("patterns with * and ? in place of the regular "
                           "expressions {}",
                           fmt::join(excluded, ", ")));
  }
  const Said* const clip = job.find("optimizer.clip_grad");
  draft.put_default(
      "optimizer.clip", {clip == nullptr ? 0.0 : real_of(*clip, clip->text()), ""},
      clip == nullptr ? "optimizer.clip_grad null: no clipping" : clip->shown);
  if (!job.on("optimizer.accumulate_grad_in_fp32", true).value.value_or(true)) {
    draft.put("precision.gradients", name_value("bf16"),
              "optimizer.accumulate_grad_in_fp32 false");
  }
  const std::string dtype = job.text("model.dtype", "bfloat16").value.value_or("");
  if (dtype == "float32")
    draft.put("precision.compute", name_value("fp32"), "model.dtype");
  if (dtype != "float32" && dtype != "bfloat16") {
    draft.leave(fmt::format("model.dtype {}: the run computes in bf16", dtype));
  }
  put_nanotron_schedule(job);
  put_nanotron_model(job);
  put_nanotron_data(job);
  const Known<int64_t> validate = job.whole("tokens.val_check_interval", -1);
  if (validate.value && *validate.value > 0) {
    job.put("validation.every", validate);
    job.put("validation.batches", job.whole("tokens.limit_val_batches"));
  }
  const Said* const run = job.find("general.run");
  if (run != nullptr && run->text().find('%') == std::string::npos) {
    draft.put("run.dir", name_value("runs/" + run->text()), "general.run");
  }
  if (const Said* const resume = job.find("checkpoints.resume_checkpoint_path")) {
    draft.leave(resume->whole() +
                ": their checkpoints are not read; a run of longhaul finds its own "
                "newest one by itself");
  }
}

}  // namespace longhaul::translate
