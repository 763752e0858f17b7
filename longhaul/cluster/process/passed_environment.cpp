#include "longhaul/cluster/process/passed_environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::cluster {
namespace {

/// What the libraries of networks and the client of object stores read.
constexpr std::array<std::string_view, 7> kAlways = {
    "NCCL_*", "FI_*", "RDMAV_*", "UCX_*", "AWS_*", "SSL_CERT_FILE", "LONGHAUL_OBJECTS_*"};
constexpr size_t kMostBytes = size_t{1} << 20;

/// Returns whether a list of variables can hold the name. Shells export functions under
/// names that it cannot hold.
bool is_variable_name(std::string_view name) {
  return !name.empty() && !is_digit(name.front()) &&
         std::ranges::all_of(name, is_word_character);
}

[[noreturn]] void refuse_input(const char* what) {
  fail_input(
      "agent",
      "the variables in the input {}; longhaul launch starts agents, people do not",
      what);
}

}  // namespace

std::vector<std::string> passed_variables(const std::vector<std::string>& patterns) {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const auto matches = [&](std::string_view pattern) {
      return glob_match(pattern, name);
    };
    if (is_variable_name(name) && (std::ranges::any_of(kAlways, matches) ||
                                   std::ranges::any_of(patterns, matches))) {
      names.emplace_back(name);
    }
  }
  std::ranges::sort(names);
  return names;
}

void tell_passed(const std::vector<std::string>& names) {
  if (names.empty()) return;
  fmt::print("longhaul: every rank gets the variables {}\n", fmt::join(names, ", "));
  std::fflush(stdout);
}

std::string variables_text(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    const char* const value = std::getenv(name.c_str());
    if (value != nullptr) text.append(name).append("=").append(value).push_back('\0');
  }
  return text;
}

void take_variables(int fd) {
  std::string text;
  std::array<char, 4096> buffer{};
  while (text.size() <= kMostBytes) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  if (text.size() > kMostBytes) refuse_input("are more than 1 MiB");
  if (!text.empty() && text.back() != '\0') refuse_input("are cut short");
  for (size_t at = 0; at < text.size();) {
    // c_str() ends at the entry's own zero byte.
    const std::string entry = text.c_str() + at;
    const size_t equals = std::min(entry.find('='), entry.size());
    const std::string name = entry.substr(0, equals);
    if (!is_variable_name(name) || equals == entry.size()) {
      refuse_input("are no NAME=VALUE");
    }
    ::setenv(name.c_str(), entry.c_str() + equals + 1, 1);
    at += entry.size() + 1;
  }
}

}  // namespace longhaul::cluster
