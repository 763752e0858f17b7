#include "longhaul/base/process.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <sstream>

#include "longhaul/base/clock.h"
#include "longhaul/base/file.h"

namespace longhaul {

std::vector<std::string> stat_fields(const std::string& directory) {
  const std::string line = first_line(directory + "/stat");
  // The process's name stands in brackets and may hold any character.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(line.substr(name_end + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

std::vector<std::string> command_words(const std::string& directory) {
  std::ifstream file(directory + "/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

int64_t process_start(int64_t process) {
  const auto fields = stat_fields(fmt::format("/proc/{}", process));
  if (fields.size() <= kStatStart || fields[0] == "Z" || fields[0] == "X") return 0;
  return std::strtoll(fields[kStatStart].c_str(), nullptr, 10);
}

std::string host_name() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string job_id() {
  const char* id = std::getenv("SLURM_JOB_ID");
  return id == nullptr ? std::string() : id;
}

int64_t job_requeues() {
  const char* count = std::getenv("SLURM_RESTART_COUNT");
  return count == nullptr ? 0 : std::strtoll(count, nullptr, 10);
}

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  statm >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

ResidentParts resident_parts() {
  // /proc/self/smaps_rollup has the same numbers, but walks all mappings.
  const fs::path status = "/proc/self/status";
  return {number_behind(status, "RssAnon:"), number_behind(status, "RssFile:")};
}

int64_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

double seconds_since_process_start() {
  return machine_seconds() - static_cast<double>(process_start(::getpid())) /
                                 static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::string this_program() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

std::string utc_now() { return utc_text(std::time(nullptr)); }

}  // namespace longhaul
