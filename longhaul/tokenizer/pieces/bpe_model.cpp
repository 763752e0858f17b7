#include "longhaul/tokenizer/pieces/bpe_model.h"

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/tokenizer/unicode/byte_alphabet.h"
#include "longhaul/tokenizer/unicode/unicode.h"

namespace longhaul::tokenizer {
namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr size_t kPlane = 0x10000;  // characters_ has the code points below

bool ascii(char c) { return static_cast<uint8_t>(c) < 0x80; }

/// For each token, the lowest rank of the merges that join it to text of another
/// character.
struct Neighbours {
  std::vector<uint32_t> right;  // merges with the token on the left
  std::vector<uint32_t> left;
  std::vector<uint32_t> any;  // all merges with the token

  Neighbours(const std::vector<Merge>& merges,
             const std::vector<std::optional<std::string>>& bytes)
      : right(bytes.size(), kNone), left(bytes.size(), kNone), any(bytes.size(), kNone) {
    const auto starts_character = [&](uint32_t id) {
      const uint8_t byte = bytes[id] && !bytes[id]->empty()
                               ? static_cast<uint8_t>(bytes[id]->front())
                               : 0xFF;
      return byte >= 0xC0;
    };
    const auto ends_character = [&](uint32_t id) {
      return !bytes[id] || bytes[id]->empty() || !ascii(bytes[id]->back());
    };
    for (size_t i = 0; i < merges.size(); ++i) {
      const Merge& merge = merges[i];
      const auto rank = static_cast<uint32_t>(i);
      const auto least = [&](uint32_t& value) { value = std::min(value, rank); };
      least(any[merge.left]);
      least(any[merge.right]);
      if (starts_character(merge.right)) least(right[merge.left]);
      if (ends_character(merge.left)) least(left[merge.right]);
    }
  }
};

}  // namespace

BpeModel::BpeModel(const BpeSpec& spec)
    : rules_(spec.merges), unknown_(spec.unknown), fuse_unknown_(spec.fuse_unknown) {
  ByteSpellings bytes(spec.vocab.size());
  for (size_t id = 0; id < spec.vocab.size(); ++id) {
    if (!spec.vocab[id]) continue;
    bytes[id] = token_to_bytes(*spec.vocab[id]);
    if (bytes[id] && bytes[id]->size() == 1) {
      bytes_[static_cast<uint8_t>(bytes[id]->front())] = static_cast<uint32_t>(id);
    }
  }
  find_wholes(spec, bytes);
  find_characters(spec, bytes);
}

/// Finds the pieces that become one token at once, without merging: all tokens with
/// ignore_merges, else the tokens that the merges lead to.
void BpeModel::find_wholes(const BpeSpec& spec, const ByteSpellings& bytes) {
  wholes_.reserve(spec.vocab.size());
  std::vector<uint32_t> ids;
  for (size_t id = 0; id < spec.vocab.size(); ++id) {
    if (!bytes[id] || bytes[id]->empty()) continue;
    const std::string& text = *bytes[id];
    if (!spec.ignore_merges) {
      const bool spelled = std::all_of(text.begin(), text.end(), [&](char c) {
        return bytes_[static_cast<uint8_t>(c)].has_value();
      });
      if (!spelled) continue;
      ids.resize(text.size());
      const size_t count = rules_.merge(ids.data(), spell_bytes(text, ids.data()));
      if (count != 1 || ids.front() != id) continue;
    }
    wholes_.add(text, static_cast<uint32_t>(id));
  }
}

/// Finds the characters at which merging can begin instead of bytes, with the same ids.
/// That is certain for a character whose bytes merge to one token before (by rank) any
/// merge with bytes of another character, and before any merge that uses the token
/// itself.
void BpeModel::find_characters(const BpeSpec& spec, const ByteSpellings& bytes) {
  characters_.assign(kPlane, kNone);
  const Neighbours least(spec.merges, bytes);
  for (size_t id = 0; id < spec.vocab.size(); ++id) {
    if (!bytes[id] || bytes[id]->size() < 2 || find_invalid_utf8(*bytes[id])) continue;
    const std::string& text = *bytes[id];
    const CodePoint point = decode_at(text.data(), 0);
    if (point.bytes != text.size() || point.value >= kPlane) continue;
    const bool spelled = std::all_of(text.begin(), text.end(), [&](char c) {
      return bytes_[static_cast<uint8_t>(c)].has_value();
    });
    if (!spelled) continue;
    std::array<uint32_t, 4> symbols{};
    size_t count = spell_bytes(text, symbols.data());
    uint32_t last = 0;         // the highest rank of the merges inside
    uint32_t outside = kNone;  // the lowest rank of the merges that reach out
    while (count > 1) {
      outside =
          std::min({outside, least.left[symbols[0]], least.right[symbols[count - 1]]});
      const auto step = rules_.best(symbols.data(), count);
      if (!step) break;
      last = std::max(last, step->rank);
      symbols[step->place] = step->result;
      std::copy(symbols.begin() + static_cast<ptrdiff_t>(step->place) + 2, symbols.end(),
                symbols.begin() + static_cast<ptrdiff_t>(step->place) + 1);
      --count;
    }
    if (count == 1 && symbols[0] == id && last < outside && last < least.any[id]) {
      characters_[point.value] = static_cast<uint32_t>(id);
    }
  }
}

size_t BpeModel::spell_bytes(std::string_view piece, uint32_t* ids) const {
  size_t count = 0;
  bool in_unknown = false;
  for (const char c : piece) {
    const auto byte = static_cast<uint8_t>(c);
    if (bytes_[byte]) {
      ids[count++] = *bytes_[byte];
      in_unknown = false;
      continue;
    }
    if (!unknown_) {
      fail_input("tokenizer",
                 "the vocabulary has no token for the byte 0x{:02X} and no unknown "
                 "token; use a tokenizer whose alphabet has all 256 bytes",
                 byte);
    }
    if (!in_unknown || !fuse_unknown_) ids[count++] = *unknown_;
    in_unknown = true;
  }
  return count;
}

/// Writes the symbols with which merging begins.
size_t BpeModel::spell(std::string_view piece, uint32_t* ids) const {
  size_t count = 0;
  size_t done = 0;
  for (size_t pos = 0; pos < piece.size();) {
    if (ascii(piece[pos])) {
      ++pos;
      continue;
    }
    const CodePoint point = decode_at(piece.data(), pos);
    const size_t end = pos + point.bytes;
    const bool alone = (pos == 0 || !ascii(piece[pos - 1])) &&
                       (end == piece.size() || !ascii(piece[end]));
    if (alone && point.value < kPlane && characters_[point.value] != kNone) {
      count += spell_bytes(piece.substr(done, pos - done), ids + count);
      ids[count++] = characters_[point.value];
      done = end;
    }
    pos = end;
  }
  return count + spell_bytes(piece.substr(done), ids + count);
}

size_t BpeModel::encode(std::string_view piece, const PieceKey& key,
                        uint32_t* ids) const {
  if (const auto id = wholes_.find(key, piece)) {
    *ids = *id;
    return 1;
  }
  return rules_.merge(ids, spell(piece, ids));
}

void WholeWords::add(std::string_view text, uint32_t id) {
  const PieceKey key = PieceKey::of(text);
  size_t slot = slot_of(key);
  while (entries_[slot].used) slot = (slot + 1) & (entries_.size() - 1);
  LH_CHECK(text_.size() + text.size() < INT32_MAX, "tokenizer",
           "a vocabulary of {} bytes", text_.size() + text.size());
  Entry& entry = entries_[slot];
  entry.key = key;
  entry.id = id;
  entry.text = static_cast<uint32_t>(text_.size()) & 0x7FFFFFFF;
  entry.used = 1;
  if (key.is_long()) text_.append(text);
}

}  // namespace longhaul::tokenizer
