#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longhaul::cluster {

/// The names that a Slurm host list stands for, in its order: "n[1-3,7],gpu-a[01-02]" is
/// n1 n2 n3 n7 gpu-a01 gpu-a02; several brackets in a name multiply. Empty text is no
/// host. InputError for anything else than such a list, and for more than 65536 hosts,
/// before they are made.
std::vector<std::string> expand_hosts(std::string_view list);

/// The short form, which expands to the same names in the same order: runs of numbers are
/// drawn together where they stand side by side.
std::string compress_hosts(const std::vector<std::string>& hosts);

/// Throws InputError for a name that is no host's: letters, digits, '-', '_' and '.', not
/// first a '-', at most 253.
void check_host_name(std::string_view name);

}  // namespace longhaul::cluster
