#include "longhaul/train/start/packed_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/comm/agree.h"
#include "longhaul/data/bert/pack_examples.h"
#include "longhaul/data/input/file_kinds.h"
#include "longhaul/data/input/input_directory.h"
#include "longhaul/data/input/input_set.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/sources/arrow_source.h"
#include "longhaul/data/store/build/build_store.h"
#include "longhaul/objects/address.h"
#include "longhaul/system/progress.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/train/start/staged_inputs.h"

namespace longhaul::train {
namespace {

/// How often waiting ranks hear from rank 0: far shorter than a collective's time limit.
constexpr auto kPulse = std::chrono::seconds(2);
/// Seconds between lines of progress in the log.
constexpr double kReportEvery = 10.0;

data::BuildOptions build_options(const std::vector<fs::path>& paths,
                                 const PackOptions& options) {
  data::BuildOptions build;
  for (const fs::path& path : paths) build.inputs.arguments.push_back(path.string());
  build.inputs.field = options.field;
  build.inputs.objects = options.objects;
  build.special = data::SpecialPolicy::None;
  build.vocab_size = options.vocab_size;
  build.bad_records = data::BadRecords::Fail;
  return build;
}

fs::path store_path(const data::BuildOptions& build, const PackOptions& options) {
  const std::string key =
      hash_hex(fmt::format("{} {} {}", data::InputSet(build.inputs).fingerprint(),
                           options.vocab_size, data::kStoreVersion));
  return options.cache / ("packed_" + key.substr(0, 16));
}

/// Runs `work` on a thread of rank 0. Until it has ended, all ranks communicate every few
/// seconds, so that no time limit of a collective ends a long build. Errors are thrown on
/// all ranks. Collective.
void run_on_rank_zero(comm::Communicator& world, const std::function<void()>& work) {
  std::future<std::optional<Failure>> result;
  if (world.rank() == 0) {
    result = std::async(std::launch::async, [&] {
      system::leave_signals_to_main_thread();
      return Failure::of(work);
    });
  }
  const auto done = [&] { return result.wait_for(kPulse) == std::future_status::ready; };
  while (!world.any(world.rank() == 0 && done())) {
  }
  const std::string text = world.broadcast_string(
      world.rank() == 0 ? Failure::to_text(result.get()) : std::string(), 0);
  if (const auto failure = Failure::from_text(text)) failure->raise();
}

void announce(const std::vector<fs::path>& paths, const fs::path& store,
              system::Logger& log) {
  log.info(
      "packing {}{} into {}: this is done once, and later starts use it again",
      paths.front().string(),
      paths.size() == 1 ? std::string() : fmt::format(" and {} more", paths.size() - 1),
      store.string());
}

/// Logs now and then how far the packing is.
class Reports {
 public:
  Reports(system::Logger& log, const char* unit) : log_(log), unit_(unit) {}
  void operator()(int64_t done, int64_t total) {
    const double seconds = watch_.seconds();
    if (seconds - reported_ < kReportEvery) return;
    reported_ = seconds;
    log_.info(system::progress_line("packing", unit_, done, total, seconds));
  }

 private:
  system::Logger& log_;
  const char* unit_;
  system::Stopwatch watch_;
  double reported_ = 0.0;
};

/// Runs `act`. An error about the inputs also says how to train on files of text.
template <typename Act>
auto with_advice(const data::BuildOptions& options, const Act& act) {
  try {
    return act();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Input || error.area() != "data") throw;
    std::string text(error.what());
    // Training has no use for advice that only `longhaul data build` can follow.
    text.resize(std::min(text.find(data::kRecordAdvice), text.size()));
    fail_input(
        "data",
        "{}. Training reads files of ready ids only (field '{}'); first make a token "
        "store of the text: longhaul data build {} --tokenizer MODEL --out data/NAME",
        text.substr(text.find(' ') + 1), options.inputs.field,
        options.inputs.arguments.front());
  }
}

void build(data::BuildOptions options, system::Logger& log) {
  Reports reports(log, "bytes");
  options.progress = [&](const data::BuildProgress& progress) {
    reports(static_cast<int64_t>(progress.bytes),
            static_cast<int64_t>(progress.total_bytes));
  };
  options.note = [&](const std::string& line) { log.info(line); };
  fs::create_directories(options.out.parent_path());
  with_advice(options, [&] { (void)data::build_store(nullptr, options); });
}

/// Describes the store that the files were packed into, for the log.
std::string describe(const data::StoreInfo& info, const fs::path& store) {
  std::string text = fmt::format(
      "{}: {} documents of {} to {} ready ids, {} tokens, {} of them no targets; "
      "{} padded positions left out; packed one after another, none cropped",
      store.string(), grouped(info.documents), info.counts.lengths.shortest,
      grouped(info.counts.lengths.longest), grouped(info.tokens),
      grouped(info.counts.not_targets), grouped(info.padding_removed));
  for (const auto& [cause, count] : info.dropped) {
    text += fmt::format(", {} records left out: {}", grouped(count), cause);
  }
  return text;
}

/// Finds or builds packed examples of HDF5 shards in the cache. Collective.
fs::path pack_shards(const std::vector<fs::path>& paths, const PackOptions& options,
                     comm::Communicator& world, system::Logger& log) {
  data::refuse_field(paths.front(), options.field, "a shard of BERT's examples");
  data::PackExamplesOptions to;
  to.vocab_size = options.vocab_size;
  to.seq_len = options.seq_len;
  to.out = comm::on_rank_zero(world, [&] {
    to.shards = data::find_bert_shards(paths);
    const std::string key =
        hash_hex(fmt::format("{} {} {}", data::shards_identity(to.shards),
                             options.vocab_size, data::kExampleStoreVersion));
    return (options.cache / ("examples_" + key.substr(0, 16))).string();
  });
  const bool there = world.any(world.rank() == 0 && data::is_example_store(to.out));
  if (!there) {
    announce(to.shards.empty() ? paths : to.shards, to.out, log);
    run_on_rank_zero(world, [&] {
      LH_CHECK(options.shards != nullptr, "data", "HDF5 shards without a reader");
      Reports reports(log, "shards");
      to.progress = [&](int64_t done, int64_t total) { reports(done, total); };
      data::pack_examples(*options.shards, to);
    });
  }
  const data::ExampleStoreInfo info = data::ExampleStoreInfo::read(to.out);
  log.info("{}: {}: {} examples of {} tokens from {} shards",
           there ? "packed earlier" : "packed", to.out.string(), grouped(info.rows),
           info.form.seq_len, info.origins.size());
  return to.out;
}

}  // namespace

bool needs_packing(const fs::path& path, const std::string& field, bool in_pieces) {
  if (is_packed_in_place(path)) return true;
  if (data::names_bert_shards(path)) return true;
  if (!fs::is_directory(path)) {
    return fs::is_regular_file(path) && data::may_hold_ids(path);
  }
  if (data::is_saved_dataset(path)) {
    // A directory that is read file by file has rows of equal length.
    return !in_pieces && data::saved_rows(path, field).uneven();
  }
  // A directory of a known kind is not packed. Training reads or refuses it as that kind.
  const bool known = data::is_token_store(path) || data::is_example_store(path) ||
                     fs::exists(path / "dataset_dict.json") ||
                     fs::exists(path / "config.json");
  return !known && !data::data_file_of(path).empty();
}

bool needs_shard_reader(const RunConfig& config) {
  const auto of_shards = [](const auto& entry) {
    try {
      return std::ranges::any_of(
          data::expand_paths(entry.path.entries), [](const fs::path& path) {
            // The files below an address are known only after they were fetched, and then
            // it is too late to make a reader.
            const bool unknown = objects::is_address(path) && !is_packed_in_place(path);
            return unknown || data::names_bert_shards(path);
          });
    } catch (const std::exception&) {
      return false;  // opening the data says what is wrong with the entry
    }
  };
  return std::ranges::any_of(config.data.train, of_shards) ||
         std::ranges::any_of(config.data.validation, of_shards);
}

fs::path pack_sources(const std::vector<fs::path>& paths, const PackOptions& options,
                      comm::Communicator& world, system::Logger& log) {
  const auto shards = std::ranges::find_if(paths, data::names_bert_shards);
  if (shards != paths.end()) {
    const auto other = std::ranges::find_if_not(paths, data::names_bert_shards);
    if (other == paths.end()) return pack_shards(paths, options, world, log);
    fail_config(
        "data",
        "{} holds examples and {} holds tokens; give each kind an entry of its own",
        shards->string(), other->string());
  }
  data::BuildOptions to = build_options(paths, options);
  const fs::path store = comm::on_rank_zero(world, [&] {
    return with_advice(to, [&] { return store_path(to, options).string(); });
  });
  to.out = store;
  const bool there = world.any(world.rank() == 0 && data::is_token_store(store));
  if (!there) {
    announce(paths, store, log);
    run_on_rank_zero(world, [&] { build(to, log); });
  }
  const data::StoreInfo info = data::read_store_info(store);
  log.info((there ? "packed earlier: " : "packed: ") + describe(info, store));
  return store;
}

}  // namespace longhaul::train
