#include "longhaul/train/step/debug_faults.h"

#include <chrono>
#include <limits>
#include <thread>

#include "longhaul/base/error.h"

namespace longhaul::train {
namespace {

constexpr double kSpike = 1000.0;

/// Returns the number of the batch in the run, counted from 1; batches that were left out
/// count too.
int64_t batch_number(const data::Cursor& cursor, int64_t global_size) {
  const data::Phase& phase = cursor.phases.back();
  int64_t before = 0;
  for (size_t i = 0; i + 1 < cursor.phases.size(); ++i) {
    before += cursor.phases[i].stream_position(cursor.phases[i].consumed);
  }
  return (before + phase.stream_position(phase.consumed - global_size)) / global_size + 1;
}

}  // namespace

DebugFaults::DebugFaults(const RunConfig& config, int rank, int attempt)
    : faults_(config.debug.faults), rank_(rank), global_size_(config.batch.global_size) {
  std::erase_if(faults_, [&](const DebugFault& fault) {
    return fault.attempt != 0 && fault.attempt != attempt;
  });
}

BatchFault DebugFaults::of_batch(const data::Cursor& cursor) const {
  BatchFault result;
  if (faults_.empty()) return result;
  const int64_t number = batch_number(cursor, global_size_);
  for (const DebugFault& fault : faults_) {
    if (fault.step != number) continue;
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    if (fault.kind == FaultKind::Spike) result = {kSpike, kSpike};
    if (fault.rank != rank_) continue;
    if (fault.kind == FaultKind::NonFiniteLoss) result.loss = kNan;
    if (fault.kind == FaultKind::NonFiniteGradient) result.gradient = kNan;
  }
  return result;
}

void DebugFaults::in_memory(const Session& session, int64_t step) const {
  for (const DebugFault& fault : faults_) {
    if (fault.kind != FaultKind::BitFlip || fault.step != step) continue;
    session.replicas->finish_weights();
    if (fault.rank != rank_) continue;
    for (const tensor::Bucket& bucket : session.flat->buckets()) {
      for (const tensor::FlatMember& member : bucket.members) {
        const bool meant =
            fault.tensor.empty() || fault.tensor == member.parameter->name();
        if (!meant || !bucket.weights_stay || !bucket.weights.is_cpu()) continue;
        auto* bytes = static_cast<std::byte*>(bucket.weights.data_ptr());
        bytes[member.begin * bucket.weights.element_size()] ^= std::byte{1};
        return;
      }
    }
    throw ConfigError("debug", "debug.faults: no weights of '" + fault.tensor +
                                   "' stay in this rank's memory");
  }
}

void debug_delay(const RunConfig& config, int rank, std::string_view phase) {
  for (const DebugDelay& delay : config.debug.delays) {
    if (delay.phase != phase || delay.rank.value_or(rank) != rank) continue;
    std::this_thread::sleep_for(std::chrono::duration<double>(delay.seconds));
  }
}

}  // namespace longhaul::train
