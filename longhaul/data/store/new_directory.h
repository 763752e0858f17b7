#pragma once

#include <string>

#include "longhaul/base/file.h"

namespace longhaul::data {

/// A directory that is made under a temporary name beside its place and moved there when
/// it is whole. Without commit() it is removed.
class NewDirectory {
 public:
  /// `marker`: the file by which one of the same kind is known. InputError when something
  /// stands at the place: with `replace` one of the same kind is put away by commit(),
  /// and nothing else ever.
  NewDirectory(fs::path out, std::string marker, bool replace);
  ~NewDirectory();
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;

  const fs::path& path() const { return temporary_; }
  const fs::path& out() const { return out_; }
  void commit();

 private:
  void check_place() const;

  fs::path out_;
  std::string marker_;
  bool replace_;
  fs::path temporary_;
  bool committed_ = false;
};

}  // namespace longhaul::data
