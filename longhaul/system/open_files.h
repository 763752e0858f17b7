#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace longhaul::system {

/// Raises this process's limit of open files, as far as the system allows, if `more`
/// files beside those that are open would exceed it. A shell's usual limit is 1,024, and
/// the system often allows many times that.
void allow_open_files(size_t more);

/// Raises the limit of open files so that `more` files can be open at the same time.
/// Throws InputError of this area, with the numbers, if the system allows too few.
void need_open_files(size_t more, const std::string& area, const std::string& what);

/// Raises the limit of the size of a file (`ulimit -f`) as far as the system allows.
/// Throws InputError of this area, with the numbers, if the system allows no file of
/// `bytes` bytes.
void need_file_size(uint64_t bytes, const std::string& area, const std::string& what);

}  // namespace longhaul::system
