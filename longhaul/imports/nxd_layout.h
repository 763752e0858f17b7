#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::imports {

/// Which part of a neuronx-distributed checkpoint a file is.
struct NxdRank {
  int64_t dp = 0;
  int64_t ep = 0;
  int64_t tp = 0;
  int64_t pp = 0;
  bool full = false;  ///< "full_tp_rank_..": optimizer state whose dp shards were merged
  auto operator<=>(const NxdRank&) const = default;
};

/// Parses "dp_rank_00_tp_rank_01_pp_rank_00.pt", also with an ep_rank or without a
/// dp_rank, and "full_tp_rank_00_pp_rank_00.pt"; with or without ".pt". Returns nothing
/// for other names.
std::optional<NxdRank> parse_nxd_name(std::string name);

/// The files of one kind (model, optim). Every tp and pp rank is there.
struct NxdFiles {
  int64_t tp = 0;
  int64_t pp = 0;
  int64_t dp = 1;
  bool full = false;
  std::map<NxdRank, fs::path> paths;
  const fs::path& at(int64_t dp_rank, int64_t tp_rank, int64_t pp_rank) const;
};

/// A checkpoint directory of neuronx-distributed, in one of its layouts:
/// step_N/{model,optim}/dp_rank_.., DIR/tp_rank_XX_pp_rank_XX[/checkpoint.pt], or the
/// rank files themselves.
struct NxdLayout {
  fs::path dir;    ///< directory of the step
  fs::path model;  ///< directory of the model's files
  NxdFiles model_files;
  std::optional<NxdFiles> optimizer_files;
  std::optional<int64_t> step;  ///< the number at the end of the directory's name
  std::vector<std::string> notes;
};

/// Returns the layout, or nothing if `path` is no such checkpoint. A directory of steps
/// stands for its newest complete step, which has the largest number. Throws InputError
/// for an unfinished step (no file `done`), a missing rank, or experts.
std::optional<NxdLayout> find_nxd_layout(const fs::path& path);

}  // namespace longhaul::imports
