// Trains a few steps as `longhaul train` does, with one thing broken on purpose. So the
// tests of layouts can show that their comparisons fail.
//   longhaul_layout_tool RUN.toml STEPS [--set KEY=VALUE] [--fault NAME]
// Rank 0 prints one JSON line per step; a checkpoint follows the first step. If no fault
// is given, the curve is that of `longhaul train`. With init.weights the certificate is
// asked. Where a check of the copies is due (resilience.checksum_every), the ranks
// compare what they hold alike.
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/checkpoint/write/background_saver.h"
#include "longhaul/comm/backend.h"
#include "longhaul/data/order/loader.h"
#include "longhaul/layout/pipeline/plan.h"
#include "longhaul/optim/kernels/grad_norm.h"
#include "longhaul/optim/schedule.h"
#include "longhaul/tensor/flat_pieces.h"
#include "longhaul/tensor/vector_math.h"
#include "longhaul/train/proof/certificate.h"
#include "longhaul/train/proof/first_update.h"
#include "longhaul/train/proof/replica_check.h"
#include "longhaul/train/save/state_capture.h"
#include "longhaul/train/start/data_feed.h"
#include "longhaul/train/step/step_loss.h"
#include "tests/dist/deaf_group.h"
#include "tests/dist/wrong_weights.h"

namespace longhaul {
namespace {

using train::TrainingSession;

using Groups = std::vector<std::shared_ptr<comm::Communicator>>;

struct Arguments {
  std::string file;
  int64_t steps = 0;
  std::vector<std::string> sets;
  std::string fault;
};

/// Leaves out one of the sums of gradients. `deaf` keeps the groups that do not add.
void break_groups(TrainingSession& session, const std::string& fault, Groups& deaf) {
  parallel::DataGroups groups = session.layout().groups();
  const auto deafen = [&](comm::Communicator*& group) {
    LH_CHECK(group != nullptr, "tool", "{}: the layout has no such sum", fault);
    deaf.push_back(std::make_shared<testing::DeafGroup>(*group));
    group = deaf.back().get();
  };
  if (fault == "no_norm_sum") {
    deafen(groups.sums.at(layout::kTensorSum - 1));
  } else if (fault == "no_first_gradient") {
    deafen(groups.sums.at(layout::kTensorFirst - 1));
  } else if (fault == "no_key_sum") {
    deafen(groups.sums.at(layout::kKeySum - 1));
  } else if (fault == "no_tied_sum") {
    deafen(groups.sums.at(layout::kTiedSum - 1));
  } else if (fault == "no_replica_sum") {
    deafen(groups.replicas);
  } else if (fault == "no_expert_sum") {
    deafen(groups.expert_replicas);
  } else {
    return;
  }
  parallel::DataParallel* const replicas = &session.replicas();
  std::destroy_at(replicas);
  std::construct_at(replicas, session.flat(), groups);
}

/// Exchanges a rank's early and late positions, and leaves the numbers of the positions.
void exchange_chunks(std::vector<data::TokenBatch>& batches) {
  for (data::TokenBatch& batch : batches) {
    for (auto* values : {&batch.tokens, &batch.targets[0]}) {
      for (int64_t row = 0; row < batch.num_sequences; ++row) {
        const auto begin = values->begin() + row * batch.seq_len;
        std::rotate(begin, begin + batch.seq_len / 2, begin + batch.seq_len);
      }
    }
  }
}

/// Halves what this rank owns of one tensor's gradient.
void halve_gradient(TrainingSession& session) {
  for (tensor::Bucket& bucket : session.flat().buckets()) {
    for (const tensor::FlatMember& member : bucket.members) {
      if (member.parameter->name() != "model.layers.1.mlp.up_proj.weight") continue;
      const layout::FlatRange range = tensor::Bucket::overlap(member, bucket.owned);
      if (range.size() <= 0) continue;
      bucket.owned_grads.narrow(0, range.begin - bucket.owned.begin, range.size())
          .mul_(0.5);
    }
  }
}

/// Gives the padding row of the whole embedding a gradient.
void train_padding_row(TrainingSession& session) {
  for (tensor::Bucket& bucket : session.flat().buckets()) {
    for (const tensor::FlatMember& member : bucket.members) {
      const auto row = member.parameter->padding_row();
      if (!row || member.parameter->name() != "model.embed_tokens.weight") continue;
      const int64_t width = member.parameter->slice().extent[1];
      const int64_t first = member.begin + *row * width;
      const int64_t begin = std::max(first, bucket.owned.begin);
      const int64_t end = std::min(first + width, bucket.owned.end);
      if (begin >= end) continue;
      bucket.owned_grads.narrow(0, begin - bucket.owned.begin, end - begin).add_(1e-3);
    }
  }
}

/// Fills the masters by `read`, and the weights from the masters.
void load_masters(TrainingSession& session, const tensor::FlatReader& read) {
  const auto& buckets = session.flat().buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    for (const tensor::FlatPiece& piece :
         tensor::pieces_in(buckets[i], buckets[i].owned)) {
      const at::Tensor part = session.optimizer().states()[i].master.narrow(
          0, piece.in_bucket - buckets[i].owned.begin, piece.in_member.size());
      const at::Tensor host = at::empty(part.sizes(), part.options().device(at::kCPU));
      read(piece.member->parameter->slice(), piece.in_member.begin, piece.in_member.end,
           tensor::from_scalar_type(host.scalar_type()), tensor::bytes_of(host));
      part.copy_(host);
    }
  }
  session.optimizer().publish_masters();
}

class Run {
 public:
  Run(const Arguments& arguments, std::shared_ptr<comm::Communicator> world)
      : fault_(arguments.fault),
        loaded_(load_run_config(arguments.file, arguments.sets)),
        session_(train::build_session(loaded_.config, std::move(world), quiet_)),
        loader_(session_.data().train,
                train::loader_options(session_, /*prefetch=*/false)),
        schedule_(config().schedule, config().optimizer.lr, config().run.steps.value()) {
    break_groups(session_, fault_, deaf_);
    if (config().init.weights.empty()) {
      train::initialise_weights(session_.state(),
                                static_cast<uint64_t>(config().run.seed));
    } else {
      session_.set_init(checkpoint::WeightsSource::open(config().init.weights));
      load_masters(session_, testing::WrongReader(session_, *session_.init(), fault_));
    }
    session_.replicas().share_weights();
    train::certify_weights(session_, quiet_);
    testing::break_optimizer(session_, fault_);
    runner_.emplace(session_.chunks(), session_.replicas(),
                    session::stage_options(session_));
    check_.emplace(session_, config().resilience.checksum_every, [](const Json&) {});
  }

  void steps(int64_t count) {
    for (int64_t step = 1; step <= count; ++step) {
      train_step(step);
      if (step == 1) save();
    }
    session_.replicas().finish_weights();
  }

 private:
  const RunConfig& config() const { return session_.config(); }

  void train_step(int64_t step) {
    data::StepBatch& batch = loader_.next();
    auto& batches = batch.micro_batches;
    const train::BatchTotals totals = train::sum_over_replicas(session_, batch);
    train::StepLoss loss(session_, totals);
    const train::StepLoss local(
        session_, {.targets = batch.num_targets, .positions = totals.positions});
    session_.layout().take_own_positions(batches);
    const bool last_replica =
        session_.mesh().index().dp + 1 == session_.mesh().shape().dp;
    if (fault_ == "dropped_micro_batch" && last_replica) batches.pop_back();
    if (fault_ == "chunk_order") exchange_chunks(batches);

    session_.flat().zero_grads();
    runner_->begin_step(batches,
                        fault_ == "local_denominator" ? local.scales() : loss.scales());
    // The plan is made for the micro batches that are left.
    const layout::PipelinePlan plan = layout::make_pipeline_plan(
        session_.layout().description().pipeline,
        session_.layout().description().shape.pp, session_.layout().description().chunks,
        static_cast<int64_t>(batches.size()));
    session::run_plan(session_, plan, *runner_);
    if (fault_ == "halved_gradient") halve_gradient(session_);
    if (fault_ == "trained_padding") train_padding_row(session_);

    loss.add_up(session_, runner_->loss_sums());
    const double norm = gradient_norm();
    session_.optimizer().step(schedule_.lr(step),
                              optim::clip_coefficient(norm, config().optimizer.clip),
                              session_.world());
    session_.replicas().share_weights();
    check_->run(step, /*must=*/false);
    if (step == 1) train::certify_first_update(session_, schedule_.lr(1), quiet_);
    if (session_.world().rank() > 0) return;
    fmt::print("{}\n", Json{{"step", step},
                            {"loss", loss.loss()},
                            {"losses", Json(loss.terms())},
                            {"grad_norm", norm}}
                           .dump());
  }

  /// Returns the norm; with a fault the squares of experts count once for every expert
  /// parallel rank.
  double gradient_norm() {
    at::Tensor squares =
        session_.optimizer().gradient_squares(session_.parameter_names());
    for (size_t i = 0; i < session_.parameter_names().size(); ++i) {
      const bool of_expert =
          session_.parameter_names()[i].find(".experts.") != std::string::npos;
      if (fault_ != "experts_counted_twice" || !of_expert) continue;
      squares[static_cast<int64_t>(i)] *= 2.0;
    }
    const double* values = squares.const_data_ptr<double>();
    std::vector<double> sums(values, values + squares.numel());
    return optim::norm_over(session_.world(), sums);
  }

  void save() {
    checkpoint::SaverOptions options;
    options.dir = checkpoint_dir(config());
    options.read_back = false;
    checkpoint::Snapshot snapshot = train::StateCapture().capture(session_.state());
    snapshot.step = 1;
    checkpoint::save_checkpoint(options, std::move(snapshot), session_.world());
  }

  std::string fault_;
  system::Logger quiet_;
  LoadedConfig loaded_;
  Groups deaf_;
  TrainingSession session_;
  data::Loader loader_;
  optim::Schedule schedule_;
  std::optional<session::StageRunner> runner_;
  std::optional<train::ReplicaCheck> check_;
};

const std::array<std::string, 23> kFaults = {
    // The next faults are faults of the step.
    "no_norm_sum", "no_first_gradient", "no_key_sum", "no_tied_sum", "no_replica_sum",
    "no_expert_sum", "experts_counted_twice", "dropped_micro_batch", "local_denominator",
    "chunk_order", "halved_gradient", "trained_padding",
    // The next faults are faults of the weights that are loaded.
    "swapped_layers", "swapped_gate", "wrong_key_head", "zeroed_on_last_replica",
    "permuted_words", "permuted_tokens", "permuted_router", "swapped_experts",
    // The next faults are faults of the optimizer.
    "rounded_masters", "random_masters", "stale_moments"};

Arguments parse(int argc, char** argv) {
  Arguments a;
  std::vector<std::string> plain;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--set" && i + 1 < argc) {
      a.sets.emplace_back(argv[++i]);
    } else if (word == "--fault" && i + 1 < argc) {
      a.fault = argv[++i];
    } else {
      plain.push_back(word);
    }
  }
  LH_CHECK(plain.size() == 2, "tool", "usage: RUN.toml STEPS [--set ...] [--fault ...]{}",
           "");
  LH_CHECK(a.fault.empty() || std::ranges::count(kFaults, a.fault) == 1, "tool",
           "no fault {}", a.fault);
  a.file = plain[0];
  a.steps = std::stoll(plain[1]);
  return a;
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) {
  using namespace longhaul;
  tensor::warm_up_vector_math();
  std::shared_ptr<comm::Communicator> world;
  try {
    const Arguments arguments = parse(argc, argv);
    world = comm::world();
    Run(arguments, world).steps(arguments.steps);
    comm::finish(*world);
  } catch (const std::exception& error) {
    fmt::print(stderr, "longhaul_layout_tool: error: {}\n", error.what());
    if (world) world->abort(1);
    return 1;
  }
  return 0;
}
