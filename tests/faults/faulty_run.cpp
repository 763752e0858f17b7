#include "tests/faults/faulty_run.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <utility>

extern char** environ;

namespace longhaul::faults {
namespace {

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> buffer{};
  while (true) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(n));
  }
  ::close(fd);
  return text;
}

std::vector<std::string> environment_of(const Faulty& faulty) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    variables.emplace_back(*variable);
  }
  variables.push_back(std::string("LD_PRELOAD=") + LONGHAUL_FAULT_LIBRARY);
  variables.push_back("LONGHAUL_FAULT_DIR=" + faulty.dir.string());
  variables.push_back("LONGHAUL_FAULT=" + faulty.rules);
  if (!faulty.record.empty()) {
    variables.push_back("LONGHAUL_FAULT_RECORD=" + faulty.record.string());
  }
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

FaultDir::FaultDir() {
  const fs::path memory = "/dev/shm";
  const fs::path parent =
      ::access(memory.c_str(), W_OK) == 0 ? memory : fs::temp_directory_path();
  std::string name = (parent / "longhaul_faults_XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = fs::canonical(name);
}

FaultDir::~FaultDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void FaultDir::clear() const {
  for (const auto& entry : fs::directory_iterator(path_)) fs::remove_all(entry.path());
}

std::optional<Said> Ended::last_committed() const {
  std::optional<Said> last;
  for (const Said& save : said) {
    if (save.error.empty()) last = save;
  }
  return last;
}

std::optional<Said> parse_said(const std::string& line) {
  std::istringstream words(line);
  std::string word;
  Said save;
  if (!(words >> word >> save.step >> save.attempt)) return std::nullopt;
  if (word == "failed") std::getline(words >> std::ws, save.error);
  if (word != "committed" && word != "failed") return std::nullopt;
  return save;
}

FaultyTool::FaultyTool(const Faulty& faulty) {
  std::array<int, 2> output{};
  std::array<int, 2> errors{};
  if (::pipe2(output.data(), O_CLOEXEC) != 0 || ::pipe2(errors.data(), O_CLOEXEC) != 0) {
    throw std::runtime_error("pipe");
  }
  std::vector<std::string> arguments = {LONGHAUL_SAVE_TOOL, (faulty.dir / "run").string(),
                                        faulty.ranks, faulty.keep,
                                        faulty.overlap ? "overlap" : "wait"};
  for (const int64_t step : faulty.steps) arguments.push_back(std::to_string(step));
  std::vector<std::string> environment = environment_of(faulty);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors[1], STDERR_FILENO);
  const int error =
      ::posix_spawn(&pid_, LONGHAUL_SAVE_TOOL, &actions, nullptr,
                    pointers(arguments).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(output[1]);
  ::close(errors[1]);
  if (error != 0) throw std::runtime_error("cannot start " LONGHAUL_SAVE_TOOL);
  output_ = output[0];
  errors_ = errors[0];
}

FaultyTool::~FaultyTool() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Ended FaultyTool::wait() {
  Ended ended;
  std::istringstream lines(read_all(output_));
  ended.errors = read_all(errors_);
  int status = 0;
  ::waitpid(std::exchange(pid_, -1), &status, 0);
  if (WIFSIGNALED(status)) ended.signal = WTERMSIG(status);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  for (std::string line; std::getline(lines, line);) {
    if (const auto save = parse_said(line)) ended.said.push_back(*save);
  }
  return ended;
}

Ended run_faulty(const Faulty& faulty) { return FaultyTool(faulty).wait(); }

}  // namespace longhaul::faults
