#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace longhaul::imports {

/// A file of a zip archive that is stored without compression.
struct ZipEntry {
  std::string name;
  uint64_t begin = 0;  ///< offset of its first byte
  uint64_t size = 0;
  uint32_t crc = 0;  ///< CRC-32 of its bytes
};

/// Lists the files of an archive (zip and zip64) by its directory. Throws InputError that
/// names `what` and the offset for:
/// - a missing or truncated directory;
/// - compressed or encrypted entries;
/// - names that leave the archive or come twice;
/// - entries that overlap each other or the directory, or whose two headers differ.
std::vector<ZipEntry> read_zip(std::span<const std::byte> file, const std::string& what);

}  // namespace longhaul::imports
