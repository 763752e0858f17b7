#include "longhaul/train/trainer.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/signals.h"
#include "longhaul/base/stopwatch.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/infer/evaluate.h"
#include "longhaul/optim/grad_norm.h"
#include "longhaul/optim/schedule.h"
#include "longhaul/train/certificate.h"
#include "longhaul/train/data_check.h"
#include "longhaul/train/peer_memory.h"
#include "longhaul/train/resume.h"
#include "longhaul/train/run_log.h"
#include "longhaul/train/stage_runner.h"

namespace longhaul::train {
namespace {

/// Seconds that the first step waits for the look at all data: small data is proven by
/// then, large data while training goes on.
constexpr double kDataCheckSeconds = 1.0;

/// What rank 0 looks at: data whose format does not say which ids it holds.
std::vector<std::shared_ptr<const data::TokenSource>> unproven_sources(
    const Session& session) {
  std::vector<std::shared_ptr<const data::TokenSource>> sources;
  if (session.world->rank() > 0) return sources;
  const auto add = [&](const std::shared_ptr<const data::TokenSource>& source) {
    if (source->max_token_id() == 0) sources.push_back(source);
  };
  for (const data::WeightedSource& weighted : session.train_sources) add(weighted.source);
  for (const ValidationSet& set : session.validation) add(set.source);
  return sources;
}

class Trainer {
 public:
  Trainer(RunLog& run, const LoadedConfig& loaded,
          std::shared_ptr<comm::Communicator> world)
      : run_(run),
        session_(build_session(loaded.config, std::move(world), run_.log())),
        total_steps_(total_steps(loaded.config, session_.train_sequences)),
        last_step_(longhaul::last_step(loaded.config, total_steps_)),
        history_(load_state(session_, run_)),
        loader_(
            session_.train_sources,
            loader_options(session_, /*prefetch=*/true, history_.step + 1, total_steps_),
            history_.cursor),
        schedule_(loaded.config.schedule, loaded.config.optimizer.lr, total_steps_),
        plan_(training_plan(session_, loader_.micro_batches())),
        capture_(config().debug.capture.value_or(CaptureSettings{}),
                 session_.layout.activation_place(config()), session_.world->rank()),
        runner_(session_.chunks, *session_.replicas, stage_options(session_, &capture_)),
        data_check_(unproven_sources(session_)),
        memory_(session_, history_, run_) {
    run_.start(session_, history_, total_steps_, last_step_);
    run_.tell_plan(loader_.plan(), loader_.began_new_phase());
    prepare_saves();
  }

  TrainResult run() {
    data_check_.settle(kDataCheckSeconds);
    if (history_.step == 0) validate();
    bool stop = false;
    while (history_.step < last_step_ && !stop) {
      run_.record(session_, history_, train_step());
      data_check_.settle();
      if (history_.step == 1) {
        certify_first_update(session_, schedule_.lr(1), run_.log());
      }
      const bool last = history_.step == last_step_;
      const bool save_again = run_.settle_saves();
      stop = session_.world->any(signals_.raised() != 0);
      if (last || due(config().validation.every)) validate();
      const bool ends = last || stop;
      if (ends || save_again || due(config().checkpoint.every)) save(ends);
      memory_.keep(session_, history_);
    }
    if (!stop) data_check_.finish();
    run_.finish_saves();
    session_.replicas->finish_weights();
    memory_.end(session_, stop);
    run_.finish(session_, history_, stop ? std::max(signals_.raised(), 1) : 0);
    return {history_.step, stop};
  }

 private:
  const RunConfig& config() const { return session_.config; }
  bool due(int64_t every) const { return every > 0 && history_.step % every == 0; }

  /// One optimizer step: batch, gradients, clip, update, weights shared.
  StepRecord train_step() {
    const Stopwatch watch;
    phase("batch", history_.step + 1);
    data::StepBatch& batch = loader_.next();
    const double data_time = watch.seconds();
    const auto [targets, content] =
        sum_over_replicas(batch.num_targets, batch.content_hash);
    require_targets(targets);

    phase("gradients", history_.step + 1);
    session_.layout.take_own_positions(batch.micro_batches);
    session_.flat->zero_grads();
    runner_.begin_step(batch.micro_batches, 1.0 / static_cast<double>(targets));
    const bool captured = capture_.due(history_.step + 1);
    capture_.set_active(captured);
    run_training_plan();
    if (captured) write_capture();
    const double loss =
        sum_over_world(runner_.cross_entropy_sum()) / static_cast<double>(targets);
    const double norm =
        session_.optimizer->gradient_norm(*session_.world, session_.parameter_names);
    require_finite(loss, norm);

    const double lr = schedule_.lr(history_.step + 1);
    phase("update", history_.step + 1);
    session_.optimizer->step(lr, optim::clip_coefficient(norm, config().optimizer.clip));
    session_.replicas->share_weights();
    advance(content);
    return {loss, norm, lr, watch.seconds(), data_time, loader_.epoch()};
  }

  /// What errors and the rank's record say that this rank is doing.
  void phase(const char* name, int64_t step) { session_.world->ledger().set(name, step); }

  /// Sums what every replica has seen of the step.
  std::pair<int64_t, int64_t> sum_over_replicas(int64_t targets, int64_t content) {
    std::array<int64_t, 2> sums = {targets, content};
    session_.mesh().dp().all_reduce_wait({sums.data(), 2, DType::I64},
                                         comm::ReduceOp::Sum);
    return {sums[0], sums[1]};
  }

  /// Of what the last stage has; the ranks of a tp group have it in common.
  double sum_over_world(double value) {
    if (session_.mesh().index().tp != 0) value = 0.0;
    session_.world->all_reduce_wait({&value, 1, DType::F64}, comm::ReduceOp::Sum);
    return value;
  }

  /// One step's passes, with a timeline where [profile] asks for one.
  void run_training_plan() {
    const int64_t step = history_.step + 1;
    if (std::ranges::count(config().profile.steps, step) == 0) return run_plan(plan_);
    session_.world->barrier_wait();  // a common origin
    parallel::Trace trace(session_.world->rank());
    run_plan(plan_, &trace);
    const auto ranks = session_.world->gather_strings(trace.json());
    if (session_.world->rank() > 0) return;
    const fs::path path = config().run.dir / fmt::format("trace_step_{}.json", step);
    parallel::write_trace(path, ranks);
    run_.log().info("timeline: " + path.string());
  }

  void write_capture() {
    capture_.gradients(*session_.flat);
    run_.save_capture(session_, history_.step + 1, capture_.tensors());
    capture_.set_active(false);
  }

  void run_plan(const parallel::PipelinePlan& plan, parallel::Trace* trace = nullptr) {
    try {
      train::run_plan(session_, plan, runner_, trace);
    } catch (...) {
      runner_.clear();
      throw;
    }
  }

  void advance(int64_t content) {
    ++history_.step;
    history_.updates = session_.optimizer->updates();
    history_.tokens += config().batch.global_size * config().data.seq_len;
    history_.batch_hash = data::chain_hash(history_.batch_hash, content);
    history_.cursor = loader_.cursor();
    history_.sources = loader_.source_counts();
  }

  void require_targets(int64_t targets) const {
    if (targets > 0) return;
    throw InputError("data",
                     fmt::format("step {} has no target at all: every label is ignored; "
                                 "look at the data with longhaul inspect",
                                 history_.step + 1));
  }

  void require_finite(double loss, double norm) const {
    if (std::isfinite(loss) && std::isfinite(norm)) return;
    throw Error(
        ErrorKind::Internal, "numerics",
        fmt::format("step {}: loss {} and gradient norm {}; the update was not made and "
                    "nothing was saved since the last checkpoint; lower optimizer.lr, "
                    "lengthen the warm-up, or look at the batch",
                    history_.step + 1, loss, norm));
  }

  void validate() {
    phase("validation", history_.step);
    for (const ValidationSet& set : session_.validation) {
      const Stopwatch watch;
      infer::EvaluateOptions options;
      options.max_sequences = config().validation.batches * config().batch.global_size;
      options.micro_size = config().batch.micro_size;
      options.micro_batches = 2 * config().parallel.pp;
      const infer::Evaluation result = infer::evaluate(
          [&](std::vector<data::TokenBatch>& batches) { return loss_sum(batches); },
          *set.source, session_.mesh().dp(), options);
      run_.record_validation(history_.step, set.name, result.loss(), watch.seconds());
    }
  }

  /// Cross-entropy over some micro batches of validation, on all ranks that share them.
  double loss_sum(std::vector<data::TokenBatch>& batches) {
    const at::NoGradGuard no_grad;
    session_.layout.take_own_positions(batches);
    runner_.begin_step(batches, 1.0);
    run_plan(parallel::inference_plan(session_.mesh().shape().pp, session_.layout.chunks,
                                      static_cast<int64_t>(batches.size())));
    double sum = runner_.cross_entropy_sum();
    for (comm::Communicator* group : {&session_.mesh().cp(), &session_.mesh().pp()}) {
      group->all_reduce_wait({&sum, 1, DType::F64}, comm::ReduceOp::Sum);
    }
    return sum;
  }

  /// For saves that training goes on beside. Elsewhere than on a CPU each has copies of
  /// its own.
  void prepare_saves() {
    const int64_t every = config().checkpoint.every;
    const bool periodic = every > 0 && history_.step / every * every + every < last_step_;
    if (!periodic || !config().checkpoint.async_ || !session_.device.is_cpu()) return;
    std::vector<at::Tensor> none;
    run_.prepare_saves(capture_state(session_.state(), none));
  }

  /// `ends`: nothing follows that could change the state while it is written.
  void save(bool ends) {
    phase("checkpoint", history_.step);
    const auto copies = std::make_shared<std::vector<at::Tensor>>();
    const auto tensors = capture_state(session_.state(), *copies);
    run_.save(history_, tensors, copies->empty() ? nullptr : copies, ends);
  }

  RunLog& run_;
  Session session_;
  int64_t total_steps_;
  int64_t last_step_;
  History history_;
  data::Loader loader_;
  optim::Schedule schedule_;
  parallel::PipelinePlan plan_;
  Capture capture_;
  StageRunner runner_;
  DataCheck data_check_;
  PeerMemory memory_;
  SignalWatch signals_;
};

}  // namespace

TrainResult run_training(const LoadedConfig& loaded,
                         std::shared_ptr<comm::Communicator> world) {
  RunLog run(loaded, *world);
  try {
    return Trainer(run, loaded, std::move(world)).run();
  } catch (const std::exception& error) {
    run.fail(error.what());
    throw;
  }
}

}  // namespace longhaul::train
