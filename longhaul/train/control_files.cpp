#include "longhaul/train/control_files.h"

#include <array>
#include <ratio>
#include <utility>

#include "longhaul/run/files.h"
#include "longhaul/system/signals.h"

namespace longhaul::train {
namespace {

constexpr auto kBetweenFileLooks = std::chrono::seconds(1);

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() > fs::file_type::not_found;
}

}  // namespace

void end_if_asked(comm::Communicator& world) {
  if (world.any(system::raised_signal().number != 0)) throw EndedEarly();
}

ControlFiles::ControlFiles(fs::path dir, comm::Communicator& world,
                           std::function<void(const char* file)> tell,
                           double save_minutes, Clock clock)
    : dir_(std::move(dir)),
      world_(world),
      tell_(std::move(tell)),
      save_minutes_(save_minutes),
      clock_(std::move(clock)),
      last_save_(clock_()) {}

/// Returns whether this call has removed the file. A file counts as seen only if it was
/// removed, so that it cannot act twice.
bool ControlFiles::take(const char* file) {
  std::error_code problem;
  if (!fs::remove(dir_ / file, problem)) return false;
  tell_(file);
  return true;
}

void ControlFiles::look() {
  const auto now = clock_();
  const std::chrono::duration<double, std::ratio<60>> unsaved = now - last_save_;
  seen_.save |= save_minutes_ > 0.0 && unsaved.count() >= save_minutes_;
  if (now < next_look_) return;
  next_look_ = now + kBetweenFileLooks;
  // A STOP file that cannot be removed is obeyed all the same.
  const bool stop = take(run::kStopFile) || is_there(dir_ / run::kStopFile);
  seen_.stop = stop || seen_.stop;
  seen_.save = take(run::kSaveFile) || seen_.save;
  const bool paused = is_there(dir_ / run::kPauseFile);
  if (paused && !seen_.pause) tell_(run::kPauseFile);
  seen_.pause = paused;
}

/// Returns what all ranks have seen so far.
Requests ControlFiles::agree() {
  if (world_.rank() == 0) look();
  std::array<int64_t, 4> asked = {system::raised_signal().number, seen_.stop ? 1 : 0,
                                  seen_.save ? 1 : 0, seen_.pause ? 1 : 0};
  world_.all_reduce_wait(asked, comm::ReduceOp::Max);
  const Requests agreed{static_cast<int>(asked[0]), asked[1] != 0, asked[2] != 0,
                        asked[3] != 0};
  if (agreed.ends()) system::answer_signal();
  return agreed;
}

Requests ControlFiles::ask() {
  const Requests agreed = agree();
  seen_.save = false;
  return agreed;
}

}  // namespace longhaul::train
