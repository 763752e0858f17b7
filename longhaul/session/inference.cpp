#include "longhaul/session/inference.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/comm/agree.h"
#include "longhaul/session/state_reader.h"

namespace longhaul::session {

Session load_for_inference(const RunConfig& config,
                           const checkpoint::WeightsSource& source,
                           std::shared_ptr<comm::Communicator> world) {
  system::Logger silent;
  Machine machine = settle_machine(config, std::move(world), silent);
  ModelConfig model = settle_model(config, config.model.config, silent);
  layout::LayoutDescription description =
      settle_layout(config, model.description, machine);
  Layout layout(std::move(description), config, machine.device, machine.world);
  ParameterClasses classes;
  for (const std::string& name : model.description.names()) {
    classes[name] = {.frozen = true};
  }
  Session session(config, std::move(machine), std::move(model), std::move(layout),
                  classes, silent);
  comm::on_all_ranks(session.world(), [&] {
    load_weights(session.flat(), source, *session.machine().node);
  });
  session.replicas().share_weights();
  session.replicas().finish_weights();
  return session;
}

std::vector<double> sum_of_replica(const Session& session, std::vector<double> sums) {
  for (comm::Communicator* group : {&session.mesh().cp(), &session.mesh().pp()}) {
    group->all_reduce_wait(sums, comm::ReduceOp::Sum);
  }
  return sums;
}

std::vector<double> loss_sums(const Session& session, StageRunner& runner,
                              std::vector<data::TokenBatch>& batches) {
  session.layout().take_own_positions(batches);
  run_forward(session, runner, batches);
  return sum_of_replica(session,
                        session.layout().read_on_host({runner.device_loss_sums()})[0]);
}

int64_t first_column(const Session& session, int64_t columns) {
  comm::Communicator& tp = session.mesh().tp();
  const std::vector<int64_t> widths = gather_numbers(tp, {columns});
  const auto mine = widths.begin() + tp.rank();
  const int64_t before = std::accumulate(widths.begin(), mine, int64_t{0});
  const int64_t all = std::accumulate(mine, widths.end(), before);
  LH_CHECK(all == session.model().vocab_size, "model",
           "the ranks of a tp group have {} words of {}", all,
           session.model().vocab_size);
  return before;
}

at::Tensor whole_logits(const Session& session, const at::Tensor& part) {
  comm::Communicator& tp = session.mesh().tp();
  const at::Tensor own = part.to(at::kCPU, at::kFloat);
  if (tp.size() == 1) return own;
  at::Tensor all = at::zeros({session.model().vocab_size}, at::kFloat);
  all.narrow(0, first_column(session, own.numel()), own.numel()).copy_(own);
  tp.all_reduce_wait({all.data_ptr(), all.numel(), format::DType::F32},
                     comm::ReduceOp::Sum);
  return all;
}

int64_t most_weight_bytes(const Session& session) {
  int64_t bytes = session.flat().bytes();
  session.world().all_reduce_wait({&bytes, 1, format::DType::I64}, comm::ReduceOp::Max);
  return bytes;
}

void SequenceRunner::Head::head(const models::Model& model, const nn::Tensors& hidden,
                                const nn::ForwardContext& /*context*/) {
  const at::Tensor& rows = hidden[0];
  logits = model.logits(rows.narrow(0, rows.size(0) - 1, 1)).view({-1});
}

SequenceRunner::SequenceRunner(const Session& session, infer::SamplingOptions options,
                               int64_t capacity)
    : session_(session),
      options_(std::move(options)),
      runner_(session.chunks(), session.replicas(), options_of_stage()) {
  const auto kind = at::TensorOptions(session.device())
                        .dtype(tensor::to_scalar_type(session.machine().policy.compute));
  for (const Chunk& chunk : session.chunks()) {
    caches_.push_back(chunk.model->make_cache(1, capacity, kind));
  }
}

StageOptions SequenceRunner::options_of_stage() {
  StageOptions options = stage_options(session_);
  options.observer = &head_;
  options.caches = &caches_;
  return options;
}

int64_t SequenceRunner::next(const std::vector<int64_t>& ids, int64_t step) {
  const at::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(ids.size());
  std::vector<data::TokenBatch> batches(1);
  data::TokenBatch& batch = batches[0];
  batch.resize(1, count);
  batch.targets.clear();
  std::ranges::fill(batch.document_start, 0);
  for (size_t i = 0; i < ids.size(); ++i) {
    batch.tokens[i] = static_cast<int32_t>(ids[i]);
    batch.positions[i] =
        static_cast<int32_t>(caches_[0].length + static_cast<int64_t>(i));
  }
  run_forward(session_, runner_, batches);
  for (nn::KvCache& cache : caches_) cache.length += count;

  const at::Tensor logits =
      head_.logits.defined() ? whole_logits(session_, head_.logits) : at::Tensor();
  const layout::MeshShape& shape = session_.mesh().shape();
  const int chooser = layout::rank_at(shape, {.pp = shape.pp - 1});
  int64_t id = 0;
  if (session_.world().rank() == chooser) id = infer::sample(logits, options_, step);
  session_.world().broadcast({&id, 1, format::DType::I64}, chooser)->wait();
  return id;
}

}  // namespace longhaul::session
