#include "apps/why/run_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "apps/objects/local_input.h"
#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/config/load.h"
#include "longhaul/data/bert/example_source.h"
#include "longhaul/data/bert/example_store.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/store/store.h"
#include "longhaul/families/adapter.h"
#include "longhaul/objects/address.h"
#include "longhaul/run/events.h"
#include "longhaul/run/files.h"
#include "longhaul/run/saved_settings.h"

namespace longhaul::apps {
namespace {

using OwnSource = std::unique_ptr<data::TokenSource>;

/// Returns the settings in a checkpoint; nothing for an imported one.
std::optional<RunConfig> settings_in(const fs::path& step_dir) {
  const std::string text = run::saved_settings(checkpoint::read_state(step_dir));
  if (text.empty()) return std::nullopt;
  return parse_run_config(text, step_dir.string()).config;
}

std::string name_of(const TrainSource& entry) {
  return entry.synthetic > 0 ? "synthetic" : entry.path.text();
}

/// Returns whether a source of a phase may be the entry. A second source of the same name
/// has "#2" behind it.
bool may_be(const data::PhaseSource& source, const TrainSource& entry) {
  const std::string name = name_of(entry);
  return source.name == name || source.name.starts_with(name + "#");
}

/// Lets a source have the targets that training took of it.
void keep_losses(data::TokenSource& source, const RunConfig& config) {
  if (source.losses().size() < 2) return;
  std::vector<std::string> wanted = {kPreference};
  if (config.preference.loss == PreferenceLoss::Orpo) wanted.emplace_back(kChosenToken);
  if (!config.preference.loss) {
    wanted = load_run_model(config).description.losses_with_targets();
  }
  source.keep_losses(wanted);
}

OwnSource open_path(const RunConfig& config, const fs::path& path, int64_t seq_len,
                    const std::string& field, std::optional<bool> document_mask,
                    std::shared_ptr<const objects::Pieces> pieces = {}) {
  const DataSection& data = config.data;
  if (data.pack == PackKind::Stream) {
    return data::open_source(path, seq_len, document_mask.value_or(data.document_mask),
                             /*verify=*/false, field, std::move(pieces));
  }
  const bool cut = data.too_long == TooLong::Cut;
  return data::open_whole_rows(path, {seq_len, cut, data_cache_dir(config), false},
                               /*verify=*/false, field);
}

/// Returns whether a run reads its data in the order of the sequences, and so a store at
/// an address shard by shard.
bool reads_in_order(const RunConfig& config) {
  return !config.data.shuffle && config.data.pack == PackKind::Stream;
}

OwnSource synthetic(const RunConfig& config, const TrainSource& entry, int64_t seq_len) {
  const ModelConfig model = load_run_model(config);
  const bool masked = model.description.losses.front().name == kMaskedToken;
  const auto make = masked ? data::synthetic_examples : data::synthetic_source;
  return make(entry.synthetic, seq_len, model.vocab_size,
              static_cast<uint64_t>(config.run.seed));
}

int64_t batch_tokens(const RunConfig& config) {
  return config.batch.global_size * config.data.seq_len;
}

std::shared_ptr<DataTrail> trail_of(int64_t step, data::Cursor cursor,
                                    int64_t tokens_before) {
  const auto trail = std::make_shared<DataTrail>();
  trail->step = step;
  trail->tokens_before = tokens_before;
  for (auto end = cursor.phases.begin(); end != cursor.phases.end();) {
    trail->streams.emplace_back(std::vector(cursor.phases.begin(), ++end));
  }
  trail->cursor = std::move(cursor);
  return trail;
}

/// Returns a count of tokens in a step's record.
int64_t whole(double tokens) {
  if (tokens >= 0.0 && tokens < 0x1p62) return static_cast<int64_t>(tokens);
  fail_input("why", "{} has a step without its count of tokens", run::kMetricsFile);
}

}  // namespace

RunData::RunData(const fs::path& dir, objects::Access objects)
    : files_(dir), objects_(std::move(objects)) {
  files_.refresh();
  for (const auto& entry :
       checkpoint::list_checkpoints(checkpoint::checkpoints_dir_of(dir))) {
    if (entry.valid) checkpoints_.emplace(entry.step, entry.path);
  }
  for (const auto& [step, path] : checkpoints_) unread_settings_.push_back(path);
  if (files_.config()) settings_.push_back(*files_.config());
  if (settings(0) != nullptr) return;
  fail_input("why", "{}: the run has no settings: neither {} nor a whole checkpoint",
             dir.string(), run::kConfigFile);
}

const RunConfig* RunData::settings(size_t number) {
  while (number >= settings_.size() && !unread_settings_.empty()) {
    auto config = settings_in(unread_settings_.back());
    unread_settings_.pop_back();
    if (config) settings_.push_back(std::move(*config));
  }
  return number < settings_.size() ? &settings_[number] : nullptr;
}

int64_t RunData::newest_start() const {
  int64_t newest = files_.records().newest_attempt();
  for (const monitor::Event& event : files_.events()) {
    if (event.kind == run::StartEvent::kKind) newest = std::max(newest, event.attempt());
  }
  return newest;
}

std::shared_ptr<DataTrail> RunData::newest_saved() {
  fs::path path;
  if (!checkpoints_.empty()) {
    path = checkpoints_.rbegin()->second;
  } else if (const ResumeFrom& from = settings(0)->checkpoint.resume;
             from.kind == ResumeFrom::Kind::Path) {
    path = checkpoint::find_checkpoint(from.path).value_or(fs::path());
  }
  if (path.empty()) return trail_of(0, {}, 0);
  const Json state = checkpoint::read_state(path);
  try {
    run::check_state_version(state);
    data::Cursor cursor = data::Cursor::from_json(state.at("cursor"));
    const int64_t before = state.at("tokens").get<int64_t>() - cursor.tokens();
    return trail_of(state.at("step").get<int64_t>(), std::move(cursor), before);
  } catch (const Json::exception& error) {
    fail_input("checkpoint", "{}: state.json: {}", path.string(), words_of(error));
  }
}

void RunData::refuse_unknown(int64_t from, int64_t to) const {
  const monitor::Records& records = files_.records();
  for (size_t i = records.counted().size(); i-- > 0;) {
    const run::StepRecord& one = records.counted_at(i);
    if (one.step <= from) break;
    if (one.step > to || one.attempt == newest_start()) continue;
    fail_input("why",
               "step {} was done by start {}, of which no checkpoint is left, and "
               "{} has the settings of start {}: which data it had is not known",
               one.step, one.attempt, run::kConfigFile, newest_start());
  }
  bool went_back = false;
  for (const monitor::Event& event : files_.events()) {
    if (event.kind == run::RollbackEvent::kKind) went_back = true;
    const bool here = (event.kind == run::CheckpointEvent::kKind &&
                       event.as<run::CheckpointEvent>().step == from) ||
                      (event.kind == run::StartEvent::kKind &&
                       event.as<run::StartEvent>().step == from);
    if (here) went_back = false;
  }
  if (!went_back) return;
  fail_input("why",
             "the run went back after its newest checkpoint, of step {}: which data the "
             "steps since had is known once the next checkpoint is there",
             from);
}

std::shared_ptr<DataTrail> RunData::trail_to(int64_t step) {
  std::shared_ptr<DataTrail> trail = newest_saved();
  if (trail->step >= step) return trail;
  refuse_unknown(trail->step, step);
  const RunConfig& config = *settings(0);
  std::vector<data::WeightedSource> sources;
  for (const TrainSource& entry : config.data.train) {
    std::string packed;
    for (const data::Phase& phase : trail->cursor.phases) {
      for (const data::PhaseSource& source : phase.sources) {
        if (may_be(source, entry)) packed = source.fingerprint;
      }
    }
    sources.push_back({open_entry(config, entry, config.data.seq_len, packed),
                       entry.weight, name_of(entry), std::nullopt});
  }
  data::LoaderOptions options;
  options.seed = static_cast<uint64_t>(config.run.seed);
  options.shuffle = config.data.shuffle;
  options.global_size = config.batch.global_size;
  options.first_step = trail->step + 1;
  for (const WeightsFrom& change : config.data.changes) {
    options.changes.push_back({change.step, change.weights});
  }
  return trail_of(step, data::cursor_before(sources, options, trail->cursor, step + 1),
                  trail->tokens_before);
}

int64_t RunData::tokens_of_step(size_t record) {
  const monitor::Records& records = files_.records();
  const run::StepRecord& one = records.counted_at(record);
  if (record > 0 && records.counted_at(record - 1).step + 1 == one.step) {
    return whole(one.tokens) - whole(records.counted_at(record - 1).tokens);
  }
  if (record + 1 < records.counted().size()) {
    const run::StepRecord& next = records.counted_at(record + 1);
    if (next.step == one.step + 1 && next.attempt == one.attempt) {
      return whole(next.tokens) - whole(one.tokens);
    }
  }
  if (one.step == 1) return whole(one.tokens);
  return batch_tokens(settings_of(one));
}

StepPlace RunData::place_of(size_t record, std::shared_ptr<DataTrail> trail) {
  StepPlace place;
  place.record = files_.records().counted_at(record);
  const int64_t tokens = tokens_of_step(record);
  int64_t begin = whole(place.record.tokens) - tokens - trail->tokens_before;
  place.trail = std::move(trail);
  for (const data::Phase& phase : place.trail->cursor.phases) {
    const int64_t of_phase = phase.consumed * phase.seq_len;
    if (begin >= 0 && begin < of_phase) {
      place.first = begin / phase.seq_len;
      place.sequences = tokens / phase.seq_len;
      place.first_sequence += place.first;
      if (place.first + place.sequences <= phase.consumed) return place;
      break;
    }
    begin -= of_phase;
    place.first_sequence += phase.consumed;
    ++place.phase;
  }
  fail_input("why",
             "step {} is not in the data of the run's newest checkpoint: its {} end at "
             "token {} of {} in {}",
             place.record.step, counted(tokens, "token"), whole(place.record.tokens),
             place.trail->cursor.tokens(), run::kMetricsFile);
}

StepPlace RunData::find(int64_t step) {
  const monitor::Records& records = files_.records();
  const auto& done = records.counted();
  const auto found = std::ranges::lower_bound(
      done, step, {}, [&](size_t i) { return records.all()[i].step; });
  if (found == done.end() || records.all()[*found].step != step) {
    if (done.empty()) {
      fail_input("why", "{} has done no step", files_.dir().string());
    }
    fail_input("why", "{} has no record of step {}; it has steps {} to {}",
               (files_.dir() / run::kMetricsFile).string(), step,
               records.counted_at(0).step, records.last()->step);
  }
  return place_of(static_cast<size_t>(found - done.begin()), trail_to(step));
}

fs::path RunData::local_path(const RunConfig& config, const fs::path& path) const {
  if (!objects::is_address(path)) return path;
  if (reads_in_order(config) && !has_wildcard(path.native())) {
    const objects::Address prefix = objects::parse_address(path);
    if (objects_.store()->look(prefix / data::kStoreRecord)) {
      objects_.read_in_pieces(path, objects_.store()->list(prefix, /*versions=*/true),
                              data::is_shard_file);
    }
  }
  return local_input(path.string(), objects_);
}

RunData::Source RunData::open_entry(const RunConfig& config, const TrainSource& entry,
                                    int64_t seq_len, const std::string& fingerprint,
                                    std::optional<bool> document_mask) const {
  const auto ready = [&](OwnSource source) {
    keep_losses(*source, config);
    return Source(std::move(source));
  };
  if (entry.synthetic > 0) return ready(synthetic(config, entry, seq_len));
  std::vector<OwnSource> parts;
  std::string problem;
  try {
    for (const fs::path& path : data::expand_paths(entry.path.entries)) {
      const fs::path local = local_path(config, path);
      parts.push_back(open_path(config, local, seq_len, entry.field, document_mask,
                                objects_.pieces_at(local)));
    }
    return ready(data::concatenated_source(std::move(parts)));
  } catch (const InputError& error) {
    problem = error.message();
  }
  std::vector<OwnSource> packed;
  for (const fs::path& path : paths_in(data_cache_dir(config))) {
    if (!data::is_token_store(path) && !data::is_example_store(path)) continue;
    try {
      OwnSource store = open_path(config, path, seq_len, data::kIdsField, document_mask);
      const bool may_be = fingerprint.empty() || store->fingerprint() == fingerprint;
      if (may_be) packed.push_back(std::move(store));
    } catch (const InputError&) {
      continue;  // a store of another entry, which cannot be read in this way
    }
  }
  if (packed.size() == 1) return ready(std::move(packed.front()));
  throw InputError("why", problem);
}

RunData::Source RunData::open(const data::PhaseSource& source, int64_t seq_len,
                              std::optional<bool> document_mask) {
  std::string problem = "no settings of the run name it";
  for (size_t i = 0; const RunConfig* const config = settings(i); ++i) {
    // Rows of whole documents of another length would need a plan that no start made.
    if (config->data.pack == PackKind::Whole && config->data.seq_len != seq_len) continue;
    for (const TrainSource& entry : config->data.train) {
      if (!may_be(source, entry)) continue;
      try {
        Source found =
            open_entry(*config, entry, seq_len, source.fingerprint, document_mask);
        if (found->fingerprint() == source.fingerprint) return found;
        problem = fmt::format("it holds other data now, with the fingerprint {}",
                              found->fingerprint());
      } catch (const InputError& error) {
        problem = error.message();
      }
    }
  }
  fail_input("why",
             "{}: the source with the fingerprint {} cannot be read: {}. Start this "
             "command where the run was started, with the data that the run had",
             source.name, source.fingerprint, problem);
}

RunData::Source RunData::source_of(const DataTrail& trail, size_t phase, size_t source,
                                   std::optional<bool> document_mask) {
  const data::Phase& of = trail.cursor.phases.at(phase);
  const data::PhaseSource& wanted = of.sources.at(source);
  Opened& opened = opened_[{wanted.fingerprint, of.seq_len, document_mask}];
  if (!opened.source && opened.problem.empty()) {
    try {
      opened.source = open(wanted, of.seq_len, document_mask);
    } catch (const InputError& error) {
      opened.problem = error.message();
    }
  }
  if (!opened.source) throw InputError("why", opened.problem);
  return opened.source;
}

int64_t RunData::earlier(const DataTrail& trail, size_t phase, int64_t n, size_t source,
                         data::DocumentPart part) {
  part.tokens = 1;
  const auto& phases = trail.cursor.phases;
  const std::string& own = phases[phase].sources[source].fingerprint;
  int64_t uses = 0;
  for (size_t p = 0; p <= phase; ++p) {
    for (size_t s = 0; s < phases[p].sources.size(); ++s) {
      if (part.store.empty() && phases[p].sources[s].fingerprint != own) continue;
      try {
        for (const int64_t index : source_of(trail, p, s)->sequences_with(part)) {
          uses += std::ssize(
              trail.streams[p].uses(s, index, p == phase ? n : phases[p].consumed));
        }
      } catch (const InputError& error) {
        notes_.insert("'seen' leaves out a source that is gone: " + error.message());
      }
    }
  }
  return uses;
}

std::vector<StepPart> RunData::parts(const StepPlace& step) {
  std::vector<StepPart> parts;
  DataTrail& trail = *step.trail;
  for (int64_t i = 0; i < step.sequences; ++i) {
    const int64_t n = step.first + i;
    const auto [source, index] = trail.streams[step.phase].place(n);
    const std::string& name = trail.cursor.phases[step.phase].sources[source].name;
    for (data::DocumentPart& part :
         source_of(trail, step.phase, source)->documents(index)) {
      const int64_t seen = earlier(trail, step.phase, n, source, part);
      if (part.file.empty()) part.file = name;
      parts.push_back({std::move(part), name, i, seen});
    }
  }
  return parts;
}

data::TokenBatch RunData::read(const StepPlace& step, int64_t sequence,
                               std::optional<bool> document_mask) {
  const auto [source, index] =
      step.trail->streams[step.phase].place(step.first + sequence);
  const Source from = source_of(*step.trail, step.phase, source, document_mask);
  data::TokenBatch batch;
  from->shape(batch, 1);
  from->read(index, batch, 0);
  return batch;
}

uint64_t RunData::data_hash(const StepPlace& step) {
  uint64_t hash = 0;
  for (int64_t i = 0; i < step.sequences; ++i) {
    hash += static_cast<uint64_t>(
        data::sequence_hash(read(step, i), 0, step.first_sequence + i));
  }
  return hash;
}

void RunData::add_sights(const DataTrail& trail, size_t phase, size_t source,
                         const data::DocumentPart& document, std::vector<Sight>& sights) {
  const monitor::Records& records = files_.records();
  const data::Phase& of = trail.cursor.phases[phase];
  const Source from = source_of(trail, phase, source);
  int64_t tokens_before = trail.tokens_before;
  for (size_t p = 0; p < phase; ++p) {
    tokens_before += trail.cursor.phases[p].consumed * trail.cursor.phases[p].seq_len;
  }
  for (const int64_t index : from->sequences_with(document)) {
    int64_t tokens = 0;
    for (const data::DocumentPart& part : from->documents(index)) {
      const bool same =
          part.store == document.store && part.document == document.document;
      if (same) tokens += part.tokens;
    }
    for (const int64_t n : trail.streams[phase].uses(source, index, of.consumed)) {
      const int64_t begin = tokens_before + n * of.seq_len;
      const auto found = std::ranges::upper_bound(
          records.counted(), begin, {},
          [&](size_t i) { return whole(records.all()[i].tokens); });
      if (found == records.counted().end()) continue;
      const auto record = static_cast<size_t>(found - records.counted().begin());
      const run::StepRecord& step = records.counted_at(record);
      const int64_t inside = begin - (whole(step.tokens) - tokens_of_step(record));
      sights.push_back({inside < 0 ? 0 : step.step,
                        std::max<int64_t>(0, inside) / of.seq_len,
                        of.sources[source].name, tokens});
    }
  }
}

std::vector<Sight> RunData::sights(const std::string& file, int64_t record) {
  const run::StepRecord* last = files_.records().last();
  std::shared_ptr<DataTrail> trail = newest_saved();
  try {
    if (last != nullptr) trail = trail_to(last->step);
  } catch (const InputError& error) {
    notes_.insert(
        fmt::format("steps after {} are left out: {}", trail->step, error.message()));
  }
  std::vector<Sight> sights;
  bool is_there = false;
  for (size_t phase = 0; phase < trail->cursor.phases.size(); ++phase) {
    const auto& sources = trail->cursor.phases[phase].sources;
    for (size_t source = 0; source < sources.size(); ++source) {
      try {
        const Source from = source_of(*trail, phase, source);
        auto documents = from->documents_named(file, record);
        const bool by_number = documents.empty() && file == sources[source].name &&
                               record >= 0 && record < from->num_sequences() &&
                               from->documents(record).front().store.empty();
        if (by_number) documents = from->documents(record);
        for (const data::DocumentPart& document : documents) {
          is_there = true;
          add_sights(*trail, phase, source, document, sights);
        }
      } catch (const InputError& error) {
        notes_.insert("a source that is gone is left out: " + error.message());
      }
    }
  }
  if (!is_there) {
    fail_input("why",
               "no source of the run has a document {}:{}; 'longhaul why RUN --step N' "
               "shows how documents are named{}",
               file, record, notes_.empty() ? "" : " (" + *notes_.begin() + ")");
  }
  std::ranges::sort(sights, {}, [](const Sight& sight) {
    return std::pair(sight.step, sight.sequence);
  });
  return sights;
}

RunConfig RunData::settings_of(const run::StepRecord& step) const {
  const auto of_start = [&](const fs::path& path) {
    return checkpoint::Manifest::read(path).attempt == step.attempt ? settings_in(path)
                                                                    : std::nullopt;
  };
  const auto behind = checkpoints_.lower_bound(step.step);
  for (auto at = behind; at != checkpoints_.end(); ++at) {
    if (auto config = of_start(at->second)) return std::move(*config);
  }
  for (auto at = std::make_reverse_iterator(behind); at != checkpoints_.rend(); ++at) {
    if (auto config = of_start(at->second)) return std::move(*config);
  }
  if (files_.config() && step.attempt == newest_start()) return *files_.config();
  fail_input("why",
             "step {} was done by start {}, whose settings are not recorded any more: no "
             "checkpoint of that start is left, and a later start has written {}",
             step.step, step.attempt, run::kConfigFile);
}

}  // namespace longhaul::apps
