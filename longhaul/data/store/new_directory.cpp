#include "longhaul/data/store/new_directory.h"

#include <fmt/format.h>
#include <unistd.h>

namespace longhaul::data {

NewDirectory::NewDirectory(const fs::path& out, const std::string& record, bool replace)
    : kind_{.record = record,
            .foreign = fmt::format("exists and has no {}; choose another place", record),
            .standing =
                "exists already; choose another place, or replace it with --force",
            .occupation = {}},
      replace_(replace),
      out_(out.has_filename() ? out : out.parent_path()),
      temporary_(out_),
      aside_(out_) {
  check_place(out_, kind_, replace_);
  if (out_.has_parent_path()) make_directories_durable(out_.parent_path());
  temporary_ += fmt::format(".partial-{}", ::getpid());
  aside_ += fmt::format(".old-{}", ::getpid());
  fs::create_directories(temporary_);
}

NewDirectory::~NewDirectory() {
  if (committed_) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

void NewDirectory::commit() {
  check_place(out_, kind_, replace_);  // another process may have put something there
  const bool replaced = put_in_place(temporary_, out_, aside_);
  committed_ = true;
  if (replaced) fs::remove_all(aside_);
}

}  // namespace longhaul::data
