#include "longhaul/data/store/build/build_parts.h"

#include <fmt/format.h>

#include <fstream>
#include <map>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/data/input/file_kinds.h"
#include "longhaul/data/input/wrong_files.h"
#include "longhaul/data/store/resumable_build.h"
#include "longhaul/data/store/self_test.h"

namespace longhaul::data {
namespace {

/// Combines the records of the parts in the order of the input.
class Merger {
 public:
  Merger(const BuildContext& context, const BuildPlan& plan,
         const tokenizer::Tokenizer* tokenizer)
      : context_(context), tokenizer_(tokenizer) {
    train_.token_bytes = context.encoder.token_bytes();
    train_.vocab_size = context.encoder.vocab_size();
    train_.tokenizer_fingerprint = tokenizer == nullptr ? "" : tokenizer->fingerprint();
    train_.special_tokens = context.encoder.special_description();
    train_.build = plan.key();
    if (context.options.chat) {
      const ChatOptions& chat = *context.options.chat;
      train_.chat = StoreChat{chat.format->hash(),
                              std::string(targets_name(chat.targets)),
                              chat.day ? chat::day_text(*chat.day) : "",
                              {}};
    }
    validation_ = train_;
    origins_.resize(context.inputs.files().size());
    hashes_.resize(origins_.size());
    lines_.resize(origins_.size());
  }

  void run() {
    bad_list_ = File::create(context_.directory.bad_list());
    for (size_t part = 0; part < context_.parts.size(); ++part) {
      add_part(static_cast<int>(part));
    }
    bad_list_.sync();
    bad_list_.close();
    check_files();
    check_counts();
    settle_kind();
    for (size_t file = 0; file < origins_.size(); ++file) finish_origin(file);
    const double percent = context_.options.holdout * 100;
    if (percent > 0) {
      validation_.selection =
          fmt::format("the {:.6g}% of the documents held out", percent);
      train_.selection = fmt::format("all documents but the {:.6g}% held out", percent);
      finish(validation_, context_.directory.validation());
    } else {
      train_.selection = "all documents";
    }
    finish(train_, context_.directory.train());
  }

 private:
  void add_part(int part) {
    PartRecord record = read_part_record(context_.directory.part_record(part));
    tell_lines_before(record);
    record.sides.train.add_to(train_);
    record.sides.validation.add_to(validation_);
    for (const auto& [problem, count] : record.left_out) {
      train_.dropped[std::string(problem_name(problem))] += count;
    }
    if (record.duplicates > 0) train_.dropped["duplicate"] += record.duplicates;
    train_.padding_removed += record.padding;
    bad_ += record.bad();
    if (!first_text_) first_text_ = record.first_text;
    // The list of bad records counts lines from the beginning of a range.
    for (const FinishedRange& range : record.ranges) {
      const auto index = static_cast<size_t>(range.range.file);
      range_lines_[{range.range.file, range.range.begin}] = lines_[index];
      lines_[index] += range.lines;
      origins_[index].bytes += range.stored_bytes;
      origins_[index].records += range.records;
      hashes_[index].push_back(range.hash);
    }
    if (record.bad() > 0) copy_bad_records(context_.directory.bad_records(part));
    if (train_.chat) add_part_findings(record.findings);
    range_lines_.clear();
  }

  /// Notes in the part's shards how many lines stand before its ranges.
  void tell_lines_before(PartRecord& record) const {
    for (const FinishedRange& range : record.ranges) {
      const int64_t lines = lines_[static_cast<size_t>(range.range.file)];
      if (lines == 0 || is_row(range.range.file)) continue;
      for (ShardSide* side : {&record.sides.train, &record.sides.validation}) {
        if (side->shard) side->shard->lines_before[range.range.file] = lines;
      }
    }
  }

  bool is_row(int file) const {
    const InputFormat format =
        context_.inputs.files().at(static_cast<size_t>(file)).format;
    return format == InputFormat::Parquet || format == InputFormat::Arrow;
  }

  /// Returns the number of lines in front of the range that a record was read from.
  int64_t lines_before(const RecordPlace& place) const {
    const auto before = range_lines_.find({place.file, place.range_begin});
    return is_row(place.file) || before == range_lines_.end() ? 0 : before->second;
  }

  void add_part_findings(const ChatFindings& findings) {
    for (size_t i = 0; i < findings.size(); ++i) {
      const auto& [count, place] = findings[i];
      if (count == 0) continue;
      const auto name = chat::finding_name(static_cast<chat::Finding>(i));
      StoreFinding& finding = train_.chat->findings[std::string(name)];
      if (finding.count == 0) {
        const InputFile& file =
            context_.inputs.files().at(static_cast<size_t>(place.file));
        finding.first =
            fmt::format("{}:{}{}", file.path.string(), is_row(place.file) ? " row " : "",
                        place.line + lines_before(place));
      }
      finding.count += count;
    }
  }

  /// Says whether the documents are chats or pairs, which no store mixes.
  void settle_kind() {
    if (!train_.chat) return;
    auto& findings = train_.chat->findings;
    const bool chats = findings.contains("chats");
    const bool pairs = findings.contains("pairs");
    if (chats && pairs) {
      discard();
      fail_input("data",
                 "the inputs hold both chats (first {}) and pairs (first {}); build a "
                 "store of each",
                 findings["chats"].first, findings["pairs"].first);
    }
    findings.erase("chats");
    findings.erase("pairs");
    train_.kind = pairs ? "pairs" : "chats";
    validation_.kind = train_.kind;
    validation_.chat = train_.chat;
  }

  void copy_bad_records(const fs::path& path) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
      const BadRecord bad = parse_bad_record(line, path);
      const InputFile& input =
          context_.inputs.files().at(static_cast<size_t>(bad.place.file));
      auto& [count, first] = bad_of_file_[bad.place.file];
      if (count++ == 0) first = bad;
      bad_list_.write(
          std::string_view(bad_record_json(input.path.string(), is_row(bad.place.file),
                                           bad.place.line + lines_before(bad.place),
                                           bad.place.offset, bad.problem, bad.detail)));
    }
  }

  /// Refuses a file of which no part has used a record.
  void check_files() const {
    for (const auto& [file, bad] : bad_of_file_) {
      const auto& [count, first] = bad;
      const auto index = static_cast<size_t>(file);
      const bool used = count < origins_[index].records;
      if (used || !has_fields(context_.inputs.files()[index].format)) continue;
      discard();
      refuse_unused(context_.inputs, first.place, count, first.problem, first.detail);
    }
  }

  void finish_origin(size_t file) {
    StoreOrigin& origin = origins_[file];
    origin.path = context_.inputs.files()[file].path.string();
    origin.hash =
        hashes_[file].size() == 1 ? hashes_[file][0] : combine_hashes(hashes_[file]);
  }

  void check_counts() const {
    const BuildOptions& options = context_.options;
    const bool any_train = !train_.shards.empty();
    const bool any_held_out = !validation_.shards.empty();
    if (!any_train && !any_held_out) {
      std::string dropped;
      for (const auto& [cause, count] : train_.dropped) {
        dropped += fmt::format("{} {}; ", grouped(count), cause);
      }
      discard();
      fail_input("data", "{} no document with text; {}name files that hold text",
                 counted(std::ssize(context_.inputs.files()), "file holds", "files hold"),
                 dropped);
    }
    if (options.holdout > 0 && !(any_train && any_held_out)) {
      discard();
      int64_t documents = 0;
      for (const auto* side : {&train_, &validation_}) {
        for (const StoreShard& shard : side->shards) documents += shard.documents;
      }
      fail_input("data",
                 "a holdout of {}% left one side empty: {} of {} held out, each drawn by "
                 "its text; choose a {} --holdout, or cut the text into more documents "
                 "(a file of text is one)",
                 options.holdout * 100, any_train ? "none" : "all",
                 counted(documents, "document was", "documents were"),
                 any_train ? "larger" : "smaller");
    }
    // Other processes may have had other options for bad records.
    refuse_dropped_before(context_.options, bad_);
    if (bad_ > options.max_bad_records) {
      fail_input("data",
                 "{} bad records, above the limit of {}; {} lists them: correct them, or "
                 "raise --max-bad-records",
                 grouped(bad_), grouped(options.max_bad_records),
                 context_.directory.bad_list().string());
    }
  }

  /// Removes the parts: a build with another holdout or other files cannot use them.
  void discard() const { try_remove_all(context_.directory.root / "parts"); }

  void finish(StoreInfo& info, const fs::path& dir) {
    remove_unfinished_files(dir, true);
    info.dropped = train_.dropped;
    info.padding_removed = train_.padding_removed;
    info.origins = origins_;
    sum_up_shards(info);
    if (tokenizer_ != nullptr) {
      copy_tokenizer(info, dir / "tokenizer");
      std::vector<std::string> texts;
      if (first_text_) texts.push_back(*first_text_);
      write_text_durable(dir / kSelfTestName,
                         self_test_text(make_self_test(*tokenizer_, texts)));
      info.self_test = hashed_file(dir / kSelfTestName);
    }
    if (bad_ > 0) {
      copy_file_durable(context_.directory.root / "bad_records.jsonl",
                        dir / "bad_records.jsonl");
      info.bad_records = hashed_file(dir / "bad_records.jsonl");
    }
    write_text_atomic(dir / "store.json", store_info_text(info));
  }

  void copy_tokenizer(StoreInfo& info, const fs::path& dir) const {
    for (const std::string& name : tokenizer::copy_tokenizer_files(*tokenizer_, dir)) {
      info.tokenizer_files.push_back(hashed_file(dir / name));
      info.tokenizer_files.back().name = name;
    }
  }

  const BuildContext& context_;
  const tokenizer::Tokenizer* tokenizer_;
  StoreInfo train_;
  StoreInfo validation_;
  std::vector<StoreOrigin> origins_;
  std::vector<std::vector<std::string>> hashes_;  // by file, hashes of its ranges
  std::vector<int64_t> lines_;                    // by file, lines counted so far
  /// By file and begin of a range of the current part, the number of lines before the
  /// range.
  std::map<std::pair<int, uint64_t>, int64_t> range_lines_;
  /// By file: the number of its bad records, and the first of them.
  std::map<int, std::pair<int64_t, BadRecord>> bad_of_file_;
  std::optional<std::string> first_text_;
  File bad_list_;
  int64_t bad_ = 0;
};

/// Returns the fingerprint of the store at a place; empty if there is no store.
std::string fingerprint_at(const fs::path& path) {
  return is_token_store(path) ? read_store_info(path).fingerprint : std::string();
}

/// Moves a store from `from` to `to`. Something that stands at `to` is moved into the
/// directory of the build first.
void move_store(const BuildDirectory& directory, const fs::path& from, const fs::path& to,
                const std::string& fingerprint) {
  if (fingerprint_at(from) != fingerprint) {
    // An earlier start has moved the store.
    LH_CHECK(fingerprint_at(to) == fingerprint, "data", "neither {} nor {} is the store",
             from.string(), to.string());
    return;
  }
  put_in_place(from, to, directory.root / ("replaced_" + from.filename().string()));
}

}  // namespace

void merge_parts(const BuildContext& context, const BuildPlan& plan,
                 const tokenizer::Tokenizer* tokenizer) {
  Merger(context, plan, tokenizer).run();
  const BuildDirectory& directory = context.directory;
  Json json = {{"train", fingerprint_at(directory.train())}};
  if (context.options.holdout > 0) {
    json["validation"] = fingerprint_at(directory.validation());
  }
  write_text_atomic(directory.commit(), json_text(json) + "\n");
}

void commit_stores(const BuildDirectory& directory, const fs::path& out) {
  const Json json = read_json(directory.commit());
  if (json.contains("validation")) {
    move_store(directory, directory.validation(), holdout_path(out),
               json.at("validation").get<std::string>());
  }
  move_store(directory, directory.train(), out, json.at("train").get<std::string>());
  // commit.json is removed last. Until then another start completes an interrupted
  // commit.
  for (const char* name : {"replaced_train", "replaced_validation", "parts", "hashes",
                           "duplicates", "validation"}) {
    fs::remove_all(directory.root / name);
  }
  fs::remove(directory.commit());
}

}  // namespace longhaul::data
