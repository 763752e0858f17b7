#include "longhaul/train/reference.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/hf/adapted_source.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/session/inference.h"
#include "longhaul/system/progress.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/train/control_files.h"
#include "longhaul/train/save/adapter_base.h"
#include "longhaul/train/save/state_read.h"
#include "longhaul/train/validation.h"

namespace longhaul::train {
namespace {

constexpr const char* kMagic = "longhaul reference 1\n";
constexpr size_t kHashBytes = 32;
/// Seconds between lines of progress in the log.
constexpr double kTellEvery = 10.0;

/// Returns a hash of this session's model: its config.json, its weights as they lie on
/// its ranks, and what its last bits depend on. Collective.
std::string hash_of_weights(const session::Session& session, const Json& fingerprint) {
  std::vector<int64_t> hashes;
  for (const tensor::Bucket& bucket : session.flat().buckets()) {
    const at::Tensor owned = bucket.owned_weights.cpu().contiguous();
    const auto* bytes = static_cast<const std::byte*>(owned.const_data_ptr());
    hashes.push_back(
        static_cast<int64_t>(hash_number({bytes, static_cast<size_t>(owned.nbytes())})));
  }
  const auto mine = static_cast<int64_t>(hash_number(std::as_bytes(std::span(hashes))));
  const std::vector<int64_t> all = session::gather_numbers(session.world(), {mine});
  std::string text = json_text(session::layout_of(session)) + json_text(fingerprint) +
                     session.model().source_json +
                     (session.config().run.fused ? "fused" : "composite");
  for (const int64_t hash : all) text += fmt::format(" {}", hash);
  return hash_hex(text);
}

/// Returns a hash of the weights with which a run of these settings begins. It is the
/// same in every layout. Collective.
std::string hash_of_first_weights(const TrainingSession& session) {
  const RunConfig& config = session.config();
  if (config.init.weights.empty()) {
    return hash_hex(fmt::format("random weights, run.seed = {}", config.run.seed));
  }
  const ModelDescription& model = session.model().description;
  std::set<std::string> names;
  for (const ParameterDescription& p : model.parameters()) {
    // The hash of the base is known already.
    if (!model.has_base || p.trained) names.insert(p.name);
  }
  const auto source = open_first_weights(session);
  return hash_hex(session.base_hash() +
                  checkpoint::hash_of_tensors(*source, names, session.world()));
}

/// Returns what History::reference is for weights of this session whose first weights
/// have the hash `first`. Collective.
std::string reference_of(const TrainingSession& session, const std::string& first) {
  return hash_of_weights(session, session.fingerprint()) + first;
}

/// Returns the hash of the first weights in History::reference; nothing without one.
std::string first_hash_of(const History& history) {
  return history.reference.size() == 2 * kHashBytes ? history.reference.substr(kHashBytes)
                                                    : std::string();
}

/// Throws ConfigError if the settings name other first weights than those with which the
/// run began. Collective.
void check_first_weights(const TrainingSession& session, const std::string& began_with) {
  const std::string now = hash_of_first_weights(session);
  if (now == began_with) return;
  const InitSection& init = session.config().init;
  fail_config("preference",
              "init.weights = {:?}, init.adapter = {:?}, run.seed = {}: hash {} is "
              "not that with which the run began, {}: put those weights back, or the "
              "missing reference file in {}",
              init.weights.string(), init.adapter.string(), session.config().run.seed,
              now, began_with, data_cache_dir(session.config()).string());
}

/// Where the sums of a source's pairs are kept.
struct Place {
  Place(const TrainingSession& session, const History& history, const PairData& data)
      : key(hash_hex(fmt::format("{} {} {} {} {}", history.reference,
                                 data.source->fingerprint(), data.source->seq_len(),
                                 data.source->num_sequences(), data.sequences))),
        file(data_cache_dir(session.config()) /
             fmt::format("reference_{}.bin", key.substr(0, 16))) {}
  std::string key;
  fs::path file;
};

/// Returns the content of a file: the magic, the key, the sums, and a hash of all that.
std::string file_text(const std::string& key, const std::vector<double>& sums) {
  std::string text = kMagic + key;
  text.append(std::string_view(reinterpret_cast<const char*>(sums.data()),
                               sums.size() * sizeof(double)));
  return text + hash_hex(text);
}

/// Returns the sums in a file's text, or why it is not the file of `key`.
std::vector<double> sums_in(const std::string& text, const std::string& key,
                            int64_t pairs, std::string& wrong) {
  const std::string head = kMagic + key;
  const size_t bytes = 2 * static_cast<size_t>(pairs) * sizeof(double);
  const std::string_view all = text;
  if (all.size() != head.size() + bytes + kHashBytes) {
    wrong = fmt::format("{} bytes instead of {}", all.size(),
                        head.size() + bytes + kHashBytes);
  } else if (!all.starts_with(head)) {
    wrong = "it is a file of another model, layout or data";
  } else if (hash_hex(all.substr(0, all.size() - kHashBytes)) !=
             all.substr(all.size() - kHashBytes)) {
    wrong = "its hash differs";
  }
  if (!wrong.empty()) return {};
  std::vector<double> sums(2 * static_cast<size_t>(pairs));
  std::memcpy(sums.data(), all.data() + head.size(), bytes);
  return sums;
}

/// Reads the sums that are kept, on all ranks. Returns nothing if rank 0 finds none.
/// Collective.
std::optional<std::vector<double>> read_kept(const TrainingSession& session,
                                             const Place& place, int64_t pairs,
                                             system::Logger& log) {
  const auto most = std::numeric_limits<uint64_t>::max();
  const std::string text = comm::on_rank_zero(session.world(), [&]() -> std::string {
    if (!fs::exists(place.file)) return {};
    std::string wrong;
    std::string found = read_text(place.file, most);
    (void)sums_in(found, place.key, pairs, wrong);
    if (wrong.empty()) return found;
    log.warning("{} is damaged ({}): the reference is made anew", place.file.string(),
                wrong);
    return {};
  });
  if (text.empty()) return std::nullopt;
  std::string wrong;
  std::vector<double> sums = sums_in(text, place.key, pairs, wrong);
  LH_CHECK(wrong.empty(), "preference", "{} came to this rank damaged: {}",
           place.file.string(), wrong);
  return sums;
}

/// Computes the sums of a source's pairs with the session's weights; NaN for pairs that
/// are not read. Collective.
std::vector<double> compute_sums(const TrainingSession& session, const PairData& data,
                                 system::Logger& log) {
  nn::Tensors found;
  session::StageOptions options = session::stage_options(session);
  options.context.pairs.sums = &found;
  session::StageRunner runner(session.chunks(), session.replicas(), options);
  const layout::MeshIndex& at = session.mesh().index();
  const bool tells = at.pp == session.mesh().shape().pp - 1 && at.cp == 0 && at.tp == 0;
  const auto pairs = static_cast<size_t>(data.source->num_pairs());
  std::vector<double> sums(3 * pairs, 0.0);  // the sums, then how often each was found
  const auto loss = [&](std::vector<data::TokenBatch>& batches) {
    end_if_asked(session.world());
    if (run::RankRecord* record = session.world().ledger().record()) record->moved();
    found.clear();
    std::vector<double> losses = session::loss_sums(session, runner, batches);
    for (size_t b = 0; tells && b < batches.size(); ++b) {
      const at::Tensor host = found.at(b).cpu().to(at::kDouble).contiguous();
      const double* from = host.const_data_ptr<double>();
      for (const std::vector<data::Pair>& row : batches[b].pairs) {
        for (const data::Pair& pair : row) {
          const auto number = static_cast<size_t>(pair.number);
          sums.at(2 * number) = *from++;
          sums.at(2 * number + 1) = *from++;
          sums.at(2 * pairs + number) += 1.0;
        }
      }
    }
    return losses;
  };
  infer::EvaluateOptions how = evaluate_options(session.config());
  how.max_sequences = data.sequences;
  how.full = true;  // a pass of training has as many rows
  const system::Stopwatch watch;
  double told = 0.0;
  how.progress = [&](int64_t done, int64_t total) {
    if (watch.seconds() - told < kTellEvery) return;
    told = watch.seconds();
    log.info(system::progress_line("reference", "micro batches", done, total, told));
  };
  (void)infer::evaluate(loss, *data.source, session.mesh().dp(), how);
  session.world().all_reduce_wait(sums, comm::ReduceOp::Sum);
  for (size_t i = 0; i < pairs; ++i) {
    LH_CHECK(sums[2 * pairs + i] <= 1.0, "preference", "pair {} stands in two rows", i);
    if (sums[2 * pairs + i] == 1.0) {
      if (std::isfinite(sums[2 * i]) && std::isfinite(sums[2 * i + 1])) continue;
      fail_input("preference",
                 "{}: the run's first weights give the answers of pair {} the "
                 "log-probabilities {} and {}, and no loss can compare with those: check "
                 "the first weights with 'longhaul eval'; precision.compute = \"fp32\" "
                 "reaches further",
                 data.source->describe(), i, sums[2 * i], sums[2 * i + 1]);
    }
    sums[2 * i] = sums[2 * i + 1] = std::numeric_limits<double>::quiet_NaN();
  }
  sums.resize(2 * pairs);
  return sums;
}

/// Runs `work` with the weights with which the run began, and then gives the session its
/// own weights back. Collective.
void with_first_weights(TrainingSession& session, system::Logger& log,
                        const std::function<void()>& work) {
  const RunConfig& config = session.config();
  log.info("the reference's log-probabilities are made anew by the run's first weights");
  session.replicas().finish_weights();
  std::vector<at::Tensor> masters;
  for (const optim::BucketState& state : session.optimizer().states()) {
    // A frozen base has no masters; the files that are read again have its values.
    masters.push_back(state.master.defined()
                          ? state.master.to(at::kCPU, state.master.scalar_type(),
                                            /*non_blocking=*/false, /*copy=*/true)
                          : at::Tensor());
  }
  const auto share = [&] {
    session.replicas().share_weights();
    session.replicas().finish_weights();
  };
  if (config.init.weights.empty()) {
    initialise_weights(session.state(), static_cast<uint64_t>(config.run.seed));
  } else {
    const auto source = open_first_weights(session);
    comm::on_all_ranks(session.world(), [&] {
      load_weights(session.state(), *source, *session.machine().node);
    });
  }
  share();
  work();
  auto& states = session.optimizer().states();
  for (size_t i = 0; i < states.size(); ++i) {
    if (masters[i].defined()) states[i].master.copy_(masters[i]);
  }
  session.optimizer().publish_masters();
  share();
}

}  // namespace

void find_reference(TrainingSession& session, History& history, system::Logger& log) {
  const std::vector<PairData>& sources = session.data().referenced;
  if (sources.empty()) return;
  session.world().ledger().set("reference", history.step);
  const bool at_start = history.updates == 0;
  std::string first = first_hash_of(history);
  if (at_start) {
    if (first.empty()) first = hash_of_first_weights(session);
    history.reference = reference_of(session, first);
  }
  const auto make = [&](const PairData& data, const Place& place) {
    const system::Stopwatch watch;
    std::vector<double> sums = compute_sums(session, data, log);
    comm::on_rank_zero(session.world(), [&] {
      make_directories_durable(place.file.parent_path());
      write_text_atomic(place.file, file_text(place.key, sums));
    });
    log.info(
        "reference: log-probabilities of {} by the run's first weights, {:.1f} s: {}",
        counted(data.source->num_pairs(), "pair"), watch.seconds(), place.file.string());
    data.source->set_sums(std::move(sums));
  };
  // A run that first trained without a reference has no hash to look for.
  std::vector<PairData> missing;
  for (const PairData& data : sources) {
    if (history.reference.empty()) {
      missing.push_back(data);
      continue;
    }
    const Place place(session, history, data);
    if (auto kept = read_kept(session, place, data.source->num_pairs(), log)) {
      log.info("reference: log-probabilities of {} made earlier: {}",
               counted(data.source->num_pairs(), "pair"), place.file.string());
      data.source->set_sums(std::move(*kept));
    } else {
      missing.push_back(data);
    }
  }
  const auto make_missing = [&] {
    for (const PairData& data : missing) make(data, Place(session, history, data));
  };
  if (missing.empty()) return;
  if (at_start) return make_missing();
  if (!history.reference.empty()) check_first_weights(session, first);
  with_first_weights(session, log, [&] {
    if (history.reference.empty()) {
      history.reference = reference_of(session, hash_of_first_weights(session));
    }
    make_missing();
  });
}

}  // namespace longhaul::train
