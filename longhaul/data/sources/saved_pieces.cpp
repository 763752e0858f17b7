#include "longhaul/data/sources/arrow_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/data/input/range_reader.h"
#include "longhaul/data/sources/saved_dataset.h"
#include "longhaul/system/run_on_threads.h"

namespace longhaul::data {
namespace {

constexpr const char* kFiles = "files";
constexpr const char* kFingerprint = "fingerprint";

class SavedPieces final : public TokenSource {
 public:
  SavedPieces(const fs::path& path, int64_t length, std::string field,
              std::shared_ptr<const objects::Pieces> pieces)
      : path_(path),
        length_(length),
        field_(std::move(field)),
        pieces_(std::move(pieces)) {
    const Json outline = parse_json(pieces_->outline(), path.string());
    fingerprint_ = outline.at(kFingerprint).get<std::string>();
    std::vector<uint64_t> sizes = {0, 0};
    for (const Json& file : outline.at(kFiles)) {
      files_.push_back({file.at(0).get<std::string>(), rows_, file.at(1).get<int64_t>()});
      rows_ += files_.back().rows;
      sizes.push_back(pieces_->size(files_.back().name).value_or(0));
    }
    std::ranges::sort(sizes, std::greater<>());
    room_ = pieces_->reserve(sizes[0] + sizes[1]);
  }

  int64_t num_sequences() const override { return rows_; }
  int64_t seq_len() const override { return length_; }
  int64_t max_token_id() const override { return 0; }
  void limit_ids(int64_t below) override { limit_ = std::min(limit_, below); }
  std::string fingerprint() const override { return fingerprint_; }

  void read(int64_t index, TokenBatch& batch, int64_t row) const override {
    LH_CHECK(index >= 0 && index < rows_, "data", "sequence {} of {}", index, rows_);
    const File& file = file_of(index);
    try {
      bring(file)->rows->read(index - file.first, batch, row);
    } catch (const InputError& error) {
      throw InputError(
          error.area(),
          error.message() +
              "; the directory is read file by file: with data.shuffle = true "
              "or a local copy its files are checked, or packed, at the start");
    }
  }
  int64_t next_piece(int64_t index) const override {
    return file_of(index).first + file_of(index).rows;
  }
  void fetch_ahead(int64_t index) const override {
    const File& file = file_of(index);
    {
      const std::lock_guard lock(mutex_);
      if (here_ && here_->file == &file) return;
    }
    pieces_->fetch_ahead({file.name});
  }
  std::string describe() const override {
    return fmt::format("save_to_disk directory {}: {} of {}, file by file{}",
                       path_.string(), counted(rows_, "sequence"), length_,
                       field_ == kIdsField ? "" : fmt::format(", ids of '{}'", field_));
  }

 private:
  struct File {
    std::string name;
    int64_t first = 0;
    int64_t rows = 0;
  };
  /// The file that is being read, and the copy of it that is held.
  struct Here {
    const File* file;
    std::shared_ptr<const fs::path> held;
    std::unique_ptr<TokenSource> rows;
  };

  const File& file_of(int64_t index) const {
    return *(std::ranges::upper_bound(files_, index, {}, &File::first) - 1);
  }

  std::shared_ptr<const Here> bring(const File& file) const {
    const std::lock_guard lock(mutex_);
    if (here_ && here_->file == &file) return here_;
    here_.reset();  // makes room before the next batch is read
    auto held = pieces_->hold({file.name});
    auto rows = saved_file_source(*held / file.name, length_, field_);
    LH_CHECK(rows->num_sequences() == file.rows, "data", "{}: {} rows, not {}",
             pieces_->name_of(file.name), rows->num_sequences(), file.rows);
    rows->limit_ids(limit_);
    here_ = std::make_shared<const Here>(Here{&file, std::move(held), std::move(rows)});
    return here_;
  }

  fs::path path_;
  int64_t length_;
  std::string field_;
  std::shared_ptr<const objects::Pieces> pieces_;
  std::shared_ptr<const void> room_;
  std::vector<File> files_;
  int64_t rows_ = 0;
  std::string fingerprint_;
  int64_t limit_ = INT32_MAX;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Here> here_;
};

}  // namespace

bool is_rows_file(std::string_view name) { return name.ends_with(".arrow"); }

std::string outline_of_saved_dataset(const objects::Address& prefix,
                                     const std::vector<objects::ObjectInfo>& objects,
                                     const std::string& field, int64_t seq_len,
                                     const std::shared_ptr<objects::ObjectStore>& store) {
  const fs::path dir = prefix.text();
  const SavedFiles files = read_saved_files(dir, ListedTree(store, prefix));
  std::vector<std::optional<EvenRows>> rows(files.paths.size());
  const auto count = [&](int64_t i) {
    const auto at = static_cast<size_t>(i);
    const fs::path& path = files.paths[at];
    const auto found = std::ranges::find(
        objects, path.string(), [](const auto& object) { return object.address.text(); });
    if (found == objects.end() || !is_rows_file(path.string())) return;
    InputFile file;
    file.path = path;
    file.stored_bytes = found->size;
    file.format = InputFormat::Arrow;
    file.object = std::make_shared<const StoredObject>(StoredObject{store, *found});
    InputOptions options;
    options.field = field;
    rows[at] = even_arrow_rows(file, options, {kLabelsColumn, kMaskColumn}, seq_len);
  };
  system::share_among_threads(std::ssize(rows), objects::kRequestsInFlight, count);
  int64_t sum = 0;
  Json listed = Json::array();
  for (size_t i = 0; i < rows.size(); ++i) {
    // In a batch of training all rows have labels or none has them; the same holds for
    // masks. So all files must have the same columns.
    if (!rows[i] || rows[i]->columns != rows.front()->columns) return {};
    sum += rows[i]->rows;
    const std::string path = files.paths[i].string();
    listed.push_back(Json::array({path.substr(dir.string().size() + 1), rows[i]->rows}));
  }
  if (sum == 0) return {};
  return json_text(
      Json{{kFiles, listed}, {kFingerprint, saved_fingerprint(files, sum, field)}});
}

std::unique_ptr<TokenSource> saved_pieces_source(
    const fs::path& path, int64_t seq_len, const std::string& field,
    std::shared_ptr<const objects::Pieces> pieces) {
  return std::make_unique<SavedPieces>(path, seq_len, field, std::move(pieces));
}

}  // namespace longhaul::data
