#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/inputs/chat_facts.h"
#include "apps/inputs/run_inputs.h"
#include "apps/inputs/training_data.h"
#include "apps/named_model.h"
#include "apps/new/new_run.h"
#include "apps/new_file.h"
#include "apps/program.h"
#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/comm/backend.h"
#include "longhaul/config/load.h"
#include "longhaul/data/bert/shard_reader.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/store/self_test.h"
#include "longhaul/device/device.h"
#include "longhaul/device/neuron_library.h"
#include "longhaul/families/adapter.h"
#include "longhaul/format/hf_weights.h"
#include "longhaul/infer/evaluate.h"
#include "longhaul/layout/rank_costs.h"
#include "longhaul/measure/compute.h"
#include "longhaul/session/pairs.h"
#include "longhaul/session/threads.h"
#include "longhaul/system/cpus.h"
#include "longhaul/system/memory.h"
#include "longhaul/system/terminal.h"
#include "longhaul/tensor/cpu_memory.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::apps {
namespace {

struct NewCall {
  std::string model;
  std::vector<std::string> data;
  std::string field = data::kIdsField;
  std::string out;
  bool chat = false;
  bool lora = false;
  bool preference = false;
  int64_t ranks = 0;  ///< 0: those of this machine
  RunSection run;     ///< which device
};

/// Endings of files that hold weights. A directory with such a file is more than a bare
/// configuration.
constexpr const char* kWeightEndings[] = {".safetensors", ".bin", ".pt",      ".pth",
                                          ".ckpt",        ".h5",  ".msgpack", ".gguf"};

bool has_weights(const fs::path& dir) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    const std::string ending = entry.path().extension().string();
    if (std::ranges::count(kWeightEndings, ending) == 0) continue;
    (void)format::HfWeights::open(
        dir);  // this error says what is missing, and which verb reads other kinds
    return true;
  }
  return false;
}

/// Throws InputError for a run or a checkpoint, whose files come and go.
void refuse_run(const fs::path& path) {
  if (!fs::is_directory(path) || fs::exists(path / "config.json")) return;
  if (!checkpoint::find_checkpoint(path)) return;
  const std::string word = system::shell_word(path.string());
  fail_input(
      "new",
      "{}: is the directory of a run or a checkpoint, whose files come and go; longhaul "
      "export {} --out hf/NAME makes a model's directory of it, for longhaul new hf/NAME",
      path.string(), word);
}

/// Returns what this machine has on the device of `run`; `ranks` above 0 replaces the
/// number of its ranks.
MachineFacts machine_facts(const RunSection& run, int64_t ranks) {
  const auto alone = comm::self_world("new");
  if (device::means_neuron(run)) {
    device::load_neuron({.python = run.neuron_python, .cores = {}});
  }
  const at::Device device = device::choose(run.device, *alone);
  device::check(device);
  session::set_threads(0, *alone);
  MachineFacts machine;
  machine.threads = system::usable_cpus();
  machine.device_name = device::name(device);
  if (device.is_cpu()) {
    machine.memory_bytes = static_cast<int64_t>(system::available_memory());
  } else {
    machine.device = device.is_cuda()                     ? "cuda"
                     : device::loaded_neuron() != nullptr ? "neuron"
                                                          : "plugin";
    machine.neuron_python = run.neuron_python;
    if (machine.device == "neuron") {
      machine.device_name = "Neuron core of " + machine.device_name;
    }
    machine.ranks = std::max<int64_t>(1, at::accelerator::deviceCount());
    if (const auto memory = device::memory(device)) {
      machine.memory_bytes = static_cast<int64_t>(memory->total);
    }
  }
  if (ranks > 0) {
    // The ranks share the machine's memory on a CPU, whereas each device has its own.
    if (machine.is_cpu()) machine.memory_bytes /= ranks;
    machine.ranks = ranks;
  }
  for (const MeasuredRate& rate :
       measure::measure(measure::product_probes(device), {3, 0.01})) {
    double& best =
        rate.name.starts_with("product bf16") ? machine.bf16_rate : machine.fp32_rate;
    best = std::max(best, rate.median);
  }
  return machine;
}

/// Returns a model's name by its path: "Llama-3-8B" for the directory of this name, for
/// the config.json in it, and for a snapshot of the model in a hub's cache.
std::string name_of_model(const fs::path& model) {
  std::error_code error;
  fs::path dir = fs::absolute(model, error).lexically_normal();
  if (dir.filename() == "config.json" || !dir.has_filename()) dir = dir.parent_path();
  if (dir.parent_path().filename() == "snapshots") {
    const std::string cached = dir.parent_path().parent_path().filename().string();
    return cached.substr(
        cached.rfind("--") == std::string::npos ? 0 : cached.rfind("--") + 2);
  }
  return dir.has_filename() ? dir.filename().string() : "model";
}

/// Returns "runs/Llama-3-8B-mine" for this model and data/mine, or the next name that
/// nothing has.
fs::path free_run_dir(const fs::path& model, const std::string& data) {
  const fs::path dir =
      fs::path("runs") / (name_of_model(model) + "-" + name_of_data(data));
  fs::path free = dir;
  for (int number = 2; fs::exists(fs::symlink_status(free)); ++number) {
    free = dir.string() + "-" + std::to_string(number);
  }
  return free;
}

/// Returns the run without the data that have to be built first, which are the last
/// source.
RunConfig without_unbuilt(RunConfig config, const std::vector<DataFacts>& facts) {
  const DataFacts& last = facts.back();
  if (last.build.empty()) return config;
  config.data.train.pop_back();
  std::erase_if(config.data.validation, [&](const ValidationSource& entry) {
    return std::ranges::count(last.held_out, entry.path.entries.front().string()) > 0;
  });
  return config;
}

/// Opens the data as training does. Data that training has to pack first is checked when
/// it is packed.
void check_data(const RunConfig& config, ModelConfig model,
                const std::vector<DataFacts>& facts) {
  session::train_on_pairs(config, model);
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  const fs::path beside = model.source_path.parent_path();
  if (tokenizer::find_tokenizer_file(beside)) {
    tokenizer = tokenizer::Tokenizer::load(beside);
  }
  const auto open = [&](const DataPaths& paths, const std::string& field) {
    std::vector<std::unique_ptr<data::TokenSource>> parts;
    for (const fs::path& path : data::expand_paths(paths.entries)) {
      const int64_t length = config.data.seq_len;
      parts.push_back(config.data.pack == PackKind::Whole
                          ? data::open_whole_rows(path, {length, false, {}}, true, field)
                          : data::open_source(path, length, false, true, field));
      if (!tokenizer) continue;
      data::check_tokenizer(*parts.back(), tokenizer->fingerprint());
      data::check_self_test(path, *tokenizer, "the model's tokenizer");
    }
    auto source = data::concatenated_source(std::move(parts));
    source->limit_ids(model.vocab_size);
    data::fit_losses(*source, model.description.losses_with_targets(), model.model_type);
    return source;
  };
  for (size_t i = 0; i < config.data.train.size(); ++i) {
    const TrainSource& entry = config.data.train[i];
    if (!facts[i].packed) (void)open(entry.path, entry.field);
  }
  for (const ValidationSource& entry : config.data.validation) {
    infer::require_targets(*open(entry.path, entry.field),
                           config.validation.batches * config.batch.global_size,
                           "data.validation " + entry.name);
  }
}

/// Throws InputError if the data has less than one sequence.
void check_enough(const RunConfig& config, const std::vector<DataFacts>& facts) {
  if (sequences_of(facts, config.data.seq_len) > 0) return;
  fail_input("data", "{} holds {}, less than a sequence of {}; name more data",
             facts.front().path, counted(facts.front().tokens, "token"),
             config.data.seq_len);
}

/// Returns the facts about each source of the data. The files of chats become one store.
std::vector<DataFacts> facts_of_data(const NewCall& call, const ModelConfig& model,
                                     const std::vector<std::string>& training) {
  // The reader forks a process, which is made while this process is small.
  std::optional<data::ShardReader> shards;
  for (const std::string& path : training) {
    if (!shards && data::names_bert_shards(path)) shards.emplace();
  }
  std::vector<DataFacts> facts;
  std::vector<std::string> files;
  for (const std::string& path : training) {
    if (call.chat && !data::is_token_store(data::expand_paths({path}).front())) {
      files.push_back(path);
      continue;
    }
    facts.push_back(data_facts(
        {path, call.field, call.model, model.vocab_size, shards ? &*shards : nullptr}));
  }
  if (!files.empty()) {
    const fs::path dir = fs::is_directory(call.model)
                             ? fs::path(call.model)
                             : fs::path(call.model).parent_path();
    facts.push_back(chat_facts({files, dir.empty() ? "." : dir}));
  }
  return facts;
}

/// Throws InputError for data of several kinds, and for chats where text was asked for or
/// text where chats were.
void check_kinds(const NewCall& call, const std::vector<DataFacts>& facts) {
  const DataFacts& first = facts.front();
  for (const DataFacts& data : facts) {
    if (data.records != first.records) {
      fail_input("new", "{} holds {} and {} {}; a run trains on one of them", first.path,
                 first.records, data.path, data.records);
    }
  }
  if (call.chat && first.records == "text") {
    fail_input("new",
               "{} is a {}, which holds text and no chats; leave --chat out, or name the "
               "chats",
               first.path, first.kind);
  }
  if (call.preference && first.records != "pairs") {
    fail_input(
        "new",
        "--preference: {} holds {}, and no pairs of a chosen and a rejected answer; "
        "leave --preference out",
        first.path, first.records);
  }
  if (!call.preference && first.records == "pairs") {
    fail_input(
        "new",
        "{} holds pairs of a chosen and a rejected answer; give --preference, or name "
        "chats",
        first.path);
  }
}

NewRunFacts gather_facts(const NewCall& call) {
  refuse_run(call.model);
  NewRunFacts facts;
  facts.model = load_model_config(call.model);
  check_trainable(facts.model);
  facts.model_path = call.model;
  facts.has_weights = fs::is_directory(call.model) && has_weights(call.model);
  facts.field = call.field;
  const std::vector<std::string> training = training_data(call.data);
  facts.train = facts_of_data(call, facts.model, training);
  check_kinds(call, facts.train);
  facts.run_dir = free_run_dir(call.model, training.front());
  facts.machine = machine_facts(call.run, call.ranks);
  facts.lora = call.lora;
  facts.bytes_of = [model = facts.model,
                    machine = facts.machine](const RunConfig& config) {
    ModelConfig of_run = model;
    add_adapter(config, of_run);
    const layout::LayoutDescription layout =
        layout::describe_layout(config, of_run.description, machine.ranks);
    const layout::RankCosts costs =
        layout::LayoutCosts(config, of_run.description, layout).of(0);
    // A save in the background copies the state to host memory first. So training can go
    // on while the copy is written.
    return layout::most_bytes(costs) +
           (machine.is_cpu() ? costs.state.masters + costs.state.moments : 0);
  };
  return facts;
}

/// Returns what to type with the new file, on this machine.
std::string next_commands(const NewRunFacts& facts, const std::string& file) {
  const int64_t ranks = facts.machine.ranks;
  const std::string start = ranks > 1 ? fmt::format("launch -n {}", ranks) : "train";
  std::string build;
  for (const DataFacts& data : facts.train) {
    if (!data.build.empty()) build += data.build + "; ";
  }
  return fmt::format("{}longhaul config {}; longhaul {} {}", build, file, start, file);
}

void run_new(const NewCall& call) {
  if (!call.out.empty()) refuse_existing(call.out, "new");
  tensor::tune_cpu_memory();
  const NewRunFacts facts = gather_facts(call);
  const NewRun run = choose_new_run(facts);
  const std::string text = new_run_toml(run, facts);
  const std::string name = call.out.empty() ? "the new run file" : call.out;
  const LoadedConfig loaded = parse_run_config(text, name);
  const RunConfig built = without_unbuilt(loaded.config, facts.train);
  check_before_start(built, static_cast<int>(facts.machine.ranks));
  check_enough(loaded.config, facts.train);
  check_data(built, facts.model, facts.train);
  for (const std::string& warning : loaded.warnings) say_warning(warning);
  if (!run.warning.empty()) say_warning(run.warning);
  if (call.out.empty()) {
    fmt::print("{}", text);
    fmt::print(stderr, "next: keep this as run.toml; {}\n",
               next_commands(facts, "run.toml"));
    return;
  }
  write_new(call.out, text, "new");
  fmt::print("wrote {}\nnext: {}\n", call.out,
             next_commands(facts, system::shell_word(call.out)));
}

}  // namespace

void add_new(CLI::App& program, Outcome&) {
  const auto call = std::make_shared<NewCall>();
  CLI::App* verb = program.add_subcommand(kNewVerb.name, kNewVerb.description);
  verb->add_option("model", call->model,
                   "a Hugging Face directory, or a config.json alone; where there are no "
                   "weights, training begins with random weights")
      ->required();
  verb->add_option("data", call->data,
                   "data that data.train takes: token stores, directories of "
                   "save_to_disk, files of ready token ids, patterns in quotes; a store "
                   "DATA-val beside DATA is for validation")
      ->required();
  verb->add_flag("--chat", call->chat,
                 "the data are chats, or a store of them; the command that makes a store "
                 "of files is printed");
  verb->add_flag("--lora", call->lora,
                 "train an adapter beside the weights of the model");
  verb->add_flag(
      "--preference", call->preference,
      "the data are pairs of a chosen and a rejected answer, or a store of them");
  verb->add_option("--field", call->field,
                   "the field of a record that holds its token ids")
      ->capture_default_str();
  verb->add_option(
          "--ranks", call->ranks,
          "number of ranks that will train, such as 8 for launch -n 8; by default "
          "one for each accelerator here, else one")
      ->check(CLI::Range(1, 100'000));
  verb->add_option("--device", call->run.device,
                   "device that the run is for; auto: an accelerator where one is found")
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "neuron"}))
      ->capture_default_str();
  add_neuron_option(*verb, call->run.neuron_python);
  verb->add_option(
      "--out", call->out,
      "run file to write, which must not exist yet; without it the run file is printed");
  verb->footer(
      "Comments in the file give the reason for each number, for this model, this data "
      "and this machine.\n"
      "Example: longhaul new models/Llama-3-8B data/wiki --ranks 8 --out run.toml\n"
      "Chats: longhaul new models/Qwen3-8B chats.jsonl --chat --lora --out run.toml");
  verb->callback([call] { run_new(*call); });
}

}  // namespace longhaul::apps
