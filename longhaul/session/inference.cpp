#include "longhaul/session/inference.h"

#include <ATen/ops/zeros.h>

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
  return sum_of_replica(
      session,
      runner.sums_of_read(session.layout().read_on_host({runner.device_loss_sums()})[0]));
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
  const at::Tensor own = session.layout().to_host(part).to(at::kFloat);
  if (tp.size() == 1) return own;
  auto shape = own.sizes().vec();
  shape.back() = session.model().vocab_size;
  at::Tensor all = at::zeros(shape, at::kFloat);
  all.narrow(-1, first_column(session, own.size(-1)), own.size(-1)).copy_(own);
  tp.all_reduce_wait({all.data_ptr(), all.numel(), format::DType::F32},
                     comm::ReduceOp::Sum);
  return all;
}

int64_t most_weight_bytes(const Session& session) {
  int64_t bytes = session.flat().bytes();
  session.world().all_reduce_wait({&bytes, 1, format::DType::I64}, comm::ReduceOp::Max);
  return bytes;
}

}  // namespace longhaul::session
