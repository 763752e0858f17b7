#include "apps/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "apps/arguments/argument_paths.h"
#include "apps/setting_hint.h"
#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/file.h"
#include "longhaul/base/text.h"
#include "longhaul/config/count.h"
#include "longhaul/dictionary/words.h"
#include "longhaul/system/standard_streams.h"

namespace longhaul::apps {
namespace {

/// Returns a hint about a value that an option does not take ("--dtype float16",
/// "--device gpu"), if the dictionary knows it for the setting with the same meaning. The
/// hint is the end of a message, or an empty text.
std::string choice_hint(std::span<const std::string> words) {
  constexpr std::pair<std::string_view, std::string_view> kOptions[] = {
      {"--dtype", "precision.compute"}, {"--device", "run.device"}};
  constexpr std::string_view kHalf = "float16 half torch.float16 f16";
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string word = words[i].substr(0, equals);
    for (const auto& [option, key] : kOptions) {
      if (word != option || (equals == std::string::npos && i + 1 == words.size())) {
        continue;
      }
      const std::string value =
          equals == std::string::npos ? words[i + 1] : words[i].substr(equals + 1);
      const bool writes = words[0] == "export" || words[0] == "import";
      if (writes && has_word(kHalf, value)) return "; did you mean fp16?";
      if (std::string hint = dictionary::other_value_hint(key, value); !hint.empty()) {
        return hint;
      }
    }
  }
  return "";
}

/// Verbs of other programs, and what longhaul has for them.
struct VerbWord {
  std::string_view names;
  std::string_view answer;
};

constexpr VerbWord kVerbWords[] = {
    {"pretrain finetune fine-tune fine_tune tune fit midtrain continue cpt",
     "longhaul train RUN.toml trains all weights, from those of init.weights or from "
     "random ones"},
    {"resume restart", "longhaul train RUN.toml goes on from the newest checkpoint"},
    {"lora dora qlora peft adapter",
     "longhaul train RUN.toml trains an adapter where the file has [adapter]"},
    {"merge merge_and_unload",
     "longhaul export RUN --merge --out DIR adds a run's adapter to its base"},
    {"sft chat",
     "longhaul new MODEL chats.jsonl --chat writes a run file for chats: longhaul docs "
     "tutorial-chat"},
    {"dpo ipo simpo orpo preference",
     "longhaul train RUN.toml trains on pairs where the file has [preference]: longhaul "
     "docs preferences"},
    {"grpo ppo rlhf rl", "longhaul has no reinforcement learning"},
    {"run start",
     "longhaul train RUN.toml is one process, longhaul launch -n 8 RUN.toml several"},
    {"torchrun mpirun srun accelerate deepspeed distributed",
     "longhaul launch -n 8 RUN.toml starts the ranks of a run"},
    {"sbatch slurm", "longhaul submit RUN.toml --nodes 2 submits a job"},
    {"tokenize tokenise preprocess prepare prepare_data pretokenize pack dataset build",
     "longhaul data build makes a token store of text"},
    {"convert",
     "longhaul import reads checkpoints of other programs, longhaul export "
     "writes a Hugging Face directory"},
    {"save save_pretrained", "longhaul export writes a Hugging Face directory"},
    {"evaluate evaluation perplexity ppl test validation",
     "longhaul eval MODEL --data STORE measures the loss"},
    {"chat infer inference sample predict complete",
     "longhaul generate MODEL --prompt TEXT continues a text; there are no chats"},
    {"serve server deploy",
     "models are not served; longhaul export writes a Hugging "
     "Face directory, which servers read"},
    {"status monitor tail logs log tensorboard top ps",
     "longhaul watch RUN shows a run's state"},
    {"stop cancel kill pause",
     "touch RUN/STOP saves and ends a run, touch RUN/PAUSE pauses it"},
    {"check validate lint",
     "longhaul config RUN.toml checks a run file, longhaul verify "
     "what a run has written"},
    {"estimate memory plan-memory cost price simulate",
     "longhaul plan RUN.toml --nodes 2 --hardware p5.48xlarge prints memory, time and "
     "money; longhaul config RUN.toml --ranks 8 the bytes of each rank"},
    {"init create setup", "longhaul new MODEL DATA --out RUN.toml writes a run file"},
    {"info show ls cat",
     "longhaul inspect says what a directory is, longhaul recipe "
     "list which recipes there are"},
    {"download fetch pull push upload login",
     "longhaul fetches nothing and sends nothing (docs/offline.md)"},
    {"benchmark perf profile", "longhaul bench says what this machine can do"},
    {"diff", "longhaul compare compares two checkpoints"},
    {"version", "longhaul --version prints it"}};

/// Returns the verbs below the program, or below another verb, that --help lists.
std::vector<std::string> listed_verbs(const CLI::App& program) {
  std::vector<std::string> verbs;
  for (const CLI::App* known : program.get_subcommands({})) {
    if (!known->get_group().empty()) verbs.push_back(known->get_name());
  }
  return verbs;
}

/// Returns what is wrong with a word that stands where a verb is expected and is none.
/// `above` is "" or the verb that has others below it, such as "data ".
std::string wrong_verb(const CLI::App& program, const std::string& above,
                       const std::string& word) {
  const std::vector<std::string> verbs = listed_verbs(program);
  const std::string none = fmt::format("there is no verb '{}{}'", above, word);
  const auto answer = std::ranges::find_if(
      kVerbWords, [&](const VerbWord& one) { return has_word(one.names, word); });
  const bool answers = answer != std::end(kVerbWords) &&
                       (above.empty() || answer->answer.find(above) != std::string::npos);
  if (answers) return fmt::format("{}; {}", none, answer->answer);
  if (const auto near = nearest_name(word, verbs)) {
    return fmt::format("{}; did you mean '{}{}'?", none, above, *near);
  }
  for (const CLI::App* group : program.get_subcommands({})) {
    const auto under = group->get_subcommands({});
    if (std::ranges::find(under, word, &CLI::App::get_name) == under.end()) continue;
    return fmt::format("{}; did you mean '{} {}'?", none, group->get_name(), word);
  }
  std::string example;
  if (above == "recipe ") example = "; for example longhaul recipe show NAME";
  if (above == "data ") example = "; for example longhaul data build 'corpus/*.txt'";
  return fmt::format("{}; the verbs are {}{}", none, fmt::join(verbs, ", "), example);
}

/// Returns what is wrong if a verb that needs one of the verbs below it ("data") stands
/// alone; nothing if a verb follows it.
std::optional<std::string> missing_verb(const CLI::App& program,
                                        std::span<const std::string> words) {
  const NamedVerb named = find_verb(program, words);
  const CLI::App* group = named.app;
  words = named.words;
  if (group == &program || group->get_subcommands({}).empty()) return std::nullopt;
  // "data " of "longhaul data".
  const std::string above = named.name.substr(named.name.find(' ') + 1) + " ";
  if (!words.empty() && !words[0].starts_with('-')) {
    return wrong_verb(*group, above, words[0]);
  }
  std::vector<std::string> verbs = listed_verbs(*group);
  for (std::string& verb : verbs) verb.insert(0, above);
  return fmt::format("no verb was given behind {}; give one of {}; see longhaul {}--help",
                     above.substr(0, above.size() - 1), fmt::join(verbs, ", "), above);
}

/// Returns ", as in longhaul train run.toml": the first example of the verb's own --help.
std::string example_of(const NamedVerb& verb) {
  const std::string footer = verb.app->get_footer();
  const size_t at = footer.find(verb.name + " ");
  if (at == std::string::npos) return "";
  return ", as in " +
         footer.substr(at, std::min(footer.find('\n', at), footer.size()) - at);
}

/// Returns what is wrong with a word that stands before --help where a verb is expected,
/// or nothing if no such word is. CLI11 would print the help of the verb above the
/// word.
std::optional<std::string> misspelt_before_help(const CLI::App& program,
                                                std::span<const std::string> words) {
  const auto asks = [](const std::string& word) {
    return word == "--help" || word == "-h";
  };
  if (std::ranges::none_of(words, asks) || words[0].starts_with('-')) return std::nullopt;
  if (find_verb(program, words).app == &program) return wrong_verb(program, "", words[0]);
  return words.size() > 1 && !words[1].starts_with('-') ? missing_verb(program, words)
                                                        : std::nullopt;
}

/// Returns what is wrong with the command line and what to type instead. `words` begin
/// with the verb.
std::string usage_problem(const CLI::App& program, std::span<const std::string> words,
                          const CLI::ParseError& error) {
  const std::string verb = words.empty() ? "" : words[0];
  const std::vector<std::string> verbs = listed_verbs(program);
  const std::string list = fmt::format("{}", fmt::join(verbs, ", "));
  if (verb.empty())
    return fmt::format("no verb was given; give one of {}, or --help", list);
  if (const auto missing = missing_verb(program, words)) return *missing;
  if (const auto hint = setting_hint(program, words)) return *hint;
  if (verb.starts_with('-')) {
    const bool version = nearest_name(verb, std::vector<std::string>{"--version"}) ||
                         verb == "-v" || verb == "-V";
    return fmt::format(
        "{} stands where a verb stands; {}", verb,
        version ? "did you mean --version?"
                : "the verb comes first, as in longhaul train RUN.toml; the verbs are " +
                      list);
  }
  if (std::ranges::find(verbs, verb) != verbs.end()) {
    const NamedVerb named = find_verb(program, words);
    return fmt::format(
        "{}{}{}; see {} --help", error.what(), choice_hint(words),
        error.get_name() == "RequiredError" ? example_of(named) : std::string(),
        named.name);
  }
  if (verb.ends_with(".toml")) {
    return fmt::format("no verb before {}; did you mean 'longhaul train {}'?", verb,
                       verb);
  }
  if (verb.ends_with(".yaml") || verb.ends_with(".yml")) {
    return fmt::format(
        "no verb before {}, and run files are TOML: longhaul import --flags {} makes one "
        "of a YAML of nanotron, axolotl, TRL or LLaMA-Factory",
        verb, verb);
  }
  if (verb == "help") {
    const bool known =
        words.size() > 1 && std::ranges::find(verbs, words[1]) != verbs.end();
    return fmt::format("there is no verb 'help'; did you mean 'longhaul {}--help'?",
                       known ? words[1] + " " : "");
  }
  return wrong_verb(program, "", verb);
}

int fail(const Error& error, const objects::Access& objects) {
  say_error(objects.with_addresses(error.what()));
  return error.exit_code();
}

/// Refuses numbers that are not finite: CLI's own checks of a number's range let NaN
/// pass.
void refuse_what_is_not_finite(CLI::App& program) {
  for (CLI::Option* option : program.get_options()) {
    if (option->get_type_name().find("FLOAT") == std::string::npos) continue;
    option->check([](const std::string& text) -> std::string {
      double number = 0.0;
      const bool read = CLI::detail::lexical_cast(text, number);
      if (!read || std::isfinite(number)) return {};
      return fmt::format("{} is no finite number", text);
    });
  }
  for (CLI::App* verb : program.get_subcommands({})) refuse_what_is_not_finite(*verb);
}

/// Lets options that take a whole number take "16k" and "1e6" too, before their range is
/// checked.
void read_counts(CLI::App& program) {
  for (CLI::Option* option : program.get_options()) {
    const std::string type = option->get_type_name();
    if (!type.starts_with("INT") && !type.starts_with("UINT")) continue;
    const bool of_length = config::is_length(option->get_name());
    const auto read = [of_length](std::string& text) -> std::string {
      config::CountText count = config::read_count(text, of_length);
      if (!count.problem.empty()) return count.problem;
      if (!count.count) {
        return fmt::format("'{}' is no whole number; write {}", text,
                           config::kCountForms);
      }
      text = std::to_string(*count.count);
      return {};
    };
    option->transform(CLI::Validator(read, ""));
  }
  for (CLI::App* verb : program.get_subcommands({})) read_counts(*verb);
}

/// Verbs that leave their result in files: their output only tells of it.
constexpr std::string_view kOutputIsALog[] = {"train",      "launch",      "supervise",
                                              "agent",      "try",         "export",
                                              "data build", "data export", "data split"};

bool output_is_a_log(std::span<const std::string> words) {
  if (words.empty()) return false;
  const auto named = [](const std::string& verb) {
    return std::ranges::find(kOutputIsALog, verb) != std::end(kOutputIsALog);
  };
  return named(words[0]) || (words.size() > 1 && named(words[0] + " " + words[1]));
}

constexpr std::string_view kCannotWrite = "cannot write";

/// Throws if standard output is the verb's result and could not be written whole: the
/// verb then must not report success.
void flush_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  const int error = system::output_error();
  throw std::system_error(error != 0 ? error : EIO, std::generic_category(),
                          std::string(kCannotWrite) + " to the output");
}

/// Returns whether a verb ended because nobody reads its output any more (`| head -1`).
bool is_unread(const std::exception& problem) {
  const auto* of_system = dynamic_cast<const std::system_error*>(&problem);
  return of_system != nullptr &&
         std::string_view(of_system->what()).starts_with(kCannotWrite) &&
         system::output_reader_has_gone();
}

/// Throws if the working directory was removed: LibTorch's libraries and mpirun would end
/// there with messages that nobody understands.
void check_working_directory() {
  std::error_code error;
  static_cast<void>(fs::current_path(error));
  if (error != std::errc::no_such_file_or_directory) return;
  throw InputError("arguments",
                   "the working directory was removed; change into a directory that "
                   "exists (cd), then run the same command again");
}

/// Says what ended the process if no code could catch the exception, such as a library's
/// thread or constructor that got no memory. An internal error, which is a fault of the
/// program, still aborts the process.
[[noreturn]] void say_last_error() {
  // Ends the process where memory is lacking even for the message: no memory is asked
  // for.
  const auto end_without_memory = [] {
    write_descriptor(STDERR_FILENO,
                     "longhaul: error: [memory] this process has no memory left; raise "
                     "ulimit -d and ulimit -v, then run the same command again\n");
    ::_exit(kExitTemporary);
  };
  // A second call of terminate has the same reason as an exception of the message.
  std::set_terminate(end_without_memory);
  try {
    try {
      if (const std::exception_ptr problem = std::current_exception()) {
        std::rethrow_exception(problem);
      }
    } catch (const std::exception& problem) {
      const Error error = to_error(problem);
      say_error(error.what());
      if (error.kind() != ErrorKind::Internal) ::_exit(error.exit_code());
    }
  } catch (const std::bad_alloc&) {
    end_without_memory();
  } catch (...) {  // NOLINT(bugprone-empty-catch): it has no words
  }
  std::abort();
}

void say_last_errors(int /*argc*/, char** /*argv*/, char** /*environment*/) {
  std::set_terminate(say_last_error);
}

}  // namespace

/// Is called by the dynamic loader before the constructors of all libraries.
[[gnu::section(".preinit_array"),
  gnu::used]] static void (*const before_libraries)(int, char**,
                                                    char**) = say_last_errors;

CLI::Option* add_set_option(CLI::App& verb, std::vector<std::string>& sets,
                            const std::string& more) {
  return verb
      .add_option("--set", sets,
                  "section.key=value, which replaces the file's value; repeatable" + more)
      ->allow_extra_args(false);
}

void add_rehearse_flags(CLI::App& verb, std::string& word) {
  const auto add = [&](const char* flag, const char* help) {
    return verb.add_flag_callback(flag, [&word, flag] { word = flag; }, help);
  };
  CLI::Option* const with = add(
      kRehearse,
      "before step 1, do once what a run does late: operations of every group, a signal, "
      "the last batch, a save and its load, the largest step, validation, an export, the "
      "mirror. A first start on more than 64 ranks does so by default");
  add("--no-rehearse", "leave the rehearsal out")->excludes(with);
}

int run_program(int argc, char** argv, const AddVerbs& add_verbs) {
  CLI::App program("Pretrains and continues to pretrain large language models.",
                   "longhaul");
  program.require_subcommand(1);
  program.footer(
      "Example:\n"
      "  longhaul data build 'corpus/*.jsonl.gz' --tokenizer models/Llama-3-8B --out "
      "data/wiki\n"
      "  longhaul train run.toml\n"
      "  longhaul export runs/cpt --out hf/\n"
      "`longhaul VERB --help` says more about each verb; `longhaul config` prints every "
      "setting;\n"
      "`longhaul docs` shows the pages that messages name.\n"
      "Exit codes: 0 done, 78 a setting or an input is wrong, 75 the same command can "
      "succeed\n"
      "later, 79 stopped by request: saved and not finished, 141 nobody reads the "
      "output,\n"
      "1 anything else.");
  Outcome outcome;
  add_verbs(program, outcome);
  refuse_what_is_not_finite(program);
  read_counts(program);
  refuse_wrong_paths(program);
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  // Secrets are looked for first, because nearly every message about a word repeats it.
  if (const std::string problem = problem_of_secrets(words); !problem.empty()) {
    say_error("[arguments] " + problem);
    return kExitSettings;
  }
  if (const auto problem = misspelt_before_help(program, words)) {
    say_error("[arguments] " + *problem);
    return kExitSettings;
  }
  const bool is_log = output_is_a_log(words);
  if (is_log) system::let_output_fail();
  try {
    check_working_directory();
    program.parse(argc, argv);
    if (outcome.exit_code == 0 && !is_log) flush_output();
  } catch (const CLI::ParseError& error) {
    const bool known =
        words.empty() || words[0].starts_with('-') || !program.get_subcommands().empty();
    if (error.get_exit_code() == 0 && known) return program.exit(error);  // --help
    say_error("[arguments] " + usage_problem(program, words, error));
    return kExitSettings;
  } catch (const std::exception& problem) {
    if (is_unread(problem)) return kExitUnread;
    return fail(to_error(problem), outcome.objects);
  }
  return outcome.exit_code;
}

}  // namespace longhaul::apps
