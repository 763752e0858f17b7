#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "apps/links/device_links.h"
#include "apps/program.h"
#include "apps/start_environment.h"
#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/process.h"
#include "longhaul/base/refused.h"
#include "longhaul/system/process_title.h"
#include "longhaul/system/standard_streams.h"

// The program that people type. LibTorch takes a third of a second and 140 MB to load. So
// the verbs that compute with LibTorch are in a second program beside this one. For such
// a verb, execv() replaces this program by the second one, which keeps the process id and
// the arguments.

namespace longhaul::apps {
namespace {

/// About how much address space, and how much data memory, a process needs while it loads
/// LibTorch. With less, the dynamic linker or LibTorch's own start would end the process.
constexpr uint64_t kLibTorchBytes = uint64_t{512} << 20;
constexpr uint64_t kLibTorchData = uint64_t{80} << 20;

void check_room_for_libtorch() {
  const auto allows = [](__rlimit_resource which, uint64_t bytes) {
    rlimit limit{};
    // No limit, RLIM_INFINITY, is the largest value of the type.
    return ::getrlimit(which, &limit) != 0 || limit.rlim_cur >= bytes;
  };
  if (allows(RLIMIT_AS, kLibTorchBytes) && allows(RLIMIT_DATA, kLibTorchData)) return;
  throw refused("memory", "memory for LibTorch, which takes 0.5 GB", ENOMEM);
}

[[noreturn]] void become_torch_program(char** argv) {
  check_room_for_libtorch();
  const fs::path ours = this_program();
  const fs::path program = ours.parent_path() / "longhaul-torch";
  // Without these variables the second program would start itself again and be loaded
  // twice, which takes 40 ms.
  for (const StartVariable& variable : kStartEnvironment) {
    if (!is_decided(variable, ::environ))
      ::putenv(const_cast<char*>(variable.assignment));
  }
  ::execv(program.c_str(), argv);
  fail_input(
      "file",
      "{}: {}; train, bench, eval, generate, serve, new, export --passport and --version "
      "need this program, which belongs beside {}",
      program.string(), std::strerror(errno), ours.string());
}

void add_torch_verb(CLI::App& program, const TorchVerb& known, char** argv) {
  CLI::App* verb = program.add_subcommand(known.name, known.description);
  verb->prefix_command();
  verb->set_help_flag();
  verb->callback([argv] { become_torch_program(argv); });
}

void add_verbs(CLI::App& program, Outcome& outcome, char** argv) {
  add_agent(program, outcome);
  add_torch_verb(program, kBenchVerb, argv);
  add_compare(program, outcome);
  add_torch_verb(program, kCompileVerb, argv);
  add_config(program, outcome);
  add_data(program, outcome);
  add_docs(program, outcome);
  add_doctor(program, outcome, {[argv] { become_torch_program(argv); }, {}});
  add_drill(program, outcome);
  add_torch_verb(program, kEvalVerb, argv);
  add_export(program, outcome, [argv] { become_torch_program(argv); });
  add_torch_verb(program, kGenerateVerb, argv);
  add_import(program, outcome);
  add_inspect(program, outcome);
  add_launch(program, outcome);
  add_torch_verb(program, kNewVerb, argv);
  add_plan(program, outcome);
  add_recipe(program, outcome);
  add_torch_verb(program, kRehearseVerb, argv);
  add_report(program, outcome);
  add_torch_verb(program, kServeVerb, argv);
  add_submit(program, outcome);
  add_supervise(program, outcome);
  add_torch_verb(program, kTrainVerb, argv);
  add_try(program, outcome);
  add_verify(program, outcome);
  add_watch(program, outcome);
  add_why(program, outcome);
}

}  // namespace
}  // namespace longhaul::apps

int main(int argc, char** argv) {
  using namespace longhaul::apps;
  longhaul::system::guard_standard_streams();
  argv = longhaul::system::keep_arguments(argc, argv);
  expand_build_bert(argc, argv);
  return run_program(argc, argv, [argv](CLI::App& program, Outcome& outcome) {
    add_verbs(program, outcome, argv);
    program.set_version_flag(
        "--version", [argv]() -> std::string { become_torch_program(argv); },
        kVersionHelp);
  });
}
