#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/objects/local_copy.h"

namespace longhaul::objects {

/// All objects below a prefix. Some are on the local disk from the start, and the others
/// are copied when they are wanted, with the versions of one listing. Names are relative
/// to the prefix. Any thread may call it.
class Pieces {
 public:
  /// `objects` are all objects below `prefix`. Copies those at once for which
  /// `comes_later` is false. `outline` is a text about the objects, which outline()
  /// returns to readers. Throws what LocalCopies::hold() throws.
  Pieces(std::shared_ptr<LocalCopies> copies, Address prefix,
         const std::vector<ObjectInfo>& objects,
         const std::function<bool(const std::string& name)>& comes_later,
         std::string outline = {});

  /// Returns the directory of the objects that are here from the start.
  const fs::path& dir() const { return *first_; }
  const std::string& outline() const { return outline_; }
  /// Returns an object's address, for people.
  std::string name_of(const std::string& name) const { return (prefix_ / name).text(); }
  /// Returns the size of an object; nothing if there is none of this name.
  std::optional<uint64_t> size(const std::string& name) const;
  /// Returns a directory that holds these objects while the result lives. Fetches what is
  /// not there. Throws what LocalCopies::hold() throws.
  std::shared_ptr<const fs::path> hold(const std::vector<std::string>& names) const;
  /// Begins to fetch these objects on a thread, so that a later hold() finds them, and
  /// returns at once. Does nothing while another such fetch is under way. If the fetch
  /// fails, hold() fetches the objects itself, and a later call of this function tries
  /// again.
  void fetch_ahead(const std::vector<std::string>& names) const;
  /// Calls LocalCopies::reserve().
  std::shared_ptr<const void> reserve(uint64_t bytes) const {
    return copies_->reserve(prefix_, bytes);
  }

 private:
  struct Ahead;
  std::vector<ObjectInfo> named(const std::vector<std::string>& names) const;

  std::shared_ptr<LocalCopies> copies_;
  Address prefix_;
  std::string outline_;
  std::map<std::string, ObjectInfo> objects_;
  std::shared_ptr<const fs::path> first_;
  std::shared_ptr<Ahead> ahead_;
};

}  // namespace longhaul::objects
