#include "longhaul/train/proof/certificate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/hf/hf_forms.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/families/adapter.h"
#include "longhaul/families/differences.h"
#include "longhaul/session/inference.h"
#include "longhaul/tensor/scalar_type.h"
#include "longhaul/train/proof/source_files.h"

namespace longhaul::train {
namespace {

constexpr int64_t kFixtureTokens = 128;
constexpr int64_t kLogitPositions = 16;
/// A step through the vocabulary that shares no factor with usual lengths, so that
/// neighbouring tokens come from far apart.
constexpr int64_t kTokenStride = 53;

/// The input of both models. It is the same on every rank, and nothing in it depends on a
/// file.
struct Fixture {
  int64_t length = 0;
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;    ///< kIgnore, except at the compared positions
  std::vector<int32_t> positions;  ///< positions for the rotary angles
  std::vector<int32_t> rows;  ///< 0, 1, 2 ...: tells where a layout has moved each row
  std::vector<int64_t> compared;  ///< rows whose logits are compared, ascending
};

Fixture make_fixture(const session::Session& session) {
  const int64_t vocabulary = session.model().vocab_size;
  const int64_t last = session.config().data.seq_len - 1;
  Fixture f;
  f.length = session::dividing_length(session, kFixtureTokens);
  const int64_t n = f.length;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t place = i * kTokenStride % n;
    f.tokens.push_back(static_cast<int32_t>((2 * place + 1) * vocabulary / (2 * n)));
    f.positions.push_back(static_cast<int32_t>(i * last / std::max<int64_t>(n - 1, 1)));
    f.rows.push_back(static_cast<int32_t>(i));
  }
  f.targets.assign(static_cast<size_t>(n), data::kIgnore);
  // Spreads the targets over the vocabulary. Where the tp ranks have about equal parts of
  // it, each part has a target.
  const int64_t compared =
      std::min(n, std::max<int64_t>(kLogitPositions, session.mesh().shape().tp));
  for (int64_t j = 0; j < compared; ++j) {
    f.compared.push_back((j + 1) * n / compared - 1);
    f.targets[static_cast<size_t>(f.compared.back())] =
        static_cast<int32_t>((2 * j + 1) * vocabulary / (2 * compared));
  }
  return f;
}

template <typename T>
at::Tensor to_tensor(const std::vector<T>& values) {
  at::Tensor out = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), out.data_ptr<int64_t>());
  return out;
}

/// Collects the results of this rank's part of the loaded model, on the host in fp32.
class Observer : public session::ForwardObserver {
 public:
  void embedding(const at::Tensor& y) override { places[0] = host(y); }
  void layer(int64_t layer, const at::Tensor& y,
             const nn::ForwardContext& context) override {
    places[layer + 1] = host(y);
    if (!context.router.pass) return;
    const auto found = context.router.pass->chosen.find(layer);
    if (found != context.router.pass->chosen.end()) {
      chosen[layer + 1] = layout->to_host(found->second);
    }
  }
  /// Keeps the logits of the compared positions, which are the positions with a target.
  void head(const models::Model& model, const nn::Tensors& hidden,
            const nn::ForwardContext& context) override {
    logits = host(model.logits(model.target_rows(hidden, context)));
  }

  /// Results by place: place 0 is the embedding, place i + 1 is layer i.
  std::map<int64_t, at::Tensor> places;
  /// The experts that were chosen for each token of this rank's positions, by place
  /// (layer i has place i + 1); int64 [T, k].
  std::map<int64_t, at::Tensor> chosen;
  at::Tensor logits;                        ///< undefined where this rank has no head
  const session::Layout* layout = nullptr;  ///< must be set

 private:
  at::Tensor host(const at::Tensor& x) const {
    return layout->to_host(x).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  }
};

/// The results of this rank's part of the loaded model.
struct Answers {
  std::vector<int32_t> layer_rows;  ///< fixture rows of this rank's layer outputs
  std::vector<int32_t> own_rows;    ///< fixture rows inside tp-split layers
  std::vector<int64_t>
      logit_order;  ///< indices into Fixture::compared of this rank's logits
  Observer observed;
  double cross_entropy = 0.0;  ///< cross-entropy of this rank's replica
};

/// Returns which of the rows `own` a layer of this rank has under sequence parallelism.
std::vector<int32_t> rows_of_layers(const session::Session& session,
                                    const std::vector<int32_t>& own) {
  if (!session.layout().description().tensor.sequence) return own;
  const auto parts = static_cast<size_t>(session.mesh().shape().tp);
  const size_t count = own.size() / parts;
  const auto first =
      own.begin() + static_cast<int64_t>(count) * session.mesh().index().tp;
  return {first, first + static_cast<int64_t>(count)};
}

/// Runs the loaded model on the fixture, as validation would run it. Collective.
Answers run_loaded(const session::Session& session, const Fixture& fixture) {
  const layout::MeshIndex& index = session.mesh().index();
  const layout::ContextLayout context(fixture.length, session.mesh().shape().cp);
  const std::vector<int32_t> own = context.take(fixture.rows, index.cp);
  std::vector<data::TokenBatch> batches(1);
  data::TokenBatch& batch = batches[0];
  batch.resize(1, fixture.length);
  batch.tokens = fixture.tokens;
  batch.targets[0] = fixture.targets;
  batch.positions = fixture.positions;
  std::ranges::fill(batch.document_start, 0);
  const ModelDescription& model = session.model().description;
  const size_t length = fixture.rows.size();
  if (!model.is_causal()) batch.document_end.assign(length, static_cast<int32_t>(length));
  for (size_t term = 1; term < model.losses.size(); ++term) {
    const LossTerm& loss = model.losses[term];
    if (loss.over != LossTerm::Over::Targets) break;
    batch.targets.emplace_back(loss.of_sequences ? 1 : length, data::kIgnore);
  }
  session::take_positions(context, index.cp, batch);

  Answers answers;
  answers.observed.layout = &session.layout();
  for (const int32_t row : own) {
    const auto found = std::ranges::find(fixture.compared, int64_t{row});
    if (found == fixture.compared.end()) continue;
    answers.logit_order.push_back(found - fixture.compared.begin());
  }
  session::StageOptions options = session::stage_options(session);
  options.observer = &answers.observed;
  session::StageRunner runner(session.chunks(), session.replicas(), options);
  session::run_forward(session, runner, batches);
  answers.layer_rows = rows_of_layers(session, own);
  answers.own_rows = own;
  answers.cross_entropy = session::sum_of_replica(session, runner.loss_sums())[0];
  return answers;
}

/// Returns the first replica's whole result of a place, on every rank: [T, H]. Place 0 is
/// the embedding, place i + 1 is layer i. Collective.
at::Tensor gather_place(const session::Session& session, const Answers& answers,
                        int64_t place, int64_t length) {
  at::Tensor all =
      at::zeros({length, session.model().description.features()}, at::kFloat);
  const auto found = answers.observed.places.find(place);
  const layout::MeshIndex& index = session.mesh().index();
  const bool first =
      index.dp == 0 && (session.layout().description().tensor.sequence || index.tp == 0);
  if (found != answers.observed.places.end() && first) {
    all.index_copy_(0, to_tensor(answers.layer_rows), found->second);
  }
  session.world().all_reduce_wait({all.data_ptr(), all.numel(), format::DType::F32},
                                  comm::ReduceOp::Sum);
  return all;
}

/// Returns the experts that the first replica's tokens were sent to in layer `place` - 1,
/// int64 [T, k], on every rank; undefined for the embedding (place 0) and for layers
/// without experts. Collective.
at::Tensor gather_choice(const session::Session& session, const Answers& answers,
                         int64_t place, int64_t length) {
  if (place == 0) return {};
  const families::Experts* experts = families::experts_of(
      session.model().network.blocks.at(static_cast<size_t>(place - 1)));
  if (experts == nullptr) return {};
  at::Tensor all = at::zeros({length, experts->top_k}, at::kLong);
  const auto found = answers.observed.chosen.find(place);
  const layout::MeshIndex& index = session.mesh().index();
  if (found != answers.observed.chosen.end() && index.dp == 0 && index.tp == 0) {
    all.index_copy_(0, to_tensor(answers.own_rows), found->second);
  }
  session.world().all_reduce_wait({all.data_ptr(), all.numel(), format::DType::I64},
                                  comm::ReduceOp::Sum);
  return all;
}

/// How far a value is from what it should be: `ratio` as a share of what is allowed,
/// `relative` to the value's size.
struct Distance {
  double ratio = 0.0;
  double relative = 0.0;
  void join(const Distance& other) {
    ratio = std::max(ratio, other.ratio);
    relative = std::max(relative, other.relative);
  }
};

/// Returns the largest value; infinity where one is not finite.
double largest(const at::Tensor& values) {
  if (values.numel() == 0) return 0.0;
  const double value = values.max().item<double>();
  return std::isfinite(value) ? value : HUGE_VAL;
}

at::Tensor norms(const at::Tensor& x) { return x.to(at::kDouble).norm(2, {1}); }

/// Returns how far a result r of the source may be off for each token, with input x.
at::Tensor allowed_of_layer(const at::Tensor& r, const at::Tensor& x,
                            const Tolerance& tolerance) {
  return tolerance.layer * norms(r - x) + 2.0 * tolerance.roundoff * norms(r) + 1e-30;
}

/// Compares the loaded model's result s of a layer with the source's result r, token by
/// token. Both layers had the input x.
Distance layer_distance(const at::Tensor& s, const at::Tensor& r, const at::Tensor& x,
                        const Tolerance& tolerance) {
  const at::Tensor off = norms(s - r);
  return {largest(off / allowed_of_layer(r, x, tolerance)),
          largest(off / (norms(r) + 1e-30))};
}

/// Follows what rounding may do to results that are computed from the tokens on. A layer
/// adds what it may be off by itself. What came before it grows as the source makes the
/// difference of its two inputs grow, since some trained models enlarge any difference.
class FreeRun {
 public:
  /// Passes a place whose input is `x`. The source's results are `exact` from the tokens
  /// on, and `same` for x. The loaded model's result is `loaded`.
  void pass(const at::Tensor& x, const at::Tensor& exact, const at::Tensor& same,
            const at::Tensor& loaded, const Tolerance& tolerance) {
    const double own = mean(allowed_of_layer(same, x, tolerance) / (norms(same) + 1e-30));
    allowed_ = std::hypot(grown(mean(share(same, exact)), tolerance), own);
    off_ = mean(share(loaded, exact));
  }
  /// Returns how far logits may be off, relative to `exact`, where the source computes
  /// `exact` and `same` from the results of the last layer.
  double allowed(const at::Tensor& exact, const at::Tensor& same,
                 const Tolerance& tolerance) const {
    return grown(largest(share(same, exact)), tolerance);
  }

 private:
  static at::Tensor share(const at::Tensor& a, const at::Tensor& b) {
    return norms(a - b) / (norms(b) + 1e-30);
  }
  /// Returns the root of the mean square over the tokens.
  static double mean(const at::Tensor& values) {
    return values.square().mean().sqrt().item<double>();
  }
  /// Returns allowed_ behind a layer that makes the difference off_ one of `now`. A
  /// difference below a rounding tells nothing of the layer.
  double grown(double now, const Tolerance& tolerance) const {
    return off_ > tolerance.roundoff ? allowed_ * now / off_ : allowed_;
  }

  double allowed_ = 0.0;  ///< relative to the result, mean over the tokens
  double off_ = 0.0;      ///< what the loaded model's result is off, likewise
};

struct Findings {
  std::vector<Distance> layers;  ///< distance of the embedding, then of each layer
  Distance head;
  Distance cross_entropy;
  Distance logits;  ///< distance of the logits, with both models run from the tokens on
};

/// Compares the loaded model's logits with the source's, [R, V]: with `exact` and with
/// `same`. The source computed `exact` from the tokens on, and `same` from the result of
/// the loaded model's last layer.
void compare_logits(const session::Session& session, const Answers& answers,
                    const Fixture& fixture, const at::Tensor& exact,
                    const at::Tensor& same, const FreeRun& run,
                    const Tolerance& tolerance, Findings& out) {
  const double rms = same.to(at::kDouble).square().mean().sqrt().item<double>();
  const double entropy = (same.logsumexp(1) -
                          same.gather(1, to_tensor(fixture.targets)
                                             .index_select(0, to_tensor(fixture.compared))
                                             .unsqueeze(1))
                              .squeeze(1))
                             .to(at::kDouble)
                             .sum()
                             .item<double>();
  const auto count = static_cast<double>(fixture.compared.size());
  const double off = std::abs(answers.cross_entropy - entropy) / count;
  const double allowed =
      2.0 * tolerance.logit * rms + 2.0 * tolerance.roundoff * entropy / count + 1e-30;
  out.cross_entropy = {std::isfinite(off) ? off / allowed : HUGE_VAL, off};
  if (!answers.observed.logits.defined()) return;
  // Rows behind those of the compared positions fill up a batch's target_rows.
  const at::Tensor ours =
      answers.observed.logits.narrow(0, 0, std::ssize(answers.logit_order));
  const int64_t columns = ours.size(1);
  const int64_t begin = session::first_column(session, columns);
  const at::Tensor order = to_tensor(answers.logit_order);
  const auto mine = [&](const at::Tensor& all) {
    return all.index_select(0, order).narrow(1, begin, columns);
  };
  const at::Tensor wanted = mine(same);
  const at::Tensor error = (ours - wanted).abs();
  out.head = {largest(error / (tolerance.logit * rms +
                               2.0 * tolerance.roundoff * wanted.abs() + 1e-30)),
              largest(error) / (rms + 1e-30)};
  const at::Tensor free = mine(exact).to(at::kDouble);
  const double relative =
      largest((ours - free).norm(2, {1}) / (free.norm(2, {1}) + 1e-30));
  const auto depth = static_cast<double>(out.layers.size());
  const double allowed_free =
      std::max(tolerance.layer * std::sqrt(depth), run.allowed(exact, same, tolerance));
  out.logits = {relative / allowed_free, relative};
}

/// Evaluates the source model, and compares its results with the loaded model's answers.
/// Collective.
Findings compare(const session::Session& session, const models::SourceModel& source,
                 const Fixture& fixture, const Answers& answers,
                 const Tolerance& tolerance) {
  const at::NoGradGuard no_grad;
  const int64_t n = fixture.length;
  const at::Tensor positions = to_tensor(fixture.positions);
  const at::Tensor own_rows = to_tensor(answers.layer_rows);
  Findings out;
  // Each matrix is read once for two evaluations: one from the tokens on, and one that
  // gets the loaded model's result before each layer, so that faults and rounding do not
  // add up.
  at::Tensor exact = source.embed(to_tensor(fixture.tokens), positions);
  at::Tensor same = exact;
  // Looked-up rows must agree up to a rounding. An embedding that normalizes its rows is
  // judged like a layer with input 0.
  const auto& embedding = session.model().description.units.front();
  at::Tensor before = embedding.forward.tensors.empty() ? exact : at::zeros_like(exact);
  at::Tensor loaded;
  FreeRun run;
  const int64_t places = session.model().description.num_blocks() + 1;
  for (int64_t place = 0; place < places; ++place) {
    if (place > 0) {
      // Rounding may decide between two experts. Then the source takes the expert that
      // the loaded model has taken.
      const at::Tensor both =
          source.layer(place - 1, at::cat({exact, loaded}, 0), positions,
                       {gather_choice(session, answers, place, n), tolerance.roundoff});
      before = loaded;
      exact = both.narrow(0, 0, n);
      same = both.narrow(0, n, n);
    }
    loaded = gather_place(session, answers, place, n);
    Distance distance = layer_distance(loaded, same, before, tolerance);
    const auto mine = answers.observed.places.find(place);
    if (mine != answers.observed.places
                    .end()) {  // this replica's result, and each copy in a tp group
      distance.join(layer_distance(mine->second, same.index_select(0, own_rows),
                                   before.index_select(0, own_rows), tolerance));
    }
    out.layers.push_back(distance);
    run.pass(before, exact, same, loaded, tolerance);
  }
  const at::Tensor rows = to_tensor(fixture.compared);
  const at::Tensor logits = source.logits(
      at::cat({exact.index_select(0, rows), loaded.index_select(0, rows)}, 0));
  const int64_t half = rows.size(0);
  compare_logits(session, answers, fixture, logits.narrow(0, 0, half),
                 logits.narrow(0, half, half), run, tolerance, out);
  return out;
}

/// Takes the largest distances of all ranks. Collective.
void combine(comm::Communicator& world, Findings& findings) {
  std::vector<Distance> all = findings.layers;
  all.insert(all.end(), {findings.head, findings.cross_entropy, findings.logits});
  static_assert(sizeof(Distance) == 2 * sizeof(double));
  world.all_reduce_wait({all.data(), 2 * std::ssize(all), format::DType::F64},
                        comm::ReduceOp::Max);
  const size_t layers = findings.layers.size();
  findings = {
      {all.begin(), all.end() - 3}, all[layers], all[layers + 1], all[layers + 2]};
}

std::string layer_name(size_t place) {
  return place == 0 ? "the embedding" : fmt::format("layer {}", place - 1);
}

/// Describes what is beyond its tolerance, the first layer first.
std::vector<std::string> problems_of(const Findings& findings) {
  std::vector<std::string> problems;
  std::vector<std::string> layers;
  for (size_t i = 0; i < findings.layers.size(); ++i) {
    const Distance& d = findings.layers[i];
    if (d.ratio <= 1.0) continue;
    layers.push_back(layers.empty()
                         ? fmt::format("{} (a token's result differs by {:.2g} of its "
                                       "norm, {:.2g} times what rounding may do)",
                                       layer_name(i), d.relative, d.ratio)
                         : layer_name(i));
  }
  const size_t count = layers.size();
  constexpr size_t kShown = 8;
  if (count > kShown) layers.resize(kShown);
  if (count > 0) {
    problems.push_back(
        fmt::format("given the same input, {} give{} another result{}",
                    fmt::join(layers, ", "), count > 1 ? "" : "s",
                    count > kShown ? fmt::format(" (and {} more)", count - kShown) : ""));
  }
  const auto add = [&](const Distance& d, const char* what) {
    if (d.ratio <= 1.0) return;
    problems.push_back(fmt::format("{} by {:.2g} ({:.2g} times what is allowed)", what,
                                   d.relative, d.ratio));
  };
  add(findings.head, "the final norm or the output projection: a logit differs");
  add(findings.cross_entropy, "the cross-entropy per target differs");
  add(findings.logits, "computed from the tokens, the logits of a position differ");
  return problems;
}

std::string describe(const ModelDifference& field) {
  return fmt::format("{} ({} in the run, {} beside the weights)", field.field, field.ours,
                     field.theirs);
}

/// Lists fields of config.json that change the result and differ from the config beside
/// the weights: they are wrong even where the fixture hardly shows it.
std::string fields_of_result(const ModelConfig& run, const ModelConfig& source) {
  std::vector<std::string> fields;
  for (const ModelDifference& d : differing_fields(run, source)) {
    if (d.of_result) fields.push_back(describe(d));
  }
  if (fields.empty()) return {};
  return fmt::format(
      "fields of the run's config.json differ from the config.json beside the weights: "
      "{}; if the run's values are intended, set them in model.override",
      fmt::join(fields, ", "));
}

/// Returns the config beside the weights, with the overrides that the run makes on
/// purpose.
ModelConfig config_of(const session::Session& session,
                      const checkpoint::WeightsSource& source) {
  if (!fs::exists(source.config_path())) return session.model();
  return load_run_model(session.config(), source.config_path());
}

/// Warns of differing fields that do not stop the run.
void tell_differences(const session::Session& session, const ModelConfig& source,
                      system::Logger& log) {
  for (const ModelDifference& d : differing_fields(session.model(), source)) {
    if (d.of_result && session.config().init.certificate) continue;
    log.warning(
        "the run's config.json differs from the one beside the weights: {}; "
        "the run uses {}",
        describe(d), session.model().source_path.string());
  }
}

/// Warns of differing fields where there is no certificate; then the config beside the
/// weights may be of an unknown family.
void tell_differences_only(const TrainingSession& session, system::Logger& log) {
  comm::on_rank_zero(session.world(), [&] {
    try {
      tell_differences(session, config_of(session, *session.init()), log);
    } catch (const InputError& error) {
      log.warning("the config.json beside the weights was not compared: {}",
                  error.what());
    }
  });
}

}  // namespace

Tolerance certificate_tolerance(format::DType compute) {
  if (compute == format::DType::F32) return {std::ldexp(1.0, -24), 1e-4, 1e-4};
  return {std::ldexp(1.0, -8), 5e-2, 1e-1};
}

void certify_weights(const TrainingSession& session, system::Logger& log) {
  if (!session.init()) return;
  if (!session.config().init.certificate) return tell_differences_only(session, log);
  const auto in_files =
      checkpoint::as_hugging_face(session.init(), session.model().description);
  SourceFiles source_files(*in_files, session.world());
  const at::ScalarType compute = tensor::to_scalar_type(session.machine().policy.compute);
  if (!models::make_source_model(session.model(), source_files, compute)) {
    log.warning(
        "certificate: the loaded weights were not checked, because there is "
        "no check for model_type {}",
        session.model().model_type);
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  session.world().ledger().set("certificate", 0);
  const checkpoint::WeightsSource& files = *session.init();
  ModelConfig config;
  comm::on_all_ranks(session.world(), [&] { config = config_of(session, files); });
  const Tolerance tolerance = certificate_tolerance(session.machine().policy.compute);
  const Fixture fixture = make_fixture(session);
  const Answers answers = run_loaded(session, fixture);
  const auto source = models::make_source_model(config, source_files, compute);
  LH_CHECK(source != nullptr, "certificate", "no evaluation of a source of type {}",
           config.model_type);
  Findings findings = compare(session, *source, fixture, answers, tolerance);
  combine(session.world(), findings);
  std::vector<std::string> problems = problems_of(findings);
  const std::string fields = fields_of_result(session.model(), config);
  if (!fields.empty()) problems.push_back(fields);
  if (!problems.empty()) {
    fail_input(
        "certificate",
        "the loaded model is not the model of {}: {}; nothing was trained; look at "
        "the files with longhaul inspect, and compare with a start on fewer ranks",
        files.source().path.string(), fmt::join(problems, "; "));
  }
  tell_differences(session, config, log);
  double share = 0.0;
  for (const Distance& layer : findings.layers) share = std::max(share, layer.ratio);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  log.info(
      "certificate: the loaded model's logits agree with the source's to {:.1g} (fixture "
      "of {} tokens, logits of {} positions; layer by layer at most {:.2f} of what "
      "rounding may do; {:.2f} s)",
      findings.logits.relative, fixture.length, fixture.compared.size(), share,
      seconds.count());
}

}  // namespace longhaul::train
