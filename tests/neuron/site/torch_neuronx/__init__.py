"""A stand-in of AWS's native backend of PyTorch, for tests: never installed.

It registers a device "neuron" in the host's memory that behaves as README.md says.
"""

import atexit
import os

__version__ = os.environ.get("NEURON_STANDIN_VERSION", "2.13.3.0+standin")


def _autoload() -> None:
    """The entry point by which `import torch` loads the backend. The import did it all."""


import torch  # noqa: E402

# The defaults of the released builds.
os.environ.setdefault("NEURON_LAUNCH_BLOCKING", "1")
os.environ.setdefault("TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS", "0")

from . import _C  # noqa: E402

_C._register_device()
# A program may end without the end of its interpreter.
atexit.register(_C._write_report)

from . import neuron, python_ops  # noqa: E402
from .memory import (  # noqa: E402, F401
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_peak_memory_stats,
)
from .neuron import (  # noqa: E402, F401
    _lazy_init,
    current_device,
    current_stream,
    default_stream,
    device_count,
    empty_cache,
    get_device_properties,
    set_device,
    synchronize,
)

torch.utils.rename_privateuse1_backend("neuron")
torch._register_device_module("neuron", neuron)
torch.utils.generate_methods_for_privateuse1_backend(
    for_tensor=True, for_module=True, for_storage=True
)
python_ops.register_python_operations()
_C._set_python_ops_registered(True)


def is_neuron_runtime_initialized() -> bool:
    return _C._is_neuron_runtime_initialized()


def get_fallback_ops() -> list[str]:
    """Returns the names of the operators that ran on the CPU."""
    return _C._get_fallback_ops()


def get_executed_ops() -> list[str]:
    """Returns the names of the operators that ran on the device."""
    return _C._get_executed_ops()


def clear_op_tracking() -> None:
    _C._clear_op_tracking()


if torch.distributed.is_available():
    from . import distributed  # noqa: E402, F401
