#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/data/sources/arrow_source.h"

namespace longhaul::data {

std::unique_ptr<TokenSource> saved_dataset_source(const fs::path& path, int64_t,
                                                  const std::string&) {
  fail_input(
      "data",
      "{}: this is a save_to_disk directory, but this program was built without Arrow; "
      "build the program with pyarrow in the virtual environment, or make a token store",
      path.string());
}

bool is_rows_file(std::string_view) { return false; }

std::string outline_of_saved_dataset(const objects::Address&,
                                     const std::vector<objects::ObjectInfo>&,
                                     const std::string&, int64_t,
                                     const std::shared_ptr<objects::ObjectStore>&) {
  return {};
}

std::unique_ptr<TokenSource> saved_pieces_source(const fs::path& path, int64_t seq_len,
                                                 const std::string& field,
                                                 std::shared_ptr<const objects::Pieces>) {
  return saved_dataset_source(path, seq_len, field);
}

SavedRows saved_rows(const fs::path&, const std::string&) { return {}; }

std::string describe_saved_dataset(const fs::path& path, const std::string&) {
  return fmt::format(
      "{}: a Hugging Face save_to_disk directory (this program was built "
      "without Arrow and cannot read it)\n",
      path.string());
}

}  // namespace longhaul::data
