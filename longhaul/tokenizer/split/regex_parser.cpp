#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "longhaul/base/error.h"
#include "longhaul/tokenizer/split/regex.h"

namespace longhaul::tokenizer {
namespace {

using Op = Regex::Op;

constexpr int kMaxGroupDepth = 32;
constexpr uint32_t kMaxCount = 1000;
constexpr size_t kMaxProgram = 20000;
constexpr uint32_t kNoLimit = UINT32_MAX;

struct Node {
  enum Kind { Set, Sequence, Choice, Repeat, Look, Atomic, Assert } kind;
  std::vector<std::unique_ptr<Node>> children;
  uint32_t set = 0;
  uint32_t min = 0;
  uint32_t max = 0;
  bool lazy = false;
  bool negative = false;
  Op assertion = Op::Done;

  bool can_be_empty() const {
    switch (kind) {
      case Set:
        return false;
      case Sequence:
      case Atomic:
        return std::all_of(children.begin(), children.end(),
                           [](const auto& child) { return child->can_be_empty(); });
      case Choice:
        return std::any_of(children.begin(), children.end(),
                           [](const auto& child) { return child->can_be_empty(); });
      case Repeat:
        return min == 0 || children[0]->can_be_empty();
      default:
        return true;
    }
  }
};
using NodePtr = std::unique_ptr<Node>;

NodePtr make(Node::Kind kind) {
  auto node = std::make_unique<Node>();
  node->kind = kind;
  return node;
}

class Parser {
 public:
  Parser(std::string_view pattern, Regex::Program& program)
      : pattern_(pattern), program_(program) {}

  NodePtr parse() {
    NodePtr node = choice(false, 0);
    if (pos_ != pattern_.size()) fail("a ) without (");
    if (node->can_be_empty()) fail("it can match nothing");
    return node;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> problem, Args&&... args) const {
    fail_input("tokenizer", "the pattern {} is not supported: {}, at byte {}", pattern_,
               fmt::format(problem, std::forward<Args>(args)...), pos_);
  }
  bool at_end() const { return pos_ == pattern_.size(); }
  char peek(size_t ahead = 0) const {
    return pos_ + ahead < pattern_.size() ? pattern_[pos_ + ahead] : '\0';
  }
  bool take(std::string_view text) {
    if (!pattern_.substr(pos_).starts_with(text)) return false;
    pos_ += text.size();
    return true;
  }
  uint32_t point() {
    if (at_end()) fail("it ends too early");
    const CodePoint next = decode_at(pattern_.data(), pos_);
    pos_ += next.bytes;
    return next.value;
  }

  NodePtr choice(bool any_case, int depth);
  NodePtr sequence(bool any_case, int depth);
  NodePtr repeated(NodePtr node);
  NodePtr atom(bool any_case, int depth);
  NodePtr group(bool any_case, int depth);
  NodePtr escape(bool any_case);
  NodePtr brackets(bool any_case);
  bool class_escape(CharSet& set, bool in_brackets);
  void property(CharSet& set, bool negated);
  uint32_t escaped_point();
  uint32_t hex(size_t digits);
  bool counts(uint32_t& min, uint32_t& max);
  NodePtr set_node(CharSet set);
  NodePtr literal(uint32_t value, bool any_case);
  void add_literal(CharSet& set, uint32_t first, uint32_t last, bool any_case);

  std::string_view pattern_;
  size_t pos_ = 0;
  Regex::Program& program_;
};

NodePtr Parser::set_node(CharSet set) {
  set.finish();
  NodePtr node = make(Node::Set);
  node->set = static_cast<uint32_t>(program_.sets.size());
  if (program_.sets.size() > kMaxProgram) fail("it is too long");
  program_.sets.push_back(std::move(set));
  return node;
}

/// Letters in both cases, with the two signs beyond ASCII that fold to ASCII letters.
void Parser::add_literal(CharSet& set, uint32_t first, uint32_t last, bool any_case) {
  set.add_range(first, last);
  if (!any_case) return;
  if (last >= 0x80) fail("case is ignored for ASCII letters only");
  for (uint32_t c = first; c <= last; ++c) {
    const uint32_t lower = c | 0x20;
    if (lower < 'a' || lower > 'z') continue;
    set.add_range(c ^ 0x20, c ^ 0x20);
    if (lower == 's') set.add_range(0x17F, 0x17F);
    if (lower == 'k') set.add_range(0x212A, 0x212A);
  }
}

NodePtr Parser::literal(uint32_t value, bool any_case) {
  CharSet set;
  const bool folds = any_case && value < 0x80;
  // Signs without case may stand in a part that ignores case.
  if (any_case && value >= 0x80) fail("case is ignored for ASCII letters only");
  add_literal(set, value, value, folds);
  return set_node(std::move(set));
}

NodePtr Parser::choice(bool any_case, int depth) {
  if (depth > kMaxGroupDepth) fail("groups are nested too deep");
  NodePtr first = sequence(any_case, depth);
  if (peek() != '|') return first;
  NodePtr node = make(Node::Choice);
  node->children.push_back(std::move(first));
  while (take("|")) node->children.push_back(sequence(any_case, depth));
  return node;
}

NodePtr Parser::sequence(bool any_case, int depth) {
  NodePtr node = make(Node::Sequence);
  while (!at_end() && peek() != '|' && peek() != ')') {
    node->children.push_back(repeated(atom(any_case, depth)));
  }
  return node;
}

bool Parser::counts(uint32_t& min, uint32_t& max) {
  const size_t start = pos_;
  const auto number = [&](uint32_t& value) {
    size_t digits = 0;
    for (value = 0; peek() >= '0' && peek() <= '9'; ++digits, ++pos_) {
      value = std::min(value * 10 + static_cast<uint32_t>(peek() - '0'), kMaxCount + 1);
    }
    if (value > kMaxCount) fail("a count above {}", kMaxCount);
    return digits > 0;
  };
  ++pos_;
  if (number(min)) {
    max = min;
    if (take(",") && !number(max)) max = kNoLimit;
    if (take("}")) {
      if (max < min) fail("counts in the wrong order");
      return true;
    }
  }
  pos_ = start;
  return false;
}

NodePtr Parser::repeated(NodePtr node) {
  for (int times = 0;; ++times) {
    uint32_t min = 0;
    uint32_t max = kNoLimit;
    bool counted = false;
    if (take("?")) {
      max = 1;
    } else if (take("+")) {
      min = 1;
    } else if (peek() == '{') {
      if (!counts(min, max)) fail("a {{ that opens no count");
      counted = true;
    } else if (!take("*")) {
      return node;
    }
    if (times == 4) fail("repetitions of repetitions");
    if (max > 1 && node->can_be_empty()) fail("a repetition of nothing");
    NodePtr repeat = make(Node::Repeat);
    repeat->min = min;
    repeat->max = max;
    repeat->children.push_back(std::move(node));
    if (!counted && take("+")) {
      node = make(Node::Atomic);
      node->children.push_back(std::move(repeat));
      continue;
    }
    repeat->lazy = take("?");
    node = std::move(repeat);
  }
}

NodePtr Parser::group(bool any_case, int depth) {
  NodePtr node;
  if (take("?i:")) {
    node = choice(true, depth + 1);
  } else if (take("?:")) {
    node = choice(any_case, depth + 1);
  } else if (take("?>")) {
    node = make(Node::Atomic);
    node->children.push_back(choice(any_case, depth + 1));
  } else if (peek() == '?' && (peek(1) == '=' || peek(1) == '!')) {
    node = make(Node::Look);
    node->negative = peek(1) == '!';
    pos_ += 2;
    node->children.push_back(choice(any_case, depth + 1));
  } else if (peek() == '?') {
    fail("this kind of group");
  } else {
    node = choice(any_case, depth + 1);
  }
  if (!take(")")) fail("a group that does not end");
  return node;
}

NodePtr Parser::atom(bool any_case, int depth) {
  const auto assertion = [](Op op) {
    NodePtr node = make(Node::Assert);
    node->assertion = op;
    return node;
  };
  switch (peek()) {
    case '(':
      ++pos_;
      return group(any_case, depth);
    case '[':
      ++pos_;
      return brackets(any_case);
    case '\\':
      if (take("\\A")) return assertion(Op::TextStart);
      if (take("\\z")) return assertion(Op::TextEnd);
      return escape(any_case);
    case '^':
      ++pos_;
      return assertion(Op::LineStart);
    case '$':
      ++pos_;
      return assertion(Op::LineEnd);
    case '.': {
      ++pos_;
      CharSet set;
      set.add_range('\n', '\n');
      set.negate();
      return set_node(std::move(set));
    }
    case '*':
    case '+':
    case '?':
      fail("a repetition of nothing");
    default:
      return literal(point(), any_case);
  }
}

NodePtr Parser::escape(bool any_case) {
  CharSet set;
  if (class_escape(set, false)) return set_node(std::move(set));
  ++pos_;
  return literal(escaped_point(), any_case);
}

/// Reads \s \d \w \p{..} and their opposites. Returns false and reads nothing for other
/// escapes.
bool Parser::class_escape(CharSet& set, bool in_brackets) {
  const auto category = [](std::string_view name) {
    const auto* found =
        std::find(std::begin(kCategoryNames), std::end(kCategoryNames), name);
    return 1u << (found - std::begin(kCategoryNames) + 1);
  };
  const char kind = peek(1);
  switch (kind) {
    case 's':
    case 'S':
      set.add_space(kind == 'S');
      break;
    case 'w':
    case 'W':
      set.add_word(kind == 'W', in_brackets);
      break;
    case 'd':
    case 'D':
      set.add_categories(category("Nd"), kind == 'D');
      break;
    case 'p':
    case 'P':
      pos_ += 2;
      property(set, kind == 'P');
      return true;
    default:
      return false;
  }
  pos_ += 2;
  return true;
}

void Parser::property(CharSet& set, bool negated) {
  if (!take("{")) fail("a property without {{");
  if (take("^")) negated = !negated;
  const size_t end = pattern_.find('}', pos_);
  if (end == std::string_view::npos) fail("a property without }}");
  const std::string_view name = pattern_.substr(pos_, end - pos_);
  uint32_t mask = 0;
  for (size_t i = 0; i < std::size(kCategoryNames); ++i) {
    const bool major = name.size() == 1 && kCategoryNames[i].front() == name.front();
    if (major || kCategoryNames[i] == name) mask |= 1u << (i + 1);
  }
  if (name == "C") mask |= 1;  // category C includes code points that are not assigned
  if (mask == 0) fail("the property {}", name);
  pos_ = end + 1;
  set.add_categories(mask, negated);
}

uint32_t Parser::hex(size_t digits) {
  uint32_t value = 0;
  size_t count = 0;
  for (; count < digits; ++count, ++pos_) {
    const char c = peek();
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<uint32_t>(c - '0');
    } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
      value = value * 16 + static_cast<uint32_t>((c | 0x20) - 'a') + 10;
    } else {
      break;
    }
  }
  if (count == 0 || value > 0x10FFFF) fail("a code point in hexadecimal");
  return value;
}

/// Reads an escape behind its backslash.
uint32_t Parser::escaped_point() {
  const uint32_t value = point();
  constexpr std::string_view kLetters = "nrtfv";
  const size_t control =
      value < 0x80 ? kLetters.find(static_cast<char>(value)) : std::string_view::npos;
  if (control != std::string_view::npos) return "\n\r\t\f\v"[control];
  if (value == 'u') return hex(4);
  if (value == 'x') {
    const bool braces = take("{");
    const uint32_t code = hex(braces ? 8 : 2);
    if (braces && !take("}")) fail("a code point without }}");
    if (!braces && code >= 0x80) fail("a byte that is no character");
    return code;
  }
  const bool letter = (value >= '0' && value <= '9') || (value >= 'a' && value <= 'z') ||
                      (value >= 'A' && value <= 'Z');
  if (letter) fail("the escape \\{}", static_cast<char>(value));
  return value;
}

NodePtr Parser::brackets(bool any_case) {
  CharSet set;
  const bool negated = take("^");
  if (peek() == ']') fail("an empty class");
  while (!take("]")) {
    if (at_end()) fail("a class that does not end");
    if (peek() == '[' || (peek() == '&' && peek(1) == '&'))
      fail("a class inside a class");
    if (peek() == '\\' && class_escape(set, true)) continue;
    const auto one = [&] {
      if (peek() != '\\') return point();
      ++pos_;
      return escaped_point();
    };
    const uint32_t first = one();
    uint32_t last = first;
    if (peek() == '-' && peek(1) != ']' && peek(1) != '\0') {
      ++pos_;
      last = one();
      if (last < first) fail("a range in the wrong order");
    }
    add_literal(set, first, last, any_case);
  }
  if (negated) set.negate();
  return set_node(std::move(set));
}

class Emitter {
 public:
  Emitter(std::string_view pattern, std::vector<Regex::Instruction>& code)
      : pattern_(pattern), code_(code) {}

  void emit(const Node& node) {
    switch (node.kind) {
      case Node::Set:
        add({Op::Set, node.set});
        break;
      case Node::Assert:
        add({node.assertion});
        break;
      case Node::Sequence:
        for (const NodePtr& child : node.children) emit(*child);
        break;
      case Node::Choice:
        emit_choice(node);
        break;
      case Node::Repeat:
        emit_repeat(node);
        break;
      case Node::Look:
      case Node::Atomic: {
        const uint32_t at = add({node.kind == Node::Look ? Op::Look : Op::Atomic, 0,
                                 node.negative ? 1u : 0u});
        emit(*node.children[0]);
        add({Op::Done});
        code_[at].a = here();
        break;
      }
    }
  }

 private:
  uint32_t here() const { return static_cast<uint32_t>(code_.size()); }
  uint32_t add(Regex::Instruction instruction) {
    if (code_.size() > kMaxProgram) {
      fail_input("tokenizer", "the pattern {} is not supported: it is too long",
                 pattern_.substr(0, 200));
    }
    code_.push_back(instruction);
    return here() - 1;
  }
  void emit_choice(const Node& node) {
    std::vector<uint32_t> ends;
    for (size_t i = 0; i < node.children.size(); ++i) {
      const bool last = i + 1 == node.children.size();
      const uint32_t split = last ? 0 : add({Op::Split});
      emit(*node.children[i]);
      if (last) break;
      ends.push_back(add({Op::Jump}));
      code_[split].a = split + 1;
      code_[split].b = here();
    }
    for (const uint32_t end : ends) code_[end].a = here();
  }
  void aim(uint32_t split, bool lazy, uint32_t body, uint32_t after) {
    code_[split].a = lazy ? after : body;
    code_[split].b = lazy ? body : after;
  }
  void emit_repeat(const Node& node) {
    const Node& body = *node.children[0];
    for (uint32_t i = 0; i < node.min; ++i) emit(body);
    if (node.max == kNoLimit) {
      if (body.kind == Node::Set && !node.lazy) {
        add({Op::SetStar, body.set});
        return;
      }
      const uint32_t split = add({Op::Split});
      emit(body);
      add({Op::Jump, split});
      aim(split, node.lazy, split + 1, here());
      return;
    }
    std::vector<uint32_t> splits;
    for (uint32_t i = node.min; i < node.max; ++i) {
      splits.push_back(add({Op::Split}));
      emit(body);
    }
    for (const uint32_t split : splits) aim(split, node.lazy, split + 1, here());
  }

  std::string_view pattern_;
  std::vector<Regex::Instruction>& code_;
};

}  // namespace

Regex::Program compile_regex(std::string_view pattern) {
  Regex::Program program;
  const NodePtr root = Parser(pattern, program).parse();
  Emitter(pattern, program.code).emit(*root);
  program.code.push_back({Op::Done});
  return program;
}

}  // namespace longhaul::tokenizer
