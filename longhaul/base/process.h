#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace longhaul {

std::string host_name();
/// Reads the file "stat" of a directory such as /proc/4711. Returns the fields after the
/// process's name: the first field is the letter of the state, the second the parent's
/// process id. Returns no fields for a process that is gone.
std::vector<std::string> stat_fields(const std::string& directory);
/// The index of the process's start among these fields, in clock ticks since the start of
/// the machine.
inline constexpr size_t kStatStart = 19;
/// Reads the words of a process's command line from a directory such as /proc/4711.
/// Returns no words for a process that is gone.
std::vector<std::string> command_words(const std::string& directory);
/// Returns when a process was started, in clock ticks since the machine was; 0 if there
/// is no such process. A process that is dead counts as none, although its parent has not
/// noticed yet: in a container whose first process reaps nobody, it never will.
int64_t process_start(int64_t process);
/// Returns the absolute path of this program.
std::string this_program();
/// Returns SLURM_JOB_ID, or an empty text.
std::string job_id();
/// Returns how often Slurm has put this job back into its queue; 0 outside of Slurm.
/// After each time the job has a new allocation.
int64_t job_requeues();
/// Returns the resident memory of this process, now and at its largest, in bytes.
int64_t resident_bytes();
int64_t peak_resident_bytes();
/// Parts of the resident memory of this process, in bytes; nothing if the system does not
/// tell. The rest is shared memory, such as MPI's.
struct ResidentParts {
  std::optional<int64_t> anonymous;
  std::optional<int64_t> file;  ///< pages of mapped files, which the system may drop
};
ResidentParts resident_parts();
/// Returns the seconds since this process was started by the kernel.
double seconds_since_process_start();
/// Returns the time as "2026-11-21T08:15:30Z".
std::string utc_now();
/// Returns the seconds since 1970, by the clock of this process (clock.h).
double unix_time();

}  // namespace longhaul
