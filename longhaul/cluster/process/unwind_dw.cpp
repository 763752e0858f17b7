#include <cxxabi.h>
#include <elfutils/libdwfl.h>
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <string_view>

#include "longhaul/cluster/process/unwind.h"

namespace longhaul::cluster {
namespace {

constexpr int kMaxFrames = 96;
constexpr size_t kMaxNameBytes = 300;

/// Finds no separate debug file: such files may lie behind a network.
int no_debuginfo(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*,
                 GElf_Word, char**) {
  return -1;
}

std::string last_problem() {
  const int number = ::dwfl_errno();
  return number == 0 ? "no reason given" : ::dwfl_errmsg(number);
}

std::string demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : name;
  std::free(text);
  if (result.size() > kMaxNameBytes) {
    result.resize(kMaxNameBytes);
    result += "...";
  }
  return result;
}

std::string_view file_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

struct Unwinder::State {
  Dwfl_Callbacks callbacks{};
  Dwfl* session = nullptr;
  std::string problem;
  std::map<Dwarf_Addr, std::string>
      names;  ///< kept: many threads stand in the same places
  std::string text;
  int count = 0;

  const std::string& name_of(Dwarf_Addr address) {
    const auto [place, is_new] = names.try_emplace(address);
    if (!is_new) return place->second;
    Dwfl_Module* module = ::dwfl_addrmodule(session, address);
    if (module == nullptr) {
      place->second = fmt::format("{:#x}", address);
      return place->second;
    }
    const char* path = ::dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr,
                                          nullptr, nullptr, nullptr);
    GElf_Off offset = 0;
    GElf_Sym symbol{};
    const char* name = ::dwfl_module_addrinfo(module, address, &offset, &symbol, nullptr,
                                              nullptr, nullptr);
    place->second = fmt::format(
        "{} ({})", name == nullptr ? fmt::format("{:#x}", address) : demangled(name),
        file_name(path == nullptr ? "?" : path));
    return place->second;
  }

  static int on_frame(Dwfl_Frame* frame, void* argument) {
    auto* self = static_cast<State*>(argument);
    Dwarf_Addr address = 0;
    bool is_activation = false;
    if (!::dwfl_frame_pc(frame, &address, &is_activation)) return -1;
    // A return address may already belong to the next function.
    if (!is_activation) --address;
    self->text += fmt::format("    {}\n", self->name_of(address));
    return ++self->count < kMaxFrames ? DWARF_CB_OK : DWARF_CB_ABORT;
  }
};

bool Unwinder::is_built() { return true; }
std::string Unwinder::version() { return ::dwfl_version(nullptr); }

Unwinder::Unwinder(pid_t pid) : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.callbacks.find_elf = ::dwfl_linux_proc_find_elf;
  state.callbacks.find_debuginfo = no_debuginfo;
  state.session = ::dwfl_begin(&state.callbacks);
  if (state.session == nullptr || ::dwfl_linux_proc_report(state.session, pid) != 0 ||
      ::dwfl_report_end(state.session, nullptr, nullptr) != 0 ||
      ::dwfl_linux_proc_attach(state.session, pid, true) != 0) {
    state.problem = last_problem();
  }
}

Unwinder::~Unwinder() {
  if (state_->session != nullptr) ::dwfl_end(state_->session);
}

std::string Unwinder::frames(pid_t thread) {
  State& state = *state_;
  if (!state.problem.empty()) return fmt::format("    (no stack: {})\n", state.problem);
  state.text.clear();
  state.count = 0;
  const int result =
      ::dwfl_getthread_frames(state.session, thread, State::on_frame, &state);
  if (state.count >= kMaxFrames) {
    state.text += "    (more)\n";
  } else if (state.count == 0) {
    state.text += fmt::format("    (no stack: {})\n", last_problem());
  } else if (result != 0) {
    // libdw also gives an error at the outermost function if that is not marked as
    // outermost.
    state.text += fmt::format("    (ends here: {})\n", last_problem());
  }
  return state.text;
}

}  // namespace longhaul::cluster
