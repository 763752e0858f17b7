"""What the program calls in its interpreter. Each function takes and returns JSON."""

import json
import sys


def longhaul_call(function, text):
    """Calls a function of this file. An exception comes back as its text."""
    try:
        return json.dumps({"result": globals()["longhaul_" + function](**json.loads(text))})
    except BaseException as error:  # a SystemExit must not end the program
        return json.dumps({"error": f"{type(error).__name__}: {error}"})


def longhaul_interpreter():
    return {"version": ".".join(map(str, sys.version_info[:3])), "prefix": sys.prefix}


def longhaul_load():
    """Loads the backend. Returns its version, the instance's name and the number of devices."""
    sys.argv = ["longhaul"]
    import torch
    import torch_neuronx
    name = torch._C._get_privateuse1_backend_name()
    module = getattr(torch, "neuron", None)
    if name != "neuron" or module is None:
        return {"registered": name if name != "neuron" else "neuron, without torch.neuron"}
    count = module.device_count()
    return {
        "registered": name,
        "version": getattr(torch_neuronx, "__version__", ""),
        "listed": all(hasattr(torch_neuronx, f) for f in ("get_fallback_ops", "clear_op_tracking")),
        "devices": count,
        "instance": module.get_device_properties(0).name if count else "",
    }


def longhaul_fallbacks():
    """Returns the names of the operators that ran on the CPU since the last call."""
    import torch_neuronx
    names = sorted(torch_neuronx.get_fallback_ops())
    torch_neuronx.clear_op_tracking()
    return names


def longhaul_close():
    """Waits for the device and runs what packages have registered for the end."""
    import atexit

    import torch
    try:
        torch.neuron.synchronize()
    except Exception as error:  # what failed on the device has ended the run by its own message
        print(f"the device did not finish its work: {error}", file=sys.stderr)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
