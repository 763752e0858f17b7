#include "longhaul/translate/shell_flow.h"

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul::translate {
namespace {

constexpr size_t kMostConstructs = 64;

}  // namespace

void ShellFlow::open(Kind kind) {
  if (frames_.size() >= kMostConstructs) {
    fail_input("flags",
               "{}: more than {} conditions and loops lie in one another; give the "
               "command line that ran",
               name_, kMostConstructs);
  }
  Frame frame{kind};
  frame.outer_dead = frame.dead = dead();
  frames_.push_back(std::move(frame));
}

void ShellFlow::begin_part(Truth condition, const std::string& shown) {
  end_part();
  Frame& frame = frames_.back();
  frame.in_part = true;
  frame.exits = false;
  frame.shown = shown;
  frame.dead = frame.outer_dead || frame.taken == Truth::Yes || condition == Truth::No;
  if (frame.dead) return;
  frame.taken_before = frame.taken;
  frame.undecided = condition == Truth::Unknown || frame.taken == Truth::Unknown;
  frame.taken = condition;
  variables_.begin_branch();
}

void ShellFlow::end_part() {
  Frame& frame = frames_.back();
  if (!frame.in_part) return;
  frame.in_part = false;
  if (!frame.dead) {
    ShellVariables::Changes changes = variables_.end_branch();
    if (frame.exits) {
      frame.taken = frame.taken_before;
    } else {
      frame.branches.emplace_back(frame.shown, std::move(changes));
    }
  }
  frame.undecided = false;
  // The next part is read, and its condition is evaluated, only if it is not certain that
  // a part before it is run.
  frame.dead = frame.outer_dead || frame.taken == Truth::Yes;
}

void ShellFlow::close() {
  end_part();
  Frame frame = std::move(frames_.back());
  frames_.pop_back();
  if (frame.kind == Kind::Subshell) return;
  if (frame.taken != Truth::Yes) {
    frame.branches.emplace_back("", ShellVariables::Changes{});
  }
  std::set<std::string> names = std::move(frame.touched);
  for (const auto& [shown, changes] : frame.branches) {
    for (const auto& [name, value] : changes) names.insert(name);
  }
  if (frame.outer_dead) {
    if (!frames_.empty()) frames_.back().touched.merge(names);
    return;
  }
  variables_.merge(frame.branches);
  for (const std::string& name : names) variables_.depend(name, frame.unset);
}

bool ShellFlow::around(Kind kind) const {
  return std::ranges::any_of(frames_,
                             [&](const Frame& frame) { return frame.kind == kind; });
}

bool ShellFlow::inside(bool loop) const {
  return std::ranges::any_of(frames_, [&](const Frame& frame) {
    return loop ? frame.kind == Kind::Loop && frame.in_part : frame.undecided;
  });
}

void ShellFlow::exits() {
  for (auto frame = frames_.rbegin(); frame != frames_.rend(); ++frame) {
    if (frame->kind == Kind::Group) continue;
    if (frame->kind != Kind::Subshell && frame->kind != Kind::Function) {
      frame->exits = true;
    }
    return;
  }
}

void ShellFlow::touch(const std::string& name) {
  if (!frames_.empty()) frames_.back().touched.insert(name);
}

void ShellFlow::depend(const std::set<std::string>& unset) {
  if (!frames_.empty()) add_unset(frames_.back().unset, unset);
}

std::set<std::string> ShellFlow::unset() const {
  std::set<std::string> all;
  for (const Frame& frame : frames_) add_unset(all, frame.unset);
  return all;
}

}  // namespace longhaul::translate
