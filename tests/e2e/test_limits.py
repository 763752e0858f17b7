"""Limits of the system (threads, open files, memory, a full output), and bytes that are no UTF-8:
the program's exit code says whether to try again, the message names the limit, and no library's
exception is shown."""

import os
import re
import resource
import shutil
import subprocess

import pytest
from refusals import TEMPORARY, WRONG, refused
from small_model import TRAINING

VERBS = {
    "train": ["train", "run.toml", "--set", "run.steps=2", "--set", "run.threads=2"],
    "eval": ["eval", "models/small", "--data", "data/mine", "--max-sequences", "2"],
    "generate": ["generate", "models/small", "--prompt", "x", "--max-new-tokens", "2"],
    "export": ["export", "models/small", "--out", "out", "--shard-size", "100KB"],
    "inspect": ["inspect", "models/small"],
    "verify": ["verify", "data/mine"],
    "data build": ["data", "build", "corpus/*.txt", "--tokenizer", "models/small", "--out", "out",
                   "--threads", "2"],
    "train-tokenizer": ["data", "train-tokenizer", "corpus/*.txt", "--out", "out",
                        "--vocab-size", "300", "--threads", "2"],
    # The number of restarts is limited, since a temporary failure is otherwise tried again 100
    # times, ever more slowly.
    "launch": ["launch", "-n", "1", "run.toml", "--set", "run.steps=2", "--set",
               "resilience.max_restarts=1"],
}
THREADS = {"train", "export", "data build", "train-tokenizer"}
# Words of libraries' exceptions, which no user may see.
FOREIGN = re.compile(r"terminate called|std::|what\(\)|json\.exception|libgomp|c10::|boost|"
                     r"basic_string|vector::|Aborted|please report")


def limited(which, soft):
    """Returns a function that sets the limit in a child before it runs; it never exceeds the hard
    limit."""
    hard = resource.getrlimit(which)[1]
    return lambda: resource.setrlimit(which, (soft, hard))


def loads(result):
    """False where the limit leaves no room for the program's own libraries, which depends on the build."""
    return "error while loading shared libraries" not in result.stderr


def told(result, *words):
    """Expects that the program did its work, or that it ended with the words of a refusal."""
    assert not FOREIGN.search(result.stderr), result.stderr
    if result.returncode:
        # The ranks of a supervisor fail in the same way each time, so it uses up its restarts and
        # exits with 78.
        used_up = "resilience.max_restarts = 1 are used up" in result.stdout
        refused(result, *words, code=WRONG if used_up else TEMPORARY)
    return result.returncode


@pytest.mark.parametrize("verb", VERBS)
def test_a_thread_that_cannot_be_had_is_temporary_and_names_the_limits(run, root, verb):
    # The stack is larger than the memory that a process can address, so no thread can be started.
    stack = limited(resource.RLIMIT_STACK, 1 << 46)
    result = run("longhaul", *VERBS[verb], check=False, cwd=root, preexec_fn=stack)
    code = told(result, "no thread", "/proc/sys/kernel/threads-max is ", "same command again")
    assert code == (TEMPORARY if verb in THREADS else code)


@pytest.mark.parametrize("verb", VERBS)
def test_an_open_file_that_cannot_be_had_is_temporary_and_names_the_limit(run, root, verb):
    codes = []
    for most in (4, 8):
        files = limited(resource.RLIMIT_NOFILE, most)
        result = run("longhaul", *VERBS[verb], check=False, cwd=root, preexec_fn=files)
        if not loads(result):
            continue
        shutil.rmtree(root / "out", ignore_errors=True)
        if verb == "launch" and result.returncode and not result.stderr:
            # The supervisor has begun, but could not start the ranks; its log says so.
            assert result.returncode == TEMPORARY
            assert f"Too many open files; the limits are: ulimit -n is {most}" in result.stdout
            continue
        codes.append(told(result, "Too many open files", f"ulimit -n is {most}"))
    assert codes


@pytest.mark.parametrize("verb", ["train", "eval", "data build"])
def test_memory_that_cannot_be_had_is_temporary_and_names_the_limit(run, root, verb):
    codes = []
    for gigabytes in (0.3, 0.7, 3):
        memory = limited(resource.RLIMIT_AS, int(gigabytes * 1e9))
        result = run("longhaul", *VERBS[verb], check=False, cwd=root, preexec_fn=memory)
        if not loads(result):
            continue
        shutil.rmtree(root / "out", ignore_errors=True)
        codes.append(told(result, "ulimit -v"))
    if not codes:
        pytest.skip("this build's libraries alone take more than these limits")


@pytest.mark.soak
def test_memory_that_ends_anywhere_in_a_run_is_told(run, root):
    """The limits end the run in a kernel's threads, in a save's thread and between them."""
    for megabytes in range(400, 800, 8):
        memory = limited(resource.RLIMIT_AS, megabytes * 10**6)
        result = run("longhaul", *VERBS["train"], check=False, cwd=root, preexec_fn=memory)
        shutil.rmtree(root / "runs", ignore_errors=True)
        if loads(result):
            told(result, "ulimit -v")


def test_memory_that_the_libraries_do_not_get_before_the_program_begins_is_told(run, root):
    result = run("longhaul", *VERBS["train"], check=False, cwd=root,
                 preexec_fn=limited(resource.RLIMIT_DATA, 60 * 10**6))
    if loads(result):
        assert told(result, "memory for LibTorch", "ulimit -d is 60.0 MB") == TEMPORARY


def to_both(which, most):
    return lambda: resource.setrlimit(which, (most, most))


def test_a_file_that_may_not_grow_is_told_before_the_first_step_with_the_limit(run, root):
    train = ["longhaul", *VERBS["train"]]
    most = 100_000
    result = run(*train, check=False, cwd=root, preexec_fn=to_both(resource.RLIMIT_FSIZE, most))
    refused(result, "a rank's part of a checkpoint needs a file of", "100.0 kB are allowed",
            "ulimit -Hf")
    assert not list(root.glob("runs/mine/checkpoints/step_*"))
    # The program raises a soft limit and says so.
    result = run(*train, cwd=root, preexec_fn=limited(resource.RLIMIT_FSIZE, most))
    assert "warning: ulimit -f is 100.0 kB: a process of this run ends" in result.stdout
    result = run("longhaul", *VERBS["data build"], check=False, cwd=root,
                 preexec_fn=to_both(resource.RLIMIT_FSIZE, 100))
    refused(result, "File too large; the limits are: ulimit -f is 100 B")


def test_processor_time_that_is_used_up_saves_and_the_same_command_goes_on(run, root):
    many = ["longhaul", *VERBS["train"], "--set", "run.steps=1000000"]
    for _ in range(2):
        result = run(*many, check=False, cwd=root, preexec_fn=limited(resource.RLIMIT_CPU, 2))
        assert result.returncode == TEMPORARY, result.stderr
        last = result.stdout.splitlines()[-1]
        assert last.startswith("stopped by SIGXCPU after step ") and "; saved; " in last
        assert "warning: ulimit -t (seconds) is 2: " in result.stdout


def test_a_working_directory_that_was_removed_is_told(binary, root):
    gone = root / "gone"
    gone.mkdir()
    result = subprocess.run(["sh", "-c", 'rmdir ../gone && exec "$0" train "$1"',
                             binary("longhaul"), root / "run.toml"], cwd=gone, text=True,
                            capture_output=True)
    refused(result, "the working directory was removed", "cd")


@pytest.mark.parametrize("arguments", [
    ["inspect", "data/mine", "--json"], ["config", "run.toml"], VERBS["eval"]],
    ids=lambda words: words[0])
def test_a_result_that_a_full_output_has_cut_short_is_no_success(binary, root, arguments):
    with open("/dev/full", "w") as full:
        result = subprocess.run([binary("longhaul"), *arguments], cwd=root, text=True,
                                stdout=full, stderr=subprocess.PIPE)
    refused(result, "the output: No space left on device", code=TEMPORARY)


def test_a_directory_whose_name_is_no_utf8_can_be_worked_in(binary, root):
    there = os.path.join(os.fsencode(root), b"place\xff")
    os.mkdir(there)
    for name in (b"models", b"data", b"corpus", b"run.toml"):
        os.rename(os.path.join(os.fsencode(root), name), os.path.join(there, name))
    absolute = os.path.join(there, b"out\xfe")

    def works(*words):
        result = subprocess.run([binary("longhaul"), *words], cwd=there, capture_output=True)
        assert result.returncode == 0, result
        return result.stdout

    steps = ["--set", "run.steps=4", "--set", "checkpoint.every=1"]
    works("train", "run.toml", *steps, "--set", "run.stop_after=2")
    works("train", "run.toml", *steps)
    assert b"\xef\xbf\xbd" in works("inspect", os.path.join(there, b"runs/mine"), "--json")
    works("eval", os.path.join(there, b"models/small"), "--data", "data/mine", "--max-sequences",
          "2", "--json")
    works("report", "runs/mine", "--json")
    works("watch", "runs/mine", "--once", "--json")
    works("verify", os.path.join(there, b"runs/mine"))
    works("export", os.path.join(there, b"runs/mine"), "--out", absolute)
    works("generate", absolute, "--prompt", "x", "--max-new-tokens", "1", "--json")


def test_a_configuration_whose_name_is_no_utf8_is_read(binary, root):
    name = os.path.join(os.fsencode(root), b"run\xff.toml")
    with open(name, "w") as file:
        file.write(TRAINING)
    result = subprocess.run([binary("longhaul"), "config", name, "--set", "run.steps=2"], cwd=root,
                            capture_output=True)
    assert result.returncode == 0, result
    assert b"steps = 2" in result.stdout


@pytest.mark.parametrize("option", ["--temperature", "--top-p"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_an_option_that_is_no_finite_number_is_refused_by_name(run, root, option, value):
    refused(run("longhaul", "generate", "models/small", "--prompt", "x", f"{option}={value}",
                check=False, cwd=root), option, value)
