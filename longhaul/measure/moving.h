#pragma once

#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/comm/communicator.h"
#include "longhaul/measure/figures.h"

namespace longhaul::measure {

/// Returns probes that turn text into ids, and probes that read batches of a token store
/// as training does. A tokenizer and a store of made-up text are put into `scratch`,
/// which must outlive the probes.
std::vector<Probe> data_probes(const fs::path& scratch);

/// Returns probes that write a file of 256 MiB with fsync and read it again past the page
/// cache. `directory` must exist.
std::vector<Probe> disk_probes(const fs::path& directory);

/// Returns probes of sums and gathers of 64 MiB over the ranks, or no probes with one
/// rank. All ranks measure the probes together and equally often, since their runs wait
/// for each other.
std::vector<Probe> group_probes(comm::Communicator& world);

}  // namespace longhaul::measure
