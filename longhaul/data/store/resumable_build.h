#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/system/owner_lock.h"

namespace longhaul::data {

/// Texts for the messages about one kind of build.
struct BuildKind {
  std::string record;  ///< the file that marks a complete result: "store.json"
  /// The message if something else is at the result's path.
  std::string foreign;
  std::string standing;  ///< the message about a place that holds a result already
  /// What the owner of the lock does: "builds this store".
  std::string occupation;
  std::string object = "the build";
  std::string advice = "choose another --out";
};

/// Throws InputError when something stands at `place`, unless it is a result of this kind
/// and `replace` is set.
void check_place(const fs::path& place, const BuildKind& kind, bool replace);

/// Renames `from` to `to` and syncs the directory of `to`. Something that stands at `to`
/// is moved to `aside` first. With an empty `aside` nothing may stand at `to`. Returns
/// whether something was moved to `aside`.
bool put_in_place(const fs::path& from, const fs::path& to, const fs::path& aside);

/// Returns the ending of the names of files that this process is writing. No other
/// process on any host has the same ending.
std::string temporary_suffix();

/// Removes the temporary files that interrupted writers have left in a directory. Removes
/// only files of ended processes of this host, or with `all` the files of all processes.
void remove_unfinished_files(const fs::path& dir, bool all);

/// Returns the place of an unfinished result: "data/wiki" -> "data/wiki.building".
fs::path building_path(const fs::path& out);

/// A result that one or more starts build in OUT.building and rename to OUT at the end.
/// All builds of data on disk continue after an interruption by these steps: take the
/// lock, agree on the plan, remove half-written files, do the missing work, commit.
class ResumableBuild {
 public:
  ResumableBuild(const fs::path& out, BuildKind kind);

  const fs::path& out() const { return out_; }
  const fs::path& work() const { return work_; }
  fs::path plan_file() const { return work_ / "plan.json"; }

  /// Takes the lock in `file` until this object ends. Throws InputError when another
  /// process holds the lock. Returns lines for people about a lock that was taken over.
  const std::vector<std::string>& lock(const fs::path& file);
  /// Takes the lock in OUT.building.lock, for a build whose whole directory becomes the
  /// result.
  void lock_beside();
  bool is_locked() const { return lock_.has_value(); }
  /// Throws when another process has taken the lock over.
  void check_lock() const { lock_->check(); }

  /// Writes `plan` to plan.json, unless another start or process has written a plan.
  /// Returns the plan that the file holds now.
  Json agree_on_plan(const Json& plan) const;
  /// Returns the names of the entries of `plan` that `begun` lacks or has with another
  /// value.
  static std::vector<std::string> changed_entries(const Json& begun, const Json& plan);

  /// Removes everything from OUT.building but the file `kept`.
  void clear(const fs::path& kept = {}) const;
  /// Renames OUT.building to OUT and removes the lock beside OUT.building. Throws
  /// InputError when something stands at OUT that must not be replaced.
  void commit(bool replace);

 private:
  fs::path out_;
  fs::path work_;
  BuildKind kind_;
  std::optional<system::OwnerLock> lock_;
};

/// A directory that is written under a temporary name beside its place and is moved to
/// its place when it is complete. The destructor removes a directory that was not
/// committed.
class NewDirectory {
 public:
  /// `record` is the file that marks a directory of the same kind. Throws InputError when
  /// something stands at the place. With `replace` a directory of the same kind may stand
  /// there and commit() replaces it, but never anything else.
  NewDirectory(const fs::path& out, const std::string& record, bool replace);
  ~NewDirectory();
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;

  const fs::path& path() const { return temporary_; }
  void commit();

 private:
  BuildKind kind_;
  bool replace_;
  fs::path out_;
  fs::path temporary_;
  fs::path aside_;
  bool committed_ = false;
};

}  // namespace longhaul::data
