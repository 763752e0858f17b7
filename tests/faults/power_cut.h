#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::faults {

/// One line of what fault_files.cpp recorded.
struct Operation {
  std::string kind;     ///< create, write, truncate, sync, rename, link, unlink, mkdir
  uint64_t number = 0;  ///< the file's, as the file system counts them
  uint64_t offset = 0;  ///< of a write; the new size of a truncate
  std::string path;     ///< or the text of a marker
  std::string other;    ///< where a rename or a link goes to
  std::string bytes;
};

std::vector<Operation> read_record(const fs::path& path);

/// A tree of files: path below the root -> content; directories end in '/'.
using Tree = std::map<std::string, std::string>;

/// What the disk may hold after a power cut, by POSIX's word alone: data of a file is
/// durable once the file was synced after it, names of a directory once the directory
/// was. Of everything else any part may be there or not: of each write nothing, zeros in
/// its place, or itself; of each change of names all or nothing.
class PowerCut {
 public:
  /// `root`: the recorded directory, empty when the record began.
  PowerCut(const std::vector<Operation>& operations, const std::string& root);

  size_t size() const { return operations_.size(); }
  const Operation& operation(size_t index) const { return operations_[index]; }

  /// As if this sync had not been made; a number past the end: all are.
  void leave_out(size_t sync);

  /// All of the first `cut` operations, as a process that is killed there leaves it.
  Tree whole(size_t cut) const;

  /// Trees that a power cut after the first `cut` operations may leave: nothing lost; all
  /// lost that may be, as zeros or not; each single thing lost or alone kept; `random`
  /// random parts lost. With a sync left out: only trees that it makes possible. Ends
  /// when `visit` returns false.
  void trees(size_t cut, int random, std::mt19937_64& generator,
             const std::function<bool(const Tree&)>& visit) const;

 private:
  enum class Choice : uint8_t { Kept, Lost, Zeros };
  struct Name {
    size_t directory = 0;
    std::string name;
    size_t node = 0;  ///< kNone: the name goes
  };
  /// What one operation changes, as one piece.
  struct Effect {
    size_t operation = 0;
    size_t durable = 0;         ///< index of the sync, or past the end
    size_t durable_really = 0;  ///< with no sync left out
    std::vector<Name> names;
    size_t node = 0;  ///< whose data changes, where names is empty
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
  std::vector<Node> live_;  ///< node 0 is the root; the state after all operations
  std::vector<Effect> effects_;
  std::vector<size_t> synced_;  ///< by operation: the node, or kNone
  size_t left_out_ = kNone;
};

}  // namespace longhaul::faults
