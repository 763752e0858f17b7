#include "longhaul/cluster/health/node_paths.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/names.h"
#include "longhaul/cluster/process/bounded_child.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_past.h"

namespace longhaul::cluster {
namespace {

constexpr NamesOf<PathRole, 4> kRoleNames{{"run", "checkpoints", "input", "room"}};
/// What workers need in a directory of the node's own for their records.
constexpr size_t kRoomBytes = size_t{256} << 10;
/// Bytes that a node writes to test a shared directory: few, since all nodes do it at
/// once.
constexpr size_t kWrittenBytes = 4096;

/// Opens the directory and looks for a first entry. A network file system then asks its
/// server again whether a name is there, which it may have remembered as absent.
bool holds_entries(const fs::path& dir) {
  return fs::directory_iterator(dir) != fs::directory_iterator();
}

std::string see_owner(const char* what, const std::optional<std::string>& run) {
  return run ? what + *run : std::string();
}

/// The most bytes of a program's ELF notes that are read, and of its build id that are
/// shown.
constexpr uint64_t kMostNoteBytes = 4096;
constexpr size_t kBuildBytes = 6;

/// Returns what a file is. A program is named by the build id that the linker has noted
/// in it, so that nodes with different programs differ; anything else is "a file".
std::string what_is(const fs::path& program) {
  std::ifstream file(program, std::ios::binary);
  const auto read = [&](uint64_t place, auto* values, uint64_t count) {
    file.seekg(static_cast<std::streamoff>(place));
    file.read(reinterpret_cast<char*>(values),
              static_cast<std::streamsize>(count * sizeof *values));
    return file.good();
  };
  Elf64_Ehdr head{};
  if (!read(0, &head, 1) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0)
    return "a file";
  for (uint64_t i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr part{};
    if (!read(head.e_phoff + i * sizeof part, &part, 1)) return "a file";
    if (part.p_type != PT_NOTE || part.p_filesz > kMostNoteBytes) continue;
    std::vector<unsigned char> notes(part.p_filesz);
    if (!read(part.p_offset, notes.data(), notes.size())) return "a file";
    const auto padded = [](size_t bytes) { return (bytes + 3) / 4 * 4; };
    for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= notes.size();) {
      Elf64_Nhdr note{};
      std::memcpy(&note, notes.data() + at, sizeof note);
      const size_t content = at + sizeof note + padded(note.n_namesz);
      if (content + kBuildBytes > notes.size()) break;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_descsz >= kBuildBytes) {
        return fmt::format(
            "build {:02x}",
            fmt::join(notes.data() + content, notes.data() + content + kBuildBytes, ""));
      }
      at = content + padded(note.n_descsz);
    }
  }
  return "a file";
}

/// Returns what stands at the path; empty if nothing does. Sizes are not compared: files
/// may grow, and nodes learn of that at different times.
std::string what_stands_at(const NeededPath& needed) {
  const fs::file_status status = fs::status(needed.path);
  if (status.type() == fs::file_type::not_found) return {};
  if (status.type() != fs::file_type::directory) return what_is(needed.path);
  const bool holds = holds_entries(needed.path);
  if (needed.role == PathRole::Run) {
    // With each save rank 0 writes the run's record again, even into an empty directory
    // that covers the directory of the run. The supervisor makes its lock only once, so
    // that such a directory lacks the lock.
    const bool supervised = fs::exists(needed.path / run::kSupervisorLockFile);
    return see_owner(supervised ? "run " : "an unsupervised run ",
                     run::read_run_identity(needed.path));
  }
  if (needed.role == PathRole::Checkpoints) {
    return see_owner("those of run ", run::read_checkpoints_owner(needed.path));
  }
  return holds || needed.role == PathRole::Room ? "a directory" : "";
}

std::string system_words(int error) { return std::strerror(error); }

/// Makes a file in the directory, has `fill` fill it and removes it. Returns why that
/// cannot be done, or an empty text. `fill` returns an errno or 0.
template <typename Fill>
std::string no_file_in(const fs::path& dir, Fill fill) {
  // The name has the node and the process, because all nodes may test the same directory
  // at once.
  const fs::path file =
      dir / fmt::format(".longhaul_room_{}_{}", host_name(), ::getpid());
  const Descriptor made(
      ::open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
  if (!made.is_open()) return system_words(errno);
  const int error = fill(made.get());
  ::unlink(file.c_str());
  return error == 0 ? std::string() : system_words(error);
}

/// Returns why no files can be made in a directory of the node's own, or an empty text.
std::string no_room_in(const fs::path& dir) {
  return no_file_in(dir, [](int fd) { return ::posix_fallocate(fd, 0, kRoomBytes); });
}

/// Returns why the run cannot write at the path although it has to; empty if it can, or
/// if the path is absent.
std::string trouble_of(const NeededPath& needed) {
  if (needed.role == PathRole::Room) return no_room_in(needed.path);
  if (needed.role == PathRole::Input) return {};
  if (::access(needed.path.c_str(), W_OK | X_OK) == 0 || errno == ENOENT) return {};
  return system_words(errno);
}

/// Writes as a save does: a quota or a mount may let files be opened and refuse their
/// bytes, at the write or at the sync.
int write_durably(int fd) {
  const std::string bytes(kWrittenBytes, '?');
  const ssize_t written = ::write(fd, bytes.data(), bytes.size());
  if (written < 0 || ::fsync(fd) != 0) return errno;
  return written == ssize_t(bytes.size()) ? 0 : ENOSPC;
}

/// Returns why a directory in which the run writes takes no bytes; empty if it takes
/// them, or is absent.
std::string takes_no_bytes(const NeededPath& needed) {
  const bool written =
      needed.role == PathRole::Run || needed.role == PathRole::Checkpoints;
  if (!written || !fs::is_directory(needed.path)) return {};
  return no_file_in(needed.path, write_durably);
}

PathView view_of(const NeededPath& needed) {
  PathView view;
  try {
    view.seen = what_stands_at(needed);
    view.trouble = trouble_of(needed);
    if (view.trouble.empty()) view.trouble = takes_no_bytes(needed);
  } catch (const std::exception&) {
    // The file is damaged, or the file system fails. The health checks and the ranks
    // report that.
    view.known = false;
  }
  return view;
}

/// What nodes say of one path.
class PathJudge {
 public:
  PathJudge(const NeededPath& needed, size_t index, const std::vector<NodePaths>& nodes)
      : needed_(needed) {
    for (const NodePaths& node : nodes) {
      if (index >= node.views.size() || !node.views[index].known) continue;
      views_.emplace_back(node.node, &node.views[index]);
    }
  }

  /// Adds the causes of nodes at fault, by node, and the problems of the whole job.
  void judge(std::map<std::string, SickNode>& causes, Findings& found) const {
    if (views_.empty()) return;
    const std::optional<std::string> right = what_most_see();
    const bool some_see = std::ranges::any_of(
        views_, [](const auto& one) { return !one.second->seen.empty(); });
    if (needed_.role != PathRole::Room && some_see && (!right || right->empty())) {
      found.shared.push_back(fmt::format("nodes see different things at {} ({}): {}",
                                         needed_.path.string(), needed_.what, list()));
    }
    std::vector<SickNode> at_fault;
    for (const auto& [node, view] : views_) {
      if (const std::string cause = cause_of(*view, right); !cause.empty())
        at_fault.push_back({node, cause, view->trouble.empty()});
    }
    if (2 * at_fault.size() > views_.size()) {
      found.shared.push_back(fmt::format("{} (seen on {} of {} nodes)",
                                         at_fault.front().cause, at_fault.size(),
                                         views_.size()));
      return;
    }
    for (const SickNode& one : at_fault) {
      SickNode& sick = causes[one.node];
      sick.node = one.node;
      sick.cause += (sick.cause.empty() ? "" : "; ") + one.cause;
      sick.seen_otherwise = sick.seen_otherwise || one.seen_otherwise;
    }
  }

 private:
  /// Returns what more than half of the nodes see. If all the others see nothing, returns
  /// what is seen at all.
  std::optional<std::string> what_most_see() const {
    std::map<std::string, size_t> counts;
    for (const auto& [node, view] : views_) ++counts[view->seen];
    for (const auto& [seen, count] : counts) {
      if (2 * count > views_.size()) return seen;
    }
    if (counts.size() == 2 && counts.contains("")) return counts.rbegin()->first;
    return std::nullopt;
  }

  std::string cause_of(const PathView& view,
                       const std::optional<std::string>& right) const {
    const std::string path = needed_.path.string();
    if (!view.trouble.empty()) {
      return fmt::format("{} ({}) cannot be written: {}", path, needed_.what,
                         view.trouble);
    }
    // If most nodes see no run, a node that sees one is not at fault, because the run may
    // just have begun.
    const bool judged = right && !right->empty() && needed_.role != PathRole::Room;
    if (!judged || view.seen == *right) return {};
    return fmt::format("{} ({}) holds {}, where other nodes see {}", path, needed_.what,
                       named(view.seen), named(*right));
  }

  static std::string named(const std::string& seen) {
    return seen.empty() ? "nothing" : seen;
  }

  std::string list() const {
    std::vector<std::string> words;
    for (const auto& [node, view] : views_) {
      words.push_back(fmt::format("{} {}", node, named(view->seen)));
    }
    return fmt::format("{}", fmt::join(words, ", "));
  }

  const NeededPath& needed_;
  std::vector<std::pair<std::string, const PathView*>> views_;
};

}  // namespace

void to_json(Json& json, const NeededPath& path) {
  json = {{"what", path.what},
          {"path", path.path.string()},
          {"role", kRoleNames.of(path.role)}};
}

void from_json(const Json& json, NeededPath& path) {
  json.at("what").get_to(path.what);
  path.path = json.at("path").get<std::string>();
  const auto role = kRoleNames.find(json.at("role").get<std::string>());
  if (!role) fail_input("control", "a needed path has an unknown role");
  path.role = *role;
}

std::vector<PathView> view_paths(const std::vector<NeededPath>& needed,
                                 double limit_seconds) {
  const BoundedAnswer answer = run_in_bounded_child(
      [&](const auto& write) {
        for (const NeededPath& path : needed)
          write(json_text(Json(view_of(path))) + "\n");
      },
      limit_seconds);
  std::vector<PathView> views;
  size_t begin = 0;
  for (size_t end = 0; (end = answer.text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    views.push_back(parse_json(answer.text.substr(begin, end - begin), "a look at a path")
                        .get<PathView>());
  }
  views.resize(needed.size(), PathView{false, {}, {}});
  return views;
}

Findings judge_paths(const std::vector<NeededPath>& needed,
                     const std::vector<NodePaths>& nodes) {
  Findings found;
  std::map<std::string, SickNode> causes;
  for (size_t i = 0; i < needed.size(); ++i) {
    PathJudge(needed[i], i, nodes).judge(causes, found);
  }
  for (auto& [node, sick] : causes) found.sick.push_back(std::move(sick));
  return found;
}

}  // namespace longhaul::cluster
