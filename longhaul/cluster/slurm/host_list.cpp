#include "longhaul/cluster/slurm/host_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/text.h"
#include "longhaul/cluster/control/socket.h"

namespace longhaul::cluster {
namespace {

constexpr size_t kMostText = size_t{1} << 20;
constexpr size_t kMostHosts = 65536;
constexpr size_t kMostName = 253;
constexpr size_t kMostDigits = 9;

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '-' ||
         c == '_' || c == '.';
}

uint64_t number_of(std::string_view digits) {
  return whole_number<uint64_t>(digits).value_or(0);
}

std::string padded(uint64_t value, size_t width) {
  return fmt::format("{:0{}}", value, width);
}

/// Returns the width to which numbers are padded: "007" counts on as "008", "7" as "8".
size_t width_of(std::string_view digits) {
  return digits.size() > 1 && digits.front() == '0' ? digits.size() : 1;
}

/// Reads a host list from its start to its end.
class HostListReader {
 public:
  explicit HostListReader(std::string_view text) : text_(text) {
    if (text.size() > kMostText) {
      fail_input("slurm", "a host list of {} bytes; at most {} are read", text.size(),
                 kMostText);
    }
  }

  std::vector<std::string> read() {
    std::vector<std::string> hosts;
    if (text_.empty()) return hosts;
    while (true) {
      std::vector<std::string> names = read_names(kMostHosts - hosts.size());
      for (std::string& name : names) {
        if (name.empty()) refuse("an empty name");
        if (name.size() > kMostName) refuse("a name that is too long");
        hosts.push_back(std::move(name));
      }
      if (at_ == text_.size()) return hosts;
      take(',');
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail_input("slurm",
               "host list '{}{}', character {}: {}; expected a list such as n[1-3,7]",
               text_.substr(0, 80), text_.size() > 80 ? "..." : "", at_ + 1, what);
  }

  void take(char wanted) {
    if (at_ == text_.size() || text_[at_] != wanted) {
      refuse(fmt::format("a '{}' is missing", wanted));
    }
    ++at_;
  }

  /// Reads one entry: name characters and brackets up to a comma.
  std::vector<std::string> read_names(size_t most) {
    std::vector<std::string> names(1);
    size_t longest = 0;
    while (at_ < text_.size() && text_[at_] != ',') {
      std::vector<std::string> parts(1);
      if (text_[at_] == '[') {
        parts = read_bracket(most / names.size());
      } else if (is_name_character(text_[at_])) {
        while (at_ < text_.size() && is_name_character(text_[at_]))
          parts[0] += text_[at_++];
      } else {
        refuse("this character has no meaning here");
      }
      longest += parts.back().size();
      if (longest > kMostName) refuse("a name that is too long");
      names = product(names, parts);
    }
    if (names.size() > most) refuse(fmt::format("more than {} hosts", kMostHosts));
    return names;
  }

  static std::vector<std::string> product(const std::vector<std::string>& names,
                                          const std::vector<std::string>& parts) {
    std::vector<std::string> result;
    result.reserve(names.size() * parts.size());
    for (const std::string& name : names) {
      for (const std::string& part : parts) result.push_back(name + part);
    }
    return result;
  }

  std::vector<std::string> read_bracket(size_t most) {
    take('[');
    std::vector<std::string> numbers;
    while (true) {
      const std::string_view first = read_digits();
      std::string_view last = first;
      if (at_ < text_.size() && text_[at_] == '-') {
        ++at_;
        last = read_digits();
      }
      const uint64_t begin = number_of(first);
      const uint64_t end = number_of(last);
      if (end < begin) refuse("a range that counts down");
      if (end - begin + 1 > most - std::min<size_t>(most, numbers.size())) {
        refuse(fmt::format("more than {} hosts", kMostHosts));
      }
      for (uint64_t value = begin; value <= end; ++value) {
        numbers.push_back(padded(value, width_of(first)));
      }
      if (at_ < text_.size() && text_[at_] == ']') break;
      take(',');
    }
    take(']');
    return numbers;
  }

  std::string_view read_digits() {
    const size_t begin = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    if (at_ == begin) refuse("a number is missing");
    if (at_ - begin > kMostDigits) refuse("a number that is too long");
    return text_.substr(begin, at_ - begin);
  }

  std::string_view text_;
  size_t at_ = 0;
};

/// Cuts a name before its last digits: "n" and "07". Gives no digits if the name ends in
/// another character or in more digits than a number holds.
std::pair<std::string, std::string> cut(const std::string& host) {
  size_t begin = host.size();
  while (begin > 0 && is_digit(host[begin - 1])) --begin;
  if (host.size() - begin > kMostDigits) begin = host.size();
  return {host.substr(0, begin), host.substr(begin)};
}

/// Collects hosts of one prefix that stand side by side in a list.
class Run {
 public:
  explicit Run(const std::string& host) {
    std::tie(prefix_, first_) = cut(host);
    last_ = first_;
  }

  bool add(const std::string& host) {
    const auto [prefix, digits] = cut(host);
    if (prefix != prefix_ || digits.empty() || first_.empty()) return false;
    const uint64_t next = number_of(last_) + 1;
    if (number_of(digits) == next && padded(next, width_of(first_)) == digits) {
      last_ = digits;
      return true;
    }
    close();
    first_ = last_ = digits;
    return true;
  }

  std::string text() {
    if (first_.empty()) return prefix_;
    if (ranges_.empty() && first_ == last_) return prefix_ + first_;
    close();
    return fmt::format("{}[{}]", prefix_, ranges_);
  }

 private:
  void close() {
    if (!ranges_.empty()) ranges_ += ',';
    ranges_ += first_ == last_ ? first_ : first_ + "-" + last_;
  }

  std::string prefix_;
  std::string first_;
  std::string last_;
  std::string ranges_;
};

}  // namespace

std::vector<std::string> expand_hosts(std::string_view list) {
  return HostListReader(list).read();
}

std::string compress_hosts(const std::vector<std::string>& hosts) {
  std::string text;
  size_t at = 0;
  while (at < hosts.size()) {
    check_host_name(hosts[at]);
    Run run(hosts[at++]);
    while (at < hosts.size() && run.add(hosts[at])) ++at;
    if (!text.empty()) text += ',';
    text += run.text();
  }
  return text;
}

void check_host_name(std::string_view name) {
  if (!is_host_name(name)) {
    fail_input("slurm", "'{}' is not a host name; use letters, digits, '-', '_' and '.'",
               name.substr(0, 80));
  }
}

}  // namespace longhaul::cluster
