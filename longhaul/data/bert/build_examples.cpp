#include "longhaul/data/bert/build_examples.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <future>
#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/base/random.h"
#include "longhaul/base/text.h"
#include "longhaul/data/bert/shards/hdf5_shard.h"
#include "longhaul/data/order/permutation.h"
#include "longhaul/data/store/resumable_build.h"
#include "longhaul/data/store/store.h"
#include "longhaul/system/cpus.h"
#include "longhaul/system/worker_pool.h"

namespace longhaul::data {
namespace {

constexpr uint64_t kShardBytes = uint64_t{64} << 20;
constexpr int64_t kFewestShards = 16;
constexpr int64_t kMostShards = 99'999;
/// The number of copies of a shard in memory while it is made: the rows, the rows in
/// their final order, and the packed shard.
constexpr uint64_t kCopiesOfShard = 3;
/// About the share of a row's tokens that a document supplies itself, since half of the
/// second texts come from another document.
constexpr double kOwnShare = 0.7;

const char* rule_name(SentenceRule rule) {
  return rule == SentenceRule::Lines ? "lines" : "punctuation";
}

BuildKind examples_kind() {
  return {.record = kBertRecordName,
          .foreign = "exists and holds no BERT examples; choose another --out",
          .standing =
              "holds BERT examples already; choose another --out, or replace them with "
              "--force",
          .occupation = "builds there"};
}

Json plan_of(const tokenizer::Tokenizer& tokenizer, const InputSet& inputs,
             const BuildExamplesOptions& options) {
  const ExampleOptions& examples = options.examples;
  return {{"inputs", inputs.fingerprint()},
          {"tokenizer", tokenizer.fingerprint()},
          {"vocab_size", tokenizer.vocab_size()},
          {"seq_len", examples.seq_len},
          {"max_predictions", examples.mask.max_predictions},
          {"mask_share", examples.mask.share},
          {"whole_words", examples.mask.whole_words},
          {"short_share", examples.short_share},
          {"seed", examples.seed},
          {"duplicates", options.duplicates},
          {"shards", options.shards},
          {"sentences", rule_name(options.sentences)},
          {"bad_records", options.bad_records == BadRecords::Drop ? "drop" : "fail"}};
}

void check_options(const BuildExamplesOptions& options) {
  const ExampleOptions& examples = options.examples;
  const ShardShape row{1, examples.seq_len, examples.mask.max_predictions};
  const std::string problem = shape_problem(row);
  if (examples.seq_len < 5 || !problem.empty()) {
    fail_input("data",
               "rows of {} tokens with {} predictions cannot be built{}{}; 128 with 20 "
               "and 512 with 80 are usual",
               examples.seq_len, examples.mask.max_predictions,
               problem.empty() ? "" : ": ", problem);
  }
  if (options.shards < 0 || options.shards > kMostShards || options.duplicates < 1 ||
      options.duplicates > 10'000) {
    fail_input("data",
               "{} shards and {} passes are out of range; give 0 to {} shards and 1 to "
               "10000 passes",
               options.shards, options.duplicates, kMostShards);
  }
  if (!(examples.mask.share > 0.0 && examples.mask.share < 1.0) ||
      !(examples.short_share >= 0.0 && examples.short_share <= 1.0)) {
    fail_input(
        "data",
        "the mask share is {} and the short share is {}; both must be between 0 and 1",
        examples.mask.share, examples.short_share);
  }
  if (hdf5_version().empty()) {
    throw InputError("data",
                     "this build has no HDF5; install libhdf5-dev and libaec-dev, then "
                     "configure and build again");
  }
}

Json reading_json(const ReadDocumentsReport& report) {
  Json dropped = Json::object();
  for (const auto& [problem, count] : report.dropped.counts) {
    dropped[std::string(problem_name(problem))] = count;
  }
  return {{"documents", report.counts.documents},
          {"sentences", report.counts.sentences},
          {"tokens", report.counts.tokens},
          {"dropped", dropped},
          {"dropped_examples", report.dropped.describe()},
          {"cut_sentences", report.cut_sentences},
          {"special_tokens_in_text", report.special_in_text},
          {"empty_documents", report.empty_documents},
          {"sources", report.sources}};
}

class ExamplesBuilder {
 public:
  ExamplesBuilder(const tokenizer::Tokenizer& tokenizer,
                  const BuildExamplesOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        inputs_(options.inputs),
        plan_(plan_of(tokenizer, inputs_, options)),
        vocabulary_(BertVocabulary::of(tokenizer, options.examples.mask.whole_words)),
        kind_(examples_kind()),
        build_(fs::absolute(options.out).lexically_normal(), kind_),
        work_(build_.work()) {}

  BertRecord run() {
    if (options_.note && !inputs_.passed_over().empty()) {
      options_.note(inputs_.passed_over());
    }
    check_place(build_.out(), kind_, options_.force);
    build_.lock_beside();
    make_directories_durable(work_);
    open_work();
    if (!fs::exists(work_ / kBertRecordName)) {
      read_inputs();
      make_shards();
      write_record();
    }
    build_.check_lock();
    remove_intermediate_files();
    build_.commit(options_.force);
    return BertRecord::read(build_.out());
  }

 private:
  void open_work() const;
  void read_inputs();
  void make_shards();
  int64_t choose_shards(const SpoolCounts& counts) const;
  int threads_for(const SpoolCounts& counts, int64_t shards) const;
  double expected_shard_bytes(const SpoolCounts& counts, int64_t shards) const;
  PackedShard make_shard(const ExampleMaker& maker, int64_t shard, int64_t shards,
                         int64_t documents, ExampleCounts& counts) const;
  std::string shard_name(int64_t shard, int64_t shards) const;
  std::optional<BertShardInfo> finished_shard(const std::string& name) const;
  void write_shard(const std::string& name, const PackedShard& shard,
                   const ExampleCounts& counts);
  void write_record();
  void remove_intermediate_files() const;
  void report_progress(const char* stage, int64_t done, int64_t total) const {
    if (options_.progress) options_.progress(stage, done, total);
  }

  const tokenizer::Tokenizer& tokenizer_;
  const BuildExamplesOptions& options_;
  InputSet inputs_;
  Json plan_;
  BertVocabulary vocabulary_;
  BuildKind kind_;
  ResumableBuild build_;
  fs::path work_;
  Json reading_;
  std::vector<BertShardInfo> shards_;
};

void ExamplesBuilder::open_work() const {
  remove_unfinished_files(work_, true);
  if (options_.restart) build_.clear();
  const std::vector<std::string> changed =
      ResumableBuild::changed_entries(build_.agree_on_plan(plan_), plan_);
  if (changed.empty()) return;
  fail_input("data",
             "{}: holds an unfinished build with another {}; give the command that began "
             "the build to continue it, or --restart to delete it",
             work_.string(), fmt::join(changed, ", "));
}

void ExamplesBuilder::read_inputs() {
  const fs::path record = work_ / "spool.json";
  if (fs::exists(record)) {
    reading_ = read_json(record);
    return;
  }
  SpoolWriter spool(work_, tokenizer_.vocab_size());
  const ReadDocumentsReport report = read_documents(
      inputs_, tokenizer_, vocabulary_.special, options_,
      /*longest_sentence=*/options_.examples.seq_len - kAroundPair,
      [this](uint64_t done, uint64_t total) {
        report_progress("reading", static_cast<int64_t>(done),
                        static_cast<int64_t>(total));
      },
      spool);
  if (report.counts.documents == 0) {
    fail_input("data",
               "the inputs hold no document with text; {}name files that hold text",
               report.dropped.in_one_line());
  }
  spool.finish();
  reading_ = reading_json(report);
  sync_directory(work_);
  write_text_atomic(record, json_text(reading_, 1) + "\n");
}

double ExamplesBuilder::expected_shard_bytes(const SpoolCounts& counts,
                                             int64_t shards) const {
  const double room =
      static_cast<double>(options_.examples.seq_len - kAroundPair) * kOwnShare;
  const double rows =
      static_cast<double>(options_.duplicates) *
      (static_cast<double>(counts.tokens) / room + static_cast<double>(counts.documents));
  const ShardShape row{1, options_.examples.seq_len,
                       options_.examples.mask.max_predictions};
  return rows * static_cast<double>(shard_bytes(row)) / static_cast<double>(shards);
}

int64_t ExamplesBuilder::choose_shards(const SpoolCounts& counts) const {
  const int64_t most = counts.documents * options_.duplicates;
  if (options_.shards > most) {
    fail_input(
        "data",
        "{} documents in {} passes do not fill {} shards; ask for at most {} shards",
        counts.documents, options_.duplicates, options_.shards, most);
  }
  if (options_.shards > 0) return options_.shards;
  const double wanted =
      expected_shard_bytes(counts, 1) / static_cast<double>(kShardBytes);
  return std::min(
      {std::max(static_cast<int64_t>(wanted) + 1, kFewestShards), most, kMostShards});
}

int ExamplesBuilder::threads_for(const SpoolCounts& counts, int64_t shards) const {
  const double each =
      expected_shard_bytes(counts, shards) * static_cast<double>(kCopiesOfShard);
  const auto budget = static_cast<double>(options_.memory_bytes);
  if (each > budget) {
    fail_input("data",
               "{} shards of about {} each do not fit into --memory {}; ask for {} "
               "shards or more",
               shards, human_bytes(expected_shard_bytes(counts, shards)),
               human_bytes(budget),
               static_cast<int64_t>(each * static_cast<double>(shards) / budget) + 1);
  }
  return static_cast<int>(std::clamp<double>(budget / std::max(each, 1.0), 1.0,
                                             system::threads_of(options_.threads)));
}

std::string ExamplesBuilder::shard_name(int64_t shard, int64_t shards) const {
  return fmt::format("longhaul_training_{:05}-of-{:05}.hdf5", shard, shards);
}

PackedShard ExamplesBuilder::make_shard(const ExampleMaker& maker, int64_t shard,
                                        int64_t shards, int64_t documents,
                                        ExampleCounts& counts) const {
  const int64_t pairs = documents * options_.duplicates;
  const uint64_t seed = options_.examples.seed;
  const Permutation deal(pairs, random_key(seed, "bert documents"));
  ExampleRows rows(options_.examples.seq_len, options_.examples.mask.max_predictions);
  for (int64_t i = shard * pairs / shards; i < (shard + 1) * pairs / shards; ++i) {
    const int64_t pair = deal(i);
    maker.make(pair / documents, pair % documents, rows);
  }
  counts = rows.counts;
  const auto bits =
      philox(random_key(seed, "bert row order"), static_cast<uint64_t>(shard), 0);
  const Permutation place(rows.size(), uint64_t{bits[0]} << 32 | bits[1]);
  std::vector<int64_t> order(static_cast<size_t>(rows.size()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = place(static_cast<int64_t>(i));
  return pack_shard(rows.shard(order));
}

std::optional<BertShardInfo> ExamplesBuilder::finished_shard(
    const std::string& name) const {
  const fs::path record = work_ / (name + ".json");
  if (!fs::exists(record)) return {};
  BertShardInfo info = BertShardInfo::from_json(read_json(record), record);
  std::error_code error;
  if (fs::file_size(work_ / name, error) != info.bytes || error) return {};
  return info;
}

void ExamplesBuilder::write_shard(const std::string& name, const PackedShard& shard,
                                  const ExampleCounts& counts) {
  const fs::path path = work_ / name;
  const fs::path temporary = work_ / (name + ".tmp");
  write_packed_shard(temporary, shard);
  BertShardInfo info;
  info.name = name;
  info.rows = shard.shape.rows;
  info.counts = counts;
  const StoreFile hashed = hashed_file(temporary);
  info.bytes = hashed.bytes;
  info.hash = hashed.hash;
  fs::rename(temporary, path);
  sync_directory(work_);
  write_text_atomic(work_ / (name + ".json"), json_text(info.to_json()) + "\n");
  shards_.push_back(std::move(info));
}

void ExamplesBuilder::make_shards() {
  SpoolCounts counts;
  counts.documents = reading_.at("documents").get<int64_t>();
  counts.sentences = reading_.at("sentences").get<int64_t>();
  counts.tokens = reading_.at("tokens").get<int64_t>();
  const DocumentSpool spool(work_, tokenizer_.vocab_size(), counts);
  const ExampleMaker maker(spool, vocabulary_, options_.examples);
  const int64_t shards = choose_shards(counts);
  const int threads = threads_for(counts, shards);

  struct Made {
    std::string name;
    // A shard that an earlier start of this build has made.
    std::optional<BertShardInfo> before;
    PackedShard packed;
    ExampleCounts counts;
  };
  std::deque<std::future<Made>> pending;  // in the order of the shards
  system::WorkerPool pool(threads);
  const auto take = [&] {
    Made made = pending.front().get();
    pending.pop_front();
    if (made.before) {
      shards_.push_back(std::move(*made.before));
    } else {
      write_shard(made.name, made.packed, made.counts);
    }
    report_progress("examples", static_cast<int64_t>(shards_.size()), shards);
  };
  for (int64_t shard = 0; shard < shards; ++shard) {
    pending.push_back(pool.add([&, shard] {
      Made made;
      made.name = shard_name(shard, shards);
      made.before = finished_shard(made.name);
      if (!made.before) {
        made.packed = make_shard(maker, shard, shards, counts.documents, made.counts);
      }
      return made;
    }));
    if (pending.size() > static_cast<size_t>(threads)) take();
  }
  while (!pending.empty()) take();
}

void ExamplesBuilder::write_record() {
  BertRecord record;
  record.plan = plan_;
  record.reading = reading_;
  record.shards = shards_;
  for (const BertShardInfo& shard : shards_) record.counts.add(shard.counts);
  tokenizer::copy_tokenizer_files(tokenizer_, work_ / "tokenizer");
  write_text_atomic(work_ / kBertRecordName, record.text());
}

void ExamplesBuilder::remove_intermediate_files() const {
  for (const fs::path& file : spool_files(work_)) fs::remove(file);
  for (const BertShardInfo& shard : BertRecord::read(work_).shards) {
    fs::remove(work_ / (shard.name + ".json"));
  }
  fs::remove(work_ / "spool.json");
  fs::remove(build_.plan_file());
}

}  // namespace

BertRecord build_examples(const tokenizer::Tokenizer& tokenizer,
                          const BuildExamplesOptions& options) {
  check_options(options);
  return ExamplesBuilder(tokenizer, options).run();
}

}  // namespace longhaul::data
