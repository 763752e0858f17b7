#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "apps/links/device_links.h"
#include "apps/program.h"
#include "apps/ranks.h"
#include "apps/verbs.h"
#include "longhaul/base/build_info.h"
#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/process/command.h"
#include "longhaul/comm/backend.h"
#include "longhaul/config/load.h"
#include "longhaul/doctor/doctor.h"

namespace longhaul::apps {
namespace {

/// An exchange between ranks takes longer only when a rank is gone or the network is
/// down.
constexpr double kPatienceSeconds = 120.0;

struct DoctorArguments {
  std::string file;
  std::vector<std::string> sets;
  std::vector<std::string> directories;
  bool json = false;
  bool quick = false;
};

/// Asks longhaul-torch, the program for verbs that compute, which libraries it finds
/// here.
void ask_libraries(doctor::DoctorOptions& options) {
  constexpr std::array<std::string_view, 4> kNamed = {"LibTorch", "CUDA", "MPI", "Arrow"};
  const fs::path program = fs::path(this_program()).parent_path() / "longhaul-torch";
  const cluster::CommandResult answer =
      cluster::run_command({program.string(), "--version"});
  options.computes = answer.ok();
  if (!answer.ok()) {
    options.libraries = answer.timed_out
                            ? program.string() + " does not answer"
                            : answer.errors.substr(0, answer.errors.find('\n'));
    return;
  }
  std::istringstream lines(answer.output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, value;
    words >> name >> std::ws;
    std::getline(words, value);
    if (std::ranges::find(kNamed, name) == kNamed.end()) continue;
    if (!options.libraries.empty()) options.libraries += ", ";
    options.libraries += name + ": " + value;
  }
}

/// Returns whether run.device may be an accelerator of this node.
bool wants_devices(const RunSection& run) {
  if (run.device == "auto") {
    return !run.device_plugin.empty() || fs::exists("/dev/nvidiactl");
  }
  return run.device != "cpu";
}

doctor::DoctorOptions options_of(const DoctorArguments& arguments,
                                 const DoctorDevices& devices) {
  doctor::DoctorOptions options;
  options.quick = arguments.quick;
  options.version = build_info().one_line();
  ask_libraries(options);
  options.directories.assign(arguments.directories.begin(), arguments.directories.end());
  options.health.quick = arguments.quick;
  if (!arguments.file.empty()) {
    const RunConfig config = load_run_config(arguments.file, arguments.sets).config;
    options.parallel = config.parallel;
    // Without the libraries for devices the report says why they do not compute.
    if (options.computes && wants_devices(config.run)) {
      devices.become_torch_program();
      options.try_devices = [config, devices](comm::Communicator& world,
                                              comm::Communicator& node) {
        return devices.try_them(config, world, node);
      };
    }
    options.health.command = config.resilience.health_command;
    if (!config.resilience.unhealthy_file.empty()) {
      options.health.unhealthy_file = config.resilience.unhealthy_file;
    }
    if (options.directories.empty() && fs::exists(config.run.dir)) {
      options.directories = {config.run.dir};
    }
  }
  options.health.directories = options.directories;
  options.health.directories.push_back(fs::temp_directory_path());
  return options;
}

int examine_nodes(const DoctorArguments& arguments, const DoctorDevices& devices) {
  const doctor::DoctorOptions options = options_of(arguments, devices);
  // One rank of each node checks the node before the ranks communicate, since ranks that
  // wait keep CPUs busy.
  const comm::Launch launch = comm::detect_launch();
  std::optional<cluster::HealthReport> own;
  if (launch.local_rank == 0) own = cluster::check_node(options.health);

  comm::CommOptions limits;
  limits.deadline_seconds = kPatienceSeconds;
  if (launch.by_mpirun) limits.job_ends = mpirun_ends_job;
  const auto world = comm::world(comm::Backend::Auto, limits);
  try {
    const doctor::DoctorReport report = doctor::examine(world, options, own);
    if (world->rank() == 0) {
      if (arguments.json) {
        fmt::print("{}\n", json_text(report.to_json(), 2));
      } else {
        for (const std::string& line : report.lines()) fmt::print("{}\n", line);
        fmt::print("doctor: {}\n", report.ok() ? "all is well" : "something FAILED");
      }
      std::fflush(stdout);
    }
    comm::finish(*world);
    return report.ok() ? 0 : 1;
  } catch (const Error& error) {
    if (world->size() == 1) throw;
    fmt::print(stderr, "longhaul: error: rank {} of {}: {}\n", world->rank(),
               world->size(), error.what());
    std::fflush(stderr);
    world->abort(error.exit_code());
    return error.exit_code();
  }
}

}  // namespace

void add_doctor(CLI::App& program, Outcome& outcome, const DoctorDevices& devices) {
  const auto arguments = std::make_shared<DoctorArguments>();
  CLI::App* verb = program.add_subcommand(
      "doctor",
      "Tests whether this node, or the nodes of a job, are fit to train: cores, memory, "
      "disks, GPUs, clocks, shared directories, collectives");
  CLI::Option* const file =
      verb->add_option("config", arguments->file,
                       "configuration (TOML); its devices and their groups, run "
                       "directory and health command are tested too");
  add_set_option(*verb, arguments->sets)->needs(file);
  verb->add_option("--dir", arguments->directories,
                   "a directory that all nodes share, such as the run's; repeatable")
      ->allow_extra_args(false);
  verb->add_flag("--quick", arguments->quick, "test for a second instead of several");
  verb->add_flag("--json", arguments->json, "machine-readable");
  verb->footer(
      "Exit codes: 0 all is well, 1 something failed, 75 ranks did not answer.\n"
      "Examples:\n"
      "  longhaul doctor --dir /fsx/runs\n"
      "  srun --mpi=pmix longhaul doctor run.toml");
  verb->callback([arguments, devices, &outcome] {
    outcome.exit_code = examine_nodes(*arguments, devices);
  });
}

}  // namespace longhaul::apps
