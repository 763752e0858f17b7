#include "longhaul/neuron/interpreter.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/neuron/python.h"

namespace longhaul::neuron {

/// The functions of Python's stable interface that are called here, by their own names.
struct Interpreter::Functions {
  using Object = void;  // PyObject

  wchar_t* (*Py_DecodeLocale)(const char*, size_t*) = nullptr;
  void (*Py_SetProgramName)(const wchar_t*) = nullptr;
  void (*Py_InitializeEx)(int) = nullptr;
  void* (*PyEval_SaveThread)() = nullptr;
  int (*PyGILState_Ensure)() = nullptr;
  void (*PyGILState_Release)(int) = nullptr;
  int (*PyRun_SimpleString)(const char*) = nullptr;
  Object* (*PyImport_AddModule)(const char*) = nullptr;
  Object* (*PyObject_GetAttrString)(Object*, const char*) = nullptr;
  Object* (*PyObject_CallFunction)(Object*, const char*, ...) = nullptr;
  const char* (*PyUnicode_AsUTF8AndSize)(Object*, ssize_t*) = nullptr;
  void (*Py_DecRef)(Object*) = nullptr;
  void (*PyErr_Print)() = nullptr;
};

namespace {

constexpr const char* kInterpreterArea = "neuron";

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (function == nullptr) {
    fail_config(kInterpreterArea, "libpython has no function {}; it is not a Python 3",
                name);
  }
}

}  // namespace

const Interpreter::Functions& Interpreter::functions(const std::string& libpython) {
  static const Functions found = [&] {
    // Extension modules take Python's functions from the libraries that are open for all.
    void* const library = ::dlopen(libpython.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      fail_config(kInterpreterArea, "{} cannot be opened: {}", libpython, ::dlerror());
    }
    Functions f;
#define LONGHAUL_FIND(name) find(library, #name, f.name)
    LONGHAUL_FIND(Py_DecodeLocale);
    LONGHAUL_FIND(Py_SetProgramName);
    LONGHAUL_FIND(Py_InitializeEx);
    LONGHAUL_FIND(PyEval_SaveThread);
    LONGHAUL_FIND(PyGILState_Ensure);
    LONGHAUL_FIND(PyGILState_Release);
    LONGHAUL_FIND(PyRun_SimpleString);
    LONGHAUL_FIND(PyImport_AddModule);
    LONGHAUL_FIND(PyObject_GetAttrString);
    LONGHAUL_FIND(PyObject_CallFunction);
    LONGHAUL_FIND(PyUnicode_AsUTF8AndSize);
    LONGHAUL_FIND(Py_DecRef);
    LONGHAUL_FIND(PyErr_Print);
#undef LONGHAUL_FIND
    return f;
  }();
  return found;
}

KeptSignals::KeptSignals() {
  for (int i = 0; i < kSignals; ++i) {
    ::sigaction(i + 1, nullptr, &before_.at(static_cast<size_t>(i)));
  }
}

KeptSignals::~KeptSignals() {
  for (int i = 0; i < kSignals; ++i) {
    ::sigaction(i + 1, &before_.at(static_cast<size_t>(i)), nullptr);
  }
}

Interpreter::Interpreter(const std::string& libpython, const std::string& executable)
    : python_(functions(libpython)) {
  // By the program's name Python finds the packages of a virtual environment. The text
  // must live as long as the interpreter.
  static wchar_t* const name = python_.Py_DecodeLocale(executable.c_str(), nullptr);
  python_.Py_SetProgramName(name);
  python_.Py_InitializeEx(/*initsigs=*/0);
  const int failed = python_.PyRun_SimpleString(kBridgeSource);
  python_.PyEval_SaveThread();
  if (failed == 0) return;
  fail_config(kInterpreterArea,
              "{} does not find the modules of its Python for {} (Python's own message "
              "stands above); name an interpreter in run.neuron_python whose own "
              "libpython is installed",
              libpython, executable);
}

Json Interpreter::call(const std::string& function, const Json& arguments) const {
  const std::string text = json_text(arguments);
  std::string answer;
  const int state = python_.PyGILState_Ensure();
  Functions::Object* const module = python_.PyImport_AddModule("__main__");  // borrowed
  Functions::Object* const caller =
      python_.PyObject_GetAttrString(module, "longhaul_call");
  Functions::Object* const said =
      caller == nullptr
          ? nullptr
          : python_.PyObject_CallFunction(caller, "ss", function.c_str(), text.c_str());
  if (said != nullptr) {
    ssize_t size = 0;
    const char* const bytes = python_.PyUnicode_AsUTF8AndSize(said, &size);
    if (bytes != nullptr) answer.assign(bytes, static_cast<size_t>(size));
    python_.Py_DecRef(said);
  } else {
    python_.PyErr_Print();
  }
  if (caller != nullptr) python_.Py_DecRef(caller);
  python_.PyGILState_Release(state);
  const Json json = parse_json(answer, "the answer of " + function);
  if (!json.contains("error")) return json.at("result");
  throw InputError(kInterpreterArea, json.at("error").get<std::string>());
}

}  // namespace longhaul::neuron
