#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/data/bert/shard_reader.h"
#include "longhaul/objects/access.h"
#include "longhaul/optim/optimizer.h"
#include "longhaul/session/session.h"
#include "longhaul/system/log.h"
#include "longhaul/tokenizer/tokenizer.h"
#include "longhaul/train/start/open_data.h"
#include "longhaul/train/start/training_state.h"

namespace longhaul::train {

/// A session that is trained: everything that a run consists of before its first step,
/// except its history.
class TrainingSession : public session::Session {
 public:
  /// Makes the optimizer of the session's parameters, which are in `groups`. `objects`
  /// reads the addresses of the settings.
  TrainingSession(session::Session session, objects::Access objects, RunData data,
                  Json fingerprint, optim::ParamGroups groups);

  const objects::Access& objects() const { return objects_; }
  const RunData& data() const { return data_; }
  /// Returns the fingerprint of all ranks (session/fingerprint.h).
  const Json& fingerprint() const { return fingerprint_; }
  /// Returns the settings of [optimizer] by parameter.
  const optim::ParamGroups& groups() const { return groups_; }
  /// Returns the names of the whole model's parameters, sorted.
  const std::vector<std::string>& parameter_names() const { return parameter_names_; }
  optim::Optimizer& optimizer() const { return *optimizer_; }
  ModelState state() const { return {flat(), optimizer()}; }

  /// Returns the source of the first weights, until certify_first_update has released it;
  /// null where the weights did not come from [init].
  const std::shared_ptr<const checkpoint::WeightsSource>& init() const { return init_; }
  void set_init(std::shared_ptr<const checkpoint::WeightsSource> source) {
    init_ = std::move(source);
  }

  /// Returns the hash of the base of the run's adapter (checkpoint::hash_of_base), once
  /// load_base has read the base; empty without an adapter.
  const std::string& base_hash() const { return base_hash_; }
  void set_base_hash(std::string hash) { base_hash_ = std::move(hash); }

 private:
  objects::Access objects_;
  RunData data_;
  Json fingerprint_;
  optim::ParamGroups groups_;
  std::vector<std::string> parameter_names_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::shared_ptr<const checkpoint::WeightsSource> init_;
  std::string base_hash_;
};

/// Returns parallel.partition as a start takes it; the same on all ranks. Collective.
using PartitionOf = std::function<std::vector<int64_t>(const ModelDescription& model)>;

/// Builds a session for training. Nothing is trained, loaded or written. Bad settings,
/// data that does not fit the model and an absent device throw ConfigError or InputError
/// before any large allocation. `log` is rank 0's; the other ranks pass a silent one.
/// `shards` is used as in open_data. `objects` becomes the session's. `partition_of` is
/// called once settings, model and data are known to fit; if it is empty, the setting
/// itself is taken. Collective.
TrainingSession build_session(const RunConfig& config,
                              std::shared_ptr<comm::Communicator> world,
                              system::Logger& log, data::ShardReader* shards = nullptr,
                              const objects::Access& objects = {},
                              const PartitionOf& partition_of = {});

/// Returns the tokenizer beside the weights or beside the model's config; null where
/// there is none.
std::unique_ptr<tokenizer::Tokenizer> model_tokenizer(const RunConfig& config,
                                                      const objects::Access& objects);

/// Returns the process title that ps shows, without the step: "longhaul rank 17 pp1 dp0
/// tp3".
std::string title_of(const session::Session& session);

}  // namespace longhaul::train
