"""The stand-in of AWS's native backend does what README.md says of it."""

import json
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import tempfile
import warnings

import pytest
import torch  # noqa: F401  (for the copies of this process)
from programs import BIN, SOURCE

PLACE = BIN.parent / "neuron"
FOLDER = SOURCE / "tests" / "neuron"


# Autograd's own threads may still clear up, and Python stops a thread that asks for its lock at the
# end. The real program does not end the interpreter, either.
END = """
import os, sys
sys.stdout.flush()
torch_neuronx._C._write_report()
os._exit(0)
"""


def start_python(code, environment):
    """Starts a copy of this process, which has torch already: most of what a new one takes is the
    import. The copy writes to files of its own."""
    def run():
        for number, file in enumerate((out, err), start=1):
            os.dup2(file.fileno(), number)
        sys.stdout, sys.stderr = (open(number, "w", 1, closefd=False) for number in (1, 2))
        warnings.showwarning = lambda message, *_, **__: print(message, file=sys.stderr)  # not pytest's
        os.environ.clear()
        os.environ.update(environment)
        sys.path.insert(0, str(PLACE))
        exec(f"import torch, torch_neuronx\n{code}", {"__name__": "__main__"})

    out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    return process, out, err


def end_python(process, out, err):
    process.join(timeout=300)
    if process.exitcode is None:
        process.kill()
    texts = []
    for file in (out, err):
        file.seek(0)
        texts.append(file.read())
        file.close()
    assert process.exitcode is not None, texts
    return subprocess.CompletedProcess([], process.exitcode, *texts)


def run_python(tmp_path, code, check=True, **env):
    """Runs code that has torch and the backend, with caches and a report of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NEURON", "TORCH_NEU"))}
    environment.update(
        PYTHONPATH=str(PLACE), PATH=f"{PLACE / 'bin'}:{os.environ['PATH']}",
        TORCH_NEURONX_NEFF_CACHE_DIR=str(tmp_path / "cache"),
        TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR=str(tmp_path / "local"),
        TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS="1",
        NEURON_STANDIN_COUNTERS=str(tmp_path / "report"), NEURON_STANDIN_NO_FORK="1")
    environment.update(env)
    environment = {k: v for k, v in environment.items() if v}
    for file in tmp_path.glob("report.*"):
        file.unlink()
    done = end_python(*start_python(f"{code}\n{END}", environment))
    if check:
        assert done.returncode == 0, done.stderr
    return done


def report(tmp_path):
    (file,) = tmp_path.glob("report.*.json")
    return json.loads(file.read_text())


def said(tmp_path, code, **env):
    """Returns what the code prints as JSON in its last line."""
    return json.loads(run_python(tmp_path, "import json\n" + code, **env).stdout.splitlines()[-1])


NET = """
import torch.nn.functional as F
torch.manual_seed(0)
shapes = [(50, 32), (32,), (32, 32), (32, 32), (32, 32), (32, 64), (64, 32), (32, 50)]
weights = [torch.randn(shape) * 0.1 for shape in shapes]
tokens, targets = (torch.randint(0, 50, (2, 16), dtype=torch.int32) for _ in range(2))

def loss_of(w, tokens, targets):
    x = w[0].index_select(0, tokens.view(-1)).view(2, 16, 32)
    h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w[1]
    q, k, v = ((h @ each).view(2, 16, 4, 8).transpose(1, 2) for each in w[2:5])
    hidden = torch.ones(16, 16, device=x.device).triu(1) > 0
    scores = ((q @ k.transpose(-1, -2)) * 8**-0.5).masked_fill(hidden, float("-inf")).softmax(-1)
    x = x + (scores @ v).transpose(1, 2).reshape(2, 16, 32)
    x = x + F.silu(x @ w[5]) @ w[6]
    lse = F.log_softmax(x.view(32, 32) @ w[7], -1)
    here = torch.arange(50, device=x.device, dtype=torch.int32)[None, :] == targets.view(-1, 1)
    return -torch.where(here, lse, torch.zeros_like(lse)).sum() / 32

def train(device, steps):
    w = [each.to(device).clone().requires_grad_() for each in weights]
    losses = []
    for _ in range(steps):
        loss = loss_of(w, tokens.to(device), targets.to(device))
        loss.backward()
        with torch.no_grad():
            for each in w:
                each.sub_(each.grad, alpha=0.1)
                each.grad = None
        losses.append(loss.item())
    return losses
"""


def test_a_small_model_trains_as_on_a_cpu_without_faults(tmp_path):
    """No fault is found in a program without one: nothing raises where faults raise."""
    both = said(tmp_path, NET + "print(json.dumps([train('cpu', 5), train('neuron', 5)]))",
                NEURON_STANDIN_STRICT="1")
    assert both[0] == pytest.approx(both[1], rel=1e-6)
    assert both[0][4] < both[0][0]
    counted = report(tmp_path)
    assert not any(counted[k] for k in ("fallbacks", "wide", "strided_writes", "foreign"))
    assert counted["used_bytes"] < counted["peak_bytes"]


def test_the_keys_of_two_steps_are_those_of_six(tmp_path):
    keys = []
    for steps in (2, 6):
        run_python(tmp_path, NET + f"train('neuron', {steps})")
        keys.append(set(report(tmp_path)["keys"]))
    assert len(keys[0]) > 40
    assert keys[0] == keys[1]


def test_a_key_holds_shapes_dtypes_and_static_arguments(tmp_path):
    """Of other numbers a key has the type alone."""
    cases = {  # two calls, and whether they have the same key
        "number": ("a * 2.0", "a * 3.0", True),
        "tensor": ("a.mul(b)", "a.mul(b + b)", True),
        "alpha": ("torch.add(a, b, alpha=2)", "torch.add(a, b, alpha=3)", False),
        "exponent": ("a.pow(2)", "a.pow(3)", False),
        "fill": ("a.fill_(1.0)", "a.fill_(2.0)", False),
        "bounds": ("torch.arange(3, device='neuron', dtype=torch.int32)",
                   "torch.arange(4, device='neuron', dtype=torch.int32)", False),
        "dimension": ("a.sum(0)", "a.sum(1)", False),
        "shape": ("a.exp()", "a[:1].exp()", False),
        "dtype": ("a.exp()", "a.bfloat16().exp()", False),
        "layout": ("a.exp()", "a.t().exp()", False),
    }
    found = said(tmp_path, f"""
keys = lambda: set(json.loads(torch_neuronx._C._report())["keys"])
same = dict()
for name, (first, second, _) in {cases!r}.items():
    a, b = torch.ones(2, 3, device="neuron"), torch.ones(2, 3, device="neuron")
    b + b
    eval(first)
    before = keys()
    eval(second)
    same[name] = all(key.startswith("aten::copy_") for key in keys() - before)
print(json.dumps(same))
""")
    assert found == {name: same for name, (_, _, same) in cases.items()}


def test_an_operator_off_the_list_falls_back_by_name_and_warns_once(tmp_path):
    code = """
a = torch.ones(2, 3, device="neuron")
for _ in range(2):
    torch.logaddexp(a, a), a.argmax(1), torch.sort(a)
print(json.dumps([torch_neuronx.get_fallback_ops(), torch_neuronx.get_executed_ops()]))
"""
    done = run_python(tmp_path, "import json\n" + code)
    fallbacks, executed = json.loads(done.stdout.splitlines()[-1])
    bases = {name.split(".")[0] for name in fallbacks}
    assert bases == {"aten::logaddexp", "aten::argmax", "aten::sort"}
    assert not bases & {name.split(".")[0] for name in executed}
    assert len(re.findall("logaddexp.* falls back to the CPU", done.stderr)) == 1


@pytest.mark.soak
def test_an_operator_that_is_taken_away_falls_back(tmp_path):
    code = """
a = torch.ones(2, 3, device="neuron")
a.exp(), a.sin()
first = torch_neuronx.get_fallback_ops()
torch_neuronx.clear_op_tracking()
print(json.dumps([first, torch_neuronx.get_fallback_ops()]))
"""
    assert said(tmp_path, code, NEURON_STANDIN_WITHOUT="exp,cos") == [["aten::exp.out"], []]


def test_the_kernels_are_those_of_the_list(tmp_path):
    code = """
from torch_neuronx.operators import NAMES, base_of
names = torch_neuronx.python_ops.kernel_names()
has = torch._C._dispatch_has_kernel_for_dispatch_key
print(json.dumps([sorted(set(NAMES) - {base_of(n) for n in names}), len(names),
                  [n for n in names if not has(n, "PrivateUse1")],
                  [has(n, "PrivateUse1") for n in ("aten::argmax.out", "aten::sort.values_stable",
                                                   "aten::logaddexp.out", "aten::mm.dtype")]]))
"""
    missing, count, unknown, absent = said(tmp_path, code)
    assert not missing and not unknown and not any(absent)
    assert count > 300


def test_what_the_device_cannot_do_is_counted_and_raised_where_strict(tmp_path):
    """`interior` is a tensor that begins within another's memory, as from_blob makes it."""
    cases = {  # a call, what names it, and which kind of fault it is
        "int64": ("torch.ones(3, device='neuron', dtype=torch.int64)", "Long", "wide"),
        "float64": ("torch.ones(3, device='neuron').double()", "Double", "wide"),
        "sum": ("torch.ones(3, device='neuron', dtype=torch.int32).sum()", "aten::sum Long", "wide"),
        "interior": ("a[1:].add_(1.0)", "aten::add_.Tensor", "strided_writes"),
        "column": ("a[:, 1].copy_(a[:, 0].clone())", "aten::copy_", "strided_writes"),
        "out": ("torch.exp(a[:2], out=a[2:])", "aten::exp.out", "strided_writes"),
        "from_blob": ("interior(a, 4).exp()", "aten::exp", "foreign"),
        "copy": ("interior(a, 4).cpu()", "aten::copy_", "foreign"),
    }
    code = f"""
def interior(t, offset):
    return torch_neuronx._C._over_address(t.data_ptr() + offset * 4, [t.numel() - offset])
faults = lambda: json.loads(torch_neuronx._C._report())
told = dict()
for case, (call, name, kind) in {cases!r}.items():
    a, before = torch.ones(4, 3, device="neuron"), faults()[kind]
    try:
        eval(call)
        told[case] = [each for each, count in faults()[kind].items() if count != before.get(each)]
    except RuntimeError as error:
        told[case] = str(error)
print(json.dumps(told))
"""
    counted = said(tmp_path, code)
    raised = said(tmp_path, code, NEURON_STANDIN_STRICT="1")
    assert counted.keys() == raised.keys() == cases.keys()
    for case, (_, name, _) in cases.items():
        assert any(name in each for each in counted[case]), (case, counted[case])
        assert "neuron stand-in" in raised[case] and name.split()[0] in raised[case], raised[case]


@pytest.mark.soak
def test_64_bit_numbers_have_the_width_of_32(tmp_path):
    code = """
a = torch.tensor([1.0, 1e-12], dtype=torch.float64).to("neuron")
b = torch.tensor([2**33 + 5], dtype=torch.int64).to("neuron")
print(json.dumps([(a.sum() - 1.0).item(), (b + 0).item(), str((a + a).dtype)]))
"""
    assert said(tmp_path, code) == [0.0, 5, "torch.float64"]


@pytest.mark.soak
def test_whole_and_leading_tensors_are_written(tmp_path):
    run_python(tmp_path, """
a = torch.zeros(4, 3, device="neuron")
a[:2].add_(1.0)
a.view(12).mul_(2.0)
torch.exp(a, out=torch.empty(4, 3, device="neuron"))
a.t().contiguous().add_(1.0)
assert a.sum().item() == 12.0
""", NEURON_STANDIN_STRICT="1")


def test_the_cache_has_the_real_form_and_serves_the_next_process(tmp_path):
    log = tmp_path / "log"
    code = "torch.ones(3, device='neuron').exp()"
    env = dict(NEURON_STANDIN_NO_FORK="", NEURON_STANDIN_CC_LOG=str(log))
    run_python(tmp_path, code, **env)
    assert report(tmp_path)["compiles"] == 2
    files = [f for f in (tmp_path / "cache").rglob("*") if f.is_file()]
    assert len(files) == 2
    for file in files:
        folders = file.relative_to(tmp_path / "cache").parts
        assert folders == (file.stem[:2], file.stem[2:4], file.name)
        assert re.fullmatch(r"[0-9a-f]{32}\.neff", file.name)
    line = log.read_text().splitlines()[0]
    assert re.search(r"compile \S+module.mlir --framework \S+ --target trn2 --lnc 2 -O1 --output \S+", line)
    run_python(tmp_path, code, **env)
    assert (report(tmp_path)["compiles"], report(tmp_path)["cache_hits"]) == (0, 2)
    assert len(log.read_text().splitlines()) == 2
    run_python(tmp_path, code, NEURON_STANDIN_CC_VERSION="2.34", **env)
    assert report(tmp_path)["compiles"] == 2


@pytest.mark.soak
def test_a_truncated_file_of_the_cache_is_named(tmp_path):
    run_python(tmp_path, "torch.ones(3, device='neuron')")
    (file,) = (tmp_path / "cache").rglob("*.neff")
    file.write_text("")
    done = run_python(tmp_path, "torch.ones(3, device='neuron')", check=False)
    assert done.returncode != 0 and str(file) in done.stderr


@pytest.mark.soak
def test_two_processes_compile_a_key_once(tmp_path):
    """The second process waits for the lock of the first one."""
    log = tmp_path / "log"
    code = f"""
import os, subprocess, sys
if "CHILD" not in os.environ:
    child = subprocess.Popen([sys.executable, "-c", "import torch, torch_neuronx\\n"
                              "torch.ones(3, device='neuron')"], env=dict(os.environ, CHILD="1"))
torch.ones(3, device="neuron")
assert child.wait(timeout=100) == 0
"""
    run_python(tmp_path, code, NEURON_STANDIN_NO_FORK="", NEURON_STANDIN_CC_LOG=str(log),
               NEURON_STANDIN_CC_MS="300")
    assert len(log.read_text().splitlines()) == 1


def test_the_environments_own_compiler_comes_before_another_one_in_path(tmp_path):
    other = tmp_path / "neuronx-cc"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    for python, compiler in ((PLACE / "bin/python3", PLACE / "bin/neuronx-cc"), (sys.executable, other)):
        said = subprocess.run([python, SOURCE / "longhaul/neuron/look.py"], check=True, text=True,
                              capture_output=True, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
        assert json.loads(said.stdout)["compiler"] == str(compiler)


def test_a_compiler_that_fails_or_is_missing_raises_the_operators_name(tmp_path):
    code = "a = torch.ones(3, device='neuron'); a.exp()"
    done = run_python(tmp_path, code, check=False, NEURON_STANDIN_CC_FAIL="exp")
    assert done.returncode != 0
    assert "neuronx-cc" in done.stderr and "aten::exp" in done.stderr and "planted" in done.stderr
    done = run_python(tmp_path, code, check=False, NEURON_STANDIN_NO_FORK="", PATH="/usr/bin:/bin",
                      TORCH_NEURONX_NEFF_CACHE_DIR=str(tmp_path / "other"))
    assert done.returncode != 0 and "execvp neuronx-cc" in done.stderr


@pytest.mark.soak
def test_by_default_an_operator_that_does_not_compile_falls_back(tmp_path):
    code = "a = torch.ones(3, device='neuron'); a.exp()\nprint(json.dumps(torch_neuronx.get_fallback_ops()))"
    assert said(tmp_path, code, NEURON_STANDIN_CC_FAIL="exp",
                TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS="") == ["aten::exp"]


@pytest.mark.soak
def test_the_allocator_tells_libtorch_nothing_of_memory(tmp_path):
    code = """
a, b = torch.ones(1024, device="neuron"), torch.ones(1024, device="neuron")
del b
try:
    torch.accelerator.get_memory_info()
    told = ""
except RuntimeError as error:
    told = str(error)
stats = torch_neuronx._C._get_memory_stats(0)
print(json.dumps([told, stats["used_bytes"], stats["peak_bytes"], stats["total_bytes"]]))
"""
    told, used, peak, total = said(tmp_path, code)
    assert "not a DeviceAllocator" in told
    assert (used, peak) == (4096, 8192) and total == 24 << 30


@pytest.mark.soak
def test_memory_ends_and_a_tensor_has_at_most_4_gib(tmp_path):
    done = run_python(tmp_path, "torch.empty(300, device='neuron')", check=False,
                      NEURON_STANDIN_MEMORY="1024")
    assert "out of memory" in done.stderr
    done = run_python(tmp_path, "torch.empty(1 << 30, device='neuron')", check=False)
    assert "more than one tensor may have" in done.stderr


@pytest.mark.soak
def test_the_device_has_the_instances_name_and_the_machines_cores(tmp_path):
    code = """
print(json.dumps([torch.neuron.get_device_properties(0).name, torch.neuron.device_count(),
                  torch_neuronx.__version__]))
"""
    assert said(tmp_path, code) == ["trn2.48xlarge", 4, "2.13.3.0+standin"]
    assert said(tmp_path, code, NEURON_STANDIN_INSTANCE="trn1.32xlarge", NEURON_STANDIN_CORES="32",
                NEURON_RT_VISIBLE_CORES="2-3", NEURON_STANDIN_VERSION="2.14.3.0") == \
        ["trn1.32xlarge", 2, "2.14.3.0"]
    done = run_python(tmp_path, "torch.ones(1, device='neuron')", check=False,
                      NEURON_RT_VISIBLE_CORES="9")
    assert "core 9" in done.stderr


@pytest.mark.soak
def test_a_backward_runs_on_threads_that_do_not_hold_the_interpreter(tmp_path):
    run_python(tmp_path, NET + """
import threading
found = []
thread = threading.Thread(target=lambda: found.append(train("neuron", 2)))
thread.start(); thread.join(timeout=100)
assert found[0] == train("neuron", 2)
""")


def test_the_backends_attention_is_that_of_products(tmp_path):
    run_python(tmp_path, """
forward = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
backward = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward
torch.manual_seed(1)
q, k, v, d = (torch.randn(2, heads, 8, 4) for heads in (4, 2, 2, 4))
leaves = [t.clone().requires_grad_() for t in (q, k, v)]
out = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)
out.backward(d)
on = [t.to("neuron") for t in (q, k, v, d)]
r = forward(*on[:3], None, 0.0, True, False)
g = backward(on[3], *on[:3], None, [True, True, True, False], r[0], r[1], r[2], r[3], r[4], r[5],
             0.0, True, r[6], r[7])
torch.testing.assert_close(r[0].cpu(), out)
for mine, leaf in zip(g, leaves):
    torch.testing.assert_close(mine.cpu(), leaf.grad)
""", NEURON_STANDIN_STRICT="1")


GROUP = """
import json, os, torch.distributed as dist
dist.init_process_group("neuron")
rank = dist.get_rank()
like = dict(device=f"neuron:{rank}")
x = torch.full((4,), rank + 1.0, **like)
dist.all_reduce(x)
top = torch.full((2,), float(rank), **like)
dist.all_reduce(top, dist.ReduceOp.MAX)
whole = torch.empty(4, **like)
dist.all_gather_into_tensor(whole, torch.full((2,), float(rank), **like))
part = torch.empty(2, **like)
dist.reduce_scatter_tensor(part, torch.arange(4.0, dtype=torch.float32).to(**like))
sent = torch.full((2,), rank + 5.0, **like)
dist.broadcast(sent, 1)
dist.barrier()
refused = []
for call in (lambda: dist.send(x, 1 - rank), lambda: dist.recv(x, 1 - rank)):
    try:
        call()
    except RuntimeError as error:
        refused.append(str(error))
alone = dist.new_group([0])
if rank == 0:
    try:
        dist.barrier(alone)
    except NotImplementedError as error:
        refused.append(str(error))
print(json.dumps([[t.tolist() for t in (x.cpu(), top.cpu(), whole.cpu(), part.cpu(), sent.cpu())],
                  len(refused), torch.neuron.current_device(), torch.neuron.device_count(),
                  os.environ["NEURON_RT_VISIBLE_CORES"]]))
"""


def group_of_two(tmp_path, code, **env):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    processes = []
    for rank in range(2):
        environment = dict(
            os.environ, PYTHONPATH=str(PLACE), MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
            WORLD_SIZE="2", RANK=str(rank), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2",
            TORCH_NEURONX_NEFF_CACHE_DIR=str(tmp_path / "cache"), NEURON_STANDIN_NO_FORK="1",
            TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR=str(tmp_path / "local"), NEURON_STANDIN_STRICT="1",
            NEURON_STANDIN_COUNTERS=str(tmp_path / "report"), **env)
        processes.append(start_python(code, environment))
    done = [end_python(*process) for process in processes]
    return [(each.returncode, each.stdout, each.stderr) for each in done]


def test_a_group_of_two_processes_has_the_right_sums_and_no_send(tmp_path):
    for rank, (code, out, err) in enumerate(group_of_two(tmp_path, GROUP)):
        assert code == 0, err
        numbers, refused, device, count, cores = json.loads(out.splitlines()[-1])
        assert numbers == [[3.0] * 4, [1.0, 1.0], [0.0, 0.0, 1.0, 1.0],
                           [0.0, 2.0] if rank == 0 else [4.0, 6.0], [6.0, 6.0]]
        assert (refused, device, count, cores) == (3 if rank == 0 else 2, rank, 2, str(rank))
    keys = [json.loads(f.read_text())["keys"] for f in tmp_path.glob("report.*.json")]
    assert all(any(k.startswith("neuron::all_gather(Float[4]") for k in each) for each in keys)
    # A broadcast is zeros and an all-reduce.
    assert not any("broadcast" in k for each in keys for k in each)


@pytest.mark.soak
def test_a_group_after_the_runtimes_start_or_with_two_cores_is_refused(tmp_path):
    group = "import torch.distributed as dist\ndist.init_process_group('neuron')"
    for code, _, err in group_of_two(tmp_path, "torch.ones(1, device='neuron')\n" + group):
        assert code != 0 and "should not be initialized before" in err
    for code, _, err in group_of_two(tmp_path, group, NEURON_RT_VISIBLE_CORES="0-1"):
        assert code != 0 and "more than one device per process" in err


@pytest.mark.soak
def test_a_core_serves_one_process(tmp_path):
    code = """
import os, subprocess, sys
torch.ones(1, device="neuron")
if "CHILD" not in os.environ:
    sys.exit(subprocess.call([sys.executable, "-c", "import torch, torch_neuronx\\n"
                              "torch.ones(1, device='neuron')"], env=dict(os.environ, CHILD="1")))
"""
    done = run_python(tmp_path, code, check=False, NEURON_STANDIN_CORE_LOCKS=str(tmp_path),
                      NEURON_RT_VISIBLE_CORES="1")
    assert done.returncode == 1 and "core 1 is in use" in done.stderr
