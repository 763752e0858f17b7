#include "longhaul/imports/nxd_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/checkpoint/foreign_forms.h"

namespace longhaul::imports {
namespace {

constexpr int64_t kMaxRank = 1'000'000;

// Removes "tp_rank_03" and the "_" behind it from the front of `text`.
bool take_rank(std::string_view& text, std::string_view axis, int64_t& rank) {
  const std::string head = fmt::format("{}_rank_", axis);
  if (!text.starts_with(head)) return false;
  std::string_view rest = text.substr(head.size());
  const auto number = take_number<int64_t>(rest);
  if (!number || *number < 0 || *number > kMaxRank) return false;
  rank = *number;
  text = rest;
  if (text.starts_with('_')) text.remove_prefix(1);
  return true;
}

std::map<NxdRank, fs::path> rank_files(const fs::path& dir) {
  std::map<NxdRank, fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const auto rank = parse_nxd_name(entry.path().filename().string());
    if (!rank) continue;
    fs::path path = entry.path();
    if (fs::is_directory(path)) {
      path /= "checkpoint.pt";
      if (!fs::exists(path)) continue;
    }
    const auto [place, added] = found.emplace(*rank, path);
    if (!added) {
      fail_input("import", "{} and {} are files of the same rank", place->second.string(),
                 path.string());
    }
  }
  return found;
}

// Checks that every rank of the grid is there; the largest numbers give its size.
NxdFiles complete(std::map<NxdRank, fs::path> paths, const fs::path& dir) {
  NxdFiles files;
  files.full = paths.begin()->first.full;
  for (const auto& [rank, path] : paths) {
    if (rank.ep > 0) {
      fail_input(
          "import",
          "{}: the part of a mixture's experts that ep_rank {} has, and shards of "
          "experts are not put together; import the Hugging Face files of the same model",
          path.string(), rank.ep);
    }
    if (rank.full != files.full) {
      fail_input("import",
                 "{}: holds both merged and sharded optimizer files; remove the files of "
                 "one kind",
                 dir.string());
    }
    files.tp = std::max(files.tp, rank.tp + 1);
    files.pp = std::max(files.pp, rank.pp + 1);
    files.dp = std::max(files.dp, rank.dp + 1);
  }
  const uint64_t wanted = static_cast<uint64_t>(files.tp) *
                          static_cast<uint64_t>(files.pp) *
                          static_cast<uint64_t>(files.dp);
  if (paths.size() != wanted) {
    for (int64_t dp = 0; dp < files.dp; ++dp) {
      for (int64_t pp = 0; pp < files.pp; ++pp) {
        for (int64_t tp = 0; tp < files.tp; ++tp) {
          if (paths.contains({dp, 0, tp, pp, files.full})) continue;
          fail_input("import",
                     "{}: holds {} of {} rank files; the file of dp {} tp {} pp {} is "
                     "missing, copy the whole checkpoint",
                     dir.string(), paths.size(), wanted, dp, tp, pp);
        }
      }
    }
  }
  files.paths = std::move(paths);
  return files;
}

std::optional<NxdLayout> layout_of(const fs::path& dir) {
  NxdLayout layout;
  layout.dir = dir;
  layout.model = fs::is_directory(dir / "model") ? dir / "model" : dir;
  auto paths = rank_files(layout.model);
  if (paths.empty()) return std::nullopt;
  // The model is the same on every data-parallel rank, so that rank 0 is enough.
  std::erase_if(paths, [](const auto& item) { return item.first.dp > 0; });
  if (paths.empty()) {
    throw InputError("import", layout.model.string() + ": no files of dp_rank_00");
  }
  const std::string name = dir.filename().string();
  const bool is_step = fs::exists(dir / "checkpoint") || name.starts_with("step_");
  if (is_step && !fs::exists(dir / "done")) {
    fail_input(
        "import",
        "{}: an unfinished checkpoint (there is no file 'done'); give an earlier one",
        dir.string());
  }
  layout.model_files = complete(std::move(paths), layout.model);
  auto optimizer = rank_files(dir / "optim");
  if (!optimizer.empty()) {
    layout.optimizer_files = complete(std::move(optimizer), dir / "optim");
    if (layout.optimizer_files->tp != layout.model_files.tp ||
        layout.optimizer_files->pp != layout.model_files.pp) {
      throw InputError("import", dir.string() + ": model and optim have different ranks");
    }
  }
  layout.step = checkpoint::step_in_name(name);
  return layout;
}

}  // namespace

const fs::path& NxdFiles::at(int64_t dp_rank, int64_t tp_rank, int64_t pp_rank) const {
  return paths.at({dp_rank, 0, tp_rank, pp_rank, full});
}

std::optional<NxdRank> parse_nxd_name(std::string name) {
  if (name.ends_with(".pt")) name.resize(name.size() - 3);
  std::string_view text = name;
  NxdRank rank;
  if (text.starts_with("full_")) {
    rank.full = true;
    text.remove_prefix(5);
  }
  if (!rank.full) take_rank(text, "dp", rank.dp);
  take_rank(text, "ep", rank.ep);
  if (!take_rank(text, "tp", rank.tp) || !take_rank(text, "pp", rank.pp)) {
    return std::nullopt;
  }
  if (!text.empty() && !take_rank(text, "dp", rank.dp)) return std::nullopt;
  if (!text.empty()) return std::nullopt;
  return rank;
}

std::optional<NxdLayout> find_nxd_layout(const fs::path& path) {
  if (!fs::is_directory(path)) return std::nullopt;
  if (auto layout = layout_of(path)) return layout;
  // The path is a directory of steps. Take the newest step that is done.
  std::vector<std::pair<int64_t, fs::path>> steps;
  for (const auto& entry : fs::directory_iterator(path)) {
    const auto number = checkpoint::step_in_name(entry.path().filename().string());
    if (!number || !entry.is_directory() || !fs::is_directory(entry.path() / "model")) {
      continue;
    }
    if (rank_files(entry.path() / "model").empty()) continue;
    steps.emplace_back(*number, entry.path());
  }
  if (steps.empty()) return std::nullopt;
  std::sort(steps.rbegin(), steps.rend());
  std::vector<std::string> notes;
  for (const auto& [number, dir] : steps) {
    if (!fs::exists(dir / "done")) {
      notes.push_back(dir.filename().string() +
                      " is unfinished (no file 'done'): skipped");
      continue;
    }
    auto layout = layout_of(dir);
    notes.push_back("newest complete checkpoint: " + dir.filename().string());
    layout->notes = std::move(notes);
    return layout;
  }
  fail_input("import", "{}: {} checkpoints, none of them complete (no file 'done')",
             path.string(), steps.size());
}

}  // namespace longhaul::imports
