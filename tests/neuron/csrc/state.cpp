#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "standin.h"

namespace neuron_standin {
namespace {

thread_local int device_of_thread = -1;

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + '"';
}

template <typename Map>
std::string object(const Map& map) {
  std::string result = "{";
  for (const auto& [name, count] : map) {
    result +=
        (result.size() > 1 ? ", " : "") + quoted(name) + ": " + std::to_string(count);
  }
  return result + "}";
}

void fault(std::map<std::string, int64_t> Counters::* kind, const std::string& name,
           const std::string& what) {
  {
    const std::lock_guard lock(state().mutex);
    ++(state().counters.*kind)[name];
  }
  TORCH_CHECK(!strict(), "neuron stand-in: ", name, ": ", what);
}

std::string text_of(const at::Tensor& t) {
  std::string text;
  append_form(text, t);
  return text;
}

/// Parses "3", "0-3" or "0,2".
std::vector<int> parse_cores(const std::string& text) {
  std::vector<int> cores;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t dash = part.find('-');
    const int first = std::atoi(part.c_str());
    const int last = dash == part.npos ? first : std::atoi(part.c_str() + dash + 1);
    for (int core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

/// Holds a core against other processes, as the driver does, where
/// NEURON_STANDIN_CORE_LOCKS names a folder.
void hold_core(int core) {
  const std::string folder = setting("NEURON_STANDIN_CORE_LOCKS", "");
  if (folder.empty()) return;
  const std::string path = folder + "/core" + std::to_string(core);
  const int file = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666);
  TORCH_CHECK(file >= 0 && ::flock(file, LOCK_EX | LOCK_NB) == 0,
              "neuron stand-in: nrt_init failed: core ", core,
              " is in use by another process (NRT_RESOURCE)");
}

}  // namespace

State& state() {
  static auto* const made = new State;
  return *made;
}

std::string setting(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

int64_t number(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : std::atoll(value);
}

bool strict() {
  static const bool is = number("NEURON_STANDIN_STRICT", 0) != 0;
  return is;
}

std::string instance() { return setting("NEURON_STANDIN_INSTANCE", "trn2.48xlarge"); }

size_t core_bytes() {
  const int64_t gib = instance().starts_with("trn1") ? 16 : 24;
  return static_cast<size_t>(number("NEURON_STANDIN_MEMORY", gib << 30));
}

std::vector<int> visible_cores() {
  const int64_t all = number("NEURON_STANDIN_CORES", 4);
  std::vector<int> cores = parse_cores(setting("NEURON_RT_VISIBLE_CORES", ""));
  if (cores.empty()) {
    const int64_t wanted = number("NEURON_RT_NUM_CORES", all);
    for (int64_t core = 0; core < wanted; ++core) cores.push_back(static_cast<int>(core));
  }
  for (const int core : cores) {
    TORCH_CHECK(core >= 0 && core < all, "neuron stand-in: nrt_init failed: core ", core,
                " was asked for, and the machine has ", all, " (NRT_INVALID)");
  }
  return cores;
}

int device_count() {
  {
    const std::lock_guard lock(state().mutex);
    if (state().local_world_size > 0) return state().local_world_size;
  }
  return static_cast<int>(visible_cores().size());
}

int current_device() {
  if (device_of_thread >= 0) return device_of_thread;
  const std::lock_guard lock(state().mutex);
  return state().first_device;
}

void set_device(int device) {
  if (device < 0) return;
  TORCH_CHECK(device < device_count(), "neuron stand-in: there is no device ", device,
              ", only ", device_count(), " of them");
  device_of_thread = device;
}

void start_runtime() {
  {
    const std::lock_guard lock(state().mutex);
    if (state().initialized) return;
    state().initialized = true;
  }
  for (const int core : visible_cores()) hold_core(core);
}

void append_form(std::string& key, const at::Tensor& t) {
  key += c10::toString(t.scalar_type());
  key += '[';
  for (int64_t i = 0; i < t.dim(); ++i) {
    if (i > 0) key += ',';
    key += std::to_string(t.size(i));
  }
  key += ']';
  if (!t.is_contiguous()) {
    key += '{';
    for (int64_t i = 0; i < t.dim(); ++i) {
      if (i > 0) key += ',';
      key += std::to_string(t.stride(i));
    }
    key += '}';
  }
  if (t.storage_offset() != 0) key += '+' + std::to_string(t.storage_offset());
}

bool check_wide(const std::string& name, c10::ScalarType dtype) {
  if (c10::elementSize(dtype) < 8) return false;
  fault(&Counters::wide, name + " " + c10::toString(dtype),
        std::string("the device has no ") + c10::toString(dtype) + " (64 bits)");
  return true;
}

void check_read(const std::string& name, const at::Tensor& t) {
  if (t.numel() == 0) return;
  {
    const std::lock_guard lock(state().mutex);
    if (state().blocks.contains(t.storage().data())) return;
  }
  fault(&Counters::foreign, name,
        text_of(t) +
            " begins at no address of the allocator: it stands in the middle of "
            "other memory");
}

void check_write(const std::string& name, const at::Tensor& t) {
  // A transposed tensor that fills its memory is written by a transposition.
  const bool fills =
      t.is_non_overlapping_and_dense() && t.nbytes() == t.storage().nbytes();
  if (t.numel() == 0 || (t.storage_offset() == 0 && (fills || t.is_contiguous()))) return;
  fault(&Counters::strided_writes, name,
        text_of(t) + " is written, which is a part of its memory or has gaps");
}

void note_executed(const std::string& name) {
  const std::lock_guard lock(state().mutex);
  ++state().counters.calls;
  ++state().counters.executed[name];
}

void note_fallback(const std::string& name, const std::string& why) {
  bool first = false;
  {
    const std::lock_guard lock(state().mutex);
    first = state().counters.fallbacks[name]++ == 0;
  }
  if (first) {
    TORCH_WARN("neuron stand-in: ", name, " falls back to the CPU: ", why);
  }
}

std::string report() {
  const std::lock_guard lock(state().mutex);
  const Counters& c = state().counters;
  std::ostringstream text;
  text << "{\"pid\": " << ::getpid() << ", \"rank\": " << state().rank
       << ", \"calls\": " << c.calls << ", \"compiles\": " << c.compiles
       << ", \"cache_hits\": " << c.cache_hits << ", \"used_bytes\": " << state().used
       << ", \"peak_bytes\": " << state().peak << ", \"executed\": " << object(c.executed)
       << ", \"fallbacks\": " << object(c.fallbacks) << ", \"wide\": " << object(c.wide)
       << ", \"strided_writes\": " << object(c.strided_writes)
       << ", \"foreign\": " << object(c.foreign) << ", \"keys\": " << object(c.keys)
       << "}";
  return text.str();
}

void write_report() {
  const std::string prefix = setting("NEURON_STANDIN_COUNTERS", "");
  if (prefix.empty()) return;
  const std::string path = prefix + "." + std::to_string(::getpid()) + ".json";
  std::ofstream(path + ".tmp") << report() << "\n";
  ::rename((path + ".tmp").c_str(), path.c_str());
}

}  // namespace neuron_standin
