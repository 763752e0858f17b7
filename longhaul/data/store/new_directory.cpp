#include "longhaul/data/store/new_directory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "longhaul/base/error.h"

namespace longhaul::data {

NewDirectory::NewDirectory(fs::path out, std::string marker, bool replace)
    : out_(out.has_filename() ? std::move(out) : out.parent_path()),
      marker_(std::move(marker)),
      replace_(replace) {
  check_place();
  if (out_.has_parent_path()) make_directories_durable(out_.parent_path());
  temporary_ = out_;
  temporary_ += fmt::format(".partial-{}", ::getpid());
  fs::create_directories(temporary_);
}

NewDirectory::~NewDirectory() {
  if (committed_) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

void NewDirectory::check_place() const {
  if (!fs::exists(fs::symlink_status(out_))) return;
  if (!fs::exists(out_ / marker_)) {
    throw InputError("data", fmt::format("{}: exists and has no {}; choose another place",
                                         out_.string(), marker_));
  }
  if (!replace_) {
    throw InputError("data",
                     fmt::format("{}: stands there already; choose another place, "
                                 "or replace it with --force",
                                 out_.string()));
  }
}

void NewDirectory::commit() {
  check_place();  // it may have come to be since
  fs::path old;
  if (fs::exists(out_)) {
    old = out_;
    old += fmt::format(".old-{}", ::getpid());
    fs::rename(out_, old);
  }
  fs::rename(temporary_, out_);
  committed_ = true;
  sync_directory(out_.has_parent_path() ? out_.parent_path() : fs::path("."));
  if (!old.empty()) fs::remove_all(old);
}

}  // namespace longhaul::data
