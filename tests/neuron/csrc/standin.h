#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

/// A stand-in of AWS's native backend of PyTorch: a device "neuron" in the host's memory.
/// What it takes from the real one, and how sure that is, stands in
/// tests/neuron/README.md.
namespace neuron_standin {

constexpr auto kType = c10::DeviceType::PrivateUse1;

/// What a process has done, in the form of get_fallback_ops() and of the report.
struct Counters {
  std::map<std::string, int64_t> executed;   ///< operators with a kernel, by name
  std::map<std::string, int64_t> fallbacks;  ///< operators that ran on the CPU
  std::map<std::string, int64_t> wide;       ///< 64-bit work, by operator and dtype
  /// Writes into a part of a tensor's memory, or with gaps.
  std::map<std::string, int64_t> strided_writes;
  /// Tensors whose memory begins at no address that the allocator knows.
  std::map<std::string, int64_t> foreign;
  /// Each key with the number of the call that met it first.
  std::unordered_map<std::string, int64_t> keys;
  int64_t calls = 0;
  int64_t compiles = 0;
  int64_t cache_hits = 0;
};

/// The state of the process. Its members are read and written with `mutex` held.
struct State {
  std::mutex mutex;
  Counters counters;
  std::unordered_map<const void*, size_t> blocks;  ///< bytes by the exact base address
  size_t used = 0;
  size_t peak = 0;
  bool initialized = false;
  int world_size = 0;  ///< 0 until a process group sets it
  int rank = 0;
  int local_world_size = 0;  ///< 0 until a process group sets it
  int first_device = 0;      ///< the index of the only device of a process of a group
};
State& state();

/// Returns the value of an environment variable, or `otherwise` where it is not set.
std::string setting(const char* name, const std::string& otherwise);
int64_t number(const char* name, int64_t otherwise);
/// Returns true where faults raise instead of being counted.
bool strict();

/// Returns the cores that the process may use, from the runtime's variables. Throws where
/// they ask for more than the machine has.
std::vector<int> visible_cores();
/// Returns the instance's name, as the device's properties state it.
std::string instance();
/// Returns the bytes of memory of one core.
size_t core_bytes();
int device_count();
int current_device();
void set_device(int device);
/// Starts the runtime, once. Throws where the cores cannot be had.
void start_runtime();

/// Registers the device's name, allocator and hooks.
void register_device();

/// Returns a tensor of the CPU over the same memory. The caller keeps `t`.
at::Tensor cpu_alias(const at::Tensor& t);
/// Returns a tensor of the device that takes over the memory of a tensor of the CPU, or a
/// copy of it where something else holds that memory.
at::Tensor adopt(const at::Tensor& t, int device);

/// Counts 64-bit work, or raises where strict() is true.
bool check_wide(const std::string& name, c10::ScalarType dtype);
/// Counts memory of which the device knows no beginning, or raises.
void check_read(const std::string& name, const at::Tensor& t);
/// Counts a write that the device cannot do, or raises.
void check_write(const std::string& name, const at::Tensor& t);
/// Appends the form of a tensor to a key: dtype, shape, and strides and offset where they
/// are not those of a whole tensor.
void append_form(std::string& key, const at::Tensor& t);

void note_executed(const std::string& name);
/// Records a fallback, and warns of the first one of an operator.
void note_fallback(const std::string& name, const std::string& why);

/// Takes note of a key. Compiles it where neither this process nor the cache has it.
/// Throws where the compiler fails and falling back is forbidden. Returns false where the
/// operator is to fall back.
bool need_key(const std::string& name, const std::string& key);

/// Returns the report of the process as JSON.
std::string report();
/// Writes the report to NEURON_STANDIN_COUNTERS.PID.json, if that variable is set.
void write_report();

}  // namespace neuron_standin
