#include "longhaul/tokenizer/split/normalizers.h"

#include <algorithm>

#include "longhaul/base/text.h"
#include "longhaul/tokenizer/unicode/byte_alphabet.h"
#include "longhaul/tokenizer/unicode/char_map.h"
#include "longhaul/tokenizer/unicode/unicode.h"

namespace longhaul::tokenizer {
namespace {

/// Visits each code point of a text and replaces it.
template <typename Visit>
void rewrite(NormalText& normal, Visit&& visit) {
  const std::string_view text = normal.text;
  std::string out;
  out.reserve(text.size());
  size_t at_start = 0;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint point = decode_at(text.data(), pos);
    visit(point.value, text.substr(pos, point.bytes), out);
    if (pos < normal.at_start) at_start = out.size();
    pos += point.bytes;
  }
  normal = {std::move(out), at_start};
}

/// Returns NormalText::at_start of a changed text, as in Hugging Face's alignments. A new
/// code point (change 1) counts as a part of the code point before it. Any other takes
/// the next code point of `before`, and drops -change further ones.
size_t start_behind(const NormalText& before, const std::vector<PointChange>& changes) {
  size_t taken = 0;  // bytes of `before`
  size_t at_start = 0;
  for (const PointChange& change : changes) {
    const size_t from = change.change <= 0 || taken == 0 ? taken : taken - 1;
    if (from >= before.at_start) break;
    at_start += change.bytes;
    for (int left = 1 - change.change; left > 0 && taken < before.text.size(); --left) {
      taken += decode_at(before.text.data(), taken).bytes;
    }
  }
  return at_start;
}

/// Returns a normalizer that drops the code points with a property.
Normalizer drop(uint16_t property) {
  return [property, &data = unicode_data()](NormalText& normal) {
    rewrite(normal, [&](uint32_t point, std::string_view own, std::string& out) {
      if (!(data.properties(point) & property)) out.append(own);
    });
  };
}

void space_chinese(NormalText& normal) {
  rewrite(normal, [](uint32_t point, std::string_view own, std::string& out) {
    const auto in = [&](uint32_t first, uint32_t last) {
      return point >= first && point <= last;
    };
    const bool chinese = in(0x4E00, 0x9FFF) || in(0x3400, 0x4DBF) ||
                         in(0x20000, 0x2A6DF) || in(0x2A700, 0x2B73F) ||
                         in(0x2B740, 0x2B81F) || in(0x2B920, 0x2CEAF) ||
                         in(0xF900, 0xFAFF) || in(0x2F800, 0x2FA1F);
    if (chinese) out.push_back(' ');
    out.append(own);
    if (chinese) out.push_back(' ');
  });
}

class Precompiled {
 public:
  explicit Precompiled(std::string_view charsmap) : map_(charsmap) {}
  void operator()(NormalText& normal) const {
    Writer writer{{}, {}, normal.at_start};
    writer.text.reserve(normal.text.size());
    const std::string_view view = normal.text;
    for (size_t pos = 0; pos < view.size();) {
      const size_t end = grapheme_end(data_, view, pos);
      add_cluster(view.substr(pos, end - pos), writer);
      pos = end;
    }
    normal.at_start = start_behind(normal, writer.changes);
    normal.text = std::move(writer.text);
  }

 private:
  struct Writer {
    std::string text;
    std::vector<PointChange> changes;  // noted while `taken` is below `at_start`
    size_t at_start;
    size_t taken = 0;
    void replace(std::string_view old_part, std::string_view new_part) {
      text.append(new_part);
      if (taken >= at_start) return;
      const int old_count = static_cast<int>(count_code_points(old_part));
      const int new_count = static_cast<int>(count_code_points(new_part));
      int left = new_count;
      for (size_t pos = 0; pos < new_part.size(); --left) {
        const size_t bytes = decode_at(new_part.data(), pos).bytes;
        changes.push_back({bytes, left <= new_count - old_count ? 1 : 0});
        taken += static_cast<size_t>(1 - changes.back().change);
        pos += bytes;
      }
      // As in Hugging Face, code points that were dropped before anything was written do
      // not count.
      if (new_count < old_count && !changes.empty()) {
        changes.back().change += new_count - old_count;
        taken += static_cast<size_t>(old_count - new_count);
      }
    }
  };

  /// Replaces a short cluster by what its shortest prefix in the map becomes. The rest of
  /// the cluster is lost, as in Hugging Face, and ids depend on that.
  void add_cluster(std::string_view cluster, Writer& writer) const {
    if (cluster.size() < 6) {
      if (const auto found = map_.shortest_prefix(cluster)) {
        writer.replace(cluster, *found);
        return;
      }
    }
    for (size_t pos = 0; pos < cluster.size();) {
      const CodePoint point = decode_at(cluster.data(), pos);
      const std::string_view part = cluster.substr(pos, point.bytes);
      writer.replace(part, map_.shortest_prefix(part).value_or(part));
      pos += point.bytes;
    }
  }

  const UnicodeData& data_ = unicode_data();
  CharMap map_;
};

}  // namespace

Normalizer make_normal_form(NormalForm form) {
  return [form, &data = unicode_data()](NormalText& normal) {
    if (normal.at_start > 0) {
      // A mark never moves over an ASCII character behind it, and never joins with one.
      size_t end = normal.at_start;
      while (end < normal.text.size() && (normal.text[end] & 0x80) != 0) ++end;
      const std::string_view front = std::string_view(normal.text).substr(0, end);
      normal.at_start = start_behind(normal, data.normal_changes(front, form));
    }
    normal.text = data.normalize(normal.text, form);
  };
}

Normalizer make_lowercase() {
  return [&data = unicode_data()](NormalText& normal) {
    rewrite(normal, [&](uint32_t point, std::string_view, std::string& out) {
      data.append_lower(point, out);
    });
  };
}

Normalizer make_strip_accents() { return drop(kCombiningMark); }

Normalizer make_nmt() {
  return [](NormalText& normal) {
    rewrite(normal, [](uint32_t point, std::string_view own, std::string& out) {
      const bool dropped = (point >= 0x01 && point <= 0x08) || point == 0x0B ||
                           (point >= 0x0E && point <= 0x1F) || point == 0x7F ||
                           point == 0x8F || point == 0x9F;
      const bool space =
          point == 0x09 || point == 0x0A || point == 0x0C || point == 0x0D ||
          point == 0x1680 || (point >= 0x200B && point <= 0x200F) || point == 0x2028 ||
          point == 0x2029 || point == 0x2581 || point == 0xFEFF || point == 0xFFFD;
      if (!dropped) out.append(space ? std::string_view(" ") : own);
    });
  };
}

Normalizer make_byte_level_normalizer() {
  return [](NormalText& normal) {
    const std::string_view front =
        std::string_view(normal.text).substr(0, normal.at_start);
    normal = {bytes_to_token(normal.text), bytes_to_token(front).size()};
  };
}

Normalizer make_strip(bool left, bool right) {
  return [left, right, &classes = char_classes()](NormalText& normal) {
    const std::string& text = normal.text;
    size_t start = 0;
    size_t end = text.size();
    while (left && start < end) {
      const CodePoint point = decode_at(text.data(), start);
      if (!(classes[point.value] & kSpace)) break;
      start += point.bytes;
    }
    while (right && end > start) {
      const CodePoint point = decode_before(text.data(), end);
      if (!(classes[point.value] & kSpace)) break;
      end -= point.bytes;
    }
    normal.at_start = std::min(end, std::max(normal.at_start, start)) - start;
    normal.text = text.substr(start, end - start);
  };
}

Normalizer make_prepend(std::string prefix) {
  return [prefix = std::move(prefix)](NormalText& normal) {
    if (normal.text.empty()) return;
    normal.text.insert(0, prefix);
    if (normal.at_start > 0) normal.at_start += prefix.size();
  };
}

Normalizer make_replace(Regex pattern, std::string content) {
  return
      [pattern = std::move(pattern), content = std::move(content)](NormalText& normal) {
        const std::string_view text = normal.text;
        std::string out;
        size_t at_start = 0;
        size_t done = 0;
        const auto keep = [&](size_t end) {
          out.append(text.substr(done, end - done));
          if (done < normal.at_start) {
            at_start = out.size() - (end - std::min(end, normal.at_start));
          }
          done = end;
        };
        while (done < text.size()) {
          const auto match = pattern.find(text, done);
          // Patterns that can match an empty text are refused while reading.
          if (!match || match->end == match->start) break;
          keep(match->start);
          out.append(content);  // stands where the last of what it replaces stood
          if (match->end <= normal.at_start) at_start = out.size();
          done = match->end;
        }
        keep(text.size());
        normal = {std::move(out), at_start};
      };
}

Normalizer make_bert_normalizer(const BertNormalizerOptions& options) {
  Normalizers steps;
  if (options.clean_text) {
    steps.emplace_back(
        [&data = unicode_data(), &classes = char_classes()](NormalText& normal) {
          rewrite(normal, [&](uint32_t point, std::string_view own, std::string& out) {
            if (data.properties(point) & kControl) return;
            const bool space = (classes[point] & kSpace) != 0;
            out.append(space ? std::string_view(" ") : own);
          });
        });
  }
  if (options.handle_chinese_chars) steps.emplace_back(space_chinese);
  if (options.strip_accents) {
    steps.push_back(make_normal_form(NormalForm::D));
    steps.push_back(drop(kNonspacingMark));
  }
  if (options.lowercase) steps.push_back(make_lowercase());
  return [steps](NormalText& normal) {
    for (const Normalizer& step : steps) step(normal);
  };
}

Normalizer make_precompiled(std::string_view charsmap) { return Precompiled(charsmap); }

}  // namespace longhaul::tokenizer
