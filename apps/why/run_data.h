#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "longhaul/config/run_config.h"
#include "longhaul/data/order/loader.h"
#include "longhaul/monitor/run_files.h"
#include "longhaul/objects/access.h"

namespace longhaul::apps {

/// A position in a run's data, and the order of each phase up to it.
struct DataTrail {
  int64_t step = 0;  ///< the position is behind this step
  data::Cursor cursor;
  std::vector<data::PhaseStream> streams;  ///< by phase
  /// Tokens that the run's count has and the cursor has not: those of an imported
  /// checkpoint.
  int64_t tokens_before = 0;
};

/// A step that a run has done, and its sequences: numbers [first, first + sequences) of a
/// phase of the run's data (data::PhaseStream::place).
struct StepPlace {
  run::StepRecord record;
  std::shared_ptr<DataTrail> trail;
  size_t phase = 0;
  int64_t first = 0;
  int64_t sequences = 0;
  int64_t first_sequence = 0;  ///< the run's sequence count before the step
};

/// A document, or a part of it, in a step.
struct StepPart {
  data::DocumentPart part;
  std::string source;    ///< the source's name in the run
  int64_t sequence = 0;  ///< number in the step
  /// How often the part's first token had been trained on before.
  int64_t seen = 0;
};

/// A sequence that a document stands in.
struct Sight {
  int64_t step = 0;      ///< 0: before the first step in the run's record
  int64_t sequence = 0;  ///< number in the step
  std::string source;
  int64_t tokens = 0;  ///< of the document in the sequence
};

/// Which data a run has trained on. It follows from the run's record of its steps and the
/// position in the data that its newest checkpoint holds. For later steps it also follows
/// from the settings of the run's newest start. Reads only, except that data at an
/// address is copied as a start copies it. Not thread-safe.
class RunData {
 public:
  /// Throws InputError if `dir` holds no run.
  RunData(const fs::path& dir, objects::Access objects);

  const monitor::RunFiles& files() const { return files_; }
  /// Returns the valid checkpoints of the run, by step.
  const std::map<int64_t, fs::path>& checkpoints() const { return checkpoints_; }
  /// Throws InputError if the run has no record of the step, or if nothing tells which
  /// data it had.
  StepPlace find(int64_t step);
  /// Returns what the step's sequences are made of, in their order. Throws InputError if
  /// a source is not there any more, or holds other data now.
  std::vector<StepPart> parts(const StepPlace& step);
  /// Reads one sequence of a step as its only row. No block is compared with its hash.
  /// `document_mask` says whether positions and attention begin anew at each document;
  /// without it they are those of the newest settings that name the source.
  data::TokenBatch read(const StepPlace& step, int64_t sequence,
                        std::optional<bool> document_mask = {});
  /// Returns the hash of the step's data as it is now (data::StepBatch::content_hash).
  uint64_t data_hash(const StepPlace& step);
  /// Returns the sequences that held a document, in the order of the run. `file` and
  /// `record` name it as data::DocumentPart does. Throws InputError if no source of the
  /// run has such a document.
  std::vector<Sight> sights(const std::string& file, int64_t record);
  /// Returns the settings of the start that did a step. Throws InputError if they are not
  /// recorded any more.
  RunConfig settings_of(const run::StepRecord& step) const;
  /// Returns what the answers so far leave out, in sentences.
  const std::set<std::string>& notes() const { return notes_; }

 private:
  using Source = std::shared_ptr<const data::TokenSource>;
  /// Returns the run's settings, newest first: those of the newest start, then those in
  /// the checkpoints; null behind the last.
  const RunConfig* settings(size_t number);
  /// Returns a position behind a step. If nothing tells the position, it throws
  /// InputError.
  std::shared_ptr<DataTrail> trail_to(int64_t step);
  std::shared_ptr<DataTrail> newest_saved();
  /// Throws InputError unless the newest start has done the steps after `from` up to
  /// `to`, and the run has not gone back since the checkpoint of step `from`.
  void refuse_unknown(int64_t from, int64_t to) const;
  /// Returns the number of the newest start that was ready for its first step.
  int64_t newest_start() const;
  StepPlace place_of(size_t record, std::shared_ptr<DataTrail> trail);
  /// Returns the tokens of the step of a record.
  int64_t tokens_of_step(size_t record);
  /// Returns a source as it was in a phase. Opens each source once, and tries none again
  /// that cannot be opened.
  Source source_of(const DataTrail& trail, size_t phase, size_t source,
                   std::optional<bool> document_mask = {});
  Source open(const data::PhaseSource& source, int64_t seq_len,
              std::optional<bool> document_mask);
  /// Opens an entry of data.train. It may also be a store into which the run has packed
  /// files: that with this fingerprint.
  Source open_entry(const RunConfig& config, const TrainSource& entry, int64_t seq_len,
                    const std::string& fingerprint,
                    std::optional<bool> document_mask = {}) const;
  /// Returns the local path of a path or address in data.train.
  fs::path local_path(const RunConfig& config, const fs::path& path) const;
  /// Returns how many sequences before number `n` of a phase held the first token of a
  /// part, which comes from source `source` of the phase.
  int64_t earlier(const DataTrail& trail, size_t phase, int64_t n, size_t source,
                  data::DocumentPart part);
  /// Adds the sequences of source `source` of a phase that held a document.
  void add_sights(const DataTrail& trail, size_t phase, size_t source,
                  const data::DocumentPart& document, std::vector<Sight>& sights);

  monitor::RunFiles files_;
  objects::Access objects_;
  std::map<int64_t, fs::path> checkpoints_;
  std::vector<RunConfig> settings_;        ///< those that settings() has read
  std::vector<fs::path> unread_settings_;  ///< checkpoints, the next one last
  struct Opened {
    Source source;
    std::string problem;  ///< why there is no source
  };
  /// By fingerprint, length and the wish for a document mask.
  std::map<std::tuple<std::string, int64_t, std::optional<bool>>, Opened> opened_;
  std::set<std::string> notes_;
};

}  // namespace longhaul::apps
