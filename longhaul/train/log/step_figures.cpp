#include "longhaul/train/log/step_figures.h"

#include <algorithm>
#include <string>

#include "longhaul/base/process.h"
#include "longhaul/device/device.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/tensor/device_limits.h"
#include "longhaul/train/log/matmul_rate.h"

namespace longhaul::train {
namespace {

constexpr std::array kPhaseNames = {"weights", "forward",     "backward",
                                    "update",  "before_save", "after_save"};

}  // namespace

int64_t peak_bytes(c10::Device device) {
  const int64_t there = device::peak_bytes(device);
  return there > 0 ? there : peak_resident_bytes();
}

int64_t used_bytes(c10::Device device) {
  const int64_t there = device::used_bytes(device);
  return there > 0 ? there : resident_bytes();
}

StepFigures::StepFigures(const session::Session& session)
    : flops_(session.model().description.flops_per_token(session.config().data.seq_len)),
      peak_(std::string(format::dtype_name(session.machine().policy.compute)),
            session.machine().hardware_peak),
      device_(session.device()) {}

void StepFigures::note(MemoryPhase phase) {
  const auto at = static_cast<size_t>(phase);
  if (noted_.at(at) == 0 && !told_.at(at)) noted_.at(at) = used_bytes(device_);
}

run::PhaseMemory StepFigures::named(std::span<const int64_t> bytes) {
  run::PhaseMemory found;
  for (size_t i = 0; i < kPhases; ++i) {
    if (bytes[i] == 0) continue;
    found.emplace_back(kPhaseNames.at(i), bytes[i]);
    told_.at(i) = i < static_cast<size_t>(MemoryPhase::BeforeSave);
  }
  noted_ = {};
  return found;
}

run::PhaseMemory StepFigures::last_phase_memory(const session::Session& session) {
  std::array<int64_t, kPhases> bytes = noted_;
  session.world().all_reduce_wait(bytes, comm::ReduceOp::Max);
  return named(bytes);
}

void StepFigures::complete(run::StepRecord& record, const session::Session& session,
                           system::Logger& log) {
  record.time = unix_time();
  const auto sequences = static_cast<double>(session.config().batch.global_size);
  record.tokens_per_s =
      sequences * static_cast<double>(session.config().data.seq_len) / record.step_time;
  const double per_rank =
      record.tokens_per_s / static_cast<double>(session.world().size());
  const double step_rate = per_rank * flops_.full;
  // Rank 0 decides whether to measure: all ranks measure at the same time, as they
  // compute. The measurement comes after the first step, which it would only delay.
  // Where each shape is compiled, its products would be compiled while the run trains.
  const bool wanted = tensor::limits_of(session.device()).any_shapes &&
                      session.world().rank() == 0 &&
                      peak_.wants_measurement(step_rate, seconds_since_process_start());
  std::array<int64_t, 2 + kPhases> shared = {peak_bytes(session.device()),
                                             wanted ? 1 : 0};
  std::ranges::copy(noted_, shared.begin() + 2);
  session.world().all_reduce_wait(shared, comm::ReduceOp::Max);
  phase_memory_ = named(std::span(shared).subspan(2));
  if (shared[1] != 0) {
    if (!session.device().is_cpu()) {
      // The measurement waits for the device without a look at failures.
      device::wait(device::mark(session.device()), session.layout().watch());
    }
    const system::Stopwatch clock;
    // A run of a few small steps has one short measurement.
    const MatmulRate rate =
        measure_matmul_rate(session.machine().policy.compute, session.device(),
                            peak_.measurements() == 0 ? Effort::Short : Effort::Full);
    peak_.measured(rate, clock.seconds());
  }
  if (const auto line = peak_.settle(record.step, step_rate)) log.info(*line);
  record.seqs_per_s = sequences / record.step_time;
  record.mfu = step_rate / peak_.value();
  record.mfu_causal = per_rank * flops_.causal / peak_.value();
  record.tflops_per_device = step_rate * 1e-12;
  record.peak_tflops_per_device = peak_.value() * 1e-12;
  record.memory_peak = static_cast<double>(shared[0]);
  if (log.silent()) return;
  record.host_memory = static_cast<double>(resident_bytes());
  const ResidentParts parts = resident_parts();
  if (parts.anonymous) record.host_anonymous = static_cast<double>(*parts.anonymous);
  if (parts.file) record.host_file = static_cast<double>(*parts.file);
}

}  // namespace longhaul::train
