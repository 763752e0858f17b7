#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <ATen/ops/from_blob.h>

#include <cstdlib>

#include "standin.h"

// The module _C, by which the Python half calls the C++ half.

namespace neuron_standin {
namespace {

/// Turns the arguments of one call into those of the CPU, and collects the key.
struct Opening {
  const std::string& name;
  uint64_t writes;  ///< one bit for each argument that is written
  std::string key;
  bool wide = false;
  int device = -1;

  at::Tensor take(const at::Tensor& t, bool written, bool in_list) {
    if (!t.defined()) {
      key += "none;";
      return t;
    }
    append_form(key, t);
    key += ';';
    if (!t.is_privateuseone()) {
      TORCH_CHECK(t.is_cpu() && (t.dim() == 0 || in_list), "neuron stand-in: ", name,
                  ": a tensor on ", t.device(), " stands beside tensors of the device");
      return t;
    }
    TORCH_CHECK(device < 0 || t.device().index() == device, "neuron stand-in: ", name,
                ": tensors of the devices ", device, " and ",
                static_cast<int>(t.device().index()));
    device = t.device().index();
    check_read(name, t);
    if (written) check_write(name, t);
    wide = check_wide(name, t.scalar_type()) || wide;
    return cpu_alias(t);
  }

  py::object open(PyObject* value, bool written, bool in_list) {
    if (value == Py_None) {
      key += "none;";
      return py::none();
    }
    if (THPVariable_Check(value)) {
      return py::reinterpret_steal<py::object>(
          THPVariable_Wrap(take(THPVariable_Unpack(value), written, in_list)));
    }
    if (PyList_Check(value) || PyTuple_Check(value)) {
      const Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
      py::list result(count);
      key += '(';
      for (Py_ssize_t i = 0; i < count; ++i) {
        PyList_SET_ITEM(
            result.ptr(), i,
            open(PySequence_Fast_GET_ITEM(value, i), written, true).release().ptr());
      }
      key += ')';
      return result;
    }
    // A number in the place of a tensor is in the key by its type alone.
    at::Tensor t = PyBool_Check(value) ? at::scalar_tensor(value == Py_True, at::kBool)
                   : PyLong_Check(value)
                       ? at::scalar_tensor(PyLong_AsLongLong(value), at::kLong)
                       : at::scalar_tensor(PyFloat_AsDouble(value), at::kDouble);
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    t.unsafeGetTensorImpl()->set_wrapped_number(true);
    key += PyBool_Check(value) ? "bool;" : PyLong_Check(value) ? "int;" : "float;";
    return py::reinterpret_steal<py::object>(THPVariable_Wrap(t));
  }
};

/// Returns the arguments for the CPU, the key, whether a number has 64 bits, and the
/// device.
py::tuple open_call(const std::string& name, uint64_t writes, const py::tuple& tensors) {
  note_executed(name);
  Opening opening{name, writes, {}};
  const auto count = static_cast<Py_ssize_t>(tensors.size());
  py::tuple result(count);
  for (Py_ssize_t i = 0; i < count; ++i) {
    const bool written = (writes >> i & 1) != 0;
    PyTuple_SET_ITEM(
        result.ptr(), i,
        opening.open(PyTuple_GET_ITEM(tensors.ptr(), i), written, false).release().ptr());
  }
  return py::make_tuple(std::move(result), opening.key, opening.wide,
                        opening.device < 0 ? current_device() : opening.device);
}

/// Returns results of the CPU as tensors of the device.
py::object close_call(const std::string& name, const py::object& result, int device) {
  if (THPVariable_Check(result.ptr())) {
    const at::Tensor& t = THPVariable_Unpack(result.ptr());
    if (t.defined()) check_wide(name, t.scalar_type());
    return py::reinterpret_steal<py::object>(THPVariable_Wrap(adopt(t, device)));
  }
  if (PyTuple_Check(result.ptr()) || PyList_Check(result.ptr())) {
    py::list all;
    for (const py::handle each : result) {
      all.append(close_call(name, py::reinterpret_borrow<py::object>(each), device));
    }
    if (PyTuple_Check(result.ptr())) return py::tuple(all);
    return all;
  }
  return result;
}

py::dict memory_stats(int) {
  const std::lock_guard lock(state().mutex);
  py::dict result;
  result["used_bytes"] = state().used;
  result["peak_bytes"] = state().peak;
  result["total_bytes"] = core_bytes();
  return result;
}

std::vector<std::string> names(std::map<std::string, int64_t> Counters::* kind) {
  const std::lock_guard lock(state().mutex);
  std::vector<std::string> result;
  for (const auto& [name, count] : state().counters.*kind) result.push_back(name);
  return result;
}

template <int State::* Member>
void set_member(int value) {
  const std::lock_guard lock(state().mutex);
  state().*Member = value;
}

struct Properties {
  std::string name;
  size_t total_memory;
};

}  // namespace

PYBIND11_MODULE(_C, m) {
  std::atexit(&write_report);
  m.def("_register_device", &register_device);
  m.def("_register_profiler", [] {});
  m.def("_set_python_ops_registered", [](bool) {});
  m.def("_open", &open_call);
  m.def("_close", &close_call);
  m.def("_need_key", &need_key, py::call_guard<py::gil_scoped_release>());
  m.def("_as_cpu", &cpu_alias);
  m.def("_adopt", &adopt);
  // A tensor of the device at any address, as a program makes it by from_blob.
  m.def("_over_address", [](uintptr_t address, std::vector<int64_t> sizes) {
    return at::from_blob(
        reinterpret_cast<void*>(address), sizes,
        at::TensorOptions(at::kFloat)
            .device(kType, static_cast<c10::DeviceIndex>(current_device())));
  });
  m.def("_check_wide", [](const std::string& name, const at::Tensor& t) {
    return check_wide(name, t.scalar_type());
  });

  m.def("_neuron_init", &start_runtime);
  m.def("_is_neuron_runtime_initialized", [] {
    const std::lock_guard lock(state().mutex);
    return state().initialized;
  });
  m.def("_neuron_getDeviceCount", &device_count);
  m.def("_neuron_getCurrentDevice", &current_device);
  m.def("_neuron_setDevice", &set_device);
  m.def("_neuron_synchronize", [](int) {});
  py::class_<Properties>(m, "NeuronDeviceProperties")
      .def_readonly("name", &Properties::name)
      .def_readonly("total_memory", &Properties::total_memory);
  m.def("_neuron_getDeviceProperties",
        [](int) { return Properties{instance(), core_bytes()}; });
  m.def("_vnc_count", [] { return static_cast<int>(visible_cores().size()); });
  m.def("_reset_vnc_count", [] {});
  m.def("_set_world_size", &set_member<&State::world_size>);
  m.def("_set_rank", &set_member<&State::rank>);
  m.def("_set_local_world_size", &set_member<&State::local_world_size>);
  m.def("_set_local_device_start_index", &set_member<&State::first_device>);

  m.def("_get_memory_stats", &memory_stats);
  m.def("_reset_peak", [] {
    const std::lock_guard lock(state().mutex);
    state().peak = state().used;
  });
  m.def("_get_fallback_ops", [] { return names(&Counters::fallbacks); });
  m.def("_get_executed_ops", [] { return names(&Counters::executed); });
  m.def("_clear_op_tracking", [] {
    const std::lock_guard lock(state().mutex);
    state().counters.fallbacks.clear();
    state().counters.executed.clear();
  });
  m.def("_report", &report);
  m.def("_write_report", &write_report);
}

}  // namespace neuron_standin
