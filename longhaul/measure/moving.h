#pragma once

#include <memory>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/measure/figures.h"

namespace longhaul::measure {

/// Text to ids, and batches of a token store read as training reads them: a tokenizer and
/// a store of made-up text are put into `scratch`, which must outlive the probes.
std::vector<Probe> data_probes(const fs::path& scratch);

/// A file of 256 MiB written with fsync, and read again past the page cache, in
/// `directory`, which must be there.
std::vector<Probe> disk_probes(const fs::path& directory);

/// Sums and gathers of 64 MiB over the ranks; none with one. Every rank measures all
/// probes together, the same number of times: their runs wait for each other.
std::vector<Probe> group_probes(comm::Communicator& world);

}  // namespace longhaul::measure
