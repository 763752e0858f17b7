#include "longhaul/data/open_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/data/bert/example_source.h"
#include "longhaul/data/bert/example_store.h"
#include "longhaul/data/input/input_set.h"
#include "longhaul/data/input/path_pattern.h"
#include "longhaul/data/sources/arrow_source.h"
#include "longhaul/data/store/store.h"
#include "longhaul/data/store/store_source.h"
#include "longhaul/data/store/whole_rows_source.h"

namespace longhaul::data {
namespace {

constexpr const char* kAccepted =
    "accepted are a token store (made by 'longhaul data build') and a directory that "
    "Hugging Face datasets wrote with save_to_disk. The key data.train also takes JSON "
    "lines, Parquet and Arrow of ready ids, directories of one of these, and HDF5 shards "
    "of BERT's examples";

[[noreturn]] void refuse(const fs::path& path) {
  if (!fs::exists(path)) fail_input("data", "{}; {}", missing_path(path), kAccepted);
  std::string found = "a directory without store.json or state.json";
  if (!fs::is_directory(path)) {
    found = "a file; text becomes a token store with 'longhaul data build'";
  } else if (fs::exists(path / "dataset_dict.json")) {
    found = "a DatasetDict; name one split inside it, for example " +
            (path / "train").string();
  } else if (fs::exists(path / "config.json")) {
    found = "a model directory";
  }
  fail_input("data", "{}: {}; {}", path.string(), found, kAccepted);
}

}  // namespace

std::vector<fs::path> expand_paths(const std::vector<fs::path>& entries) {
  std::vector<fs::path> paths;
  for (const fs::path& entry : entries) {
    const std::vector<fs::path> found = expand_pattern(entry);
    if (found.empty()) {
      fail_input("data", "{}: the pattern matches nothing", entry.string());
    }
    paths.insert(paths.end(), found.begin(), found.end());
  }
  return paths;
}

void refuse_field(const fs::path& path, const std::string& field, const char* what) {
  if (field == kIdsField) return;
  fail_input("data",
             "{}: field = \"{}\" names a field of records, but {} has no fields; leave "
             "field out",
             path.string(), field, what);
}

std::unique_ptr<TokenSource> open_source(const fs::path& path, int64_t seq_len,
                                         bool document_mask, bool verify,
                                         const std::string& field,
                                         std::shared_ptr<const objects::Pieces> pieces) {
  check_utf8_path(path);
  if (is_token_store(path)) {
    refuse_field(path, field, "a token store");
    return store_source(path, seq_len, document_mask, verify, std::move(pieces));
  }
  if (is_example_store(path)) {
    refuse_field(path, field, "a directory of packed examples");
    if (!document_mask) return example_source(path, seq_len, verify);
    fail_input(
        "data",
        "{}: BERT's examples take no document mask; set data.document_mask = false",
        path.string());
  }
  if (!is_saved_dataset(path)) refuse(path);
  if (document_mask) {
    fail_input("data",
               "{}: a save_to_disk directory does not say where documents end; set "
               "data.document_mask = false, or build a token store from the text",
               path.string());
  }
  if (pieces) return saved_pieces_source(path, seq_len, field, std::move(pieces));
  return saved_dataset_source(path, seq_len, field);
}

std::unique_ptr<TokenSource> open_whole_rows(const fs::path& path, const WholeRows& how,
                                             bool verify, const std::string& field) {
  check_utf8_path(path);
  if (is_token_store(path)) {
    refuse_field(path, field, "a token store");
    return whole_rows_source(path, how, verify);
  }
  if (is_example_store(path)) {
    fail_input("data", "{}: BERT's examples are rows already; set data.pack = \"stream\"",
               path.string());
  }
  if (!is_saved_dataset(path)) refuse(path);
  fail_input(
      "data",
      "{0}: a save_to_disk directory does not say where documents end. Set data.pack = "
      "\"stream\", or make a token store, in which each row is a document: longhaul "
      "data build {0} --field {1} --tokenizer MODEL --out data/NAME",
      path.string(), field);
}

void check_losses(const std::vector<std::string>& losses, const std::string& name,
                  const std::vector<std::string>& wanted, const std::string& model_type) {
  if (wanted.size() <= losses.size() &&
      std::equal(wanted.begin(), wanted.end(), losses.begin())) {
    return;
  }
  if (wanted.front() == kPreference && losses.front() == kNextToken) {
    fail_input("data",
               "{}: [preference] needs pairs of a chosen and a rejected answer, and this "
               "data has none; make a store of pairs with longhaul data build --chat",
               name);
  }
  if (losses.front() == kPreference) {
    fail_input(
        "data",
        "{}: it holds pairs of a chosen and a rejected answer, which are trained on "
        "with [preference]; set preference.loss, or take other data",
        name);
  }
  fail_input("data",
             "{}: has targets for {}, but a model of type \"{}\" needs targets for {}",
             name, fmt::join(losses, " and "), model_type, fmt::join(wanted, " and "));
}

void fit_losses(TokenSource& source, const std::vector<std::string>& wanted,
                const std::string& model_type) {
  source.keep_losses(wanted);
  check_losses(source.losses(), source.describe(), wanted, model_type);
}

void check_tokenizer(const TokenSource& source, const std::string& model_tokenizer) {
  const std::string made_with = source.tokenizer_fingerprint();
  if (made_with.empty() || model_tokenizer.empty() || made_with == model_tokenizer)
    return;
  fail_input("data",
             "{}: made with another tokenizer (fingerprint {}) than the model's ({}); "
             "build the store again with the model's tokenizer",
             source.describe(), made_with, model_tokenizer);
}

}  // namespace longhaul::data
