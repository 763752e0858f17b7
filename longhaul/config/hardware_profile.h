#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

/// The measured rate of one thing that a machine does, in units a second.
struct MeasuredRate {
  std::string name;
  std::string unit;  ///< "FLOP", "B", "token"
  double median = 0.0;
  double low = 0.0, high = 0.0;  ///< the slowest and the fastest round
  /// In each round this rate is divided by the first rate of the round; this is the
  /// median of the quotients. A machine that is slower today is slower in both rates, so
  /// the quotient stays.
  double to_first = 0.0;
};

/// The rows of an expert at which the products of experts are measured. With few rows the
/// weights of an expert take longer to read than to multiply.
inline constexpr std::array<int64_t, 3> kGroupedRows = {16, 64, 256};
/// Returns the name of such a rate: "grouped product bf16 64 rows".
std::string grouped_product_name(bool bf16, int64_t rows);

/// The share of a peak rate that an operation reaches, where no rate was measured; 0
/// where it is not known.
struct EfficiencyProfile {
  double products = 0.0;
  double attention = 0.0;
  double memory = 0.0;
};

/// What a rank sends through, in one direction.
struct LinkProfile {
  double bytes_per_s = 0.0;  ///< 0: not known
  double latency_s = 0.0;    ///< of one message
};

/// The measured time of an operation by which a group of ranks exchanges data.
struct ExchangeProfile {
  std::string group;      ///< "tp", "shard" ...
  std::string operation;  ///< "all_gather" ..., or "expert rows"
  int64_t ranks = 0;
  int64_t on_node = 0;  ///< ranks of the group on one node
  LinkProfile link;     ///< of the bytes that a rank sends, and of one operation
};

/// What a node has and what it costs; numbers that are not known are 0.
struct NodeProfile {
  int64_t ranks = 0;            ///< devices, of one rank each
  double device_bytes = 0.0;    ///< memory of one device
  double context_bytes = 0.0;   ///< what driver and libraries take of it
  double host_bytes = 0.0;      ///< memory of the node
  double copy_bytes_per_s = 0;  ///< of a device to the memory of its node
  double disk_bytes_per_s = 0;  ///< of one node to the shared file system
  /// of one node to an object store
  double store_bytes_per_s = 0;
  double watts = 0.0;           ///< of the node under load
  double price_per_hour = 0.0;  ///< of the node
  std::string currency;         ///< of the price: "USD"
};

/// The rates of a machine. `longhaul bench` writes the profile, and run.hardware names
/// its file. Profiles of known machines come with the program; those have numbers of
/// makers and of published runs, and a node.
struct HardwareProfile {
  // The machine that was measured.
  std::string device;  ///< device::name: "cpu", "NVIDIA H100 80GB HBM3 sm_90"
  std::string cpu;
  int64_t threads = 0;
  std::string made;  ///< program and time, for people
  // Dense products, FLOP/s of one device; 0: not known.
  double peak_bf16 = 0.0;
  double peak_fp32 = 0.0;
  double peak_memory = 0.0;  ///< bytes a second of the device's memory
  EfficiencyProfile efficiency;
  LinkProfile inside;   ///< to the ranks of the same node
  LinkProfile between;  ///< to other nodes, where all ranks of the node send
  NodeProfile node;
  /// Why `train` does not run on the machine; empty where it does.
  std::string comparison_only;
  std::vector<MeasuredRate> rates;
  std::vector<ExchangeProfile> exchanges;  ///< of a run's groups

  /// Returns the rate of a name, or null if there is none.
  const MeasuredRate* find(std::string_view name) const;
  /// Takes newer measurements. They replace those of the same name, or of the same
  /// operation of an equal group; all others stay. The newer exchanges stand first.
  void put_rates(const std::vector<MeasuredRate>& newer);
  void put_exchanges(const std::vector<ExchangeProfile>& newer);
};

std::string to_toml(const HardwareProfile& profile);
/// Parses a profile. Throws ConfigError with the place in the file `name` for what is no
/// profile and for a rate that is no positive number.
HardwareProfile parse_hardware_profile(std::string_view text, std::string_view name);

/// Throws ConfigError if the profile is that of another machine; `name` is its file.
void check_machine(const HardwareProfile& profile, std::string_view name,
                   std::string_view device, std::string_view cpu, int64_t threads);

/// Returns a rate for people: "1.21 TFLOP/s".
std::string rate_text(double rate, std::string_view unit);

}  // namespace longhaul
