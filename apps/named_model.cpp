#include "apps/named_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "apps/program.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/hf/adapted_model.h"
#include "longhaul/checkpoint/hf/hf_export.h"
#include "longhaul/checkpoint/hf/model_check.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/comm/agree.h"
#include "longhaul/config/load.h"
#include "longhaul/families/network.h"
#include "longhaul/run/saved_settings.h"
#include "longhaul/session/inference.h"
#include "longhaul/tensor/cpu_memory.h"

namespace longhaul::apps {
namespace {

/// Returns what --dtype means: with "auto" it is bf16 if config.json says so.
ComputeType compute_type(const std::string& dtype, const ModelConfig& config) {
  if (dtype == "bf16") return ComputeType::Bf16;
  if (dtype == "fp32") return ComputeType::Fp32;
  const Json json = parse_json(config.source_json, config.source_path.string());
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (json.contains(key) && json[key] == "bfloat16") return ComputeType::Bf16;
  }
  return ComputeType::Fp32;
}

/// Throws ConfigError if --device and --device-plugin do not fit.
void check_device(const ModelCall& call) {
  const bool wanted = call.device == "plugin";
  if (wanted && call.device_plugin.empty()) {
    fail_config("device",
                "--device plugin needs the device's library: --device-plugin LIBRARY.so");
  }
  if (!wanted && call.device != "auto" && !call.device_plugin.empty()) {
    fail_config("device",
                "--device-plugin {} brings a device that --device {} leaves out; give "
                "--device plugin or auto",
                call.device_plugin.string(), call.device);
  }
}

/// Returns the layout of the run that wrote a checkpoint. Returns nothing if the model is
/// no checkpoint, or if the checkpoint was imported and so has no run.
std::optional<ParallelSection> run_parallel(const NamedModel& model,
                                            comm::Communicator& world) {
  const checkpoint::ModelSource& source = model.source->source();
  if (source.kind != checkpoint::ModelSource::Kind::Checkpoint) return std::nullopt;
  const std::string text = comm::on_rank_zero(world, [&] {
    return run::saved_settings(checkpoint::CheckpointReader::open(source.path).state());
  });
  if (text.empty()) return std::nullopt;  // imported
  return parse_run_config(text, (source.path / "state.json").string()).config.parallel;
}

/// Sets how many ranks share the experts: as many as divide both dp x cp and the number
/// of experts. If the layout is `of_run`, a run's own, it stays as it is if it fits the
/// ranks.
void fit_experts(ParallelSection& parallel, bool of_run, const ModelConfig& model,
                 int64_t ranks) {
  const int64_t replicas = ranks / (parallel.tp * parallel.pp * parallel.cp);
  const int64_t data = std::max<int64_t>(1, replicas) * parallel.cp;
  if (of_run && data % parallel.ep == 0) return;
  int64_t most = 0;
  for (const families::Block& block : model.network.blocks) {
    const families::Experts* experts = families::experts_of(block);
    if (experts != nullptr) most = std::gcd(most, experts->router.out);
  }
  parallel.ep = most == 0 ? 1 : std::gcd(data, most);
}

}  // namespace

void add_neuron_option(CLI::App& verb, std::string& python) {
  verb.add_option("--neuron-python", python,
                  "with --device neuron: the interpreter that has torch_neuronx "
                  "(run.neuron_python)")
      ->capture_default_str();
}

void add_model_options(CLI::App& verb, ModelCall& call) {
  verb.add_option("model", call.model, "a Hugging Face directory, a checkpoint or a run")
      ->required();
  verb.add_option("--adapter", call.adapter,
                  "an adapter of the model: a directory in PEFT's format, which export "
                  "writes");
  verb.add_option("--dtype", call.dtype,
                  "dtype of the computation; auto: as the model's config says")
      ->check(CLI::IsMember({"auto", "fp32", "bf16"}))
      ->capture_default_str();
  verb.add_option("--device", call.device,
                  "device that computes; auto: a GPU where one is found")
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "neuron", "plugin"}))
      ->capture_default_str();
  verb.add_option("--device-plugin", call.device_plugin,
                  "a library that brings LibTorch a device (run.device_plugin)");
  verb.add_option("--device-fallback", call.device_fallback,
                  "error | warn: what happens where the device lacks operations, which "
                  "therefore run on the CPU (run.device_fallback)")
      ->check(CLI::IsMember({"error", "warn"}))
      ->capture_default_str();
  add_neuron_option(verb, call.neuron_python);
  verb.add_option("--tp", call.tp,
                  "ranks that split each matrix (parallel.tp); without any option of the "
                  "layout, several ranks take the run's layout")
      ->check(CLI::Range(1, 1'000'000));
  verb.add_option("--pp", call.pp, "pipeline stages (parallel.pp)")
      ->check(CLI::Range(1, 1'000'000));
  verb.add_option("--ep", call.ep,
                  "ranks besides those of tp and pp that have all experts together "
                  "(parallel.ep); default: as many as divide these ranks and the experts")
      ->check(CLI::Range(1, 1'000'000));
}

int with_model(const std::string& named, const objects::Access& objects,
               const std::function<void(const fs::path& path, const World& world)>& use) {
  tensor::tune_cpu_memory();
  return run_together(
      objects,
      [&](const World& world) {
        checkpoint::with_fall_back(
            named,
            [&](const fs::path& path) {
              use(path, world);
              const std::string warning = session::fallback_warning();
              if (world->rank() == 0 && !warning.empty()) say_warning(warning);
            },
            [&](const std::string& line) {
              if (world->rank() == 0) say_warning(line);
            });
      },
      ResilienceSection{}.comm_timeout_s);
}

NamedModel open_model(const fs::path& path, const objects::Access& objects,
                      comm::Communicator& world, const fs::path& adapter) {
  using Source = checkpoint::WeightsSource;
  const checkpoint::SharedSource files = Source::open(path, world, Source::Files::Held);
  const auto named = [](checkpoint::AdaptedModel model) -> NamedModel {
    return {std::move(model.source), std::move(model.config), std::move(model.adapter)};
  };
  const std::string& note = files->source().note;
  if (world.rank() == 0 && note.find("passed over") != std::string::npos) {
    say_warning(note);
  }
  if (checkpoint::holds_adapter(*files)) {
    if (adapter.empty()) return named(checkpoint::with_own_base(files, objects, world));
    fail_config(
        "adapter",
        "{} is a run of an adapter, and --adapter names another one; name the base",
        path.string());
  }
  if (!adapter.empty()) {
    return named(checkpoint::with_adapter_of(adapter, files, world));
  }
  NamedModel model;
  model.config = load_model_config(files->config_path());
  model.source = checkpoint::as_parameters(files, model.config.description);
  checkpoint::check_model(model.source, model.config, world);
  return model;
}

ParallelSection asked_parallel(const ModelCall& call, const NamedModel& model,
                               comm::Communicator& world) {
  ParallelSection parallel;
  bool of_run = false;
  if (call.tp || call.pp || call.cp || call.ep || call.zero) {
    parallel.tp = call.tp.value_or(1);
    parallel.pp = call.pp.value_or(1);
    parallel.cp = call.cp.value_or(1);
    parallel.zero = call.zero.value_or(parallel.zero);
  } else if (world.size() > 1) {
    const std::optional<ParallelSection> runs = run_parallel(model, world);
    of_run = runs.has_value();
    parallel = runs.value_or(parallel);
  }
  if (call.ep) {
    parallel.ep = *call.ep;
  } else {
    fit_experts(parallel, of_run, model.config, world.size());
  }
  parallel.sequence = false;
  return parallel;
}

session::Session load_model(const NamedModel& model, const ModelCall& call,
                            const ParallelSection& parallel, int64_t positions,
                            int64_t micro_size, World world) {
  check_device(call);
  if (positions > model.config.network.max_positions) {
    // The error is a ConfigError, so that with_model() does not try older checkpoints,
    // which have no more positions either.
    fail_config("model",
                "{} positions are needed, the model has {} (max_position_embeddings in "
                "{}); use a shorter length",
                positions, model.config.network.max_positions,
                model.config.source_path.string());
  }
  RunConfig config;
  config.run.device = call.device;
  config.run.device_plugin = call.device_plugin;
  config.run.device_fallback = call.device_fallback;
  config.run.neuron_python = call.neuron_python;
  config.run.fused = !call.plain;
  config.model.config = model.config.source_path;
  config.data.seq_len = positions;
  config.parallel = parallel;
  config.adapter = model.adapter;
  config.precision.compute = compute_type(call.dtype, model.config);
  // Each replica gets two micro batches per pipeline stage, as many as one pass of `eval`
  // runs.
  const int64_t one_replica = parallel.tp * parallel.pp * parallel.cp;
  const int64_t replicas = std::max<int64_t>(1, world->size() / one_replica);
  config.batch.micro_size = micro_size;
  config.batch.global_size = 2 * parallel.pp * replicas * micro_size;
  return session::load_for_inference(config, *model.source, std::move(world));
}

}  // namespace longhaul::apps
