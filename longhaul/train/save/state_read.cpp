#include "longhaul/train/save/state_read.h"

#include "longhaul/comm/agree.h"
#include "longhaul/session/state_reader.h"
#include "longhaul/tensor/flat_pieces.h"

namespace longhaul::train {
namespace {

using session::StateFiles;
using session::StateReader;

void add_masters(StateReader& reader, const ModelState& state) {
  const auto& buckets = state.flat.buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    const at::Tensor& master = state.optimizer.states()[i].master;
    if (master.defined()) reader.add(checkpoint::kWeight, master, buckets[i]);
  }
}

/// Clears the moments of parameters that had no update, which an earlier state may have
/// left.
void begin_with_zeros(const optim::BucketState& state, const tensor::Bucket& bucket,
                      const optim::UpdateCounts& counts) {
  for (const tensor::FlatPiece& piece : tensor::pieces_in(bucket, bucket.owned)) {
    if (counts.of(piece.member->parameter->name()) > 0) continue;
    for (const at::Tensor& moments : {state.exp_avg, state.exp_avg_sq}) {
      moments.narrow(0, piece.in_bucket - bucket.owned.begin, piece.in_member.size())
          .zero_();
    }
  }
}

}  // namespace

checkpoint::ReadReport load_weights(ModelState state,
                                    const checkpoint::WeightsSource& source,
                                    comm::Communicator& node) {
  StateReader reader(StateFiles::of(source), state.flat);
  add_masters(reader, state);
  const checkpoint::ReadReport report = reader.run(node);
  state.optimizer.publish_masters();
  return report;
}

checkpoint::ReadReport restore_state(ModelState state,
                                     const checkpoint::StoredTensors& stored,
                                     const std::string& where, comm::Communicator& node,
                                     std::optional<int64_t> staging_bytes) {
  StateReader reader({stored, where}, state.flat, staging_bytes);
  add_masters(reader, state);
  const auto& buckets = state.flat.buckets();
  const optim::UpdateCounts& counts = state.optimizer.counts();
  const auto never_updated = [&](const std::string& name) {
    return counts.of(name) == 0;
  };
  comm::on_all_ranks(node, [&] {
    for (size_t i = 0; i < buckets.size(); ++i) {
      const optim::BucketState& own = state.optimizer.states()[i];
      if (!own.exp_avg.defined()) continue;  // frozen
      begin_with_zeros(own, buckets[i], counts);
      reader.add(checkpoint::kExpAvg, own.exp_avg, buckets[i], never_updated);
      reader.add(checkpoint::kExpAvgSq, own.exp_avg_sq, buckets[i], never_updated);
    }
  });
  const checkpoint::ReadReport report = reader.run(node);
  state.optimizer.publish_masters();
  return report;
}

}  // namespace longhaul::train
