#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longhaul/cluster/control/secret.h"
#include "longhaul/cluster/fleet/job_step.h"

namespace longhaul::cluster {

/// Machines without a scheduler, reached by ssh: "n1,n2,n3", or, where the text names a
/// file, one a line (`#` begins a comment). InputError for what is no host's name, twice
/// the same, or none.
std::vector<std::string> read_hosts(const std::string& hosts);

/// Starts an agent on a host: here by itself, elsewhere by ssh, without a question for a
/// password. The secret is the first line of its input, so that it stands on no command
/// line and in no environment of sshd's.
JobStep start_agent_by_ssh(const std::string& host, const std::string& here,
                           std::vector<std::string> words, const Secret& secret);

/// The first words of an mpirun that puts so many ranks on each of these hosts, which
/// must know the variables of `exported` too.
std::vector<std::string> mpirun_words(const std::vector<std::string>& hosts,
                                      int ranks_per_node,
                                      const std::vector<std::string>& exported);

}  // namespace longhaul::cluster
