#include "apps/try/text_sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/input/byte_stream.h"
#include "longhaul/data/input/file_kinds.h"
#include "longhaul/data/input/input_directory.h"
#include "longhaul/data/input/path_pattern.h"
#include "longhaul/data/input/wrong_files.h"
#include "longhaul/system/terminal.h"

namespace longhaul::apps {
namespace {

constexpr uint64_t kFewestDocuments = 200;
constexpr size_t kSmallestDocument = 100;
constexpr size_t kLargestDocument = 4096;
/// How many sizes uneven pieces have. The number is prime, so that the sizes do not come
/// round together with the period of a text that repeats itself.
constexpr size_t kUnevenSizes = 97;
constexpr uint64_t kHeldOutBytes = 4000;
constexpr double kMostHeldOut = 0.2;
constexpr double kHeldOut = 0.05;
constexpr size_t kPromptCharacters = 24;

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

/// Returns the largest offset up to `end` at which no character is cut.
size_t character_start(std::string_view text, size_t end) {
  while (end > 0 && end < text.size() && is_continuation(text[end])) --end;
  return end;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos;
}

/// Returns whether the name of an input tells its kind.
bool is_of_known_kind(const fs::path& path) {
  if (!fs::is_directory(path)) {
    return data::format_of_name(path).has_value() || !data::unread_packing(path).empty();
  }
  return data::is_saved_dataset(path) || !data::data_file_of(path).empty();
}

/// Returns the format that was asked for, else text if no input's name tells its kind.
std::optional<data::InputFormat> format_of(const data::InputOptions& options) {
  if (options.format) return options.format;
  for (const std::string& argument : options.arguments) {
    for (const fs::path& path : data::expand_pattern(argument)) {
      if (!fs::exists(path) || is_of_known_kind(path)) return std::nullopt;
    }
  }
  return data::InputFormat::Text;
}

[[noreturn]] void refuse_bytes(const fs::path& file, std::string_view text, size_t at) {
  std::string found = fmt::format("byte {} (0x{:02X}) is not UTF-8", at,
                                  static_cast<unsigned char>(text[at]));
  std::string advice =
      fmt::format("a binary file holds no text to learn from; {}", data::kEncodingAdvice);
  if (text[at] == '\0') {
    found = fmt::format("byte {} is zero, as in binary files", at);
    advice = "take the text out of it first (of a PDF by `pdftotext`)";
  }
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    found = "it begins as UTF-16 does";
    advice = "make UTF-8 of it with `iconv -f UTF-16 -t UTF-8`";
  }
  fail_input("try", "{}: is no text in UTF-8: {}; {}", file.string(), found, advice);
}

void check_text(const fs::path& file, std::string_view text) {
  const size_t zero = text.find('\0');
  const auto invalid = find_invalid_utf8(text);
  if (zero != std::string_view::npos || invalid) {
    refuse_bytes(file, text, std::min(zero, invalid.value_or(text.size())));
  }
}

/// The part of one file that was read.
struct Beginning {
  std::string text;
  bool whole = true;
};

/// Reads the first bytes of a text, up to the end of a line if there is one among them.
Beginning beginning_of_text(const data::InputFile& input, uint64_t most_bytes) {
  data::StoredFile file(input);
  const std::unique_ptr<data::ByteStream> stream = data::open_bytes(file);
  Beginning out;
  while (out.text.size() <= most_bytes) {
    const std::span<const char> more = stream->next();
    if (more.empty()) break;
    out.text.append(more.data(), more.size());
  }
  if (out.text.starts_with("\xEF\xBB\xBF")) out.text.erase(0, 3);
  if (out.text.size() > most_bytes) {
    out.whole = false;
    out.text.resize(character_start(out.text, most_bytes));
    const size_t line = out.text.rfind('\n');
    if (line != std::string::npos && line > out.text.size() / 2)
      out.text.resize(line + 1);
  }
  check_text(input.path, out.text);
  return out;
}

/// Reads the first documents of a file of records, a line end behind each.
Beginning beginning_of_records(const data::InputSet& inputs, int file,
                               uint64_t most_bytes) {
  const auto reader = inputs.open({{{file, 0, data::InputRange::kToEnd}}, 0});
  Beginning out;
  data::RawRecord record;
  while (reader->next(record)) {
    if (out.text.size() >= most_bytes) {
      out.whole = false;
      break;
    }
    data::ParsedRecord parsed = data::parse_record(record, inputs.options());
    if (parsed.problem == data::RecordProblem::Empty) continue;
    if (parsed.problem != data::RecordProblem::None) {
      fail_input("try", "{}",
                 data::tell_broken(inputs, record.place, parsed.problem, parsed.detail,
                                   "; correct the record, or name another text"));
    }
    if (parsed.kind == data::ParsedRecord::Kind::Ids) {
      fail_input("try",
                 "{}: '{}' holds token ids, not text; name another field with --field",
                 inputs.describe(record.place), inputs.options().field);
    }
    check_text(inputs.files()[static_cast<size_t>(file)].path, parsed.text);
    out.text += parsed.text;
    out.text += '\n';
  }
  if (out.text.size() > most_bytes) {
    out.whole = false;
    out.text.resize(character_start(out.text, most_bytes));
  }
  return out;
}

/// Returns the beginning of the first line that is not blank. It ends with a whole word
/// if the line has one.
std::string first_words(const std::string& document) {
  const size_t begin = document.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return {};
  const std::string line = document.substr(begin, document.find('\n', begin) - begin);
  size_t end = 0;
  for (size_t characters = 0; end < line.size() && characters < kPromptCharacters;
       ++characters) {
    ++end;
    while (end < line.size() && is_continuation(line[end])) ++end;
  }
  if (end < line.size() && line.rfind(' ', end) != std::string::npos) {
    end = line.rfind(' ', end);
  }
  return line.substr(0, end);
}

/// Returns whether a text has several words of letters, or is of another script than
/// Latin.
bool is_of_words(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           static_cast<unsigned char>(c) >= 0x80;
  };
  const auto letters = std::ranges::count_if(text, is_letter);
  const auto spaces = std::ranges::count(text, ' ');
  const bool several = spaces >= 2 || std::ranges::any_of(text, [](char c) {
                         return static_cast<unsigned char>(c) >= 0x80;
                       });
  return several && 10 * (letters + spaces) >= 9 * std::ssize(text);
}

std::string names_of(const std::vector<fs::path>& files) {
  const std::string first = files.front().string();
  return files.size() == 1 ? first
                           : fmt::format("{} and {} more", first,
                                         counted(std::ssize(files) - 1, "file"));
}

void check_enough(const data::InputSet& inputs, uint64_t bytes) {
  std::vector<fs::path> files;
  for (const data::InputFile& file : inputs.files()) files.push_back(file.path);
  const std::string names = names_of(files);
  if (bytes == 0) {
    fail_input("try", "{}: no text is in {}; name a text of {} or more", names,
               files.size() == 1 ? "it" : "them", human_bytes(kLeastText));
  }
  if (bytes >= kLeastText) return;
  fail_input("try",
             "{}: too short: {} of text, and {} are needed, so that a part can be held "
             "out and enough is left to learn from; name more or longer texts",
             names, human_bytes(bytes), human_bytes(kLeastText));
}

}  // namespace

std::vector<std::string> cut_into_documents(std::string_view text, size_t piece_bytes,
                                            Cut cut) {
  std::vector<std::string> documents;
  for (size_t number = 0; !text.empty(); ++number) {
    size_t end = text.size();
    if (cut == Cut::Unevenly) {
      end = character_start(text, std::min(end, piece_bytes + number % kUnevenSizes));
    } else if (end > piece_bytes) {
      end = std::min(text.find('\n', piece_bytes - 1), text.size() - 1) + 1;
      if (end > 2 * piece_bytes) end = character_start(text, piece_bytes);
    }
    if (!is_blank(text.substr(0, end))) documents.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return documents;
}

double held_out_share(uint64_t text_bytes) {
  const double wanted = static_cast<double>(kHeldOutBytes) /
                        static_cast<double>(std::max<uint64_t>(text_bytes, 1));
  return std::clamp(wanted, kHeldOut, kMostHeldOut);
}

TextSample take_text(data::InputOptions options, uint64_t most_bytes) {
  options.format = format_of(options);
  const data::InputSet inputs(std::move(options));
  TextSample sample;
  sample.stored_bytes = inputs.stored_bytes();
  sample.files_in_all = inputs.files().size();
  std::vector<std::string> texts;
  uint64_t bytes = 0;
  for (size_t i = 0; i < inputs.files().size() && bytes < most_bytes; ++i) {
    const data::InputFile& file = inputs.files()[i];
    Beginning read =
        file.format == data::InputFormat::Text
            ? beginning_of_text(file, most_bytes - bytes)
            : beginning_of_records(inputs, static_cast<int>(i), most_bytes - bytes);
    sample.whole = sample.whole && read.whole;
    bytes += read.text.size();
    sample.files.push_back(file.path);
    texts.push_back(std::move(read.text));
  }
  sample.whole = sample.whole && sample.files.size() == sample.files_in_all;
  const auto piece = static_cast<size_t>(std::clamp<uint64_t>(
      bytes / kFewestDocuments, kSmallestDocument, kLargestDocument));
  for (const Cut cut : {Cut::AtLines, Cut::Unevenly}) {
    sample.documents.clear();
    for (const std::string& text : texts) {
      std::ranges::move(cut_into_documents(text, piece, cut),
                        std::back_inserter(sample.documents));
    }
    const std::set<std::string_view> different(sample.documents.begin(),
                                               sample.documents.end());
    if (2 * different.size() >= sample.documents.size()) break;
    sample.repeats = true;
  }
  for (const std::string& document : sample.documents) sample.bytes += document.size();
  check_enough(inputs, sample.bytes);
  return sample;
}

std::string prompt_of(const TextSample& sample) {
  std::string second_best = "The";
  for (size_t i = sample.documents.size() / 2; i < sample.documents.size(); ++i) {
    const std::string prompt = first_words(sample.documents[i]);
    if (prompt.size() < 4 || system::has_control_characters(prompt)) continue;
    if (is_of_words(prompt)) return prompt;
    if (second_best == "The") second_best = prompt;
  }
  return second_best;
}

}  // namespace longhaul::apps
