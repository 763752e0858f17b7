#pragma once

#include <cstdint>
#include <string>

namespace longhaul {

std::string host_name();
/// The absolute path of this program.
std::string this_program();
/// SLURM_JOB_ID, or empty.
std::string job_id();
/// How often Slurm has put this job back into its queue: a job with another number has
/// another allocation. 0 outside of Slurm.
int64_t job_requeues();
/// Resident memory of this process, now and at its largest, in bytes.
int64_t resident_bytes();
int64_t peak_resident_bytes();
/// Seconds since this process was started by the kernel.
double seconds_since_process_start();
/// "2026-11-21T08:15:30Z".
std::string utc_now();
/// Seconds since 1970.
double unix_time();

}  // namespace longhaul
