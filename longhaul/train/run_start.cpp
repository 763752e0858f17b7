#include "longhaul/train/run_start.h"

#include <string>

#include "longhaul/comm/agree.h"
#include "longhaul/run/files.h"

namespace longhaul::train {

RunStart::RunStart(const fs::path& run_dir, comm::Communicator& world) {
  const std::string attempt = comm::on_rank_zero(world, [&] {
    lock_.emplace(RunLock::acquire(run_dir));
    record_.emplace(run_dir);
    return std::to_string(lock_->attempt());
  });
  attempt_ = std::stoi(attempt);
}

int RunStart::failed_starts(const fs::path& step_dir) const {
  const auto step = step_of(step_dir);
  return record_ && step ? record_->failed_starts(*step) : 0;
}

void RunStart::begin(int64_t step) {
  if (record_) record_->begin(step);
}

void RunStart::got_through() {
  if (record_) record_->done();
}

}  // namespace longhaul::train
