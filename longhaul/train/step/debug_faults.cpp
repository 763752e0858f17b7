#include "longhaul/train/step/debug_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/config/rules.h"
#include "longhaul/families/parameter_names.h"

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

/// Returns whether a pattern of debug.capture matches something that can be captured.
bool can_be_captured(const std::string& pattern, const ModelDescription& model) {
  const auto matches = [&](const std::string& name) {
    return matches_parameter(pattern, name);
  };
  for (const char* kind : {"activation.", "activation_gradient."}) {
    if (matches(kind + std::string("embedding"))) return true;
    for (int64_t layer = 0; layer < model.num_blocks(); ++layer) {
      if (matches(fmt::format("{}layers.{}", kind, layer))) return true;
    }
  }
  return std::ranges::any_of(model.parameters(), [&](const ParameterDescription& p) {
    return std::ranges::any_of(names_of(model, p), [&](const std::string& name) {
      return matches("gradient." + name);
    });
  });
}

}  // namespace

void check_debug(const session::Session& session, system::Logger& log) {
  const RunConfig& c = session.config();
  const ModelDescription& model = session.model().description;
  const int64_t world = session.world().size();
  const auto rank = [&](const std::string& key, int64_t number) {
    if (number < world) return;
    log.warning(
        "{}: {} names rank {}, but this run has {}, from 0 on: nothing happens there",
        config::origin(c, key), key, number, counted(world, "rank", "ranks"));
  };
  const auto step = [&](const std::string& key, int64_t number) {
    if (!c.run.steps || number <= *c.run.steps) return;
    log.warning("{}: {} names step {}, but run.steps = {}: nothing happens then",
                config::origin(c, key), key, number, *c.run.steps);
  };
  for (const int64_t number : c.profile.steps) step("profile.steps", number);
  for (const DebugDelay& delay : c.debug.delays) {
    rank("debug.delays", delay.rank.value_or(0));
  }
  for (const DebugFault& fault : c.debug.faults) {
    step("debug.faults", fault.step);
    rank("debug.faults", fault.rank);
    const auto names = model.names();
    if (fault.tensor.empty() || std::ranges::count(names, fault.tensor) > 0) continue;
    config::fail_key(c, "debug.faults",
                     "debug.faults: tensor = \"{}\" is none of the model's parameters; "
                     "longhaul inspect --names lists them",
                     fault.tensor);
  }
  if (!c.debug.capture) return;
  for (const int64_t number : c.debug.capture->steps) step("debug.capture", number);
  for (const int64_t number : c.debug.capture->ranks) rank("debug.capture", number);
  for (const std::string& pattern : c.debug.capture->tensors) {
    if (can_be_captured(pattern, model)) continue;
    config::fail_key(
        c, "debug.capture",
        "debug.capture: tensors: \"{}\" matches nothing; what can be captured is "
        "activation.embedding, activation.layers.0 to {}, both with activation_gradient, "
        "and gradient.NAME of each parameter that longhaul inspect --names lists",
        pattern, model.num_blocks() - 1);
  }
}

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

void DebugFaults::in_memory(const session::Session& session, int64_t step) const {
  for (const DebugFault& fault : faults_) {
    if (fault.kind != FaultKind::BitFlip || fault.step != step) continue;
    session.replicas().finish_weights();
    if (fault.rank != rank_) continue;
    for (const tensor::Bucket& bucket : session.flat().buckets()) {
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
  LH_ASSERT(std::ranges::count(kDelayPhases, phase) == 1, "{} is in kDelayPhases", phase);
  for (const DebugDelay& delay : config.debug.delays) {
    if (delay.phase != phase || delay.rank.value_or(rank) != rank) continue;
    std::this_thread::sleep_for(std::chrono::duration<double>(delay.seconds));
  }
}

}  // namespace longhaul::train
