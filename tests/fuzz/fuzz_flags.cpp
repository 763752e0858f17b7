// Takes any bytes for another system's command line or launch script, and for a YAML file
// of one, as a person gives them to `longhaul import --flags`.
#include "longhaul/base/error.h"
#include "longhaul/translate/shell_words.h"
#include "longhaul/translate/translate.h"
#include "longhaul/translate/yaml_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    longhaul::translate::read_yaml(text, "f.yaml");
  } catch (const longhaul::Error&) {
  }
  try {
    longhaul::translate::read_shell_text(text, "f.sh", {.whole = true, .directory = "/"});
  } catch (const longhaul::Error&) {
  }
  try {
    longhaul::translate::translate(text + " ", 8);
  } catch (const longhaul::Error&) {
  }
  return 0;
}
