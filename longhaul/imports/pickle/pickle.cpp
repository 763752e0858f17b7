#include "longhaul/imports/pickle/pickle.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "longhaul/base/error.h"
#include "longhaul/imports/pickle/pickle_names.h"

namespace longhaul::imports {
namespace {

using Kind = PickleKind;
using Ref = PickleTree::Ref;

// Larger gaps in memo numbers are refused: picklers number their memo without gaps.
constexpr uint64_t kMemoGap = 1024;

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, const std::string& what,
          const PickleLimits& limits)
      : bytes_(bytes), what_(what), limits_(limits) {
    if (bytes.size() > limits.max_bytes) {
      bytes_ = bytes.first(static_cast<size_t>(limits.max_bytes));
    }
  }

  PickleTree run(uint64_t* consumed) {
    while (step(number<uint8_t>())) {
      if (tree_.size() > limits_.max_values || stack_.size() > limits_.max_values) {
        fail("more than {} values", limits_.max_values);
      }
    }
    if (stack_.size() != 1 || !marks_.empty()) {
      fail("it ends with {} values on its stack", stack_.size());
    }
    tree_.root = stack_.back();
    if (consumed != nullptr) *consumed = position_;
    return std::move(tree_);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> problem, Args&&... args) const {
    fail_input("pickle", "{}: byte {}: {}; not a checkpoint that can be read", what_,
               start_, fmt::format(problem, std::forward<Args>(args)...));
  }

  // ---- the instructions ----

  using Instruction = void (*)(Machine& m);

  /// Returns what each instruction does, by its code; null for those that no checkpoint
  /// needs.
  static constexpr std::array<Instruction, 256> instructions() {
    std::array<Instruction, 256> all{};
    all[0x80] = [](Machine& m) {  // PROTO
      if (const auto version = m.number<uint8_t>(); version > 5) {
        m.fail("pickle protocol {}", version);
      }
    };
    all[0x95] = [](Machine& m) {  // FRAME: only a hint
      const auto bytes = m.number<uint64_t>();
      if (bytes > m.bytes_.size() - m.position_) m.fail("a frame past the end");
    };
    all['N'] = [](Machine& m) { m.push_value(Kind::None, 0); };
    all[0x88] = [](Machine& m) { m.push_value(Kind::Bool, 1); };
    all[0x89] = [](Machine& m) { m.push_value(Kind::Bool, 0); };
    all['J'] = [](Machine& m) { m.push_value(Kind::Int, m.number<int32_t>()); };
    all['K'] = [](Machine& m) { m.push_value(Kind::Int, m.number<uint8_t>()); };
    all['M'] = [](Machine& m) { m.push_value(Kind::Int, m.number<uint16_t>()); };
    all[0x8a] = [](Machine& m) { m.push_long(m.number<uint8_t>()); };
    all[0x8b] = [](Machine& m) { m.push_long(m.number<uint32_t>()); };
    all['G'] = [](Machine& m) {
      const uint64_t bits = __builtin_bswap64(m.number<uint64_t>());
      m.push(m.tree_.add_float(std::bit_cast<double>(bits)));
    };
    all[0x8c] = [](Machine& m) { m.push_text(Kind::Text, m.number<uint8_t>()); };
    all['X'] = [](Machine& m) { m.push_text(Kind::Text, m.number<uint32_t>()); };
    all[0x8d] = [](Machine& m) { m.push_text(Kind::Text, m.number<uint64_t>()); };
    all['U'] = all[0x8c];  // U and T are texts of Python 2
    all['T'] = all['X'];
    all['C'] = [](Machine& m) { m.push_text(Kind::Bytes, m.number<uint8_t>()); };
    all['B'] = [](Machine& m) { m.push_text(Kind::Bytes, m.number<uint32_t>()); };
    all[0x8e] = [](Machine& m) { m.push_text(Kind::Bytes, m.number<uint64_t>()); };
    all[0x96] = all[0x8e];
    add_containers(all);
    add_objects(all);
    return all;
  }

  static constexpr void add_containers(std::array<Instruction, 256>& all) {
    all['('] = [](Machine& m) { m.marks_.push_back(m.stack_.size()); };
    all['0'] = [](Machine& m) {
      if (!m.marks_.empty() && m.marks_.back() == m.stack_.size()) {
        m.marks_.pop_back();
      } else {
        m.pop();
      }
    };
    all['1'] = [](Machine& m) { m.pop_to_mark(); };
    all['2'] = [](Machine& m) { m.push(m.top()); };
    all[')'] = [](Machine& m) { m.push_items(Kind::Tuple, {}); };
    all[']'] = [](Machine& m) { m.push_items(Kind::List, {}); };
    all['}'] = [](Machine& m) { m.push_items(Kind::Dict, {}); };
    all[0x8f] = [](Machine& m) { m.push_items(Kind::Set, {}); };
    all['t'] = [](Machine& m) { m.push_items(Kind::Tuple, m.pop_to_mark()); };
    all['l'] = [](Machine& m) { m.push_items(Kind::List, m.pop_to_mark()); };
    all['d'] = [](Machine& m) { m.push_items(Kind::Dict, m.pairs(m.pop_to_mark())); };
    all[0x91] = [](Machine& m) { m.push_items(Kind::Set, m.pop_to_mark()); };
    all[0x85] = [](Machine& m) { m.push_items(Kind::Tuple, m.pop_many(1)); };
    all[0x86] = [](Machine& m) { m.push_items(Kind::Tuple, m.pop_many(2)); };
    all[0x87] = [](Machine& m) { m.push_items(Kind::Tuple, m.pop_many(3)); };
    all['a'] = [](Machine& m) { m.extend(Kind::List, m.pop_many(1)); };
    all['e'] = [](Machine& m) { m.extend(Kind::List, m.pop_to_mark()); };
    all[0x90] = [](Machine& m) { m.extend(Kind::Set, m.pop_to_mark()); };
    all['s'] = [](Machine& m) { m.extend(Kind::Dict, m.pop_many(2)); };
    all['u'] = [](Machine& m) { m.extend(Kind::Dict, m.pairs(m.pop_to_mark())); };
    all['q'] = [](Machine& m) { m.put(m.number<uint8_t>()); };
    all['r'] = [](Machine& m) { m.put(m.number<uint32_t>()); };
    all[0x94] = [](Machine& m) { m.put(m.memo_.size()); };
    all['h'] = [](Machine& m) { m.get(m.number<uint8_t>()); };
    all['j'] = [](Machine& m) { m.get(m.number<uint32_t>()); };
  }

  static constexpr void add_objects(std::array<Instruction, 256>& all) {
    all['c'] = [](Machine& m) {
      const std::string module = m.line();
      m.push_global(module + "." + m.line());
    };
    all[0x93] = [](Machine& m) {
      const auto parts = m.pop_many(2);
      if (!m.tree_.is(parts[0], Kind::Text) || !m.tree_.is(parts[1], Kind::Text)) {
        m.fail("a name that is no text");
      }
      m.push_global(m.tree_.text(parts[0]) + "." + m.tree_.text(parts[1]));
    };
    all['i'] = [](Machine& m) {
      const std::string module = m.line();
      m.push_global(module + "." + m.line());
      const Ref global = m.pop();
      const Ref arguments = m.tree_.add_items(Kind::Tuple, m.pop_to_mark());
      m.push(m.make(global, arguments));
    };
    all['o'] = [](Machine& m) {
      std::vector<Ref> values = m.pop_to_mark();
      if (values.empty()) m.fail("an object without a class");
      const Ref global = values.front();
      values.erase(values.begin());
      m.push(m.make(global, m.tree_.add_items(Kind::Tuple, std::move(values))));
    };
    all['R'] = [](Machine& m) { m.push_made(m.pop_many(2)); };
    all[0x81] = all['R'];
    all[0x92] = [](Machine& m) { m.push_made(m.pop_many(3)); };
    all['b'] = [](Machine& m) { m.build(); };
    all['Q'] = [](Machine& m) { m.push(m.persistent(m.pop())); };
  }

  /// Runs an instruction. Returns false at the end of the pickle.
  bool step(uint8_t code) {
    static constexpr std::array<Instruction, 256> kInstructions = instructions();
    start_ = position_ - 1;
    if (code == '.') return false;
    if (kInstructions[code] == nullptr) {
      fail("the instruction {:#04x} is not one that checkpoints need", code);
    }
    kInstructions[code](*this);
    return true;
  }

  // ---- input ----

  template <typename T>
  T number() {
    if (bytes_.size() - position_ < sizeof(T)) {
      start_ = position_;
      fail("{}", bytes_.size() == limits_.max_bytes
                     ? fmt::format("more than {} bytes", limits_.max_bytes)
                     : "it ends in the middle of an instruction; the file is truncated");
    }
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  std::string take(uint64_t count) {
    if (count > bytes_.size() - position_) {
      fail("a text of {} bytes, but {} are left; the file is truncated", count,
           bytes_.size() - position_);
    }
    std::string text(reinterpret_cast<const char*>(bytes_.data()) + position_,
                     static_cast<size_t>(count));
    position_ += static_cast<size_t>(count);
    return text;
  }

  std::string line() {
    const char* begin = reinterpret_cast<const char*>(bytes_.data()) + position_;
    const size_t left = bytes_.size() - position_;
    const auto* end =
        left == 0 ? nullptr : static_cast<const char*>(std::memchr(begin, '\n', left));
    if (end == nullptr) fail("a name without an end");
    position_ += static_cast<size_t>(end - begin) + 1;
    return {begin, end};
  }

  // ---- stack and memo ----

  void push(Ref ref) { stack_.push_back(ref); }
  void push_value(Kind kind, int64_t value) { push(tree_.add(kind, value)); }
  void push_items(Kind kind, std::vector<Ref> items) {
    push(tree_.add_items(kind, std::move(items)));
  }
  void push_made(const std::vector<Ref>& parts) { push(make(parts[0], parts[1])); }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Ref top() const {
    if (stack_.size() <= floor()) fail("an empty stack");
    return stack_.back();
  }
  Ref pop() {
    const Ref ref = top();
    stack_.pop_back();
    return ref;
  }
  std::vector<Ref> pop_many(size_t count) {
    if (stack_.size() - floor() < count) fail("an empty stack");
    std::vector<Ref> values(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return values;
  }
  std::vector<Ref> pop_to_mark() {
    if (marks_.empty()) fail("the end of a group that never began");
    const size_t begin = marks_.back();
    marks_.pop_back();
    std::vector<Ref> values(stack_.begin() + static_cast<ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin);
    return values;
  }
  void put(uint64_t index) {
    if (index > memo_.size() + kMemoGap) {
      fail("memo entry {} after {} entries", index, memo_.size());
    }
    if (index >= memo_.size()) memo_.resize(static_cast<size_t>(index) + 1, kNoRef);
    memo_[static_cast<size_t>(index)] = top();
  }
  void get(uint64_t index) {
    if (index >= memo_.size() || memo_[static_cast<size_t>(index)] == kNoRef) {
      fail("memo entry {} was never made", index);
    }
    push(memo_[static_cast<size_t>(index)]);
  }

  // ---- values ----

  void push_text(Kind kind, uint64_t count) { push(tree_.add_text(kind, take(count))); }
  void push_long(uint64_t count) {
    const std::string bytes = take(count);
    if (count > 8) return push(tree_.add_text(Kind::BigInt, bytes));
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    }
    if (count > 0 && count < 8 && (static_cast<uint8_t>(bytes.back()) & 0x80U) != 0) {
      value |= ~uint64_t{0} << (8 * count);
    }
    push_value(Kind::Int, static_cast<int64_t>(value));
  }
  std::vector<Ref> pairs(std::vector<Ref> values) const {
    if (values.size() % 2 != 0) fail("a key without a value");
    return values;
  }
  void extend(Kind kind, const std::vector<Ref>& values) {
    const Ref target = top();
    if (!tree_.is(target, kind)) {
      fail("puts {} into {}", kind == Kind::Dict ? "keys" : "items",
           tree_.describe(target));
    }
    auto& items = tree_.items(target);
    items.insert(items.end(), values.begin(), values.end());
  }

  // ---- names ----

  void push_global(const std::string& name) {
    if (!known_pickle_name(name)) {
      fail_input("pickle",
                 "{}: byte {}: it asks for {:.200}, which no tensor needs; nothing of "
                 "this file was run, and it is not read: save a state dict (names and "
                 "tensors only) instead",
                 what_, start_, name);
    }
    auto [found, added] = globals_.try_emplace(name, 0);
    if (added) found->second = tree_.add_text(Kind::Global, name);
    push(found->second);
  }

  std::vector<Ref> arguments_of(Ref tuple, const std::string& name, size_t least) const {
    if (!tree_.is(tuple, Kind::Tuple) || tree_.items(tuple).size() < least) {
      fail("{} with {} instead of at least {} arguments", name, tree_.describe(tuple),
           least);
    }
    return tree_.items(tuple);
  }

  /// Returns the value that the tree holds for the call name(*arguments).
  Ref make(Ref global, Ref tuple) {
    if (!tree_.is(global, Kind::Global)) fail("calls {}", tree_.describe(global));
    const std::string& name = tree_.text(global);
    const PickleName known = *known_pickle_name(name);
    switch (known.role) {
      case PickleRole::RebuildTensor:
        return rebuild(arguments_of(tuple, name, 4), std::nullopt);
      case PickleRole::RebuildTensorAs: {
        const auto arguments = arguments_of(tuple, name, 7);
        const auto dtype = tree_.is(arguments[6], Kind::Global)
                               ? known_pickle_name(tree_.text(arguments[6]))->dtype
                               : std::nullopt;
        if (!dtype) fail("a tensor of {}", tree_.describe(arguments[6]));
        return rebuild(arguments, dtype);
      }
      case PickleRole::RebuildParameter: {
        const Ref tensor = arguments_of(tuple, name, 1)[0];
        if (!tree_.is(tensor, Kind::Tensor)) {
          fail("a parameter made of {}", tree_.describe(tensor));
        }
        return tensor;
      }
      case PickleRole::RebuildTyped:
        return make_typed(arguments_of(tuple, name, 4));
      case PickleRole::Dict:
      case PickleRole::DefaultDict:
        return make_dict(arguments_of(tuple, name, 0), known.role);
      case PickleRole::Tuple:
      case PickleRole::Set: {
        const auto arguments = arguments_of(tuple, name, 0);
        std::vector<Ref> items;
        if (!arguments.empty()) items = sequence(arguments[0]);
        return tree_.add_items(known.role == PickleRole::Set ? Kind::Set : Kind::Tuple,
                               std::move(items));
      }
      case PickleRole::Encode:
        return encode(arguments_of(tuple, name, 1)[0]);
      case PickleRole::Storage:
      case PickleRole::DType:
        fail("calls {}", name);
      case PickleRole::EnumMember:
        check_member(arguments_of(tuple, name, 2), name);
        return tree_.add_object(global, tuple);
      case PickleRole::Enumeration:
      case PickleRole::Record:
        arguments_of(tuple, name, 0);
        return tree_.add_object(global, tuple);
    }
    fail("calls {}", name);
  }

  // Checks that the arguments are an enumeration and the name of a member. The member is
  // not looked up: both are kept as a record.
  void check_member(const std::vector<Ref>& arguments, const std::string& name) const {
    const bool good =
        tree_.is(arguments[0], Kind::Global) &&
        known_pickle_name(tree_.text(arguments[0]))->role == PickleRole::Enumeration &&
        tree_.is(arguments[1], Kind::Text);
    if (!good) {
      fail("asks for {} of {}, which no tensor needs", name,
           tree_.describe(arguments[0]));
    }
  }

  // A tensor with attributes has four arguments: the function that makes it, its class,
  // the arguments of that function, and the attributes.
  Ref make_typed(const std::vector<Ref>& arguments) {
    const bool tensor = tree_.is(arguments[0], Kind::Global) &&
                        tree_.is(arguments[1], Kind::Global) &&
                        (tree_.text(arguments[1]) == "torch.Tensor" ||
                         tree_.text(arguments[1]) == "torch.nn.parameter.Parameter");
    const auto role =
        tensor ? known_pickle_name(tree_.text(arguments[0]))->role : PickleRole::Record;
    if (role != PickleRole::RebuildTensor && role != PickleRole::RebuildTensorAs &&
        role != PickleRole::RebuildParameter) {
      fail("a tensor of {} made by {}", tree_.describe(arguments[1]),
           tree_.describe(arguments[0]));
    }
    return make(arguments[0], arguments[2]);
  }

  std::vector<Ref> sequence(Ref ref) const {
    if (!tree_.is(ref, Kind::List) && !tree_.is(ref, Kind::Tuple) &&
        !tree_.is(ref, Kind::Set)) {
      fail("takes the items of {}", tree_.describe(ref));
    }
    return tree_.items(ref);
  }

  Ref make_dict(const std::vector<Ref>& arguments, PickleRole role) {
    std::vector<Ref> items;
    const size_t first = role == PickleRole::DefaultDict ? 1 : 0;
    if (arguments.size() > first) {
      const Ref from = arguments[first];
      if (tree_.is(from, Kind::Dict)) {
        items = tree_.items(from);
      } else {
        for (const Ref pair : sequence(from)) {
          const std::vector<Ref> both = sequence(pair);
          if (both.size() != 2) fail("a dict made of {}", tree_.describe(pair));
          items.insert(items.end(), both.begin(), both.end());
        }
      }
    }
    return tree_.add_items(Kind::Dict, std::move(items));
  }

  // Protocol 2 writes bytes as Latin-1 text.
  Ref encode(Ref ref) {
    if (!tree_.is(ref, Kind::Text)) fail("encodes {}", tree_.describe(ref));
    const std::string& text = tree_.text(ref);
    std::string bytes;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto c = static_cast<uint8_t>(text[i]);
      if (c < 0x80) {
        bytes.push_back(text[i]);
      } else if ((c == 0xC2 || c == 0xC3) && i + 1 < text.size()) {
        ++i;
        bytes.push_back(static_cast<char>(((c & 3U) << 6U) |
                                          (static_cast<uint8_t>(text[i]) & 0x3FU)));
      } else {
        fail("bytes that are not written as Latin-1");
      }
    }
    return tree_.add_text(Kind::Bytes, std::move(bytes));
  }

  void build() {
    const Ref state = pop();
    const Ref target = top();
    switch (tree_.kind(target)) {
      case Kind::Object:
        return tree_.set_object_state(target, state);
      case Kind::Dict:    // attributes of a state dict (_metadata)
      case Kind::Tensor:  // attributes of a parameter
        return;
      default:
        fail("sets the attributes of {}", tree_.describe(target));
    }
  }

  // ---- tensors ----

  /// Makes a storage of a tuple ('storage', type, key, device, count [, view]).
  Ref persistent(Ref ref) {
    const bool tuple = tree_.is(ref, Kind::Tuple);
    const auto parts = tuple ? tree_.items(ref) : std::vector<Ref>{};
    if (parts.size() < 5 || !tree_.is(parts[0], Kind::Text) ||
        tree_.text(parts[0]) != "storage" || !tree_.is(parts[1], Kind::Global) ||
        !tree_.is(parts[2], Kind::Text) || !tree_.is(parts[4], Kind::Int) ||
        tree_.integer(parts[4]) < 0) {
      fail("refers to {} outside of the pickle", tree_.describe(ref));
    }
    const PickleName type = *known_pickle_name(tree_.text(parts[1]));
    if (type.role != PickleRole::Storage) {
      fail("a storage of type {}", tree_.text(parts[1]));
    }
    if (parts.size() > 5 && !tree_.is(parts[5], Kind::None)) {
      fail(
          "a storage that is a part of another (written by a very old torch); save the "
          "file again with a newer one");
    }
    PickleStorage storage;
    storage.key = tree_.text(parts[2]);
    storage.dtype = type.dtype;
    storage.count = static_cast<uint64_t>(tree_.integer(parts[4]));
    if (storage.count > (uint64_t{1} << 62) / 8) fail("a storage of 2^62 bytes");
    const auto [found, added] = storages_.try_emplace(storage.key, tree_.storages.size());
    if (added) {
      tree_.storages.push_back(storage);
    } else if (const PickleStorage& first = tree_.storages[found->second];
               first.dtype != storage.dtype || first.count != storage.count) {
      fail("storage '{:.40}' has two types or sizes", storage.key);
    }
    return tree_.add(Kind::Storage, static_cast<int64_t>(found->second));
  }

  Ref rebuild(const std::vector<Ref>& arguments, std::optional<format::DType> dtype) {
    const auto shape = tree_.as_ints(arguments[2]);
    const auto strides = tree_.as_ints(arguments[3]);
    if (!tree_.is(arguments[0], Kind::Storage) || !tree_.is(arguments[1], Kind::Int) ||
        !shape || !strides) {
      fail("a tensor made of {}", tree_.describe(arguments[0]));
    }
    PickleTensor tensor;
    tensor.storage = tree_.storage_index(arguments[0]);
    const PickleStorage& storage = tree_.storages[tensor.storage];
    if (!dtype) dtype = storage.dtype;
    if (!dtype) fail("a tensor without a dtype");
    tensor.dtype = *dtype;
    tensor.offset = tree_.integer(arguments[1]);
    tensor.shape = *shape;
    tensor.strides = *strides;
    const std::string problem = problem_of(tensor, storage);
    if (!problem.empty()) fail("{}", problem);
    return tree_.add_tensor(std::move(tensor));
  }

  static constexpr Ref kNoRef = std::numeric_limits<Ref>::max();

  std::span<const std::byte> bytes_;
  const std::string& what_;
  const PickleLimits& limits_;
  size_t position_ = 0;
  size_t start_ = 0;  // place of the current instruction
  std::vector<Ref> stack_;
  std::vector<size_t> marks_;
  std::vector<Ref> memo_;
  std::unordered_map<std::string, Ref> globals_;
  std::unordered_map<std::string, size_t> storages_;
  PickleTree tree_;
};

}  // namespace

PickleTree parse_pickle(std::span<const std::byte> bytes, const std::string& what,
                        uint64_t* consumed, const PickleLimits& limits) {
  return Machine(bytes, what, limits).run(consumed);
}

}  // namespace longhaul::imports
