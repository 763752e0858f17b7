#include "longhaul/train/rehearsal.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/hf/hf_export.h"
#include "longhaul/checkpoint/hf/model_check.h"
#include "longhaul/checkpoint/mirror/mirror_store.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/comm/agree.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/device/device.h"
#include "longhaul/format/side_files.h"
#include "longhaul/infer/evaluate.h"
#include "longhaul/measure/exchanges.h"
#include "longhaul/objects/address.h"
#include "longhaul/run/files.h"
#include "longhaul/session/inference.h"
#include "longhaul/session/task_answers.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/train/control_files.h"
#include "longhaul/train/largest_step.h"
#include "longhaul/train/log/metrics.h"
#include "longhaul/train/save/state_read.h"
#include "longhaul/train/start/data_feed.h"
#include "longhaul/train/step/debug_faults.h"
#include "longhaul/train/validation.h"

namespace longhaul::train {
namespace {

/// Seconds for which a rank waits for the signal that it has sent itself.
constexpr double kSignalSeconds = 1.0;

/// The rehearsal of a start. Rank 0 removes the rehearsal's directory at the end,
/// whatever has happened.
class Rehearsal {
 public:
  Rehearsal(const RehearsalInputs& inputs, fs::path dir);
  ~Rehearsal() {
    if (world_.rank() == 0) try_remove_all(dir_);
  }
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  /// Does all parts in their order. Collective.
  void run();

 private:
  /// A part of the rehearsal. Its work returns what it was done with, for the log. All
  /// are collective.
  struct Part {
    const char* name;
    const char* phase;  ///< the run's phase that it stands for, for [debug] delays
    std::string (Rehearsal::*work)();
  };
  /// The state is saved before the largest step changes it, and the load of what was
  /// saved brings the state back.
  static const std::array<Part, 9> kParts;

  std::string exchange();
  std::string notice_signal();
  std::string read_last_batch();
  std::string save();
  std::string use_mirror();
  std::string do_largest_step();
  std::string load();
  std::string validate();
  std::string write_export();

  /// Sends a file of this rank to the mirror, reads it back and removes it. If it cannot
  /// be removed, `left` says so.
  void try_mirror(checkpoint::MirrorStore& mirror, std::string& left) const;
  /// Returns a hash of this rank's masters and moments.
  std::string state_hash();
  void do_part(size_t number);

  const RehearsalInputs& in_;
  TrainingSession& session_;
  comm::Communicator& world_;
  const RunConfig& config_;
  fs::path dir_;
  std::optional<data::Loader> loader_;
  data::StepBatch* batch_ = nullptr;  ///< of the run's last step
  std::string hash_before_;
  optim::UpdateCounts counts_before_;
  fs::path saved_;
  bool mirror_failed_ = false;  ///< whether that of any rank has, on all ranks
};

const std::array<Rehearsal::Part, 9> Rehearsal::kParts = {{
    {"collectives", "gradients", &Rehearsal::exchange},
    {"signal", "paused", &Rehearsal::notice_signal},
    {"last batch", "batch", &Rehearsal::read_last_batch},
    {"save", "checkpoint", &Rehearsal::save},
    {"mirror", "checkpoint", &Rehearsal::use_mirror},
    {"largest step", "update", &Rehearsal::do_largest_step},
    {"load", "load", &Rehearsal::load},
    {"validation", "validation", &Rehearsal::validate},
    {"export", "checkpoint", &Rehearsal::write_export},
}};

Rehearsal::Rehearsal(const RehearsalInputs& inputs, fs::path dir)
    : in_(inputs),
      session_(inputs.session),
      world_(session_.world()),
      config_(session_.config()),
      dir_(std::move(dir)),
      counts_before_(session_.optimizer().counts()) {}

void Rehearsal::do_part(size_t number) {
  const Part& part = kParts.at(number);
  end_if_asked(world_);
  world_.ledger().set(fmt::format("rehearsal: {}", part.name), in_.history.step);
  const system::Stopwatch watch;
  std::string with;
  const auto failure = Failure::of([&] {
    debug_delay(config_, world_.rank(), part.phase);
    with = (this->*part.work)();
  });
  if (failure) {
    // A signal ends the work of a part, which is no fault of the part.
    if (system::raised_signal().number != 0) throw EndedEarly();
    in_.run.log().info("rehearsal: {} failed after {:.1f} s", part.name, watch.seconds());
    Failure{failure->kind, "rehearsal",
            fmt::format("{} (part {} of {}): {}. No step was done; --no-rehearse starts "
                        "without the rehearsal",
                        part.name, number + 1, kParts.size(), failure->in_words())}
        .raise();
  }
  in_.run.log().info("rehearsal: {}: {}, {:.1f} s", part.name, with, watch.seconds());
}

void Rehearsal::run() {
  const system::Stopwatch watch;
  for (size_t number = 0; number < kParts.size(); ++number) do_part(number);
  const std::string which = mirror_failed_ ? "all parts but the mirror"
                                           : fmt::format("all {} parts", kParts.size());
  in_.run.log().info("rehearsal: {} went well in {:.1f} s", which, watch.seconds());
}

std::string Rehearsal::exchange() {
  const ModelDescription& model = session_.model().description;
  const layout::LayoutDescription& layout = session_.layout().description();
  const at::Device device = session_.device();
  const auto lines = measure::exchanges_of(
      layout, layout::LayoutCosts(config_, model, layout, {}, device::name(device)));
  for (const layout::TrafficLine& line : lines) {
    comm::Communicator* const used = session_.layout().tensor_group(line.group);
    std::unique_ptr<comm::Communicator> other;  // takes host memory
    if (used == nullptr) {
      other = measure::group_of(world_, layout.rank_groups(), line.group);
    }
    const auto bytes = at::TensorOptions(other ? at::kCPU : device).dtype(at::kByte);
    const at::Tensor in = at::zeros({measure::kExchangeBytes.back()}, bytes);
    const at::Tensor out = at::zeros({measure::kExchangeBytes.back()}, bytes);
    measure::exchange_probes(line, other ? *other : *used,
                             session_.machine().policy.compute, in.data_ptr(),
                             out.data_ptr());
  }
  world_.barrier()->wait();
  if (lines.empty()) return "no group has several ranks";
  return fmt::format(
      "{} in groups of {}, each with {} to {}", counted(std::ssize(lines), "operation"),
      counted(world_.size(), "rank"), human_bytes(measure::kExchangeBytes.front()),
      human_bytes(measure::kExchangeBytes.back()));
}

std::string Rehearsal::notice_signal() {
  std::optional<system::RehearsedSignal> sent;
  const char* const name = system::signal_name(system::RehearsedSignal::number());
  comm::on_all_ranks(world_, [&] {
    sent.emplace(kSignalSeconds);
    if (sent->noted()) return;
    fail_temporary("signal",
                   "rank {} sent itself {} and did not notice it within {:.0f} s, so the "
                   "run would not save before a time limit; start it without a wrapper "
                   "that blocks signals",
                   world_.rank(), name, kSignalSeconds);
  });
  ControlFiles control(dir_, world_, [](const char*) {});
  // Rank 0 looks at the disk now, so that no rank waits for it while a signal is shown: a
  // start that leaves a signal without an answer for long ends.
  control.must_end();
  const int teller = world_.size() - 1;  // all ranks must learn of this rank's signal
  if (world_.rank() == teller) sent->show();
  const int agreed = control.ask().signal;
  sent.reset();
  end_if_asked(world_);
  LH_CHECK(agreed == system::RehearsedSignal::number(), "signal",
           "the ranks agreed on signal {}, but rank {} was sent {}", agreed, teller,
           name);
  return fmt::format("{} noticed by each rank and agreed on", name);
}

std::string Rehearsal::read_last_batch() {
  const bool fetches = session_.data().fetches_shards;
  const auto from = [&](int64_t step) {
    return loader_options(session_, /*prefetch=*/fetches, step, in_.total_steps);
  };
  comm::on_all_ranks(world_, [&] {
    loader_.emplace(session_.data().train, from(in_.total_steps),
                    data::cursor_before(session_.data().train, from(in_.history.step + 1),
                                        in_.history.cursor, in_.total_steps));
    batch_ = next_batch(session_, *loader_, in_.total_steps, in_.run.log(),
                        [&] { return world_.any(system::raised_signal().number != 0); });
  });
  end_if_asked(world_);
  return fmt::format("the batch of step {}", in_.total_steps);
}

std::string Rehearsal::state_hash() {
  const checkpoint::Snapshot state = in_.capture.capture(session_.state());
  if (state.ready) state.ready(session_.layout().watch());
  std::string all;
  for (const checkpoint::StateTensor& tensor : state.tensors) {
    all += hash_hex(tensor.bytes);
  }
  return hash_hex(all);
}

std::string Rehearsal::save() {
  hash_before_ = state_hash();
  const checkpoint::SaveReport report = in_.checkpoints.save_apart(
      session_, dir_, in_.history, in_.capture.capture(session_.state()));
  saved_ = report.path;
  return human_bytes(report.bytes);
}

std::string Rehearsal::use_mirror() {
  if (!config_.checkpoint.mirror) return "the run has none";
  // Each machine has credentials and a way to the store of its own.
  const bool asks = session_.machine().node->rank() == 0;
  const auto mirror =
      checkpoint::open_mirror(objects::parse_address(*config_.checkpoint.mirror));
  std::string left;
  std::optional<Failure> failure;
  const auto work = [&] {
    if (asks) failure = Failure::of([&] { try_mirror(*mirror, left); });
  };
  comm::do_and_meet(world_, work, [&] { mirror->stop(); });
  for (const std::string& why : world_.gather_strings(left)) {
    if (!why.empty()) in_.run.log().warning("rehearsal: {}", why);
  }
  end_if_asked(world_);
  const bool passes = failure && failure->kind == ErrorKind::Temporary;
  comm::on_all_ranks(world_, [&] {
    if (failure && !passes) failure->raise();
  });
  const std::string mine = passes ? failure->in_words() : std::string();
  for (const std::string& why : world_.gather_strings(mine)) {
    if (why.empty()) continue;
    mirror_failed_ = true;
    in_.run.log().warning(
        "MIRROR FAILED in the rehearsal: {}; the run goes on, and each save tries it",
        why);
  }
  if (mirror_failed_) return "it failed, which the run outlives";
  return fmt::format("a file sent to {}, read back and removed",
                     *config_.checkpoint.mirror);
}

void Rehearsal::try_mirror(checkpoint::MirrorStore& mirror, std::string& left) const {
  const std::string name =
      fmt::format("{}/rank_{:05}.json", dir_.filename().string(), world_.rank());
  std::string sent;
  std::string got;
  const auto failure = Failure::of([&] {
    sent = mirror.put(saved_ / run::kManifestFile, name);
    got = mirror.fetch(name, dir_ / fmt::format("mirrored_{:05}.json", world_.rank()));
  });
  // A put that has failed may have left the object all the same.
  if (const auto stays = Failure::of([&] { mirror.remove(name); })) {
    left = fmt::format("{}/{} may stay, since it could not be removed: {}",
                       mirror.place(), name, stays->in_words());
  }
  if (failure) failure->raise();
  if (sent == got) return;
  fail_input("mirror",
             "{}: {} came back with the hash {}, but {} was sent; the store returns "
             "other bytes than it was given",
             mirror.place(), name, got, sent);
}

std::string Rehearsal::do_largest_step() {
  fill_up(session_, *batch_);
  try_step(session_, in_.history, *batch_);
  const size_t micro_batches = batch_->micro_batches.size();
  loader_.reset();
  const int64_t peak = peak_bytes(session_.device());
  return fmt::format(
      "{} of {} x {} tokens, peak memory {} on rank {}",
      counted(static_cast<int64_t>(micro_batches), "micro batch", "micro batches"),
      config_.batch.micro_size, config_.data.seq_len, human_bytes(peak), world_.rank());
}

std::string Rehearsal::load() {
  checkpoint::ReadReport mine;
  // The counts are still those after the step, so that moments are read as well.
  comm::on_all_ranks(world_, [&] {
    comm::Communicator& node = *session_.machine().node;
    const auto reader = checkpoint::CheckpointReader::open(saved_, node);
    mine = restore_state(session_.state(), reader, saved_.string(), node);
  });
  session_.optimizer().set_counts(counts_before_);
  session_.replicas().share_weights();
  comm::on_all_ranks(world_, [&] {
    LH_CHECK(state_hash() == hash_before_, "checkpoint",
             "what was loaded on rank {} is not what was saved", world_.rank());
  });
  return fmt::format("{}, and it is what was saved",
                     checkpoint::total(mine, world_).describe());
}

std::string Rehearsal::validate() {
  session::StageRunner runner(session_.chunks(), session_.replicas(),
                              session::stage_options(session_));
  const auto sums = [&](std::vector<data::TokenBatch>& batches) {
    return session::loss_sums(session_, runner, batches);
  };
  for (const ValidationSet& set : session_.data().validation) {
    infer::EvaluateOptions options = evaluate_options(config_);
    const int64_t all = set.source->num_sequences();
    const int64_t read =
        options.max_sequences == 0 ? all : std::min(all, options.max_sequences);
    comm::on_all_ranks(world_, [&] {
      data::TokenBatch last;
      set.source->shape(last, 1);
      set.source->read(read - 1, last, 0);
    });
    options.max_sequences = std::min(
        read, options.micro_size * options.micro_batches * session_.mesh().dp().size());
    infer::evaluate(sums, *set.source, session_.mesh().dp(), options);
  }
  for (const infer::TaskSet& task : session_.data().tasks) {
    infer::EvaluateOptions options = evaluate_options(config_);
    options.max_sequences =
        options.micro_size * options.micro_batches * session_.mesh().dp().size();
    session::answer_requests(session_, *task.rows, options);
  }
  const int64_t sets = std::ssize(session_.data().validation);
  const int64_t tasks = std::ssize(session_.data().tasks);
  if (sets + tasks == 0) return "the run has none";
  return fmt::format("a batch of each of {}{}", counted(sets, "set"),
                     tasks == 0 ? "" : " and " + counted(tasks, "task"));
}

std::string Rehearsal::write_export() {
  const checkpoint::SharedSource source = checkpoint::WeightsSource::open(saved_, world_);
  const ModelDescription& model = session_.model().description;
  if (model.has_base) {
    checkpoint::check_tensors(saved_.string(), source->tensors(), model.saved_tensors(),
                              {});
  } else {
    checkpoint::check_model_files(source, model, world_);
  }
  checkpoint::ExportOptions options;
  options.dtype = session_.machine().policy.compute;
  options.threads = 1;  // the ranks share the shards
  const auto report = checkpoint::export_hf(*source, dir_ / "hf", options, world_);
  const bool whole = format::has_tokenizer(report.files);
  if (!whole) {
    in_.run.log().warning(
        "rehearsal: an export of this run has no tokenizer, since none lies beside its "
        "weights, its model's config or its data; put one there");
  }
  return fmt::format("{} of weights{}", human_bytes(report.bytes),
                     whole ? " and a tokenizer" : "");
}

/// Decides for all ranks whether a start rehearses. Collective.
bool is_due(Rehearse asked, const RehearsalInputs& in) {
  comm::Communicator& world = in.session.world();
  bool first = false;
  comm::on_rank_zero(world, [&] {
    first = in.history.step == 0 && in.history.step < in.last_step &&
            last_step_of_metrics(in.session.config().run.dir) == 0;
  });
  first = world.any(first);
  const bool large = world.size() > kRehearsedRanks;
  if (asked == Rehearse::Yes && !first) {
    in.run.log().info("rehearsal: left out, since the run has done steps before");
  }
  if (asked == Rehearse::No && first && large) {
    in.run.log().info("rehearsal: left out, as --no-rehearse says");
  }
  return first && (asked == Rehearse::Yes || (asked == Rehearse::IfLarge && large));
}

}  // namespace

void rehearse(Rehearse asked, const RehearsalInputs& in) {
  // The name has the run's identity, so that no directory of another run is removed.
  const std::string run =
      comm::on_rank_zero(in.session.world(), [&] { return in.start.run(); });
  const fs::path dir = checkpoint_dir(in.session.config()) / ("rehearsal_" + run);
  if (in.session.world().rank() == 0) try_remove_all(dir);
  if (!is_due(asked, in)) return;
  in.run.log().info(
      "rehearsal: what the run does late is done once before its first step, with files "
      "in {}, which are removed",
      dir.string());
  Rehearsal(in, dir).run();
}

}  // namespace longhaul::train
