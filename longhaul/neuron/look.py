"""Prints what the environment of this interpreter has, as JSON. It imports nothing of PyTorch."""

import glob
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import sys
import sysconfig

# The interpreter of the program does not search the folder that it was started in.
sys.path = [path for path in sys.path if path]


def folder_of(name):
    found = importlib.util.find_spec(name)
    return os.path.dirname(found.origin) if found and found.origin else ""


def version_of(package, *files):
    for path in files:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                found = re.search(r"^__version__\s*(?::[^=]*)?=\s*['\"]([^'\"]+)", file.read(), re.M)
            if found:
                return found.group(1)
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def libpython():
    names = [sysconfig.get_config_var(key) or "" for key in ("INSTSONAME", "LDLIBRARY")]
    folders = [sysconfig.get_config_var(key) or "" for key in ("LIBDIR", "LIBPL")]
    folders.append(os.path.join(sys.base_prefix, "lib"))
    for folder in folders:
        for name in names:
            path = os.path.join(folder, name)
            if ".so" in name and os.path.exists(path):
                return os.path.realpath(path)
    return ""


torch = folder_of("torch")
backend = folder_of("torch_neuronx")
# The environment's own compiler, before another one in PATH.
beside = os.path.join(os.path.dirname(sys.executable), "neuronx-cc")
runtimes = sorted(glob.glob("/opt/aws/neuron/lib/libnrt.so.*"))
print(json.dumps({
    "executable": sys.executable,
    "version": ".".join(map(str, sys.version_info[:3])),
    "libpython": libpython(),
    "torch": version_of("torch", os.path.join(torch, "version.py")) if torch else "",
    "libtorch": os.path.join(torch, "lib", "libtorch_cpu.so") if torch else "",
    "backend": backend,
    "native": bool(backend and glob.glob(os.path.join(backend, "_C*.so"))),
    "backend_version": version_of("torch-neuronx") if backend else "",
    "compiler": beside if os.access(beside, os.X_OK) else shutil.which("neuronx-cc") or "",
    "compiler_version": version_of("neuronx-cc"),
    "runtime": os.path.basename(os.path.realpath(runtimes[-1])) if runtimes else "",
}))
