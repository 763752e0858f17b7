"""Lines of the library and the program, folder by folder, without tests, what only tests use, and generated tables.

    python3 tools/source_lines.py [--code] [COMMIT ...]

One commit (default: HEAD), or several side by side; with --code without empty lines and lines that
are comments alone. A folder is the first below longhaul/, or apps/;
those that have moved since are counted where they are today.
"""

import collections
import re
import subprocess
import sys

CODE = re.compile(r"\.(h|cpp|cu|cuh)$")
TEST = re.compile(r"(_test\.(cpp|h)|_test_support\.h|/test_[a-z_0-9]*\.h|/tests?/|kernels/cuda/host/"
                  # What only tests used, before it lay in tests/support.
                  r"|comm/(conformance|fake|fake_device|local)\.|cluster/fake_nvml|monitor/made_up_run"
                  r"|ops/flash_reference)")
CODE_LINE = "^[[:space:]]*([^[:space:]/]|/[^/])"
GENERATED = {"unicode_data.cpp"}
MOVED = {"longhaul/data/tokenizer": "tokenizer", "longhaul/checkpoint/foreign": "imports",
         "apps/drill": "drill", "apps/doctor": "doctor", "longhaul/ops/kernels/cuda/": "cuda",
         "longhaul/optim/cuda/": "cuda"}


def folder_of(path):
    for old, new in MOVED.items():
        if path.startswith(old):
            return new
    parts = path.split("/")
    return parts[1] if parts[0] == "longhaul" else "apps"


def lines_at(commit, pattern):
    counts = collections.Counter()
    listed = subprocess.run(["git", "grep", "-cE", pattern, commit, "--", "longhaul", "apps"],
                            capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        path, count = line.split(":", 1)[1].rsplit(":", 1)
        if CODE.search(path) and not TEST.search("/" + path) and \
                path.rsplit("/", 1)[-1] not in GENERATED:
            counts[folder_of(path)] += int(count)
    return counts


def main():
    pattern = CODE_LINE if "--code" in sys.argv else ""
    commits = [word for word in sys.argv[1:] if word != "--code"] or ["HEAD"]
    columns = [lines_at(commit, pattern) for commit in commits]
    names = sorted(set().union(*columns))
    print("| folder | " + " | ".join(commits) + " |")
    print("|---|" + "---|" * len(commits))
    for name in names:
        print(f"| {name} | " + " | ".join(f"{c[name]:,}" for c in columns) + " |")
    print("| all | " + " | ".join(f"{sum(c.values()):,}" for c in columns) + " |")


if __name__ == "__main__":
    main()
