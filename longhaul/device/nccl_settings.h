#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/comm/communicator.h"

namespace longhaul::device {

/// The settings of NCCL and of the libraries of fabrics, by name. They are the variables
/// NCCL_* and FI_* of the environment, and those of NCCL's configuration files that the
/// environment lacks.
using NcclSettings = std::map<std::string, std::string>;

/// Returns the settings of this process. The files are the one that NCCL_CONF_FILE names,
/// or else ~/.nccl.conf, and /etc/nccl.conf.
NcclSettings nccl_settings();

/// Returns whether machines may rightly differ in the setting: it names their interfaces
/// and files, or what they log.
bool may_differ(std::string_view name);

/// Throws ConfigError on all ranks if ranks differ in another setting: NCCL would hang in
/// the first operation, or add up in another order. The error names settings, values and
/// ranks. Collective.
void check_same_settings(const NcclSettings& mine, comm::Communicator& world);

/// Throws ConfigError if a plug-in that the settings name cannot be loaded: NCCL would
/// say nothing and take sockets, or its own choice of algorithms. Returns what the log is
/// to warn of: settings of a fabric for which NCCL has no plug-in.
std::vector<std::string> check_plugins(const NcclSettings& settings);

/// Returns the settings that choose the order of NCCL's sums, as " NCCL_ALGO=Ring ...".
std::string settings_of_sums(const NcclSettings& settings);

/// What the program sets for NCCL because a person has not, and what the log warns of.
struct NcclChoice {
  NcclSettings set;
  std::vector<std::string> warnings;
};

/// Chooses for a version of NCCL (22605: 2.26.5), where people have set `given`. All
/// communicators are ordered as the host calls them. If sums are to repeat bitwise
/// (`repeats`), NVLink SHARP is left out with both its algorithms (NVLS and NVLSTree),
/// whose sums differ from call to call.
NcclChoice choose_settings(int version, bool repeats, const NcclSettings& given);

/// Puts choose_settings() into the environment of this process, where NCCL reads them at
/// its first call, and returns the warnings. No other thread may use the environment
/// meanwhile.
std::vector<std::string> prepare_nccl(int version, bool repeats);

}  // namespace longhaul::device
