#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/base/file.h"

namespace longhaul::run {

// These are the names of what lies in a run's directory (run.dir). All code that writes
// or reads one of the files takes its name from here.

// Files of training, which rank 0 writes.
inline constexpr const char* kConfigFile = "config.toml";
inline constexpr const char* kLogFile = "log.txt";
inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kEventsFile = "events.jsonl";
inline constexpr const char* kResultsFile = "results.json";
inline constexpr const char* kTensorBoardDir = "tensorboard";
inline constexpr const char* kCheckpointsDir = "checkpoints";  ///< or checkpoint.dir
inline constexpr const char* kCapturesDir = "captures";
inline constexpr const char* kDataCacheDir = "data";  ///< or data.cache
inline constexpr const char* kRunLockFile = "run.lock";
inline constexpr const char* kStartsFile = "resume.json";
inline constexpr const char* kMemoryKeyFile = "memory.json";
inline constexpr const char* kRunPastFile = "run.json";
/// Returns the name of the trace of a step: "trace_step_7.json".
std::string trace_file(int64_t step);

// Files of the supervisor.
inline constexpr const char* kStatusFile = "status.json";
inline constexpr const char* kExcludedNodesFile = "excluded_nodes.json";
inline constexpr const char* kReadmittedNodesFile = "control/readmitted_nodes.json";
inline constexpr const char* kSupervisorLockFile = "control/supervisor.lock";
inline constexpr const char* kRestartsFile = "control/restarts.json";
inline constexpr const char* kRequeuesFile = "control/requeues.json";
/// Returns the name of the file that says which nodes Slurm was told to leave out for
/// this job: "control/excluded_of_123.json".
std::string handed_nodes_file(const std::string& job);
/// Returns the name of the file for the stack traces of a hang at this time:
/// "control/stacks_1700000000.txt".
std::string stacks_file(double time);

// Files of `submit`.
inline constexpr const char* kBatchScriptFile = "submit.sbatch";
inline constexpr const char* kSlurmLog = "slurm";  ///< followed by "-JOB.log"

// Files that a person makes to ask for something.
inline constexpr const char* kStopFile = "STOP";
inline constexpr const char* kSaveFile = "SAVE";
inline constexpr const char* kPauseFile = "PAUSE";

/// The manifest of a checkpoint, written last: without it a directory is no checkpoint.
inline constexpr const char* kManifestFile = "manifest.json";

/// The marker beside the checkpoints of a run, which names the run that owns them.
inline constexpr const char* kCheckpointsOwnerFile = "of_run.json";

/// The file beside the checkpoints by which rank 0 tells the other ranks which checkpoint
/// they copy to the mirror now.
inline constexpr const char* kMirrorTurnFile = "mirror.json";

/// Returns whether a directory has a file that only runs leave.
bool holds_run(const fs::path& dir);
/// Returns ", such as runs/a, runs/b" with up to five runs among the directories in
/// `dir`; empty if there are none.
std::string runs_below(const fs::path& dir);

/// Returns the name of a checkpoint's or a capture's directory: "step_00000005".
std::string step_directory_name(int64_t step);
/// Returns the step in the name of a checkpoint's directory, which may be given as a
/// path: 5 for "step_00000005". Returns nothing for any other name, such as "step_5",
/// which another program has made.
std::optional<int64_t> step_of(const fs::path& step_dir);

}  // namespace longhaul::run
