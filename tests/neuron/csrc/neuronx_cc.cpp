#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>

// The stand-in's compiler writes a file of the form that the backend loads. It fails
// where NEURON_STANDIN_CC_FAIL names the module's operator.

namespace {

/// Returns whether a module is of an operator: by its whole name, such as
/// aten::mul.Tensor, or by "mul" alone.
bool is_named(const std::string& module, const std::string& name) {
  const std::string whole = module.substr(8, module.find(' ', 8) - 8);  // "module @"
  std::string base = whole.substr(0, whole.find('.'));
  base = base.substr(base.rfind(':') + 1);
  return whole == name || base == name || base == name + "_";
}

}  // namespace

int main(int argc, char** argv) {
  const auto env = [](const char* name, const char* otherwise) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? otherwise : value);
  };
  const std::string version = env("NEURON_STANDIN_CC_VERSION", "2.33.0+standin");
  if (argc > 1 && std::strcmp(argv[1], "--version") == 0) {
    std::cout << "NeuronX Compiler version " << version << "\n";
    return 0;
  }
  std::string input, output, target;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--output" && i + 1 < argc) {
      output = argv[++i];
    } else if (word == "--target" && i + 1 < argc) {
      target = argv[++i];
    } else if (word.ends_with(".mlir")) {
      input = word;
    }
  }
  if (argc < 2 || std::strcmp(argv[1], "compile") != 0 || input.empty() ||
      output.empty()) {
    std::cerr << "neuronx-cc: usage: compile FILE --target T --output FILE\n";
    return 2;
  }
  std::ostringstream module;
  module << std::ifstream(input).rdbuf();
  const std::string failing = env("NEURON_STANDIN_CC_FAIL", "");
  if (!failing.empty() && is_named(module.str(), failing)) {
    std::cerr << "[ERROR] [NCC_STANDIN001] planted failure of " << failing << "\n";
    return 70;
  }
  std::this_thread::sleep_for(
      std::chrono::milliseconds(std::atoi(env("NEURON_STANDIN_CC_MS", "0").c_str())));
  const std::string log = env("NEURON_STANDIN_CC_LOG", "");
  if (!log.empty()) {
    std::string line;
    for (int i = 1; i < argc; ++i)
      line += std::string(argv[i]) + (i + 1 < argc ? " " : "\n");
    std::ofstream(log, std::ios::app) << line << std::flush;
  }
  std::ofstream(output) << "NEFF stand-in\n" << module.str();
  return 0;
}
