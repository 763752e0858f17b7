#pragma once

#include <map>
#include <string>
#include <vector>

#include "longhaul/imports/foreign_files.h"
#include "longhaul/imports/mosaic.h"

namespace longhaul::imports {

/// What a directory of torch.distributed.checkpoint holds.
struct DcpCheckpoint {
  std::map<std::string, Mosaic> tensors;  ///< whole, by their full names
  std::vector<std::string> objects;       ///< names of entries that are no tensors
  /// The values of entries named "....step" that are numbers or tensors of one element.
  std::map<std::string, double> steps;
};

/// Reads a distributed checkpoint:
/// - .metadata, a pickle that lists each tensor's chunks and their places;
/// - the headers of all chunks in the .distcp files;
/// - the counts of updates, which optimizers keep as whole numbers, as floating-point
///   numbers or as tensors.
///
/// Throws InputError for a chunk that is missing, has another shape than the list says,
/// or lies outside of the directory.
DcpCheckpoint read_dcp(ForeignFiles& files, const fs::path& dir);

}  // namespace longhaul::imports
