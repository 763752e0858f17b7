#include "longhaul/train/save/adapter_base.h"

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/hf/adapted_source.h"
#include "longhaul/checkpoint/hf/model_check.h"
#include "longhaul/checkpoint/hf/peft.h"
#include "longhaul/comm/agree.h"
#include "longhaul/families/adapter.h"
#include "longhaul/session/state_reader.h"
#include "longhaul/tensor/init.h"

namespace longhaul::train {
namespace {

/// Returns init.weights with the names of the model's parameters. Collective.
checkpoint::SharedSource open_base(const TrainingSession& session) {
  return checkpoint::as_parameters(
      checkpoint::WeightsSource::open(
          session.objects().readable(session.config().init.weights), session.world(),
          checkpoint::WeightsSource::Files::Held),
      session.model().description);
}

/// Returns where the adapter's values come from. Collective.
checkpoint::AdapterValues first_values(const TrainingSession& session) {
  const RunConfig& config = session.config();
  const fs::path& dir = config.init.adapter;
  if (!dir.empty()) {
    checkpoint::SharedSource files;
    comm::on_all_ranks(session.world(), [&] {
      files = checkpoint::fitting_peft(checkpoint::open_peft(dir), dir, config,
                                       session.model().description);
    });
    return {files, {}};
  }
  const auto seed = static_cast<uint64_t>(config.run.seed);
  return {nullptr, [seed](const ParameterDescription& p, const format::TensorSlice& box,
                          std::span<float> out) {
            tensor::initial_values(box, p.init, seed, 0, box.num_elements(), out.data());
          }};
}

}  // namespace

checkpoint::SharedSource open_first_weights(const TrainingSession& session) {
  checkpoint::SharedSource source = open_base(session);
  if (session.model().description.has_base) {
    source = checkpoint::with_adapter(source, first_values(session),
                                      session.model().description);
  }
  checkpoint::check_model(source, session.model(), session.world());
  return source;
}

void load_base(TrainingSession& session, RunLog& run) {
  const ModelDescription& model = session.model().description;
  if (!model.has_base) return;
  const auto base = open_base(session);
  // The adapter's own tensors are not read here, so that their values have no say.
  checkpoint::check_model(checkpoint::with_adapter(base, {}, model), session.model(),
                          session.world());
  session::StateReader reader(session::StateFiles::of(*base), session.flat());
  for (const tensor::Bucket& bucket : session.flat().buckets()) {
    if (bucket.frozen) reader.add(checkpoint::kWeight, bucket.owned_weights, bucket);
  }
  checkpoint::ReadReport mine;
  comm::on_all_ranks(session.world(),
                     [&] { mine = reader.run(*session.machine().node); });
  session.set_base_hash(checkpoint::hash_of_base(*base, model, session.world()));
  const auto report = checkpoint::total(mine, session.world());
  int64_t trained = 0;
  for (const format::TensorSlice& tensor : model.saved_tensors()) {
    trained += tensor.num_elements();
  }
  run.log().info("base of the adapter: {}; {}; {} parameters beside it are trained",
                 base->describe(), report.describe(), grouped(trained));
  const std::string left_out =
      families::layers_left_out(session.config().adapter, session.model().network);
  if (!left_out.empty()) run.log().warning(left_out);
}

void check_base(const TrainingSession& session, const History& history,
                const fs::path& from) {
  if (history.base == session.base_hash()) return;
  fail_config(
      "adapter",
      "{} is of an adapter that was trained beside another base: init.weights = {} "
      "has the hash {}, and its base had {}; set init.weights to that base, or "
      "begin a new run with init.adapter",
      from.string(), session.config().init.weights.string(), session.base_hash(),
      history.base.empty() ? "none" : history.base);
}

}  // namespace longhaul::train
