#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <set>
#include <span>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/input/byte_stream.h"
#include "longhaul/data/input/documents.h"

namespace longhaul::data {
namespace {

bool holds_json_lines(const fs::path& path) {
  const fs::path plain = path.extension() == ".gz" ? path.stem() : path.filename();
  const fs::path kind = plain.extension();
  return kind == ".jsonl" || kind == ".json" || kind == ".ndjson";
}

std::vector<fs::path> expand(const std::string& argument) {
  if (fs::exists(argument)) return {argument};  // a name may hold [ ] itself
  glob_t found{};
  const int result = ::glob(argument.c_str(), GLOB_ERR, nullptr, &found);
  std::vector<fs::path> paths;
  if (result == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (paths.empty()) {
    throw InputError("data", fmt::format("'{}' matches no file; name text files or JSON "
                                         "lines, for example 'corpus/*.jsonl.gz'",
                                         argument));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

std::vector<fs::path> expand_inputs(const std::vector<std::string>& arguments) {
  std::vector<fs::path> files;
  std::set<fs::path> seen;
  for (const std::string& argument : arguments) {
    for (const fs::path& path : expand(argument)) {
      if (fs::is_directory(path)) {
        throw InputError("data",
                         fmt::format("{}: is a directory; name the files in it, for "
                                     "example '{}/*.jsonl'",
                                     path.string(), path.string()));
      }
      if (seen.insert(fs::weakly_canonical(path)).second) files.push_back(path);
    }
  }
  return files;
}

struct RecordReader::State {
  std::vector<fs::path> files;
  std::vector<SourceFile> finished;
  uint64_t total = 0;
  uint64_t done = 0;  // stored bytes of finished files

  std::unique_ptr<ByteStream> stream;
  size_t file = 0;  // the open one, or the next to be opened
  bool lines = false;
  std::span<const char> rest;
  int64_t line = 0;

  /// Appends the next line, or the whole rest of the file; false when nothing is left.
  bool read_record(std::string& bytes);
  void close_file();
};

bool RecordReader::State::read_record(std::string& bytes) {
  bool any = false;
  while (true) {
    if (rest.empty()) {
      rest = stream->next();
      if (rest.empty()) return any;
    }
    any = true;
    const auto end = lines ? std::find(rest.begin(), rest.end(), '\n') : rest.end();
    const auto length = static_cast<size_t>(end - rest.begin());
    if (bytes.size() + length > kMaxRecordBytes) {
      throw InputError("data",
                       fmt::format("{}: more than {} in one {}; split it into documents",
                                   record_place(files, static_cast<int>(file), line),
                                   human_bytes(static_cast<double>(kMaxRecordBytes)),
                                   lines ? "line" : "text file"));
    }
    bytes.append(rest.data(), length);
    const bool ended = end != rest.end();
    rest = rest.subspan(length + (ended ? 1 : 0));
    if (ended) return true;
  }
}

void RecordReader::State::close_file() {
  const uint64_t bytes = stream->bytes_read();
  finished.push_back({files[file], bytes, stream->hash(), line});
  done += bytes;
  stream.reset();
  ++file;
}

RecordReader::RecordReader(std::vector<fs::path> files)
    : state_(std::make_unique<State>()) {
  state_->files = std::move(files);
  // All files are looked at first: a missing one must not be found hours later.
  for (const fs::path& path : state_->files) {
    state_->total += File::open_read(path).size();
  }
}
RecordReader::~RecordReader() = default;

bool RecordReader::next(RawRecord& record) {
  State& state = *state_;
  record.bytes.clear();
  while (state.file < state.files.size()) {
    if (!state.stream) {
      state.stream = std::make_unique<ByteStream>(state.files[state.file]);
      state.lines = holds_json_lines(state.files[state.file]);
      state.line = 0;
    }
    const bool whole_and_new = !state.lines && state.line == 0;
    if (state.lines) ++state.line;
    if (state.read_record(record.bytes) || whole_and_new) {
      record.file = static_cast<int>(state.file);
      record.line = state.lines ? state.line : 0;
      if (!state.lines) {
        state.line = 1;
        state.close_file();
      } else if (!record.bytes.empty() && record.bytes.back() == '\r') {
        record.bytes.pop_back();
      }
      return true;
    }
    --state.line;
    state.close_file();
  }
  return false;
}

const std::vector<SourceFile>& RecordReader::finished() const { return state_->finished; }
const std::vector<fs::path>& RecordReader::files() const { return state_->files; }
uint64_t RecordReader::total_bytes() const { return state_->total; }
uint64_t RecordReader::bytes_read() const {
  return state_->done + (state_->stream ? state_->stream->bytes_read() : 0);
}

std::string record_place(const std::vector<fs::path>& files, int file, int64_t line) {
  const std::string path = files.at(static_cast<size_t>(file)).string();
  return line == 0 ? path : fmt::format("{}:{}", path, line);
}

}  // namespace longhaul::data
