#pragma once

#include <string>
#include <vector>

#include "longhaul/cluster/control/secret.h"
#include "longhaul/cluster/fleet/job_step.h"

namespace longhaul::cluster {

/// Reads the names of machines that are reached by ssh: "n1,n2,n3", or, if the text names
/// a file, one a line (`#` begins a comment). Throws InputError for a name that is no
/// host's, for a name given twice, and for an empty list.
std::vector<std::string> read_hosts(const std::string& hosts);

/// Starts an agent, on this host directly, on another host by ssh without asking for a
/// password. The secret is the first line of the agent's input, so that it stands on no
/// command line and in no environment of sshd. On another host the named variables follow
/// the secret (process/passed_environment.h), and the word --environment tells the agent
/// to read them.
JobStep start_agent_by_ssh(const std::string& host, const std::string& here,
                           std::vector<std::string> words, const Secret& secret,
                           const std::vector<std::string>& variables);

/// Returns the first words of an mpirun that puts `ranks_per_node` ranks on each of these
/// hosts and hands them the environment variables `exported`.
std::vector<std::string> mpirun_words(const std::vector<std::string>& hosts,
                                      int ranks_per_node,
                                      const std::vector<std::string>& exported);

}  // namespace longhaul::cluster
