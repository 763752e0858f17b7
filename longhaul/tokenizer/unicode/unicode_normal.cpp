#include <algorithm>

#include "longhaul/tokenizer/unicode/unicode.h"
#include "longhaul/tokenizer/unicode/unicode_data.h"

namespace longhaul::tokenizer {
namespace {

// Hangul syllables are composed by arithmetic (the Unicode standard, 3.12).
constexpr uint32_t kSyllable = 0xAC00;
constexpr uint32_t kLead = 0x1100;
constexpr uint32_t kVowel = 0x1161;
constexpr uint32_t kTail = 0x11A7;
constexpr uint32_t kLeads = 19;
constexpr uint32_t kVowels = 21;
constexpr uint32_t kTails = 28;
constexpr uint32_t kSyllables = kLeads * kVowels * kTails;

/// Returns the first code point that a form may change or move.
constexpr uint32_t first_changed(NormalForm form) {
  switch (form) {
    case NormalForm::C:
      return 0x300;
    case NormalForm::D:
      return 0xC0;
    default:
      return 0xA0;
  }
}

/// Text without bytes from this on has only code points below U+0300.
constexpr uint8_t kFirstLeadOfMarks = 0xCC;

}  // namespace

UnicodeData::UnicodeData()
    : mappings_(kMappingsCount / 2),
      combining_classes_(kCombiningClassesCount),
      compositions_(kCompositionsCount / 3) {
  properties_.reserve(0x110000);
  for (size_t i = 0; i < kPropertyRunsCount; ++i) {
    properties_.insert(properties_.end(), kPropertyRuns[i] >> 16,
                       static_cast<uint16_t>(kPropertyRuns[i] & 0xFFFF));
  }
  properties_.resize(0x110000);
  for (size_t i = 0; i < kMappingsCount;) {
    const uint32_t head = kMappings[i];
    const uint64_t key = (uint64_t{head >> 29} << 32) | (head & 0xFFFFFF);
    mappings_[key] = static_cast<uint32_t>(i);
    i += 1 + ((head >> 24) & 31);
  }
  for (size_t i = 0; i < kCombiningClassesCount; ++i) {
    combining_classes_[kCombiningClasses[i] & 0xFFFFFF] =
        static_cast<uint8_t>(kCombiningClasses[i] >> 24);
  }
  for (size_t i = 0; i < kCompositionsCount; i += 3) {
    compositions_[(uint64_t{kCompositions[i]} << 32) | kCompositions[i + 1]] =
        kCompositions[i + 2];
  }
  mark_moving();
}

void UnicodeData::mark_moving() {
  const auto mark = [&](uint32_t point) { properties_[point] |= kMovesInFormC; };
  for (size_t i = 0; i < kCombiningClassesCount; ++i) {
    mark(kCombiningClasses[i] & 0xFFFFFF);
  }
  for (size_t i = 0; i < kCompositionsCount; i += 3) mark(kCompositions[i + 1]);
  for (uint32_t i = 0; i < kVowels; ++i) mark(kVowel + i);
  for (uint32_t i = 1; i < kTails; ++i) mark(kTail + i);
  for (size_t i = 0; i < kMappingsCount;) {
    const uint32_t head = kMappings[i];
    const uint32_t point = head & 0xFFFFFF;
    i += 1 + ((head >> 24) & 31);
    if (static_cast<Kind>(head >> 29) != Kind::Canonical) continue;
    std::vector<Mark> parts;
    decompose(point, false, parts);
    compose(parts);
    if (parts.size() != 1 || parts[0].point != point) mark(point);
  }
}

const UnicodeData& unicode_data() {
  static const UnicodeData data;
  return data;
}

void append_utf8(uint32_t point, std::string& out) {
  const auto add = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    add(point);
  } else if (point < 0x800) {
    add(0xC0 | (point >> 6));
    add(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    add(0xE0 | (point >> 12));
    add(0x80 | ((point >> 6) & 0x3F));
    add(0x80 | (point & 0x3F));
  } else {
    add(0xF0 | (point >> 18));
    add(0x80 | ((point >> 12) & 0x3F));
    add(0x80 | ((point >> 6) & 0x3F));
    add(0x80 | (point & 0x3F));
  }
}

const uint32_t* UnicodeData::mapping(Kind kind, uint32_t point) const {
  const uint32_t* found =
      mappings_.find((uint64_t{static_cast<uint32_t>(kind)} << 32) | point);
  return found ? kMappings + *found : nullptr;
}

void UnicodeData::append_lower(uint32_t point, std::string& out) const {
  if (point < 0x80) {
    out.push_back(static_cast<char>(point >= 'A' && point <= 'Z' ? point + 32 : point));
    return;
  }
  const uint32_t* lower = mapping(Kind::Lower, point);
  if (!lower) {
    append_utf8(point, out);
    return;
  }
  const uint32_t length = (*lower >> 24) & 31;
  for (uint32_t i = 1; i <= length; ++i) append_utf8(lower[i], out);
}

void UnicodeData::decompose(uint32_t point, bool compatible,
                            std::vector<Mark>& out) const {
  if (point < 0xA0) {
    out.push_back({point, 0});
    return;
  }
  if (point >= kSyllable && point < kSyllable + kSyllables) {
    const uint32_t index = point - kSyllable;
    out.push_back({kLead + index / (kVowels * kTails), 0});
    out.push_back({kVowel + index % (kVowels * kTails) / kTails, 0, 1});
    if (index % kTails) out.push_back({kTail + index % kTails, 0, 1});
    return;
  }
  const auto add = [&](uint32_t part) {
    const uint8_t* found = combining_classes_.find(part);
    out.push_back({part, found ? *found : uint8_t{0}});
  };
  const uint32_t* parts = compatible ? mapping(Kind::Compatible, point) : nullptr;
  if (!parts) parts = mapping(Kind::Canonical, point);
  if (!parts) {
    add(point);
    return;
  }
  const uint32_t length = (*parts >> 24) & 31;
  for (uint32_t i = 1; i <= length; ++i) {
    add(parts[i]);
    out.back().change = i > 1 ? 1 : 0;
  }
}

uint32_t UnicodeData::composed(uint32_t first, uint32_t second) const {
  if (first >= kLead && first < kLead + kLeads && second >= kVowel &&
      second < kVowel + kVowels) {
    return kSyllable + ((first - kLead) * kVowels + (second - kVowel)) * kTails;
  }
  if (first >= kSyllable && first < kSyllable + kSyllables &&
      (first - kSyllable) % kTails == 0 && second > kTail && second < kTail + kTails) {
    return first + (second - kTail);
  }
  const uint32_t* found = compositions_.find((uint64_t{first} << 32) | second);
  return found ? *found : 0;
}

void UnicodeData::compose(std::vector<Mark>& marks) const {
  size_t kept = 0;
  size_t starter = SIZE_MAX;
  int last_class = -1;  // class of the last mark kept since the starter
  for (const Mark mark : std::vector<Mark>(marks)) {
    if (starter != SIZE_MAX && last_class < mark.combining_class) {
      if (const uint32_t both = composed(marks[starter].point, mark.point)) {
        marks[starter].point = both;
        marks[starter].change =
            static_cast<int16_t>(marks[starter].change + mark.change - 1);
        continue;
      }
    }
    if (mark.combining_class == 0) {
      starter = kept;
      last_class = -1;
    } else {
      last_class = mark.combining_class;
    }
    marks[kept++] = mark;
  }
  marks.resize(kept);
}

std::string UnicodeData::normalize(std::string_view text, NormalForm form) const {
  if (form != NormalForm::C) return normalize_all(text, form);
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<uint8_t>(c) < kFirstLeadOfMarks;
  });
  if (plain) return std::string(text);
  // Code points that move are normalized together with the one before, up to the next
  // code point that does not move. In form C nothing crosses such a border.
  std::string out;
  out.reserve(text.size());
  size_t copied = 0;  // text[copied, border) stands as it is
  size_t border = 0;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint point = decode_at(text.data(), pos);
    if ((properties_[point.value] & kMovesInFormC) == 0) {
      border = pos;
      pos += point.bytes;
      continue;
    }
    size_t end = pos;
    while (end < text.size()) {
      const CodePoint next = decode_at(text.data(), end);
      if ((properties_[next.value] & kMovesInFormC) == 0) break;
      end += next.bytes;
    }
    out += text.substr(copied, border - copied);
    out += normalize_all(text.substr(border, end - border), form);
    copied = border = pos = end;
  }
  out += text.substr(copied);
  return out;
}

std::string UnicodeData::normalize_all(std::string_view text, NormalForm form) const {
  const uint32_t limit = first_changed(form);
  bool changes = false;
  for (size_t pos = 0; pos < text.size() && !changes;) {
    const CodePoint point = decode_at(text.data(), pos);
    changes = point.value >= limit;
    pos += point.bytes;
  }
  if (!changes) return std::string(text);
  std::string out;
  out.reserve(text.size());
  for (const Mark& mark : normal_marks(text, form)) append_utf8(mark.point, out);
  return out;
}

std::vector<PointChange> UnicodeData::normal_changes(std::string_view text,
                                                     NormalForm form) const {
  std::vector<PointChange> changes;
  std::string point;
  for (const Mark& mark : normal_marks(text, form)) {
    point.clear();
    append_utf8(mark.point, point);
    changes.push_back({point.size(), mark.change});
  }
  return changes;
}

std::vector<UnicodeData::Mark> UnicodeData::normal_marks(std::string_view text,
                                                         NormalForm form) const {
  const bool compatible = form == NormalForm::KC || form == NormalForm::KD;
  std::vector<Mark> marks;
  marks.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint point = decode_at(text.data(), pos);
    decompose(point.value, compatible, marks);
    pos += point.bytes;
  }
  for (auto at = marks.begin(); at != marks.end();) {
    if (at->combining_class == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, marks.end(),
                                  [](const Mark& m) { return m.combining_class == 0; });
    std::stable_sort(at, end, [](const Mark& a, const Mark& b) {
      return a.combining_class < b.combining_class;
    });
    at = end;
  }
  if (form == NormalForm::C || form == NormalForm::KC) compose(marks);
  return marks;
}

}  // namespace longhaul::tokenizer
