#include "tests/faults/power_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace longhaul::faults {
namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("record: " + what);
}

uint64_t number_from(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail("no number: " + std::string(text));
  }
  return value;
}

}  // namespace

std::vector<Operation> read_record(const fs::path& path) {
  const std::string text = read_text(path);
  std::vector<Operation> operations;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = text.find('\n', at);
    if (end == std::string::npos) fail("torn line");
    std::vector<std::string> fields(1);
    for (const char c : text.substr(at, end - at)) {
      if (c == '\t') {
        fields.emplace_back();
      } else {
        fields.back() += c;
      }
    }
    if (fields.size() != 6) fail("not six fields");
    const uint64_t bytes = number_from(fields[3]);
    operations.push_back({fields[0], number_from(fields[1]), number_from(fields[2]),
                          fields[4], fields[5], text.substr(end + 1, bytes)});
    at = end + 1 + bytes;
  }
  return operations;
}

PowerCut::PowerCut(const std::vector<Operation>& operations, const std::string& root)
    : operations_(operations), root_(root), live_(1) {
  live_[0].directory = true;
  synced_.assign(operations_.size(), kNone);
  std::map<uint64_t, size_t> numbers;
  for (size_t i = 0; i < operations_.size(); ++i) add_operation(i, numbers);
  find_durable();
  for (Effect& effect : effects_) effect.durable_really = effect.durable;
}

size_t PowerCut::node_of(const std::string& path) const {
  if (path == root_) return 0;
  if (!path.starts_with(root_ + "/")) fail("outside of the root: " + path);
  size_t node = 0;
  for (const fs::path& part : fs::path(path.substr(root_.size() + 1))) {
    const auto found = live_[node].names.find(part.string());
    if (found == live_[node].names.end()) return kNone;
    node = found->second;
  }
  return node;
}

PowerCut::Name PowerCut::name_of(const std::string& path, size_t node) const {
  const fs::path whole(path);
  const size_t directory = node_of(whole.parent_path().string());
  if (directory == kNone) fail("no directory for " + path);
  return {directory, whole.filename().string(), node};
}

void PowerCut::add_name(size_t operation, std::vector<Name> names) {
  for (const Name& name : names) {
    if (name.node == kNone) {
      live_[name.directory].names.erase(name.name);
    } else {
      live_[name.directory].names[name.name] = name.node;
    }
  }
  Effect effect;
  effect.operation = operation;
  effect.names = std::move(names);
  effects_.push_back(std::move(effect));
}

void PowerCut::add_operation(size_t index, std::map<uint64_t, size_t>& numbers) {
  const Operation& operation = operations_[index];
  if (operation.kind == "marker") return;
  if (operation.kind == "create" || operation.kind == "mkdir") {
    live_.emplace_back();
    live_.back().directory = operation.kind == "mkdir";
    numbers[operation.number] = live_.size() - 1;
    add_name(index, {name_of(operation.path, live_.size() - 1)});
  } else if (operation.kind == "unlink") {
    add_name(index, {name_of(operation.path, kNone)});
  } else if (operation.kind == "rename" || operation.kind == "link") {
    const size_t node = node_of(operation.path);
    if (node == kNone) fail("no such name: " + operation.path);
    std::vector<Name> names = {name_of(operation.other, node)};
    if (operation.kind == "rename") names.push_back(name_of(operation.path, kNone));
    add_name(index, std::move(names));
  } else if (operation.kind == "sync") {
    // A sync may also be of a directory. Its number is known, except that of the root.
    const auto found = numbers.find(operation.number);
    synced_[index] = operation.path == root_  ? 0
                     : found != numbers.end() ? found->second
                                              : kNone;
    if (synced_[index] == kNone) fail("sync of an unknown file: " + operation.path);
  } else {
    const auto found = numbers.find(operation.number);
    if (found == numbers.end()) fail("change of an unknown file: " + operation.path);
    Effect effect;
    effect.operation = index;
    effect.node = found->second;
    effect.cut = operation.kind == "truncate";
    effect.offset = operation.offset;
    effect.bytes = &operations_[index].bytes;
    effects_.push_back(std::move(effect));
  }
}

// Finds the first sync after which each effect is durable, with everything that the
// effect changes.
void PowerCut::find_durable() {
  for (Effect& effect : effects_) {
    std::vector<size_t> open;
    for (const Name& name : effect.names) open.push_back(name.directory);
    if (effect.names.empty()) open.push_back(effect.node);
    effect.durable = operations_.size();
    for (size_t i = effect.operation + 1; i < operations_.size(); ++i) {
      if (synced_[i] == kNone || i == left_out_) continue;
      std::erase(open, synced_[i]);
      if (!open.empty()) continue;
      effect.durable = i;
      break;
    }
  }
}

void PowerCut::leave_out(size_t sync) {
  left_out_ = sync;
  find_durable();
}

Tree PowerCut::build(size_t cut, const std::vector<Choice>& choices) const {
  std::vector<Node> nodes(live_.size());
  for (size_t n = 0; n < nodes.size(); ++n) nodes[n].directory = live_[n].directory;
  for (size_t e = 0; e < effects_.size() && effects_[e].operation < cut; ++e) {
    const Effect& effect = effects_[e];
    if (choices[e] == Choice::Lost) continue;
    for (const Name& name : effect.names) {
      if (name.node == kNone) {
        nodes[name.directory].names.erase(name.name);
      } else {
        nodes[name.directory].names[name.name] = name.node;
      }
    }
    if (!effect.names.empty()) continue;
    std::string& data = nodes[effect.node].data;
    if (effect.cut) {
      data.resize(effect.offset, '\0');
      continue;
    }
    const uint64_t end = effect.offset + effect.bytes->size();
    if (data.size() < end) data.resize(end, '\0');
    if (choices[e] == Choice::Kept) {
      data.replace(effect.offset, effect.bytes->size(), *effect.bytes);
    }
  }
  Tree tree;
  std::vector<std::pair<size_t, std::string>> todo = {{0, ""}};
  while (!todo.empty()) {
    const auto [node, path] = todo.back();
    todo.pop_back();
    for (const auto& [name, child] : nodes[node].names) {
      if (nodes[child].directory) {
        tree[path + name + "/"];
        todo.emplace_back(child, path + name + "/");
      } else {
        tree[path + name] = nodes[child].data;
      }
    }
  }
  return tree;
}

Tree PowerCut::whole(size_t cut) const {
  return build(cut, std::vector<Choice>(effects_.size(), Choice::Kept));
}

void PowerCut::trees(size_t cut, int random, std::mt19937_64& generator,
                     const std::function<bool(const Tree&)>& visit) const {
  std::vector<size_t> pending;
  std::vector<size_t> focus;  // changes that the omitted sync would have kept
  for (size_t e = 0; e < effects_.size() && effects_[e].operation < cut; ++e) {
    if (effects_[e].durable < cut) continue;
    pending.push_back(e);
    if (effects_[e].durable_really < cut) focus.push_back(e);
  }
  if (left_out_ != kNone && focus.empty()) return;
  const std::vector<size_t>& each = left_out_ == kNone ? pending : focus;
  std::vector<Choice> choices(effects_.size(), Choice::Kept);
  const auto set = [&](const std::vector<size_t>& which, Choice choice) {
    for (const size_t e : which) {
      const bool names = !effects_[e].names.empty();
      choices[e] = names && choice == Choice::Zeros ? Choice::Lost : choice;
    }
  };
  const auto names_only = [&](const std::vector<size_t>& which, bool names) {
    std::vector<size_t> result;
    for (const size_t e : which) {
      if (effects_[e].names.empty() != names) result.push_back(e);
    }
    return result;
  };
  const auto look = [&] { return visit(build(cut, choices)); };
  if (!look() || pending.empty()) return;
  for (const Choice lost : {Choice::Lost, Choice::Zeros}) {
    for (const auto& which :
         {pending, names_only(pending, true), names_only(pending, false), focus}) {
      set(pending, Choice::Kept);
      set(which, lost);
      if (!look()) return;
    }
    for (const size_t e : each) {
      set(pending, Choice::Kept);
      set({e}, lost);
      if (!look()) return;
      set(pending, lost);
      set({e}, Choice::Kept);
      if (!look()) return;
    }
  }
  for (int i = 0; i < random; ++i) {
    for (const size_t e : pending) {
      const auto draw = generator() % 3;
      set({e}, draw == 0 ? Choice::Kept : draw == 1 ? Choice::Lost : Choice::Zeros);
    }
    if (!look()) return;
  }
}

}  // namespace longhaul::faults
