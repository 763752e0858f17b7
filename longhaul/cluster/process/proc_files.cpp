#include "longhaul/cluster/process/proc_files.h"

#include <fstream>
#include <iterator>
#include <sstream>

namespace longhaul::cluster {

std::vector<std::string> stat_fields(const std::string& directory) {
  std::ifstream file(directory + "/stat");
  std::string line;
  std::getline(file, line);
  // The name stands in brackets and may hold anything.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(line.substr(name_end + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}

std::vector<std::string> command_line(const std::string& directory) {
  std::ifstream file(directory + "/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace longhaul::cluster
