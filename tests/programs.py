"""Runs the programs of a build."""

import atexit
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading

import kept
import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[1]
BIN = pathlib.Path(os.environ.get("LONGHAUL_BIN_DIR", SOURCE / "build" / "bin"))


def later(*cases):
    """Marks cases that show the same as the cases beside them: `make soak` runs them, and `make
    test` does not."""
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.soak)
            for case in cases]


def split(cases, now):
    """Returns all cases, those of `now` first. `make test` runs the cases of `now`, and `make soak`
    runs the others."""
    cases = list(cases)
    unknown = [case for case in now if case not in cases]
    assert not unknown, f"{unknown} are no cases"
    return [*now, *later(*(case for case in cases if case not in now))]


def plant_libraries(programs, folder):
    """Makes a folder with a file under the name of each library that the programs load. The files
    are no libraries, so a program that loaded one from there would not start."""
    folder.mkdir()
    for program in ("longhaul", "longhaul-torch"):
        loaded = subprocess.run(["ldd", programs / program], check=True, capture_output=True,
                                text=True).stdout
        for name in re.findall(r"^\s*(lib\S+)", loaded, re.M):
            (folder / name).write_text("no library")
    assert (folder / "libzstd.so.1").exists() and (folder / "libtorch_cpu.so").exists()


def command_of(program, arguments, ranks=1, nodes=1):
    """Returns the words and the environment that start a program on `ranks` ranks. In
    equal parts they pretend to be on `nodes` machines, or on machines of these names."""
    command = [str(BIN / program), *map(str, arguments)]
    environment = dict(os.environ)
    if ranks == 1:
        return command, environment
    environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    words = ["mpirun", "--oversubscribe", "--bind-to", "none"]
    if nodes == 1:
        return [*words, "-n", str(ranks), *command], environment
    names = range(nodes) if isinstance(nodes, int) else nodes
    for name in names:
        words += [":"] * (words[-1] != "none")
        words += ["-n", str(ranks // len(names)), "env", f"LONGHAUL_NODE_NAME={name}", *command]
    return words, environment


class Lines:
    """A program that takes one command after the other: a tool that loads LibTorch for each of some
    hundred models would take most of its time for that."""

    def __init__(self, program):
        self.program, self.process = program, None
        atexit.register(self.end)

    def run(self, arguments, timeout=600):
        if self.process is None:
            self.process = subprocess.Popen(
                [BIN / self.program, "--lines"], text=True, errors="replace", stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        words, said, code = [str(word) for word in arguments], "", None
        assert not re.search(r"[\t\n]", "".join(words)), words
        late = threading.Timer(timeout, self.process.kill)
        late.start()
        self.process.stdin.write("\t".join(words) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if found := re.fullmatch(r"= (\d+)\n", line):
                code = int(found[1])
                break
            said += line
        late.cancel()
        if code is None:  # the program has ended, by itself or because the line took too long
            code, self.process = self.process.wait(), None
        return subprocess.CompletedProcess([self.program, *words], code, "", said)

    def end(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


LINES = {program: Lines(program) for program in ("longhaul_model_tool",)}


class Kept:
    """longhaul-torch after it has loaded LibTorch: a copy of that process runs each command
    (tests/support/kept_program.cpp)."""

    LIBRARY = BIN / "liblonghaul_kept_program.so"
    VERBS = ("bench", "eval", "generate", "new", "train")
    # Variables that libraries read while they are loaded, and the one with which the program reads
    # its own command line (/proc/self/cmdline).
    LOADED = re.compile(r"(?!TORCH_NEURONX_)(LD|OMP|GOMP|KMP|MKL|GLIBC|MALLOC|ARROW|TORCH|PYTORCH|ATEN|"
                        r"C10)_|WORLD_SIZE$")

    def __init__(self):
        self.process = None
        self.environment = dict(os.environ)

    def loaded_with(self, environment):
        return {name: value for name, value in environment.items() if self.LOADED.match(name)}

    def serves(self, program, arguments, environment, options):
        """Whether such a command may run so. A sanitizer's build has no such library."""
        return (program == "longhaul" and arguments
                and (arguments[0] in self.VERBS or "--passport" in arguments)
                and options.keys() <= {"cwd", "timeout"} and "LD_PRELOAD" not in environment
                and self.loaded_with(environment) == self.loaded_with(self.environment)
                and self.LIBRARY.exists())

    def address(self):
        """Where commands are sent to; starts the process where it is not there yet."""
        if self.process is None:
            self.folder = tempfile.TemporaryDirectory(prefix="kept-")
            self.place = f"{self.folder.name}/commands"
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as commands:
                commands.bind(self.place)
                commands.listen(64)
                self.process = subprocess.Popen(
                    [BIN / "longhaul-torch"], pass_fds=[commands.fileno()],
                    env={**self.environment, "LD_PRELOAD": str(self.LIBRARY),
                         "LONGHAUL_COMMANDS": str(commands.fileno()),
                         "LONGHAUL_SENDER": str(os.getpid())})
            atexit.register(self.end)
        return self.place

    def of_rank(self, word):
        """The words that mpirun starts for a rank in place of the program."""
        if word != str(BIN / "longhaul"):
            return [word]
        return [sys.executable, "-I", "-S", str(SOURCE / "tests/kept.py"), self.address(), word]

    def run(self, command, environment, timeout, cwd=None):
        with (kept.connect(self.address()) as connection, tempfile.TemporaryFile() as said,
              tempfile.TemporaryFile() as errors):
            connection.settimeout(timeout)
            streams = [0, said.fileno(), errors.fileno()]
            kept.send(connection, command, environment, os.path.abspath(cwd or "."), streams)
            try:
                code = kept.exit_code(connection)
            except TimeoutError:
                raise subprocess.TimeoutExpired(command, timeout, *map(read_all, (said, errors))) from None
            return subprocess.CompletedProcess(
                command, code, *(read_all(file).decode() for file in (said, errors)))

    def end(self):
        self.process.kill()  # and with it what it runs
        self.process.wait()
        self.folder.cleanup()


def read_all(file):
    file.seek(0)
    return file.read()


KEPT = Kept()


def run_program(program, *arguments, check=True, ranks=1, nodes=1, **options):
    """Returns the completed process; with `check`, raises AssertionError unless it ended with 0. A
    program that does not end is killed before ctest ends the suite, so that the test tells which
    command it was."""
    if program in LINES:
        assert not options and ranks == nodes == 1, "such a program has one environment for all its lines"
        return checked(LINES[program].run(arguments), program, check)
    command, environment = command_of(program, arguments, ranks, nodes)
    environment.update(options.pop("env", {}))
    options = {"timeout": 200, **options}
    try:
        if KEPT.serves(program, arguments, environment, options):
            if ranks == 1:
                return checked(KEPT.run(command, environment, **options), program, check)
            if check:  # mpirun ends the others where a rank fails, and they ask who sent the signal
                command = [word for words in map(KEPT.of_rank, command) for word in words]
        result = subprocess.run(command, capture_output=True, text=True, env=environment, **options)
    except subprocess.TimeoutExpired as late:
        said = "\n".join((text or b"").decode(errors="replace") for text in (late.stdout, late.stderr))
        raise AssertionError(f"{' '.join(command)} did not end in {late.timeout} s\n{said}") from None
    return checked(result, program, check)


def checked(result, program, check):
    if check and result.returncode != 0:
        raise AssertionError(
            f"{program} ended with {result.returncode}\n{result.stdout}\n{result.stderr}"
        )
    return result
