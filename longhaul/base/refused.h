#pragma once

#include <string>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"

namespace longhaul {

/// Returns the limits of this process that explain why the system refused it something
/// with this errno, with their values: "ulimit -n is 20". It knows limits of threads and
/// processes (EAGAIN), open files (EMFILE, ENFILE), memory and mappings (ENOMEM), the
/// size of a file (EFBIG); for any other errno the text is empty. `root` is where /proc
/// and /sys are, for tests.
std::string limits_reached(int error, const fs::path& root = "/");

/// Returns a warning of the limits that can end this process in the middle of its work,
/// by a signal or without memory, with their values; empty if there are none.
std::string warning_of_limits();

/// Returns an error for `what` ("a thread", "a pipe", "2.1 GB for a buffer") that the
/// system has refused with this errno: the system's message, the limits that explain it,
/// and what to do.
TemporaryError refused(std::string area, std::string_view what, int error,
                       std::string_view advice = {});

/// Calls make_directories_durable() for a directory that a setting names ("run.dir"). If
/// the system refuses it, the message of the error begins with the setting.
void make_setting_directory(std::string_view setting, const fs::path& dir);

}  // namespace longhaul
