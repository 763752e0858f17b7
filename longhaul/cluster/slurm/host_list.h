#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longhaul::cluster {

/// Returns the names of a Slurm host list, in its order: "n[1-3,7],gpu-a[01-02]" stands
/// for n1 n2 n3 n7 gpu-a01 gpu-a02; several brackets in a name multiply. Empty text names
/// no host. Throws InputError for anything else than such a list, and for more than 65536
/// hosts, before it makes their names.
std::vector<std::string> expand_hosts(std::string_view list);

/// Returns a host list that expands to the same names in the same order, with
/// neighbouring numbers drawn together.
std::string compress_hosts(const std::vector<std::string>& hosts);

/// Throws InputError for anything else than a host's name.
void check_host_name(std::string_view name);

}  // namespace longhaul::cluster
