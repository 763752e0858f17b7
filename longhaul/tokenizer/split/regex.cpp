#include "longhaul/tokenizer/split/regex.h"

#include "longhaul/base/error.h"

namespace longhaul::tokenizer {
namespace {

constexpr uint64_t kStepLimit = uint64_t{1} << 26;  // steps of a search, about a second
constexpr uint64_t kStepsPerByte = 64;

class Machine {
 public:
  Machine(const Regex::Program& program, std::string_view text)
      : program_(program),
        text_(text),
        limit_(kStepLimit + kStepsPerByte * text.size()) {}

  /// Returns the end of a match that starts at `pos`.
  std::optional<size_t> run(uint32_t pc, size_t pos);
  bool exhausted() const { return steps_ > limit_; }

 private:
  using Op = Regex::Op;
  /// A place to try if the current path fails. If low < pos, a repetition has matched the
  /// text from low to pos, and it first gives back the last code point of this text.
  struct Retry {
    uint32_t pc;
    size_t pos;
    size_t low;
  };
  bool at_line_start(size_t pos) const {
    return pos == 0 || (pos < text_.size() && text_[pos - 1] == '\n');
  }
  bool at_line_end(size_t pos) const { return pos == text_.size() || text_[pos] == '\n'; }
  size_t star(const CharSet& set, size_t pos) {
    while (pos < text_.size()) {
      const CodePoint point = decode_at(text_.data(), pos);
      if (!set[point.value]) break;
      pos += point.bytes;
      ++steps_;
    }
    return pos;
  }
  /// Runs one step. Returns false if this path fails.
  bool step(uint32_t& pc, size_t& pos);
  bool retry(size_t base, uint32_t& pc, size_t& pos);

  const Regex::Program& program_;
  std::string_view text_;
  std::vector<Retry> retries_;
  uint64_t limit_;
  uint64_t steps_ = 0;
};

bool Machine::step(uint32_t& pc, size_t& pos) {
  const Regex::Instruction& now = program_.code[pc];
  ++pc;
  switch (now.op) {
    case Op::Set: {
      if (pos == text_.size()) return false;
      const CodePoint point = decode_at(text_.data(), pos);
      pos += point.bytes;
      return program_.sets[now.a][point.value];
    }
    case Op::SetStar: {
      const size_t end = star(program_.sets[now.a], pos);
      if (end > pos) retries_.push_back({pc, end, pos});
      pos = end;
      return true;
    }
    case Op::Split:
      retries_.push_back({now.b, pos, pos});
      pc = now.a;
      return true;
    case Op::Jump:
      pc = now.a;
      return true;
    case Op::Look: {
      const bool found = run(pc, pos).has_value();
      pc = now.a;
      return found != (now.b != 0);
    }
    case Op::Atomic: {
      const auto end = run(pc, pos);
      pc = now.a;
      if (end) pos = *end;
      return end.has_value();
    }
    case Op::LineStart:
      return at_line_start(pos);
    case Op::LineEnd:
      return at_line_end(pos);
    case Op::TextStart:
      return pos == 0;
    case Op::TextEnd:
      return pos == text_.size();
    case Op::Done:
      break;
  }
  return true;
}

bool Machine::retry(size_t base, uint32_t& pc, size_t& pos) {
  if (retries_.size() == base) return false;
  Retry& last = retries_.back();
  pc = last.pc;
  if (last.low < last.pos) {
    last.pos -= decode_before(text_.data(), last.pos).bytes;
    pos = last.pos;
    if (last.pos == last.low) retries_.pop_back();
    return true;
  }
  pos = last.pos;
  retries_.pop_back();
  return true;
}

std::optional<size_t> Machine::run(uint32_t pc, size_t pos) {
  const size_t base = retries_.size();
  while (!exhausted()) {
    if (program_.code[pc].op == Op::Done) {
      retries_.resize(base);
      return pos;
    }
    ++steps_;
    if (!step(pc, pos) && !retry(base, pc, pos)) return std::nullopt;
  }
  retries_.resize(base);
  return std::nullopt;
}

}  // namespace

Regex::Regex(std::string_view pattern)
    : pattern_(pattern), program_(compile_regex(pattern)) {}

Regex Regex::literal(std::string_view text) {
  LH_CHECK(!text.empty(), "tokenizer", "an empty literal");
  Regex regex;
  regex.literal_ = text;
  return regex;
}

std::optional<Regex::Match> Regex::find(std::string_view text, size_t from) const {
  if (!literal_.empty()) {
    const size_t start = text.find(literal_, from);
    if (start == std::string_view::npos) return std::nullopt;
    return Match{start, start + literal_.size()};
  }
  Machine machine(program_, text);
  for (size_t start = from; start <= text.size();) {
    const auto end = machine.run(0, start);
    if (machine.exhausted()) {
      fail_input("tokenizer",
                 "the pattern {} takes more than {} steps on a text of {} bytes; split "
                 "the text into shorter documents",
                 pattern_, kStepLimit, text.size());
    }
    if (end) return Match{start, *end};
    if (start == text.size()) break;
    start += decode_at(text.data(), start).bytes;
  }
  return std::nullopt;
}

std::string Regex::replace_all(std::string_view text, std::string_view content) const {
  std::string out;
  size_t done = 0;
  while (done < text.size()) {
    const auto match = find(text, done);
    // Patterns that can match an empty text are refused while reading.
    if (!match || match->end == match->start) break;
    out.append(text.substr(done, match->start - done)).append(content);
    done = match->end;
  }
  return out.append(text.substr(done));
}

}  // namespace longhaul::tokenizer
