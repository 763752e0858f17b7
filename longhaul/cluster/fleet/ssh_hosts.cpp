#include "longhaul/cluster/fleet/ssh_hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/cluster/control/socket.h"
#include "longhaul/cluster/process/passed_environment.h"
#include "longhaul/system/terminal.h"

namespace longhaul::cluster {
namespace {

constexpr uintmax_t kLargestFile = uintmax_t{1} << 20;

/// Throws InputError for anything else than a host's name.
void check_host(const std::string& host) {
  if (is_host_name(host)) return;
  fail_input("launch",
             "'{}' is not a host name; write n1,n2 or name a file with one host a line",
             host.substr(0, 80));
}

std::string text_of(const std::string& hosts) {
  if (!is_seen_file(hosts)) return hosts;
  if (fs::file_size(hosts) > kLargestFile) {
    fail_input("launch", "{}: the file is too large for a list of hosts", hosts);
  }
  std::string text = read_text(hosts);
  for (size_t begin = 0; (begin = text.find('#', begin)) != std::string::npos;) {
    text.erase(begin, std::min(text.find('\n', begin), text.size()) - begin);
  }
  return text;
}

}  // namespace

std::vector<std::string> read_hosts(const std::string& hosts) {
  constexpr const char* kBetween = ", \t\r\n";
  const std::string text = text_of(hosts);
  std::vector<std::string> names;
  for (size_t begin = 0;
       (begin = text.find_first_not_of(kBetween, begin)) != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(kBetween, begin), text.size());
    names.push_back(text.substr(begin, end - begin));
    check_host(names.back());
    if (std::ranges::count(names, names.back()) > 1) {
      fail_input("launch", "host {} is named twice in {}", names.back(), hosts);
    }
    begin = end;
  }
  if (names.empty()) fail_input("launch", "'{}' names no hosts", hosts);
  return names;
}

JobStep start_agent_by_ssh(const std::string& host, const std::string& here,
                           std::vector<std::string> words, const Secret& secret,
                           const std::vector<std::string>& variables) {
  check_host(host);
  if (host == here) return JobStep::start(words, {}, secret.to_line());
  words.emplace_back("--environment");
  // The shell of the other host reads one line.
  for (std::string& word : words) word = system::shell_word(word);
  return JobStep::start({"ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15",
                         host, fmt::format("{}", fmt::join(words, " "))},
                        {}, secret.to_line() + variables_text(variables));
}

std::vector<std::string> mpirun_words(const std::vector<std::string>& hosts,
                                      int ranks_per_node,
                                      const std::vector<std::string>& exported) {
  std::string list;
  for (const std::string& host : hosts) {
    list += fmt::format("{}{}:{}", list.empty() ? "" : ",", host, ranks_per_node);
  }
  const auto ranks = hosts.size() * static_cast<size_t>(ranks_per_node);
  std::vector<std::string> words = {"mpirun",
                                    "-n",
                                    std::to_string(ranks),
                                    "--host",
                                    list,
                                    "--map-by",
                                    fmt::format("ppr:{}:node", ranks_per_node),
                                    "--bind-to",
                                    "none"};
  for (const std::string& name : exported) words.insert(words.end(), {"-x", name});
  return words;
}

}  // namespace longhaul::cluster
