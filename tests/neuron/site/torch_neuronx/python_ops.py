"""Kernels of the device: for each overload a Python function over the host's memory.

Each kernel asks the C++ half for tensors of the CPU over the same memory and for the key
of the call, sees to it that the key is compiled, and runs the CPU's operator.
"""

import os

import torch

from . import _C, attention
from .operators import NAMES, STATIC_NUMBERS, base_of

_library = None
_registered: list[str] = []

_NARROW = {torch.float64: torch.float32, torch.complex128: torch.complex64}


def _narrowed(value):
    """Returns a value as the device holds it: 32 bits wide."""
    if isinstance(value, torch.Tensor):
        if value.dtype == torch.int64 and value.dim() > 0:
            return value.to(torch.int32).to(torch.int64)
        return value.to(_NARROW.get(value.dtype, value.dtype))
    if isinstance(value, (list, tuple)):
        return type(value)(_narrowed(each) for each in value)
    return value


def _widened(result, like):
    """Returns a narrow result in the dtypes that the caller awaits."""
    if isinstance(result, torch.Tensor):
        return result.to(like.dtype)
    if isinstance(result, (list, tuple)):
        return type(result)(_widened(r, w) for r, w in zip(result, like, strict=True))
    return result


def _run_wide(op, arguments, options, written):
    """Runs an operator with 64-bit numbers as the device does: over 32 bits.

    `written` holds the indices and names of the arguments that the operator writes.
    """
    wide = op(*arguments, **options)
    if not written:
        try:
            return _widened(op(*_narrowed(arguments), **_narrowed(options)), wide)
        except RuntimeError:
            return wide
    for place in written:
        target = arguments[place] if isinstance(place, int) else options[place]
        for each in target if isinstance(target, list) else [target]:
            if each is not None and each.dtype in (torch.int64, torch.float64):
                each.copy_(_narrowed(each))
    return wide


def _is_tensor(argument):
    return "Tensor" in str(argument.type)


def _value_text(name, base, argument):
    """Returns the code of what a plain argument adds to the key, or None."""
    text = str(argument.real_type if hasattr(argument, "real_type") else argument.type)
    if text in ("Device", "Optional[Device]", "Layout", "Optional[Layout]"):
        return None
    if argument.name in ("device", "layout", "pin_memory", "non_blocking", "generator"):
        return None
    is_number = "number" in text or "Scalar" in text
    if is_number and (base, argument.name) not in STATIC_NUMBERS:
        return f"type({name}).__name__"
    return name


def _make_kernel(full_name, op):
    """Returns the kernel of one overload, as a function of its schema's arguments."""
    schema = op._schema
    base = base_of(full_name)
    parameters, call, statics, tensors, written = [], [], [], [], []
    writes = 0
    seen_keyword_only = False
    defaults = {}
    returned = {}
    for i, argument in enumerate(schema.arguments):
        # "self" and "from" would do as names, too; keywords of Python would not.
        name = argument.name + "_" if argument.name in ("from", "lambda") else argument.name
        if argument.kwarg_only and not seen_keyword_only:
            seen_keyword_only = True
            parameters.append("*")
        if argument.has_default_value():
            defaults[f"default_{i}"] = argument.default_value
            parameters.append(f"{name}=default_{i}")
        else:
            parameters.append(name)
        alias = argument.alias_info
        is_written = alias is not None and alias.is_write
        value = name
        if _is_tensor(argument):
            value = f"cpu[{len(tensors)}]"
            if is_written:
                writes |= 1 << len(tensors)
                written.append(argument.name if argument.kwarg_only else len(call))
                for label in alias.before_set:
                    returned[label] = name
            tensors.append(name)
        else:
            text = _value_text(name, base, argument)
            if text is not None:
                statics.append(f"repr({text})")
            if argument.name == "device":
                value = "cpu_device"
        call.append(f"{argument.name}={value}" if argument.kwarg_only else value)
    results = []
    for each in schema.returns:
        labels = each.alias_info.before_set if each.alias_info is not None else ()
        results.append(next((returned[label] for label in labels if label in returned), None))
    tuple_text = "(" + "".join(f"{t}, " for t in tensors) + ")"
    key_text = " + ';' + ".join(["text", *statics])
    keywords = "dict(" + ", ".join(c for c in call if "=" in c and not c.startswith("cpu[")) + ")"
    positional = "[" + ", ".join(c for c in call if "=" not in c) + "]"
    lines = [
        f"def kernel({', '.join(parameters)}):",
        f"    cpu, text, wide, index = open_call(full_name, {writes}, {tuple_text})",
        f"    text = {key_text}",
        "    if text not in keys:",
        "        if need_key(full_name, full_name + '(' + text + ')'):",
        "            keys.add(text)",
        "    if wide:",
        f"        result = run_wide(op, {positional}, {keywords}, {written!r})",
        "    else:",
        f"        result = op({', '.join(call)})",
    ]
    if any(a.name == "device" for a in schema.arguments):
        lines.insert(2, "    index = device.index if device is not None and device.index is not None else index")
    if any(results):
        outs = ", ".join(str(r) for r in results)
        # An empty result takes the shape that the operator gives it.
        for name, place in ((r, tensors.index(r)) for r in results if r):
            if name.startswith("out") or full_name.split(".")[-1].endswith("out"):
                lines.insert(
                    2,
                    f"    if {name}.numel() == 0: cpu = cpu[:{place}] + (empty_like({name}),) + cpu[{place + 1}:]",
                )
                lines.append(f"    if {name}.numel() == 0: give({name}, cpu[{place}])")
        lines.append(f"    return {outs}")
    elif schema.returns:
        lines.append("    return close_call(full_name, result, index)")
    scope = {
        "open_call": _C._open,
        "close_call": _C._close,
        "need_key": _C._need_key,
        "run_wide": _run_wide,
        "full_name": full_name,
        "op": op,
        "keys": set(),
        "cpu_device": torch.device("cpu"),
        "empty_like": lambda t: torch.empty(0, dtype=t.dtype),
        "give": _give,
        **defaults,
    }
    exec("\n".join(lines), scope)  # noqa: S102
    return scope["kernel"]


def _give(out, made):
    """Gives an empty result the shape and the numbers that the operator made."""
    if made.numel() > 0 or made.shape != out.shape:
        out.resize_(made.shape)
        out.copy_(made)


def kernel_names() -> list[str]:
    """Returns the names of all overloads that have a Python kernel."""
    return list(_registered)


def _wanted(name: str) -> bool:
    """Returns true for an overload that gets a kernel."""
    if not name.startswith("aten::") or base_of(name) not in NAMES:
        return False
    overload = name.partition(".")[2]
    # Named dimensions, and products of bf16 into fp32.
    if "dimname" in overload.lower() or "names" in overload or overload.startswith("dtype"):
        return False
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return not has(name, "CompositeImplicitAutograd")


def register_python_operations() -> None:
    """Registers the kernels, but for those that NEURON_STANDIN_WITHOUT names."""
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("aten", "IMPL")
    without = set(filter(None, os.environ.get("NEURON_STANDIN_WITHOUT", "").split(",")))
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if not _wanted(name) or base_of(name) in without or name in without:
            continue
        packet, _, overload = name.removeprefix("aten::").partition(".")
        try:
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        except AttributeError:
            continue
        _library.impl(name.removeprefix("aten::"), _make_kernel(name, op), "PrivateUse1")
        _registered.append(name)
    for name, kernel in attention.KERNELS.items():
        if name.removeprefix("aten::") not in without and name not in without:
            _library.impl(name.removeprefix("aten::"), kernel, "PrivateUse1")
            _registered.append(name)
