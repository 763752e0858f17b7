#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/checkpoint/state_tensor.h"
#include "longhaul/comm/communicator.h"

namespace longhaul::checkpoint {

class RunLock;

struct WriterOptions {
  fs::path dir;             ///< holds step_00000005/ ...; made when absent
  int attempt = 1;          ///< RunLock::attempt(); the same on all ranks
  std::string build;        ///< the writer's version and commit, for the manifest
  Json layout;              ///< world size and mesh, for the manifest; informative only
  RunLock* lock = nullptr;  ///< rank 0's; checked again before the commit. May be null.
};

struct SaveReport {
  uint64_t bytes = 0;    ///< of all ranks and files
  double seconds = 0.0;  ///< from the call to the durable manifest
  fs::path path;         ///< the step directory
};

/// What one rank hands over for a save. Borrowed: the bytes stay with the caller until
/// the save has ended. Copied: the caller may change them at once.
class Capture {
 public:
  static Capture borrow(int64_t step, std::vector<StateTensor> mine);
  static Capture copy(int64_t step, const std::vector<StateTensor>& mine);
  int64_t step() const { return step_; }
  const std::vector<StateTensor>& tensors() const { return tensors_; }

 private:
  int64_t step_ = 0;
  std::vector<StateTensor> tensors_;
  std::vector<std::vector<std::byte>> storage_;
};

/// What one rank wrote; exchanged at the commit.
struct RankFiles {
  struct Item {
    std::string name;
    uint64_t size = 0;
    std::string hash;
  };
  std::vector<Item> items;
  std::string error;      ///< empty when all is written and fsynced
  bool temporary = true;  ///< whether a retry can help
};

/// Writes checkpoints in the project's format (docs: the header of manifest.h).
/// A save is begin (collective), write_rank (local, no communication: it may run on
/// another thread), commit (collective). `save` does the three in a row.
class CheckpointWriter {
 public:
  explicit CheckpointWriter(WriterOptions options) : options_(std::move(options)) {}

  /// Collective over `world`. `mine`: this rank's boxes; over all ranks the boxes of one
  /// (kind, tensor) tile it exactly (identical copies are allowed, the lowest rank's is
  /// kept by readers). `state` and `hf` are read on rank 0 only.
  /// A disk that is full or any I/O error on any rank: every rank throws the same
  /// TemporaryError (InputError when no retry can help), the half-written step is
  /// removed, older checkpoints are untouched.
  SaveReport save(int64_t step, const std::vector<StateTensor>& mine, const Json& state,
                  const std::vector<CarriedFile>& hf, comm::Communicator& world);

  /// Where a save writes: the same on all ranks.
  struct Target {
    fs::path dir;           ///< the step directory
    std::string prefix;     ///< of this save's files: "a1_"
    bool replaces = false;  ///< dir holds a valid checkpoint of the same step
  };
  /// Collective: rank 0 makes the directory; a failure throws on all ranks.
  Target begin(int64_t step, comm::Communicator& world);
  /// Local; never throws for I/O errors, which it reports in the result.
  RankFiles write_rank(const Target& target, const Capture& capture, int rank) const;
  /// Collective: agrees on success, writes state.json, hf/ and at last manifest.json.
  SaveReport commit(const Target& target, const RankFiles& mine, int64_t step,
                    const Json& state, const std::vector<CarriedFile>& hf,
                    comm::Communicator& world);

 private:
  WriterOptions options_;
};

}  // namespace longhaul::checkpoint
