#include "longhaul/data/bert/bert_loader.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <future>
#include <optional>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json_fields.h"
#include "longhaul/base/random.h"
#include "longhaul/base/signals.h"
#include "longhaul/data/bert/shard_order.h"
#include "longhaul/data/order/permutation.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {
namespace {

constexpr int64_t kMostEpochs = int64_t{1} << 40;

int64_t position_field(const JsonFields& fields, const char* name) {
  const int64_t value = fields.count(name);
  if (value > kMostEpochs) fields.fail(fmt::format("the field '{}' is {}", name, value));
  return value;
}

void resize(BertBatch& batch, int64_t rows, int64_t seq_len) {
  batch.rows = rows;
  batch.seq_len = seq_len;
  const auto count = static_cast<size_t>(rows * seq_len);
  batch.tokens.resize(count);
  batch.segments.resize(count);
  batch.mask.resize(count);
  batch.labels.resize(count);
  batch.next_sentence.resize(static_cast<size_t>(rows));
}

int64_t hash_of(const BertBatch& batch) {
  uint64_t hash = 0;
  for (const std::vector<int32_t>* field : {&batch.tokens, &batch.segments, &batch.mask,
                                            &batch.labels, &batch.next_sentence}) {
    hash = XXH3_64bits_withSeed(field->data(), field->size() * sizeof(int32_t), hash);
  }
  return static_cast<int64_t>(hash);
}

void check_options(const BertLoaderOptions& options) {
  const bool sound = options.batch_size >= 1 && options.num_groups >= 1 &&
                     options.group >= 0 && options.group < options.num_groups &&
                     options.vocab_size >= 1 && options.seq_len >= 1 &&
                     options.max_predictions >= 0;
  if (sound) return;
  throw ConfigError(
      "data", fmt::format("BERT batches of {} rows of {} tokens, vocabulary {}, at most "
                          "{} predictions, group {} of {}",
                          options.batch_size, options.seq_len, options.vocab_size,
                          options.max_predictions, options.group, options.num_groups));
}

}  // namespace

Json BertPosition::to_json() const {
  return {{"epoch", epoch}, {"file", file}, {"row", row}};
}

BertPosition BertPosition::from_json(const Json& json) {
  const JsonFields fields(json, "data", "the stored data position is damaged",
                          "choose another checkpoint");
  return {position_field(fields, "epoch"), position_field(fields, "file"),
          position_field(fields, "row")};
}

RowOrder::RowOrder(int64_t rows, uint64_t seed, int64_t epoch, int64_t place,
                   bool shuffle)
    : rows_(rows), shuffle_(shuffle) {
  const auto bits = philox(random_key(seed, "bert rows"), static_cast<uint64_t>(epoch),
                           static_cast<uint64_t>(place));
  key_ = uint64_t{bits[0]} << 32 | bits[1];
}

int64_t RowOrder::operator()(int64_t index) const {
  return shuffle_ ? Permutation(rows_, key_)(index) : index;
}

void copy_example(const BertShard& shard, int64_t from, int64_t max_predictions,
                  BertBatch& batch, int64_t to) {
  const auto begin = static_cast<ptrdiff_t>(to * batch.seq_len);
  std::ranges::copy(shard.input_ids(from), batch.tokens.begin() + begin);
  std::ranges::copy(shard.segment_ids(from), batch.segments.begin() + begin);
  std::ranges::copy(shard.input_mask(from), batch.mask.begin() + begin);
  const auto labels = batch.labels.begin() + begin;
  std::fill_n(labels, batch.seq_len, kIgnore);
  const auto positions = shard.masked_lm_positions(from);
  const auto ids = shard.masked_lm_ids(from);
  const auto most = std::min(positions.size(), static_cast<size_t>(max_predictions));
  for (size_t i = 0; i < most && positions[i] != 0; ++i) labels[positions[i]] = ids[i];
  batch.next_sentence[static_cast<size_t>(to)] = shard.next_sentence_label(from);
}

struct BertLoader::State {
  struct Shard {
    BertShard data;
    fs::path path;
    BertPosition at;  ///< row 0
  };

  State(std::shared_ptr<ShardReader> shards, std::vector<fs::path> given,
        const BertLoaderOptions& wanted, const BertPosition& start)
      : reader(std::move(shards)),
        files(std::move(given)),
        options(wanted),
        position(start) {
    check_options(options);
    order.emplace(files, position.epoch, options.group, options.num_groups);
    order_epoch = position.epoch;
    if (position.file >= files_per_epoch()) {
      throw InputError("data", fmt::format("the stored position is file number {} of an "
                                           "epoch of {}; the shards are not those of the "
                                           "checkpoint",
                                           position.file, files_per_epoch()));
    }
  }
  ~State() {
    if (ahead.valid()) ahead.wait();
  }

  int64_t files_per_epoch() const {
    const auto count = static_cast<int64_t>(files.size());
    return options.source_epochs && count > 1 ? count - 1 : count;
  }
  BertPosition after(const BertPosition& at) const {
    if (at.file + 1 < files_per_epoch()) return {at.epoch, at.file + 1, 0};
    return {at.epoch + 1, 0, 0};
  }
  const fs::path& path_of(const BertPosition& at) {
    if (order_epoch != at.epoch) {
      order.emplace(files, at.epoch, options.group, options.num_groups);
      order_epoch = at.epoch;
    }
    return order->file(at.file);
  }
  static Shard load(ShardReader& reader, const fs::path& path, const BertPosition& at,
                    const BertLoaderOptions& options);
  void start_ahead(const BertPosition& at);
  void take(const BertPosition& at);
  int64_t rows() const { return current->data.shape().rows; }
  void fill();

  std::shared_ptr<ShardReader> reader;
  std::vector<fs::path> files;
  BertLoaderOptions options;
  BertPosition position;
  std::optional<ShardOrder> order;
  int64_t order_epoch = 0;
  std::optional<Shard> current;
  std::future<Shard> ahead;
  BertPosition ahead_at;
  BertBatch batch;
  int64_t left_out = 0;
};

BertLoader::State::Shard BertLoader::State::load(ShardReader& reader,
                                                 const fs::path& path,
                                                 const BertPosition& at,
                                                 const BertLoaderOptions& options) {
  Shard shard{reader.read(path, options.vocab_size), path, {at.epoch, at.file, 0}};
  const ShardShape& shape = shard.data.shape();
  if (shape.seq_len != options.seq_len) {
    throw InputError(
        "data",
        fmt::format("{}: its rows have {} tokens, data.seq_len is {}; use "
                    "shards of that length, or set data.seq_len = {}",
                    path.string(), shape.seq_len, options.seq_len, shape.seq_len));
  }
  return shard;
}

void BertLoader::State::start_ahead(const BertPosition& at) {
  ahead_at = at;
  ahead = std::async(std::launch::async, [shards = reader, path = path_of(at), at, this] {
    leave_signals_to_main_thread();
    return load(*shards, path, at, options);
  });
}

void BertLoader::State::take(const BertPosition& at) {
  const BertPosition file{at.epoch, at.file, 0};
  current.reset();  // its memory first: at most two shards are held
  if (ahead.valid() && ahead_at == file) {
    current.emplace(ahead.get());
  } else {
    current.emplace(load(*reader, path_of(file), file, options));
  }
  if (at.row > rows()) {
    throw InputError("data", fmt::format("{}: the stored position is row {} of {}; the "
                                         "shards are not those of the checkpoint",
                                         current->path.string(), at.row, rows()));
  }
  if (options.prefetch) start_ahead(after(file));
}

void BertLoader::State::fill() {
  const BertShard& shard = current->data;
  const RowOrder row(shard.shape().rows, options.seed, position.epoch,
                     position.file * options.num_groups + options.group,
                     options.shuffle_rows);
  const int64_t most =
      options.max_predictions > 0 ? options.max_predictions : shard.shape().predictions;
  resize(batch, options.batch_size, options.seq_len);
  for (int64_t i = 0; i < options.batch_size; ++i) {
    copy_example(shard, row(position.row + i), most, batch, i);
  }
  batch.num_targets =
      std::ranges::count_if(batch.labels, [](int32_t label) { return label != kIgnore; });
  batch.content_hash = hash_of(batch);
}

BertLoader::BertLoader(std::shared_ptr<ShardReader> reader, std::vector<fs::path> files,
                       const BertLoaderOptions& options, const BertPosition& start)
    : state_(
          std::make_unique<State>(std::move(reader), std::move(files), options, start)) {}
BertLoader::~BertLoader() = default;
BertLoader::BertLoader(BertLoader&&) noexcept = default;

BertBatch& BertLoader::next() {
  State& state = *state_;
  for (int64_t passed = 0;; ++passed) {
    if (!state.current || state.current->at.epoch != state.position.epoch ||
        state.current->at.file != state.position.file) {
      state.take(state.position);
    }
    if (state.position.row + state.options.batch_size <= state.rows()) break;
    if (passed > 2 * state.files_per_epoch()) {
      throw InputError("data", fmt::format("no shard of a whole epoch has the {} rows of "
                                           "a batch; make the batch smaller or the "
                                           "shards larger",
                                           state.options.batch_size));
    }
    state.left_out += state.rows() - state.position.row;
    state.position = state.after(state.position);
  }
  state.fill();
  state.position.row += state.options.batch_size;
  return state.batch;
}

const BertPosition& BertLoader::position() const { return state_->position; }
const fs::path& BertLoader::file() const {
  LH_CHECK(state_->current.has_value(), "data", "no batch was read yet");
  return state_->current->path;
}
std::string BertLoader::fingerprint() const {
  std::string identity;
  for (const fs::path& path : state_->files) {
    identity += fmt::format("{} {}\n", path.filename().string(), fs::file_size(path));
  }
  return hash_hex(identity);
}
int64_t BertLoader::files_per_epoch() const { return state_->files_per_epoch(); }
int64_t BertLoader::rows_left_out() const { return state_->left_out; }

}  // namespace longhaul::data
