#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/checkpoint/state_tensor.h"
#include "longhaul/config/load.h"
#include "longhaul/data/bert/shard_reader.h"
#include "longhaul/data/order/loader.h"
#include "longhaul/objects/access.h"
#include "longhaul/optim/optimizer.h"
#include "longhaul/parallel/data/data_parallel.h"
#include "longhaul/system/log.h"
#include "longhaul/tokenizer/tokenizer.h"
#include "longhaul/train/session/session_layout.h"
#include "longhaul/train/session/stage_runner.h"
#include "longhaul/train/session/training_state.h"

namespace longhaul::train {

/// A named source of validation data.
struct ValidationSet {
  std::string name;
  std::shared_ptr<const data::TokenSource> source;
};

/// Everything that a run consists of before its first step, except its history: the data
/// sources, the model with its storage, the optimizer. Members are in order of
/// construction; later members refer to earlier members.
struct Session {
  RunConfig config;
  objects::Access objects;  ///< by which addresses of the settings are read
  ModelConfig model_config;
  double hardware_peak =
      0.0;  ///< FLOP/s in the compute dtype, from run.hardware; 0: unknown
  DerivedBatch batch;
  tensor::DTypePolicy policy;
  at::Device device = at::kCPU;
  std::shared_ptr<comm::Communicator> world;
  std::shared_ptr<comm::Communicator> node;  ///< the ranks of this machine
  Layout layout;
  Json fingerprint;     ///< fingerprint of all ranks (fingerprint.h)
  std::string threads;  ///< how many threads a rank has, why, and how they wait

  std::vector<data::WeightedSource> train_sources;
  int64_t train_sequences = 0;  ///< sequences of all sources, each counted once
  bool fetches_shards = false;  ///< shards of train_sources are fetched during training
  std::vector<ValidationSet> validation;

  /// The parts of the model on this rank: several where there are virtual pipeline
  /// stages.
  std::vector<Chunk> chunks;
  std::vector<std::string>
      parameter_names;        ///< names of the whole model's parameters, sorted
  optim::ParamGroups groups;  ///< settings of [optimizer] by parameter
  std::unique_ptr<tensor::FlatBuffers> flat;
  std::unique_ptr<parallel::DataParallel> replicas;
  std::unique_ptr<optim::Optimizer> optimizer;  ///< null where the model is not trained
  /// The source of the first weights, until the certificate is complete; null where the
  /// weights did not come from [init].
  std::shared_ptr<const checkpoint::WeightsSource> init;

  ModelState state() const { return {*flat, *optimizer}; }
  const comm::Mesh& mesh() const { return *layout.mesh; }
  size_t num_losses() const { return model_config.description.losses.size(); }
};

/// Ends the wait of a loader's thread for a shard that nobody reads any more. Declared
/// behind the loader, it goes first.
class ShardWaitsEnd {
 public:
  explicit ShardWaitsEnd(const Session& session) : session_(session) {}
  ~ShardWaitsEnd();
  ShardWaitsEnd(const ShardWaitsEnd&) = delete;
  ShardWaitsEnd& operator=(const ShardWaitsEnd&) = delete;

 private:
  const Session& session_;
};

/// Returns the process title that ps shows, without the step: "longhaul rank 17 pp1 dp0
/// tp3".
std::string title_of(const Session& session);

/// Returns world size and mesh, for the records of checkpoints.
Json layout_of(const Session& session);

/// Builds a session. Nothing is trained, loaded or written. Bad settings, data that does
/// not fit the model and an absent device throw ConfigError or InputError before any
/// large allocation. `log` is rank 0's; the other ranks pass a silent one. `shards` is
/// used as in open_data. `objects` becomes the session's. Collective.
Session build_session(const RunConfig& config, std::shared_ptr<comm::Communicator> world,
                      system::Logger& log, data::ShardReader* shards = nullptr,
                      const objects::Access& objects = {});

/// Gives this rank its share of the CPUs of `node`, the ranks of its machine, or `wanted`
/// threads where that is not 0. Returns a line that says what was chosen. Collective over
/// `node`.
std::string set_threads(int64_t wanted, comm::Communicator& node);

/// Builds a session without data and optimizer, with all parameters frozen, for a model
/// that is only run forward (inference.h). Collective.
Session build_inference_session(const RunConfig& config,
                                std::shared_ptr<comm::Communicator> world,
                                system::Logger& log);

/// Returns the tokenizer beside the weights or beside the model's config; null where
/// there is none.
std::unique_ptr<tokenizer::Tokenizer> model_tokenizer(const Session& session);

/// Returns a length of at least `wanted` tokens, or data.seq_len where that is less,
/// that divides as data.seq_len does: over cp and over the token parts of tp.
int64_t dividing_length(const Session& session, int64_t wanted);

/// Runs this rank's part of a plan to its end; after a training plan the gradients that
/// this rank owns are complete. A failure leaves nothing under way in `runner`.
/// Collective.
void run_plan(const Session& session, const layout::PipelinePlan& plan,
              StageRunner& runner, parallel::Trace* trace = nullptr);

/// Runs these micro batches forward, without gradients, each term of the loss with weight
/// 1. `runner` is of this session, and `batches` hold this rank's positions. Collective.
void run_forward(const Session& session, StageRunner& runner,
                 std::vector<data::TokenBatch>& batches);

/// Returns the options for the loader of this rank's sequences. `last_step` is the last
/// step of the whole run, 0 where it is not known.
data::LoaderOptions loader_options(const Session& session, bool prefetch,
                                   int64_t first_step = 1, int64_t last_step = 0);

/// Returns the loader's next step. While it is read the rank's record moves, so that
/// nobody takes the wait for a hang. The log tells of a long wait. Where shards are
/// fetched during training, all ranks wait until each of them has its batch, and ask
/// `must_end` several times a second. Once it says true on all ranks, they get null.
/// `restart`, where it is set, is called first, as soon as what the loader reads has been
/// read in the same way; all ranks set it, or none. Collective where shards are fetched.
data::StepBatch* next_batch(const Session& session, data::Loader& loader, int64_t step,
                            system::Logger& log, const std::function<bool()>& must_end,
                            const std::function<void()>& restart = {});

/// Returns the first vocabulary column of this rank's logits, of which the rank has
/// `columns`; the ranks of a tp group have the columns side by side. Collective over the
/// ranks with the head.
int64_t first_column(const Session& session, int64_t columns);

/// Returns what the stages of the run do, as its settings and its layout say.
StageOptions stage_options(const Session& session, Capture* capture = nullptr,
                           Profile* profile = nullptr,
                           std::function<void()> after_forward = {});

}  // namespace longhaul::train
