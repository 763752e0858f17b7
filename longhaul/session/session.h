#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/parallel/data/data_parallel.h"
#include "longhaul/session/layout.h"
#include "longhaul/session/settle.h"
#include "longhaul/session/stage_runner.h"
#include "longhaul/system/log.h"

namespace longhaul::session {

/// The class of every parameter of the whole model, by name.
using ParameterClasses = std::map<std::string, tensor::ParameterClass>;

/// A model in memory on its ranks: the settings, the machine, the layout, and this rank's
/// parts of the model. It has no data and no optimizer.
class Session {
 public:
  /// Builds this rank's parts of the model and their memory; no value is loaded. Throws
  /// ConfigError where they do not fit the device. `log` is rank 0's; the other ranks
  /// pass a silent one.
  Session(RunConfig config, Machine machine, ModelConfig model, Layout layout,
          const ParameterClasses& classes, system::Logger& log);

  const RunConfig& config() const { return config_; }
  const Machine& machine() const { return machine_; }
  comm::Communicator& world() const { return *machine_.world; }
  at::Device device() const { return machine_.device; }
  const ModelConfig& model() const { return model_; }
  const Layout& layout() const { return layout_; }
  const comm::Mesh& mesh() const { return layout_.mesh(); }

  /// Returns the parts of the model on this rank: several where there are virtual
  /// pipeline stages.
  const std::vector<Chunk>& chunks() const { return chunks_; }
  /// Returns the memory of the parts' weights and gradients.
  tensor::FlatBuffers& flat() const { return *flat_; }
  /// Returns the object that sums the gradients of these weights over data ranks and
  /// shares the updated weights.
  parallel::DataParallel& replicas() const { return *replicas_; }

 private:
  std::vector<tensor::FlatParameter> build_chunks(const ParameterClasses& classes);

  // In order of construction; later members refer to earlier members.
  RunConfig config_;
  Machine machine_;
  ModelConfig model_;
  Layout layout_;
  std::vector<Chunk> chunks_;
  std::unique_ptr<tensor::FlatBuffers> flat_;
  std::unique_ptr<parallel::DataParallel> replicas_;
};

/// Returns world size and mesh, for the records of checkpoints.
Json layout_of(const Session& session);

/// Returns a length of at least `wanted` tokens, or data.seq_len where that is less, that
/// can be split over cp and (sequence parallelism) over tp.
int64_t dividing_length(const Session& session, int64_t wanted);

/// Returns the options of the stage runner of this session, as its settings and its
/// layout say.
StageOptions stage_options(const Session& session, Capture* capture = nullptr,
                           Profile* profile = nullptr,
                           std::function<void()> after_forward = {});

/// Runs this rank's part of a plan to its end; after a training plan the gradients that
/// this rank owns are complete. A failure leaves nothing under way in `runner`.
/// Collective.
void run_plan(const Session& session, const layout::PipelinePlan& plan,
              StageRunner& runner, parallel::Trace* trace = nullptr);

/// Runs these micro batches forward, without gradients, each term of the loss with weight
/// 1. `runner` is of this session, and `batches` hold this rank's positions. Collective.
void run_forward(const Session& session, StageRunner& runner,
                 std::vector<data::TokenBatch>& batches);

}  // namespace longhaul::session
