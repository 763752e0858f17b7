// .ci/run compiles this file to see how fast the machine is. Nothing else uses it.
#include <map>
#include <regex>
#include <string>

int main(int argc, char** argv) {
  std::map<std::string, std::smatch> found;
  for (int i = 0; i < argc; ++i) {
    std::smatch match;
    const std::string text = argv[i];
    if (std::regex_search(text, match, std::regex("(a|b)*c+"))) found[text] = match;
  }
  return static_cast<int>(found.size());
}
