#include "longhaul/train/validation.h"

#include "longhaul/session/inference.h"
#include "longhaul/session/pairs.h"
#include "longhaul/session/task_answers.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/tensor/device_limits.h"

namespace longhaul::train {

infer::EvaluateOptions evaluate_options(const RunConfig& config) {
  infer::EvaluateOptions options;
  options.max_sequences = config.validation.batches * config.batch.global_size;
  options.micro_size = config.batch.micro_size;
  options.micro_batches = 2 * config.parallel.pp;
  return options;
}

void evaluate_sets(const TrainingSession& session, session::StageRunner& runner,
                   RunLog& run, History& history,
                   const std::function<void()>& before_batches) {
  infer::EvaluateOptions options = evaluate_options(session.config());
  options.full = !tensor::limits_of(session.device()).any_shapes;
  const auto sums = [&](std::vector<data::TokenBatch>& batches) {
    before_batches();
    return session::loss_sums(session, runner, batches);
  };
  for (const ValidationSet& set : session.data().validation) {
    const system::Stopwatch watch;
    const infer::Evaluation result =
        infer::evaluate(sums, *set.source, session.mesh().dp(), options);
    run.record_validation(history.step, set.name, result.loss(), watch.seconds(),
                          session::pair_figures(session, result.sums,
                                                static_cast<double>(result.targets[0])));
    history.validation.note(set.name, history.step, result.loss());
  }
  infer::EvaluateOptions all = options;
  all.max_sequences = 0;
  for (const infer::TaskSet& set : session.data().tasks) {
    const system::Stopwatch watch;
    const std::vector<data::TaskAnswer> answers =
        session::answer_requests(session, *set.rows, all, before_batches);
    if (session.world().rank() > 0) continue;
    run.record_task(history.step, set.name, data::task_figures(set.task, answers),
                    std::ssize(set.task.questions), watch.seconds());
  }
}

bool has_risen(const TrainingSession& session, RunLog& run, const History& history) {
  const auto risen = history.validation.risen(session.config().data.validation);
  if (!session.world().any(risen.has_value() && session.world().rank() == 0)) {
    return false;
  }
  if (risen) {
    run.log().warning(risen->describe());
    run.event(run::kLossRoseEvent, {{"step", history.step},
                                    {"validation", risen->name},
                                    {"loss", risen->loss.last},
                                    {"first_step", risen->loss.first_step},
                                    {"first_loss", risen->loss.first},
                                    {"stop_above", risen->allowed}});
  }
  return true;
}

}  // namespace longhaul::train
