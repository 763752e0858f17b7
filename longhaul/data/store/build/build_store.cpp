#include "longhaul/data/store/build/build_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/store/build/build_directory.h"
#include "longhaul/data/store/build/build_parts.h"
#include "longhaul/data/store/build/build_peers.h"
#include "longhaul/data/store/resumable_build.h"
#include "longhaul/system/cpus.h"

namespace longhaul::data {
namespace {

constexpr uint64_t kLeastPartBytes = uint64_t{64} << 20;
constexpr uint64_t kMostParts = 4096;
constexpr size_t kBadExamples = 5;
/// The most bytes of a chat, whose values take up to a hundred times as much memory.
constexpr uint64_t kMostChatBytes = uint64_t{16} << 20;

uint64_t memory_of(const BuildOptions& options) {
  return options.memory_bytes > 0 ? options.memory_bytes
                                  : default_build_memory(options.threads);
}

/// Returns the input options with a limit for all readers together: half of the memory
/// and what one reader may hold. The number of open readers follows from the metadata of
/// their files, and the limit holds when these metadata are wrong.
InputOptions shared_readers(const BuildOptions& options) {
  InputOptions inputs = options.inputs;
  inputs.reader_memory =
      make_reader_memory(memory_of(options) / 2 + inputs.max_batch_bytes);
  return inputs;
}

/// Returns the options with the day that templates print. A start on another day goes on
/// with the day of the first start, unless it replaces what stands there.
BuildOptions settled(BuildOptions options, const fs::path& out,
                     const BuildDirectory& directory) {
  options.inputs.chats = options.chat.has_value();
  if (options.chat) {
    options.inputs.max_record_bytes =
        std::min(options.inputs.max_record_bytes, kMostChatBytes);
  }
  if (!options.chat || options.chat->day || !options.chat->format->prints_day()) {
    return options;
  }
  std::string day;
  if (!options.restart) day = day_of_plan(directory.root);
  if (day.empty() && !options.force && is_token_store(out)) {
    const StoreInfo info = read_store_info(out);
    if (info.chat) day = info.chat->day;
  }
  options.chat->day = day.empty() ? chat::today() : chat::parse_day(day);
  return options;
}

uint64_t part_bytes_of(const BuildOptions& options, const InputSet& inputs) {
  if (options.part_bytes > 0) return options.part_bytes;
  return std::max(kLeastPartBytes, inputs.stored_bytes() / kMostParts);
}

/// Returns the field "build" of the store at a place; empty if there is no readable
/// store.
std::string build_at(const fs::path& path) {
  if (!is_token_store(path)) return {};
  try {
    return read_store_info(path).build;
  } catch (const InputError&) {
    return {};
  }
}

BuildKind store_kind() {
  return {
      .record = "store.json",
      .foreign = "exists and is not a token store; choose another --out",
      .standing =
          "holds a token store already; choose another --out, or replace it with --force",
      .occupation = "builds this store"};
}

class Builder {
 public:
  Builder(const tokenizer::Tokenizer* tokenizer, const BuildOptions& options)
      : tokenizer_(tokenizer),
        kind_(store_kind()),
        build_(options.out, kind_),
        out_(build_.out()),
        directory_(build_.work()),
        options_(settled(options, out_, directory_)),
        inputs_(shared_readers(options_)),
        part_bytes_(part_bytes_of(options_, inputs_)),
        parts_(inputs_.parts(part_bytes_)),
        encoder_(tokenizer, inputs_.options(), options_),
        context_{options_,           inputs_,    parts_,
                 encoder_,           directory_, system::threads_of(options_.threads),
                 memory_of(options_)},
        plan_(make_plan(options_, inputs_, encoder_, tokenizer, part_bytes_,
                        parts_.size())) {}

  /// Runs the build. A process other than 0 may start after the other processes have done
  /// everything. Then the directory of the build is being removed or is gone, and an
  /// error is ignored if the stores stand already.
  BuildReport run() {
    try {
      return build();
    } catch (const Error&) {
      if (options_.process == 0 || !stands_already()) throw;
      return report(true);
    }
  }

  /// Removes the directory of a build that has failed before it finished any part.
  void clean_up() const {
    if (options_.processes > 1 || !build_.is_locked()) return;
    if (is_seen(directory_.commit()) || finished_parts() > 0) {
      note(fmt::format(
          "the finished parts are kept in {}: the same command goes on from there",
          directory_.root.string()));
      return;
    }
    try_remove_all(directory_.root);
  }

 private:
  BuildReport build() {
    if (options_.process == 0 && !inputs_.passed_over().empty()) {
      note(inputs_.passed_over());
    }
    if (stands_already()) return report(true);
    check_places();
    BuildPeers peers(directory_, options_);
    const std::vector<std::string>& notes =
        build_.lock(directory_.lock(options_.process));
    if (options_.process != 0 && stands_already()) {
      try_remove_all(directory_.root);
      return report(true);
    }
    for (const std::string& line : notes) note(line);
    open_directory();
    if (!fs::exists(directory_.commit())) {
      if (options_.drop_duplicates) look_for_duplicates(peers);
      build_own_parts();
      if (options_.process != 0) return partial_report();
      peers.wait(all_files([&](int part) { return directory_.part_record(part); }),
                 owners(), "the other processes' parts");
      check_places();  // another process may have put something there
      build_.check_lock();
      merge_parts(context_, plan_, tokenizer_);
    }
    if (options_.process != 0) return partial_report();
    commit_stores(directory_, out_);
    try_remove_all(directory_.root);
    return report(false);
  }

  void note(const std::string& line) const {
    if (options_.note) options_.note(line);
  }

  bool stands_already() const {
    if (build_at(out_) != plan_.key()) return false;
    if (options_.holdout > 0 && build_at(holdout_path(out_)) != plan_.key()) return false;
    return !fs::exists(directory_.commit());
  }

  void check_places() const {
    const auto check = [&](const fs::path& place) {
      if (build_at(place) != plan_.key()) check_place(place, kind_, options_.force);
    };
    check(out_);
    if (options_.holdout > 0) check(holdout_path(out_));
  }

  int64_t finished_parts() const {
    return std::ranges::count_if(
        paths_in(directory_.root / "parts"),
        [](const fs::path& path) { return path.extension() == ".json"; });
  }

  void clear() const { build_.clear(directory_.lock(options_.process)); }

  void open_directory() {
    if (options_.restart) {
      if (options_.processes > 1) {
        fail_input("data",
                   "--restart with {} processes: one could remove what another has just "
                   "made; remove {} first and start them without it",
                   options_.processes, directory_.root.string());
      }
      clear();
    }
    std::string difference = agree_on_plan(build_, plan_, inputs_);
    if (!difference.empty() && options_.processes == 1 && finished_parts() == 0) {
      clear();  // nothing is lost
      difference = agree_on_plan(build_, plan_, inputs_);
    }
    if (!difference.empty()) {
      fail_input(
          "data",
          "{}: holds an unfinished build from other inputs or options: {}; continue it "
          "with the same inputs and options as before, or delete it with --restart",
          directory_.root.string(), difference);
    }
    if (fs::exists(directory_.commit())) return;  // nothing more is built there
    for (const char* name : {"train", "validation", "parts", "hashes", "duplicates"}) {
      fs::create_directories(directory_.root / name);
      remove_unfinished_files(directory_.root / name, false);
    }
  }

  template <typename Path>
  std::vector<fs::path> all_files(Path path) const {
    std::vector<fs::path> files;
    for (size_t part = 0; part < parts_.size(); ++part) {
      files.push_back(path(static_cast<int>(part)));
    }
    return files;
  }

  std::vector<int> owners() const {
    std::vector<int> owner(parts_.size());
    for (int process = 0; process < options_.processes; ++process) {
      for (const int part : parts_of_process(parts_, process, options_.processes)) {
        owner[static_cast<size_t>(part)] = process;
      }
    }
    return owner;
  }

  /// Returns the parts of this process whose file does not exist yet.
  template <typename Path>
  std::vector<int> parts_to_do(Path path) const {
    std::vector<int> left;
    for (const int part :
         parts_of_process(parts_, options_.process, options_.processes)) {
      if (!fs::exists(path(part))) left.push_back(part);
    }
    return left;
  }

  uint64_t bytes_of(const std::vector<int>& parts) const {
    uint64_t sum = 0;
    for (const int part : parts) sum += parts_[static_cast<size_t>(part)].stored_bytes;
    return sum;
  }

  void look_for_duplicates(BuildPeers& peers) {
    if (fs::exists(directory_.duplicates_known())) return;
    const auto path = [&](int part) { return directory_.hashes(part); };
    const std::vector<int> left = parts_to_do(path);
    BuildMeter meter(options_, "looking for duplicates", bytes_of(left));
    run_parts(context_, left,
              [&](int part, Workshop& shop) { hash_part(context_, part, shop, meter); });
    if (options_.process == 0) {
      peers.wait(all_files(path), owners(), "the other processes' hashes");
      find_duplicates(directory_, static_cast<int>(parts_.size()),
                      context_.memory_bytes / 2);
    } else {
      peers.wait({directory_.duplicates_known()}, {0}, "the list of duplicates");
    }
  }

  void build_own_parts() {
    const auto path = [&](int part) { return directory_.part_record(part); };
    const std::vector<int> mine =
        parts_of_process(parts_, options_.process, options_.processes);
    const std::vector<int> left = parts_to_do(path);
    int64_t bad = 0;
    for (const int part : mine) {
      if (fs::exists(path(part))) bad += read_part_record(path(part)).bad();
    }
    if (left.size() < mine.size()) {
      note(fmt::format("going on: {} of {} parts were done before, {} of {} are left",
                       mine.size() - left.size(), mine.size(),
                       human_bytes(bytes_of(left)), human_bytes(bytes_of(mine))));
    }
    BuildMeter meter(options_, "data build", bytes_of(left));
    BadRecordLimit limit(context_, bad);
    run_parts(context_, left, [&](int part, Workshop& shop) {
      build_part(context_, part, shop, meter, limit);
    });
  }

  BuildReport partial_report() const {
    BuildReport result;
    result.train_path = out_;
    result.complete = false;
    return result;
  }

  BuildReport report(bool stood_already) const {
    BuildReport result;
    result.stood_already = stood_already;
    result.train_path = out_;
    result.train = read_store_info(out_);
    if (options_.holdout > 0) {
      result.validation_path = holdout_path(out_);
      result.validation = read_store_info(*result.validation_path);
    }
    if (result.train.bad_records) {
      std::ifstream list(out_ / result.train.bad_records->name);
      std::string line;
      while (result.bad_examples.size() < kBadExamples && std::getline(list, line)) {
        result.bad_examples.push_back(line);
      }
    }
    return result;
  }

  const tokenizer::Tokenizer* tokenizer_;
  BuildKind kind_;
  ResumableBuild build_;
  fs::path out_;
  BuildDirectory directory_;
  BuildOptions options_;
  InputSet inputs_;
  uint64_t part_bytes_;
  std::vector<InputPart> parts_;
  DocumentEncoder encoder_;
  BuildContext context_;
  BuildPlan plan_;
};

}  // namespace

std::string_view targets_name(chat::Targets targets) {
  switch (targets) {
    case chat::Targets::Assistant:
      return "assistant";
    case chat::Targets::Last:
      return "last";
    case chat::Targets::All:
      break;
  }
  return "all";
}

fs::path holdout_path(const fs::path& out) {
  // A path that ends with a slash has no file name.
  fs::path path = out.has_filename() ? out : out.parent_path();
  path += "-val";
  return path;
}

uint64_t default_build_memory(int threads) {
  return std::max(
      uint64_t{2} << 30,
      (uint64_t{128} << 20) * static_cast<uint64_t>(system::threads_of(threads)));
}

BuildReport build_store(const tokenizer::Tokenizer* tokenizer,
                        const BuildOptions& options) {
  LH_CHECK(options.holdout >= 0.0 && options.holdout < 1.0, "data", "holdout of {}",
           options.holdout);
  LH_CHECK(options.process >= 0 && options.process < options.processes, "data",
           "process {} of {}", options.process, options.processes);
  if (options.inputs.arguments.empty()) {
    throw InputError("data", "no input files; name some");
  }
  if (tokenizer == nullptr && options.vocab_size < 1) {
    throw InputError("data",
                     "neither a tokenizer nor a vocabulary size is given; give "
                     "--tokenizer for text, or --vocab-size for ready ids");
  }
  const std::string of_texts = options.option_of_texts();
  if (tokenizer == nullptr && !of_texts.empty()) {
    fail_input(
        "data",
        "{} with --vocab-size: ready ids are taken as they are; leave one of them out",
        of_texts);
  }
  Builder builder(tokenizer, options);
  try {
    return builder.run();
  } catch (...) {
    builder.clean_up();
    throw;
  }
}

}  // namespace longhaul::data
