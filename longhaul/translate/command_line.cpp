#include "longhaul/translate/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <span>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"
#include "longhaul/translate/draft.h"
#include "longhaul/translate/launch_words.h"

namespace longhaul::translate {
namespace {

using dictionary::OtherSystem;

std::string base_name(const std::string& path) {
  return path.substr(path.find_last_of('/') + 1);
}

bool is_assignment(const ShellWord& word) {
  const size_t equals = word.text.find('=');
  if (equals == 0 || equals == std::string::npos) return false;
  const std::string name = word.text.substr(0, equals);
  return name.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
             "0123456789_") == std::string::npos &&
         name.find_first_of("0123456789") != 0;
}

/// Returns whether a shell would replace the word by several words: "${ARGS[@]}",
/// "$EXTRA_ARGS".
bool stands_for_flags(const ShellWord& word) {
  if (!word.variable || !word.text.starts_with('$')) return false;
  if (word.text == "$@" || word.text == "$*") return true;
  std::string name = word.text;
  std::ranges::transform(name, name.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  return std::ranges::any_of(
      std::initializer_list<const char*>{"[@]", "[*]", "ARG", "OPT", "FLAG", "EXTRA"},
      [&](const char* part) { return name.find(part) != std::string::npos; });
}

/// Returns whether a word behind a flag may stand for more flags. A word such as
/// "${ARGS[@]}" may. Any other unknown word may if the flag already has a value, or takes
/// none.
bool hides_flags(const ShellWord& word, const Said& flag, bool megatron) {
  if (stands_for_flags(word)) return true;
  if (!word.variable || word.text.find_first_of("$`") != 0) return false;
  return (megatron && flag_stands_alone(flag.name)) ||
         (!flag.values.empty() && !takes_several_values(flag.name));
}

void add_value(Said& said, const ShellWord& word, std::string text) {
  said.shell_value = said.values.empty() ? word.value : 0;
  said.values.push_back(std::move(text));
  said.variable = said.variable || word.variable;
  said.unset.insert(word.unset.begin(), word.unset.end());
  if (said.choices.empty()) said.choices = word.choices;
  // A shell gives the flag an empty text, which no script takes for a value.
  if (!said.values.back().empty() || word.unset.empty()) return;
  said.variable = true;
  said.choices = fmt::format("{} is never set", fmt::join(word.unset, ", "));
}

/// The number of processes that the words before the script start.
struct Launch {
  std::optional<int64_t> slurm_nodes, slurm_tasks, tasks_per_node, each, nodes, all;
  bool by_torchrun = false;
  bool nodes_unknown = false;
  bool each_unknown = false;
  std::vector<std::string> by;
};

struct Reading {
  Launch launch;
  std::vector<Said> environment;
  std::string script;
  std::span<const ShellWord> flags;
  std::vector<std::string> unknown_flags;  ///< words that stand for some
  std::vector<ShellWords> kept;  ///< words of a --wrap, which `flags` may lie in
};

bool is_launcher(const std::string& name) {
  return name == "srun" || name == "sbatch" || name == "salloc" || name == "torchrun" ||
         name == "mpirun" || name == "mpiexec" || name == "accelerate" ||
         name == "deepspeed" || name == "torch.distributed.run" ||
         name == "torch.distributed.launch";
}

/// One option of a launcher. "--nnodes=2" and "--nnodes 2" both give {"nnodes", "2"}.
struct Option {
  std::string name;
  const ShellWord* value = nullptr;
  ShellWord inside;  ///< of "--name=value"
};

void note_option(const std::string& launcher, const Option& option, Launch& launch) {
  if (option.value == nullptr) return;
  const bool slurm = launcher == "srun" || launcher == "sbatch" || launcher == "salloc";
  const std::string& name = option.name;
  const auto number =
      option.value->variable ? std::nullopt : whole_number<int64_t>(option.value->text);
  if (slurm && (name == "nodes" || name == "N")) launch.slurm_nodes = number;
  if (slurm && (name == "ntasks" || name == "n")) launch.slurm_tasks = number;
  if (slurm && name == "ntasks_per_node") launch.tasks_per_node = number;
  if (name == "nproc_per_node") {
    launch.each = number;
    launch.each_unknown = !number;
  }
  if (name == "nnodes" || name == "num_nodes") {
    launch.nodes = number;
    launch.nodes_unknown = !number;
  }
  if (name == "num_gpus") launch.each = number;
  const bool mpi = launcher == "mpirun" || launcher == "mpiexec";
  if ((mpi && (name == "np" || name == "n" || name == "c")) || name == "num_processes") {
    launch.all = number;
  }
}

class CommandReader {
 public:
  explicit CommandReader(Reading& reading) : reading_(reading) {}

  /// Finds the script in the words. Returns false if the words start none.
  bool read(std::span<const ShellWord> words) {
    for (at_ = 0; at_ < words.size();) {
      const ShellWord& word = words[at_];
      if (is_assignment(word) && !word.text.starts_with('-')) {
        assign(word);
        ++at_;
        continue;
      }
      if (stands_for_flags(word)) {
        reading_.unknown_flags.push_back(word.text);
        reading_.launch.each_unknown = true;
        ++at_;
        continue;
      }
      const std::string name = base_name(word.text);
      if (is_launcher(name)) {
        ++at_;
        reading_.launch.by.push_back(name);
        if (name == "torchrun" || name.starts_with("torch."))
          reading_.launch.by_torchrun = true;
        if (name == "accelerate" && at_ < words.size() && words[at_].text == "launch")
          ++at_;
        if (options(name, words)) return true;
        continue;
      }
      if (name.starts_with("python")) {
        ++at_;
        if (python(words)) return true;
        continue;
      }
      if (is_prefix(name) || name == "bash" || name == "sh" || name == "launch") {
        ++at_;
        while (at_ < words.size() && words[at_].text.starts_with('-')) ++at_;
        continue;
      }
      reading_.script = name;
      if (has_command(name) && at_ + 1 < words.size()) {
        reading_.script += " " + words[++at_].text;
      }
      reading_.flags = words.subspan(at_ + 1);
      return !name.empty() && !word.text.starts_with('-');
    }
    return false;
  }

 private:
  void assign(const ShellWord& word) {
    const size_t equals = word.text.find('=');
    const std::string name = word.text.substr(0, equals);
    Said said{.name = dictionary::word_name(name), .shown = name};
    add_value(said, word, word.text.substr(equals + 1));
    reading_.environment.push_back(std::move(said));
  }

  /// Reads Python's own options and -m MODULE. Returns true if a module is the script.
  bool python(std::span<const ShellWord> words) {
    while (at_ < words.size() && words[at_].text.starts_with('-')) {
      const bool module = words[at_].text == "-m";
      ++at_;
      if (!module || at_ >= words.size()) continue;
      if (is_launcher(words[at_].text)) return false;  // read goes on with it
      return take_script(words);
    }
    return false;
  }

  bool take_script(std::span<const ShellWord> words) {
    reading_.script = base_name(words[at_].text);
    reading_.flags = words.subspan(at_ + 1);
    return true;
  }

  /// Reads a launcher's options. Returns true if a --wrap or -m among them holds the
  /// script.
  bool options(const std::string& launcher, std::span<const ShellWord> words) {
    while (at_ < words.size() && words[at_].text.starts_with('-')) {
      Option option = next(words);
      if (option.name == "wrap" && option.value != nullptr) return wrapped(*option.value);
      const bool module =
          (option.name == "m" || option.name == "module") && at_ < words.size();
      if (module) return take_script(words);
      note_option(launcher, option, reading_.launch);
    }
    return false;
  }

  Option next(std::span<const ShellWord> words) {
    const ShellWord& word = words[at_++];
    const size_t dashes = word.text.find_first_not_of('-');
    Option option;
    if (dashes == std::string::npos) return option;
    const size_t equals = word.text.find('=');
    std::string name =
        word.text.substr(dashes, equals == std::string::npos ? equals : equals - dashes);
    std::ranges::replace(name, '-', '_');
    // "-N16" is "-N 16".
    if (dashes == 1 && name.size() > 1 && (name[0] == 'N' || name[0] == 'n') &&
        name.find_first_not_of("0123456789", 1) == std::string::npos) {
      option.inside = {name.substr(1), word.variable, false};
      name.resize(1);
      held_.push_back(option.inside);
      option.value = &held_.back();
    }
    option.name = name;
    if (name == "mca") {
      at_ += std::min<size_t>(2, words.size() - at_);
      return option;
    }
    if (equals != std::string::npos) {
      held_.push_back({word.text.substr(equals + 1), word.variable, word.quoted});
      option.value = &held_.back();
    } else if (option.value == nullptr && at_ < words.size() && takes_a_value(name)) {
      option.value = &words[at_++];
    }
    return option;
  }

  bool wrapped(const ShellWord& word) {
    for (ShellCommand& inner : read_shell_text(word.text, "--wrap").commands) {
      reading_.kept.push_back(std::move(inner.words));
      if (CommandReader(reading_).read(reading_.kept.back())) return true;
    }
    return false;
  }

  Reading& reading_;
  size_t at_ = 0;
  std::deque<ShellWord> held_;  ///< values inside words, which options point to
};

/// Returns what the lines "#SBATCH --nodes=8" of a batch script say.
Launch launch_of_job(std::string_view text) {
  constexpr std::string_view kMark = "#SBATCH ";
  std::string words;
  for (const std::string_view line : lines_of(text)) {
    if (!line.starts_with(kMark)) continue;
    const std::string_view said = line.substr(kMark.size());
    words += " " + std::string(said.substr(0, said.find(" #")));
  }
  if (words.empty()) return {};
  Reading reading;
  const ShellText commands = read_shell_text("sbatch" + words, "#SBATCH");
  if (!commands.commands.empty()) {
    CommandReader(reading).read(commands.commands.front().words);
  }
  return reading.launch;
}

/// Returns whether a flag is Megatron-LM's. In a script with an unknown name, every flag
/// that is written without _ counts as Megatron-LM's.
bool is_megatron(std::optional<OtherSystem> system, const Said& flag) {
  return system ? *system == OtherSystem::Megatron
                : flag.shown.find('_') == std::string::npos;
}

std::vector<Said> flags_of(const Reading& reading, std::vector<std::string>& loose) {
  std::vector<Said> said;
  const auto system = system_of_script(reading.script);
  for (const ShellWord& word : reading.flags) {
    if (word.text.starts_with("--") && word.text.size() > 2) {
      const size_t equals = word.text.find('=');
      const std::string flag = word.text.substr(0, equals);
      Said one{.name = dictionary::word_name(flag), .shown = flag};
      if (equals != std::string::npos) add_value(one, word, word.text.substr(equals + 1));
      said.push_back(std::move(one));
    } else if (said.empty() ||
               hides_flags(word, said.back(), is_megatron(system, said.back()))) {
      loose.push_back(word.text);
    } else {
      add_value(said.back(), word, word.text);
    }
  }
  return said;
}

/// Returns the system that knows most of the flags, for scripts with an unknown name.
std::optional<OtherSystem> system_of_flags(const std::vector<Said>& said) {
  constexpr OtherSystem kWithFlags[] = {
      OtherSystem::NxdPipeline, OtherSystem::NxdZero,  OtherSystem::Bert,
      OtherSystem::Smp,         OtherSystem::Megatron, OtherSystem::Torchtitan};
  std::optional<OtherSystem> best;
  size_t most = 3;
  for (const OtherSystem system : kWithFlags) {
    const auto known =
        static_cast<size_t>(std::ranges::count_if(said, [&](const Said& one) {
          return dictionary::find_word(system, one.name) != nullptr;
        }));
    if (known > most && 2 * known > said.size()) {
      best = system;
      most = known;
    }
  }
  return best;
}

World world_of(const Launch& launch, std::vector<std::string>& remarks) {
  World world;
  world.from = fmt::format("{}", fmt::join(launch.by, " "));
  if (launch.by.empty()) return world;
  const auto times = [](std::optional<int64_t> a, std::optional<int64_t> b) {
    return a && b && *a > 0 && *b > 0 ? checked_product(*a, *b) : std::nullopt;
  };
  if (launch.by_torchrun || launch.each) {
    std::optional<int64_t> nodes = launch.nodes;
    if (!nodes && !launch.nodes_unknown) nodes = 1;
    const bool slurm = launch.slurm_nodes || launch.slurm_tasks;
    // Each task of srun starts one torchrun on a machine.
    if (!launch.nodes && slurm)
      nodes = launch.slurm_nodes ? launch.slurm_nodes : launch.slurm_tasks;
    world.ranks = times(nodes, launch.each);
    if (!world.ranks) {
      remarks.emplace_back(
          "the number of ranks that it starts stands in variables; give it with --ranks "
          "N");
    }
    return world;
  }
  if (launch.all) {
    world.ranks = launch.all;
  } else if (launch.slurm_tasks) {
    world.ranks = launch.slurm_tasks;
  } else {
    world.ranks = times(launch.slurm_nodes, launch.tasks_per_node);
  }
  if (world.ranks && *world.ranks < 1) world.ranks.reset();
  return world;
}

[[noreturn]] void fail_script(const std::string& name, const std::string& script) {
  if (const auto answer = answer_for_script(script)) {
    throw InputError("flags", one_line(fmt::format("{}: {} trains nothing: {}", name,
                                                   script, *answer)));
  }
  if (script.ends_with(".sh") || script.ends_with(".sbatch")) {
    throw InputError("flags", one_line(fmt::format(
                                  "{}: {} is a shell script, which is not run here; give "
                                  "the file itself, or the command line in it that "
                                  "starts Python (`longhaul recipe list` has the "
                                  "published runs)",
                                  name, script)));
  }
  fail_input("flags",
             "{}: {}; known are {}, and files of torchtitan (TOML), and of nanotron, "
             "axolotl, TRL "
             "and LLaMA-Factory (YAML)",
             name,
             script.empty() ? std::string("holds no command of a training script")
                            : one_line(script) + " is no training script that is known",
             fmt::join(known_scripts(), ", "));
}

bool is_settings_file(const std::string& path) {
  return path.ends_with(".yml") || path.ends_with(".yaml") || path.ends_with(".toml");
}

/// Takes the settings file and the ranks from the variables of torchtitan's run_train.sh.
void take_variables_of_script(Source& source, std::string& config_file) {
  if (!glob_match("run*train.sh", source.script)) return;
  for (const Said& said : source.environment) {
    if (said.name == "config_file" && is_settings_file(said.text()))
      config_file = said.text();
    if (said.name == "ngpu" && !said.variable) {
      source.world = {whole_number<int64_t>(said.text()), "NGPU"};
    }
  }
  std::erase_if(source.environment,
                [](const Said& said) { return said.name == "config_file"; });
}

/// Takes the ranks from a flag of TRL, or from LLaMA-Factory's variables.
void take_ranks(Source& source) {
  const auto number = [](const std::vector<Said>& all, std::string_view name) {
    const auto found = std::ranges::find(all, name, &Said::name);
    return found == all.end() || found->variable ? std::nullopt
                                                 : whole_number<int64_t>(found->text());
  };
  if (source.world.ranks) return;
  if (const auto all = number(source.said, "num_processes")) {
    source.world = {all, "--num_processes"};
  } else if (const auto each = number(source.environment, "nproc_per_node")) {
    const int64_t nodes = number(source.environment, "nnodes").value_or(1);
    source.world = {checked_product(*each, nodes), "NPROC_PER_NODE"};
  }
}

/// Removes the flag that names the settings file of the command, and sets `config_file`.
void take_config_file(Source& source, std::vector<std::string>& loose,
                      std::string& config_file) {
  for (const char* name : {"job.config_file", "config_file", "config"}) {
    const auto found = std::ranges::find_if(source.said, [&](const Said& said) {
      return said.name == name && is_settings_file(said.text());
    });
    if (found == source.said.end()) continue;
    config_file = found->text();
    source.said.erase(found);
    return;
  }
  for (const std::string& word : loose) {
    if (is_settings_file(word)) {
      config_file = word;
      std::erase(loose, word);
      return;
    }
  }
}

/// A command that trains, and what starts it.
struct Found {
  Source source;
  Launch launch;
  std::string config_file;
};

/// Adds remarks about the words of a command whose meaning only a shell knows, about
/// words that belong to no flag, and about variables that count as unset.
void note_words(const Reading& reading, std::vector<std::string>& loose,
                const ShellCommand& command, Source& source) {
  std::erase_if(loose,
                [](const std::string& word) { return word == "train" || word.empty(); });
  for (const std::string& word : reading.unknown_flags) {
    source.remarks.push_back(fmt::format(
        "{} stands for options of the launcher, which are not looked up", word));
  }
  for (const std::string& word : loose) {
    const bool flags = word.find_first_of("$`") == 0;
    if (flags) source.hidden.push_back(word);
    source.remarks.push_back(
        fmt::format("{} {}", word,
                    flags ? "stands for flags, which are not looked up: give them as well"
                          : "belongs to no flag"));
  }
  if (command.unset.empty()) return;
  const bool one = command.unset.size() == 1;
  source.remarks.push_back(fmt::format(
      "{}: the script never sets {}, so {} as unset; write a value into the script where "
      "the job has one",
      fmt::join(command.unset, ", "), one ? "it" : "them",
      one ? "it counts" : "they count"));
}

/// Finds the first command that trains. Returns nothing if there is none; `last_script`
/// is then the last script that a command starts.
std::optional<Found> find_training(std::string_view text, const std::string& name,
                                   const ShellSettings& settings, const Launch& job,
                                   std::string& last_script) {
  const ShellText script = read_shell_text(text, name, settings);
  for (const ShellCommand& command : script.commands) {
    Reading reading;
    reading.launch = job;
    reading.kept.reserve(64);
    if (!CommandReader(reading).read(command.words)) continue;
    Found found;
    Source& source = found.source;
    std::vector<std::string> loose;
    source.said = flags_of(reading, loose);
    source.script = reading.script;
    source.environment = reading.environment;
    source.world = world_of(reading.launch, source.remarks);
    take_config_file(source, loose, found.config_file);
    take_variables_of_script(source, found.config_file);
    auto system = system_of_script(reading.script);
    const bool is_python = reading.script.ends_with(".py") || reading.launch.by_torchrun;
    if (!system && found.config_file.empty() && is_python) {
      system = system_of_flags(source.said);
      if (system) {
        source.remarks.push_back(
            fmt::format("{} is not known by name; its flags are those of {}",
                        reading.script, dictionary::system_name(*system)));
      }
    }
    if (!reading.script.empty()) last_script = reading.script;
    if (!system && found.config_file.empty()) continue;
    take_ranks(source);
    source.system = system.value_or(OtherSystem::Common);
    source.what = reading.script;
    note_words(reading, loose, command, source);
    std::ranges::copy(script.remarks, std::back_inserter(source.remarks));
    found.launch = reading.launch;
    return found;
  }
  return std::nullopt;
}

constexpr const char* kMachines[] = {"SLURM_JOB_NUM_NODES", "SLURM_NNODES"};

/// Sets the variables by which a script asks the scheduler for its machines: as many as
/// the ranks need, or those of the batch script.
void set_machines(std::string_view text, const std::string& name,
                  std::optional<int64_t> ranks, const Launch& job,
                  ShellSettings& settings) {
  std::optional<int64_t> machines = job.slurm_nodes;
  std::optional<int64_t> tasks = job.slurm_tasks;
  if (!tasks && machines && job.tasks_per_node) {
    tasks = checked_product(*machines, *job.tasks_per_node);
  }
  if (ranks) {
    // The number of processes of a machine is the number that the script starts if it
    // asks the scheduler for no machines.
    ShellSettings alone = settings;
    alone.scheduler["SLURM_NTASKS"] = std::nullopt;
    for (const char* const variable : kMachines) alone.scheduler[variable] = std::nullopt;
    std::string ignored;
    const auto found = find_training(text, name, alone, {}, ignored);
    const auto each = found ? found->launch.each : std::nullopt;
    if (each && *each > 0 && *ranks % *each == 0) tasks = machines = *ranks / *each;
    if (found && !each && !found->launch.by_torchrun) tasks = ranks;
  }
  if (tasks) settings.scheduler["SLURM_NTASKS"] = std::to_string(*tasks);
  for (const char* const variable : kMachines) {
    if (machines) settings.scheduler[variable] = std::to_string(*machines);
  }
}

}  // namespace

Source read_command_line(std::string_view text, const std::string& name,
                         const ShellSettings& settings, std::optional<int64_t> ranks,
                         std::string& config_file) {
  const Launch job = launch_of_job(text);
  ShellSettings with_machines = settings;
  if (settings.whole) set_machines(text, name, ranks, job, with_machines);
  std::string last_script;
  auto found = find_training(text, name, with_machines, job, last_script);
  if (!found) fail_script(name, last_script);
  config_file = std::move(found->config_file);
  return std::move(found->source);
}

}  // namespace longhaul::translate
