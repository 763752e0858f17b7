#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/system/owner_lock.h"

namespace longhaul::data {

/// What the messages about one kind of build say.
struct BuildKind {
  std::string record;      ///< the file that makes a result whole: "store.json"
  std::string foreign;     ///< of a place that holds something else
  std::string standing;    ///< of a place that holds a result already
  std::string occupation;  ///< what the holder of the lock does: "builds this store"
  std::string object = "the build";
  std::string advice = "choose another --out";
};

/// InputError when something stands at `place`, unless it is a result of this kind and
/// `replace` is set.
void check_place(const fs::path& place, const BuildKind& kind, bool replace);

/// Gives `from` the name `to` and syncs the directory of `to`. What stands at `to` is
/// moved to `aside` first; an empty `aside` says that nothing may stand there. Returns
/// whether something was moved to `aside`.
bool put_in_place(const fs::path& from, const fs::path& to, const fs::path& aside);

/// The ending of the name of a file that this process is writing. No other process has
/// the same ending, on any host.
std::string temporary_suffix();

/// Removes the temporary files that interrupted writers have left in a directory: those
/// of ended processes of this host, or with `all` everybody's.
void remove_unfinished_files(const fs::path& dir, bool all);

/// Where an unfinished result lies: "data/wiki" -> "data/wiki.building".
fs::path building_path(const fs::path& out);

/// A result that several starts build in OUT.building and that gets its name OUT last.
/// All builds of data on disk go on after an interruption by these steps: take the lock,
/// agree on the plan, remove what was left half written, do what is missing, commit.
class ResumableBuild {
 public:
  ResumableBuild(const fs::path& out, BuildKind kind);

  const fs::path& out() const { return out_; }
  const fs::path& work() const { return work_; }
  fs::path plan_file() const { return work_ / "plan.json"; }

  /// Takes the lock in `file` until this object ends. InputError when another process
  /// holds the lock. Returns lines for people about a lock that was taken over.
  const std::vector<std::string>& lock(const fs::path& file);
  /// Takes the lock in OUT.building.lock, for a build whose directory becomes the result.
  void lock_beside();
  bool is_locked() const { return lock_.has_value(); }
  /// Throws when another process has taken the lock over.
  void check_lock() const { lock_->check(); }

  /// Writes `plan` to plan.json, unless another start or process was first. Returns the
  /// plan that the file holds now.
  Json agree_on_plan(const Json& plan) const;
  /// The names of the plan's entries that `begun` lacks or has with another value.
  static std::vector<std::string> changed_entries(const Json& begun, const Json& plan);

  /// Removes everything from OUT.building but the file `kept`.
  void clear(const fs::path& kept = {}) const;
  /// Makes OUT of OUT.building and removes the lock beside it. InputError when something
  /// stands at OUT that must not be replaced.
  void commit(bool replace);

 private:
  fs::path out_;
  fs::path work_;
  BuildKind kind_;
  std::optional<OwnerLock> lock_;
};

}  // namespace longhaul::data
