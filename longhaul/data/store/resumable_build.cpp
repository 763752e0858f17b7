#include "longhaul/data/store/resumable_build.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/process.h"

namespace longhaul::data {
namespace {

constexpr std::string_view kTemporary = ".temporary";

fs::path with_ending(fs::path path, const char* ending) {
  // A path that ends with a slash has no file name.
  if (!path.has_filename()) path = path.parent_path();
  path += ending;
  return path;
}

/// Returns true when `name` says that a process of this host wrote the file and the
/// process has ended.
bool is_of_ended_process(const std::string& name) {
  for (const std::string& owner : {fmt::format("{}-{}-", kTemporary, host_name()),
                                   fmt::format(".tmp.{}.", host_name())}) {
    const size_t at = name.find(owner);
    if (at == std::string::npos) continue;
    const int process = std::atoi(name.c_str() + at + owner.size());
    return ::kill(process, 0) != 0 && errno == ESRCH;
  }
  return false;
}

}  // namespace

std::string temporary_suffix() {
  return fmt::format("{}-{}-{}", kTemporary, host_name(), ::getpid());
}

fs::path building_path(const fs::path& out) { return with_ending(out, ".building"); }

void check_place(const fs::path& place, const BuildKind& kind, bool replace) {
  if (!fs::exists(fs::symlink_status(place))) return;
  const bool known = fs::exists(place / kind.record);
  if (known && replace) return;
  fail_input("data", "{}: {}", place.string(), known ? kind.standing : kind.foreign);
}

bool put_in_place(const fs::path& from, const fs::path& to, const fs::path& aside) {
  const bool replaces = !aside.empty() && fs::exists(to);
  if (replaces) {
    try_remove_all(aside);
    fs::rename(to, aside);
  }
  fs::rename(from, to);
  sync_directory(to.has_parent_path() ? to.parent_path() : fs::path("."));
  return replaces;
}

void remove_unfinished_files(const fs::path& dir, bool all) {
  for (const fs::path& path : paths_in(dir)) {
    const std::string name = path.filename().string();
    const bool temporary = name.ends_with(".tmp") ||
                           name.find(".tmp.") != std::string::npos ||
                           name.find(kTemporary) != std::string::npos;
    if (temporary && (all || is_of_ended_process(name))) try_remove(path);
  }
}

ResumableBuild::ResumableBuild(const fs::path& out, BuildKind kind)
    : out_(with_ending(out, "")), work_(building_path(out)), kind_(std::move(kind)) {}

const std::vector<std::string>& ResumableBuild::lock(const fs::path& file) {
  system::OwnerLockOptions options;
  options.area = "data";
  options.object = kind_.object;
  options.occupation = kind_.occupation;
  options.advice = kind_.advice;
  lock_.emplace(system::OwnerLock::acquire(file, options));
  return lock_->notes();
}

void ResumableBuild::lock_beside() { lock(with_ending(work_, ".lock")); }

Json ResumableBuild::agree_on_plan(const Json& plan) const {
  const fs::path file = plan_file();
  if (!fs::exists(file)) {
    // Several processes may arrive at once, and the plan of one process wins.
    const fs::path own =
        with_ending(file, fmt::format(".tmp.{}.{}.own", host_name(), ::getpid()).c_str());
    write_text_atomic(own, json_text(plan, 1) + "\n");
    const bool first = rename_to_new(own, file);
    sync_directory(work_);
    if (first) return plan;
    try_remove(own);
  }
  return read_json(file);
}

std::vector<std::string> ResumableBuild::changed_entries(const Json& begun,
                                                         const Json& plan) {
  std::vector<std::string> names;
  for (const auto& [name, value] : plan.items()) {
    if (!begun.is_object() || begun.value(name, Json()) != value) names.push_back(name);
  }
  return names;
}

void ResumableBuild::clear(const fs::path& kept) const {
  for (const fs::directory_entry& entry : fs::directory_iterator(work_)) {
    if (entry.path() != kept) fs::remove_all(entry.path());
  }
}

void ResumableBuild::commit(bool replace) {
  check_lock();
  check_place(out_, kind_, replace);  // another process may have put something there
  const fs::path aside = replace ? with_ending(out_, ".old") : fs::path();
  if (put_in_place(work_, out_, aside)) fs::remove_all(aside);
  lock_->release();
  fs::remove(with_ending(work_, ".lock"));
}

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
  if (!committed_) try_remove_all(temporary_);
}

void NewDirectory::commit() {
  check_place(out_, kind_, replace_);  // another process may have put something there
  const bool replaced = put_in_place(temporary_, out_, aside_);
  committed_ = true;
  if (replaced) fs::remove_all(aside_);
}

}  // namespace longhaul::data
