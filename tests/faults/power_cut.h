#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::faults {

/// One line of the record of fault_files.cpp.
struct Operation {
  std::string kind;     ///< create, write, truncate, sync, rename, link, unlink, mkdir
  uint64_t number = 0;  ///< number of the file in its file system
  uint64_t offset = 0;  ///< offset of a write; new size of a truncate
  std::string path;     ///< path, or the text of a marker
  std::string other;    ///< target of a rename or a link
  std::string bytes;
};

std::vector<Operation> read_record(const fs::path& path);

/// A tree of files: path below the root -> content; paths of directories end in '/'.
using Tree = std::map<std::string, std::string>;

/// Knows what the disk may hold after a power cut, by what POSIX promises. Data of a file
/// is durable once the file was synced after the write; names in a directory are durable
/// once the directory was synced. Any part of everything else may be there or not: of
/// each write nothing, zeros in its place, or the written bytes; each change of names as
/// a whole or not at all.
class PowerCut {
 public:
  /// `root` is the recorded directory, which was empty when the record began.
  PowerCut(const std::vector<Operation>& operations, const std::string& root);

  size_t size() const { return operations_.size(); }
  const Operation& operation(size_t index) const { return operations_[index]; }

  /// Leaves out one sync; a number past the end leaves out none.
  void leave_out(size_t sync);

  /// Returns the tree after the first `cut` operations, as a process that is killed there
  /// leaves it.
  Tree whole(size_t cut) const;

  /// Visits trees that a power cut after the first `cut` operations may leave. In these
  /// trees nothing is lost; everything is lost that may be, with zeros in its place or
  /// not; each single effect is lost, or kept alone; or `random` random parts are lost.
  /// With a sync left out, visits only trees that this makes possible. Ends when `visit`
  /// returns false.
  void trees(size_t cut, int random, std::mt19937_64& generator,
             const std::function<bool(const Tree&)>& visit) const;

 private:
  enum class Choice : uint8_t { Kept, Lost, Zeros };
  struct Name {
    size_t directory = 0;
    std::string name;
    size_t node = 0;  ///< kNone: the name is removed
  };
  /// What one operation changes as one piece.
  struct Effect {
    size_t operation = 0;
    size_t durable = 0;  ///< index of the sync that makes it durable, or past the end
    size_t durable_really = 0;  ///< index of the sync if no sync is left out
    std::vector<Name> names;
    size_t node = 0;  ///< node whose data changes, where `names` is empty
    bool cut = false;
    uint64_t offset = 0;
    const std::string* bytes = nullptr;
  };
  struct Node {
    bool directory = false;
    std::map<std::string, size_t> names;
    std::string data;
  };
  struct Build;
  static constexpr size_t kNone = SIZE_MAX;

  void add_name(size_t operation, std::vector<Name> names);
  void add_operation(size_t index, std::map<uint64_t, size_t>& numbers);
  size_t node_of(const std::string& path) const;
  Name name_of(const std::string& path, size_t node) const;
  void find_durable();
  Tree build(size_t cut, const std::vector<Choice>& choices) const;

  std::vector<Operation> operations_;
  std::string root_;
  std::vector<Node> live_;  ///< the state after all operations; node 0 is the root
  std::vector<Effect> effects_;
  std::vector<size_t> synced_;  ///< by operation: the node that is synced, or kNone
  size_t left_out_ = kNone;
};

}  // namespace longhaul::faults
