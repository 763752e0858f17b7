// Says what is wrong with a whole file if its records cannot be read.
#include "longhaul/data/input/wrong_files.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/input/byte_stream.h"
#include "longhaul/data/input/file_kinds.h"
#include "longhaul/data/input/json_members.h"
#include "longhaul/data/input/stored_file.h"

namespace longhaul::data {
namespace {

constexpr uint64_t kLookedAt = uint64_t{64} << 10;
constexpr std::string_view kBlanks = " \t\r\n";

/// The beginning of a file, unpacked.
struct Beginning {
  std::string text;
  bool whole = false;  ///< the text is all of the file
};

Beginning beginning_of(const InputFile& file) {
  StoredFile stored(file, 0, std::min(file.stored_bytes, kLookedAt));
  const auto stream = open_bytes(stored);
  Beginning begin;
  while (!begin.whole && begin.text.size() < kLookedAt) {
    const std::span<const char> more = stream->next();
    begin.text.append(more.data(), more.size());
    begin.whole = more.empty();
  }
  return begin;
}

/// Returns "jq -c '.[]' x.json > x.jsonl" for the program "jq -c '.[]'".
std::string command_for(const std::string& program, const InputFile& file) {
  const std::string name = file.object ? file.path.filename() : file.path;
  fs::path out = name;
  if (file.compression != Compression::None) out.replace_extension();
  out.replace_extension(out.extension() == ".jsonl" ? ".lines.jsonl" : ".jsonl");
  const auto word = [](const std::string& path) {
    const bool plain = path.find_first_of(" '\"\\$`&|;<>()*?[]!#~") == std::string::npos;
    return plain ? path : "\"" + path + "\"";
  };
  const std::string to = " > " + word(out.string());
  if (file.compression == Compression::None) return program + " " + word(name) + to;
  const char* const unpack = file.compression == Compression::Gzip ? "gzip" : "zstd";
  return fmt::format("{} -dc {} | {}{}", unpack, word(name), program, to);
}

/// Returns what kind of JSON a text is if it is not JSON lines; empty if it may be JSON
/// lines.
std::string other_json(const InputFile& file, std::string_view text, bool whole) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  text = trimmed(text, kBlanks);
  if (text.empty()) return {};
  const FirstValue first = first_value(text);
  const bool over_lines = text.substr(0, first.end).find('\n') != text.npos;
  const std::string_view behind = trimmed(text.substr(first.end), kBlanks);
  const std::string path = file.path.string();
  const bool of_objects = trimmed(text.substr(1), kBlanks).starts_with('{');
  if (text.front() == '[' &&
      (first.cut || behind.empty() || (over_lines && (first.valid || of_objects)))) {
    return fmt::format("{} is one JSON array; one object a line is read: `{}`", path,
                       command_for("jq -c '.[]'", file));
  }
  if (text.front() != '{' || !first.valid || (first.cut && whole)) return {};
  if (over_lines) {
    return fmt::format(
        "{} holds a JSON object over several lines; one object a line is read: `{}`, or, "
        "where the records are a list inside the object, the same with '.NAME[]'",
        path, command_for("jq -c '.'", file));
  }
  if (!first.cut && behind.starts_with(',')) {
    return fmt::format(
        "{} has commas between its objects; one object a line is read, without commas: "
        "`{}`",
        path, command_for("sed 's/,[[:space:]]*$//'", file));
  }
  return {};
}

}  // namespace

std::string problem_of_file(const InputFile& file, RecordProblem problem) {
  using enum RecordProblem;
  const bool json =
      file.format == InputFormat::JsonLines &&
      (problem == InvalidJson || problem == NotAnObject || problem == TooLong);
  const bool text = problem == InvalidUtf8 && !has_columns(file.format);
  if (!json && !text) return {};
  const Beginning begin = beginning_of(file);
  if (begin.text.starts_with("\xFF\xFE") || begin.text.starts_with("\xFE\xFF")) {
    return fmt::format("{}: begins as UTF-16 does; make UTF-8 of it: `{}`",
                       file.path.string(), command_for("iconv -f UTF-16 -t UTF-8", file));
  }
  return json ? other_json(file, begin.text, begin.whole) : std::string();
}

std::string tell_broken(const InputSet& inputs, const RecordPlace& place,
                        RecordProblem problem, const std::string& detail,
                        std::string_view advice) {
  const InputFile& file = inputs.files().at(static_cast<size_t>(place.file));
  if (std::string whole = problem_of_file(file, problem); !whole.empty()) return whole;
  const std::string text = describe_broken(inputs.describe(place), problem, detail);
  if (problem == RecordProblem::Chat) return text;
  if (problem == RecordProblem::InvalidUtf8 && !has_columns(file.format)) {
    return fmt::format("{}; {}{}", text, kEncodingAdvice, advice);
  }
  return fmt::format("{}{}", text, advice);
}

void fail_record(const InputSet& inputs, const RecordPlace& place, RecordProblem problem,
                 const std::string& detail) {
  fail_input("data", "{}", tell_broken(inputs, place, problem, detail));
}

void FilesInUse::drop(const RecordPlace& place, RecordProblem problem,
                      const std::string& detail) {
  const bool first = first_bad_.try_emplace(place.file, place, problem, detail).second;
  if (!first) return;
  const InputFile& file = inputs_.files().at(static_cast<size_t>(place.file));
  if (const std::string whole = problem_of_file(file, problem); !whole.empty()) {
    fail_input("data", "{}", whole);
  }
}

void FilesInUse::check(int file, int64_t records) const {
  const auto bad = first_bad_.find(file);
  if (bad == first_bad_.end() || used_.contains(file)) return;
  // A text file is one record, which is left out if it is bad.
  if (!has_fields(inputs_.files().at(static_cast<size_t>(file)).format)) return;
  const auto& [place, problem, detail] = bad->second;
  refuse_unused(inputs_, place, records, problem, detail);
}

void refuse_unused(const InputSet& inputs, const RecordPlace& place, int64_t records,
                   RecordProblem problem, const std::string& detail) {
  fail_input("data", "{}: 0 of {} used; the first that is left out is {}",
             inputs.files().at(static_cast<size_t>(place.file)).path.string(),
             counted(records, "record"),
             tell_broken(inputs, place, problem, detail,
                         "; correct the file, or leave it out of the inputs"));
}

}  // namespace longhaul::data
