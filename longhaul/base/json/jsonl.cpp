#include "longhaul/base/json/jsonl.h"

#include <algorithm>
#include <span>
#include <utility>

namespace longhaul {
namespace {

constexpr uint64_t kPiece = 4096;

/// Cuts the file back to its last newline, which is looked for from the end; returns the
/// bytes cut.
uint64_t cut_torn_line(const fs::path& path) {
  const File file = File::open_read(path);
  const uint64_t size = file.size();
  uint64_t whole = size;
  while (whole > 0) {
    std::string piece(std::min(whole, kPiece), '\0');
    whole -= piece.size();
    file.read_at(whole, std::as_writable_bytes(std::span(piece)));
    const size_t newline = piece.rfind('\n');
    if (newline == std::string::npos) continue;
    whole += newline + 1;
    break;
  }
  if (whole < size) fs::resize_file(path, whole);
  return size - whole;
}

}  // namespace

// The file is opened before a torn line is cut, so that a path which cannot be written is
// reported as such.
JsonLines::JsonLines(const fs::path& path,
                     std::function<void(const std::string& line)> tell)
    : file_(path), repaired_(cut_torn_line(path)) {
  file_.on_trouble(std::move(tell));
}

bool JsonLines::append(const Json& object) {
  // Invalid UTF-8 (a path, say) is replaced; it must not end a run.
  return file_.append(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace longhaul
