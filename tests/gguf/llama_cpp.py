"""The source of llama.cpp, and what the tests run of it. `make soak` alone needs it."""

import functools
import os
import subprocess
import sys

from programs import SOURCE

HERE = SOURCE / "tests" / "gguf"


@functools.cache
def source():
    """The folder of llama.cpp's source: that of LONGHAUL_LLAMA_CPP, or one that is fetched."""
    if given := os.environ.get("LONGHAUL_LLAMA_CPP"):
        return given
    folder = SOURCE / ".cache" / "llama.cpp"
    subprocess.run([SOURCE / "tools" / "deps.sh", "--llama-cpp", folder], check=True)
    return folder


def convert(directory, out, pre="gpt-2", dtype="f32"):
    """Runs the converter on a directory."""
    subprocess.run([sys.executable, HERE / "convert.py", source(), pre, directory, "--outfile", out,
                    "--outtype", dtype], check=True, capture_output=True, text=True,
                   env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})


@functools.cache
def probe():
    """The program probe.cpp, linked with llama.cpp."""
    build = SOURCE / ".cache" / "llama.cpp-build"
    subprocess.run(["cmake", "-S", HERE / "probe", "-B", build, "-G", "Ninja",
                    f"-DLLAMA_CPP={source()}", "-DCMAKE_BUILD_TYPE=Release"], check=True)
    subprocess.run(["cmake", "--build", build, "--target", "probe", "-j", "2"], check=True)
    return build / "probe"


class Probe:
    """llama.cpp with a model: one command, one line of numbers."""

    def __init__(self, model):
        self.process = subprocess.Popen([probe(), model], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line.endswith("\n"), "the probe has ended"
        return line.split()

    def ids(self, text):
        return [int(word) for word in self.ask("ids", text.encode().hex() or "-")]

    def scores(self, ids):
        """For each position but the last: the best next token, and the log-probability of the
        token that follows."""
        words = self.ask("scores", *ids)
        return [int(word) for word in words[::2]], [float(word) for word in words[1::2]]

    def greedy(self, count, ids):
        return [int(word) for word in self.ask("greedy", count, *ids)]

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0
