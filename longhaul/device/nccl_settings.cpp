#include "longhaul/device/nccl_settings.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <span>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/device/nccl_library.h"

namespace longhaul::device {
namespace {

// The versions that know what the program sets.
constexpr int kNvls = 21700;
constexpr int kNamedFile = 22300;
constexpr int kImplicitOrder = 22600;

constexpr const char* kConfigFile = "NCCL_CONF_FILE";
constexpr const char* kOrder = "NCCL_LAUNCH_ORDER_IMPLICIT";
constexpr const char* kSharp = "NCCL_NVLS_ENABLE";

/// Settings in which machines may rightly differ.
constexpr std::string_view kByMachine =
    "*_DUMP_FILE *_IFACE *_IFNAME FI_LOG_* NCCL_CONF_FILE NCCL_DEBUG* NCCL_HOSTID "
    "NCCL_IB_GID_INDEX NCCL_IB_HCA NCCL_IB_PKEY NCCL_IGNORE_CPU_AFFINITY "
    "NCCL_INSPECTOR_* NCCL_MNNVL_CLIQUE_ID NCCL_MNNVL_UUID NCCL_PROFILER_* NCCL_RAS_* "
    "NCCL_TOPO_FILE";

/// Settings that choose an algorithm or cut a sum into parts: each may change the order
/// in which NCCL adds.
constexpr std::string_view kOfSums =
    "NCCL_ALGO NCCL_PROTO NCCL_NVLS_ENABLE NCCL_COLLNET_ENABLE NCCL_MIN_NCHANNELS "
    "NCCL_MAX_NCHANNELS NCCL_MIN_NRINGS NCCL_MAX_NRINGS NCCL_MIN_CTAS NCCL_MAX_CTAS "
    "NCCL_CTA_POLICY NCCL_NTHREADS NCCL_LL128_NTHREADS NCCL_BUFFSIZE NCCL_LL_BUFFSIZE "
    "NCCL_LL128_BUFFSIZE NCCL_TUNER_PLUGIN NCCL_TUNER_CONFIG_FILE";

bool is_of_networks(std::string_view name) {
  return name.starts_with("NCCL_") || name.starts_with("FI_");
}

/// Adds an assignment, unless the name has a value already.
void add(std::string_view assignment, NcclSettings& settings) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) return;
  const std::string_view name = assignment.substr(0, equals);
  if (is_of_networks(name))
    settings.try_emplace(std::string(name), assignment.substr(equals + 1));
}

/// Adds what a configuration file of NCCL says. NCCL skips lines without '=' and files
/// that it cannot read, and so does this.
void add_file(const fs::path& path, NcclSettings& settings) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with('#')) add(line, settings);
  }
}

std::optional<std::string> set_value(const NcclSettings& settings,
                                     const std::string& name) {
  const auto found = settings.find(name);
  return found == settings.end() ? std::nullopt : std::optional(found->second);
}

std::string value_of(const NcclSettings& settings, const std::string& name) {
  return set_value(settings, name).value_or("");
}

/// Returns whether a value of NCCL_ALGO asks for NVLS: lists of algorithms, with ';'
/// between, for all functions or for the one before ':'. A list behind '^' leaves out.
bool asks_for_sharp(std::string algorithms) {
  for (char& c : algorithms)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::ranges::any_of(split(algorithms, ';'), [](std::string_view list) {
    list = list.substr(list.find(':') + 1);
    return !list.starts_with('^') && list.find("nvls") != std::string_view::npos;
  });
}

/// Returns what ranks compare: assignments, each with a zero byte behind it, which no
/// value holds.
std::string shared_text(const NcclSettings& settings) {
  std::string text;
  for (const auto& [name, value] : settings) {
    if (!may_differ(name)) text.append(name).append("=").append(value).push_back('\0');
  }
  return text;
}

NcclSettings parse_shared(const std::string& text) {
  NcclSettings settings;
  for (const std::string_view assignment : split(text, '\0')) add(assignment, settings);
  return settings;
}

/// Returns "NCCL_ALGO is "Ring" on rank 0, and not set on rank 1"; empty if it is alike.
std::string difference_text(const std::string& name,
                            const std::vector<NcclSettings>& of_ranks) {
  std::map<std::optional<std::string>, std::vector<std::string>> by_value;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    by_value[set_value(of_ranks[rank], name)].push_back(std::to_string(rank));
  }
  if (by_value.size() == 1) return {};
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : by_value) {
    parts.push_back(fmt::format("{} on rank{} {}",
                                value ? fmt::format("\"{}\"", *value) : "not set",
                                ranks.size() == 1 ? "" : "s", listed(ranks, 4)));
  }
  return fmt::format("{} is {}", name, fmt::join(parts, ", and "));
}

/// Returns why no file of these names can be loaded; empty if one can. A library that is
/// loaded stays: NCCL will load the same.
std::string why_not_loaded(const std::vector<std::string>& names) {
  std::string why;
  for (const std::string& name : names) {
    if (::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return {};
    why += fmt::format("{}{}", why.empty() ? "" : "; ", ::dlerror());
  }
  return why;
}

/// Checks the plug-ins of one kind: "net" for NCCL_NET_PLUGIN.
void check_plugin(const NcclSettings& settings, const char* variable, const char* kind,
                  const char* instead) {
  const std::string value = value_of(settings, variable);
  for (const std::string_view part : split(value, ',')) {
    const std::string name(trimmed(part));
    if (name.empty() || name == "none" || name == "STATIC_PLUGIN") continue;
    const std::string why =
        why_not_loaded({name, fmt::format("libnccl-{}-{}.so", kind, name)});
    if (why.empty()) continue;
    fail_config("device",
                "{}={} names a plug-in of NCCL that cannot be loaded ({}). NCCL would "
                "{} without a word; put the plug-in's directory into LD_LIBRARY_PATH, or "
                "unset the variable",
                variable, name, why, instead);
  }
}

}  // namespace

NcclSettings nccl_settings() {
  NcclSettings settings;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    add(*entry, settings);
  }
  const std::string named = value_of(settings, kConfigFile);
  if (!named.empty()) {
    add_file(named, settings);
  } else if (const passwd* user = ::getpwuid(::getuid()); user != nullptr) {
    add_file(fs::path(user->pw_dir) / ".nccl.conf", settings);
  }
  add_file("/etc/nccl.conf", settings);
  return settings;
}

bool may_differ(std::string_view name) {
  return std::ranges::any_of(split_words(kByMachine), [&](const std::string& pattern) {
    return glob_match(pattern, name);
  });
}

void check_same_settings(const NcclSettings& mine, comm::Communicator& world) {
  const std::string text = shared_text(mine);
  const auto hash = static_cast<int64_t>(hash_number(std::as_bytes(std::span(text))));
  std::array<int64_t, 2> most = {hash, ~hash};  // the second gives the least hash
  world.all_reduce_wait(most, comm::ReduceOp::Max);
  if (most[0] == ~most[1]) return;
  std::vector<NcclSettings> of_ranks;
  std::set<std::string> names;
  for (const std::string& of_rank : world.gather_strings(text)) {
    of_ranks.push_back(parse_shared(of_rank));
    for (const auto& [name, value] : of_ranks.back()) names.insert(name);
  }
  std::vector<std::string> differences;
  for (const std::string& name : names) {
    const std::string difference = difference_text(name, of_ranks);
    if (!difference.empty()) differences.push_back(difference);
  }
  fail_config(
      "device",
      "ranks differ in settings of NCCL or of the fabric, with which NCCL hangs or "
      "adds in another order: {}; set them alike on all machines, in the "
      "environment and in NCCL's configuration files",
      fmt::join(differences, "; "));
}

std::vector<std::string> check_plugins(const NcclSettings& settings) {
  check_plugin(settings, "NCCL_NET_PLUGIN", "net", "take IP sockets or its own network");
  check_plugin(settings, "NCCL_TUNER_PLUGIN", "tuner", "choose algorithms itself");
  const std::string provider = value_of(settings, "FI_PROVIDER");
  if (provider.empty() || settings.contains("NCCL_NET_PLUGIN") ||
      settings.contains("NCCL_NET")) {
    return {};
  }
  const std::string why = why_not_loaded({"libnccl-net.so"});
  if (why.empty()) return {};
  return {fmt::format(
      "FI_PROVIDER={} is set, but NCCL finds no plug-in for libfabric ({}). Where NCCL "
      "knows no other network, machines will exchange data over IP sockets; put the "
      "plug-in's directory into LD_LIBRARY_PATH, or name it in NCCL_NET_PLUGIN",
      provider, why)};
}

std::string settings_of_sums(const NcclSettings& settings) {
  std::string text;
  for (const std::string& name : split_words(kOfSums)) {
    const auto found = settings.find(name);
    if (found != settings.end()) text += fmt::format(" {}={}", name, found->second);
  }
  return text;
}

NcclChoice choose_settings(int version, bool repeats, const NcclSettings& given) {
  NcclChoice choice;
  const std::string nccl = "NCCL " + nccl_version_text(version);
  if (version < kImplicitOrder) {
    choice.warnings.push_back(
        fmt::format("{} has no {} (since 2.26): it does not promise that operations of "
                    "several groups "
                    "end while they are under way together (pp, cp and ep); install NCCL "
                    "2.26 or newer",
                    nccl, kOrder));
  } else if (!given.contains(kOrder)) {
    choice.set[kOrder] = "1";
  }
  if (version < kNamedFile && given.contains(kConfigFile)) {
    choice.warnings.push_back(
        fmt::format("{} does not read {} (since 2.23); export what the file says", nccl,
                    kConfigFile));
  }
  if (!repeats || version < kNvls) return choice;
  const std::string algorithms = value_of(given, "NCCL_ALGO");
  const bool asked = asks_for_sharp(algorithms);
  if (!given.contains(kSharp) && !asked) {
    choice.set[kSharp] = "0";
  } else if (value_of(given, kSharp) != "0" && (asked || algorithms.empty())) {
    choice.warnings.push_back(fmt::format(
        "run.deterministic does not hold: {} lets NCCL add by NVLink SHARP, whose sums "
        "differ from call to call; unset it, and the run leaves NVLS and NVLSTree out",
        asked ? "NCCL_ALGO=" + algorithms
              : fmt::format("{}={}", kSharp, value_of(given, kSharp))));
  }
  return choice;
}

std::vector<std::string> prepare_nccl(int version, bool repeats) {
  const NcclChoice choice = choose_settings(version, repeats, nccl_settings());
  for (const auto& [name, value] : choice.set) ::setenv(name.c_str(), value.c_str(), 1);
  return choice.warnings;
}

}  // namespace longhaul::device
