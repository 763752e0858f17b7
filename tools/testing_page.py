#!/usr/bin/env python3
"""Writes docs/testing.md from the tree: which tests a folder has, and how to run just those.

  tools/testing_page.py           writes the page
  tools/testing_page.py --check   ends with 1 where the page is not what the tree gives
"""

import argparse
import ast
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/testing.md"
HEAD = """# Tests: where they are, and how to run just those

Written by `tools/testing_page.py` from the tree; a test compares it.

| command | what it runs |
|---|---|
| `make check` | after a build, in a minute: unit tests without the long ones, one parity model, one layout, one resume, one kill |
| `make test` | everything that must hold |
| `make test-faults`, `make soak`, `make test-gpu` | faults of a cluster; what takes long; what needs a GPU |
| `ctest --test-dir build -L '^unit$'` | what needs neither ranks nor a whole training: tests beside their sources, house rules |
| `ctest --test-dir build -R '^(a_test\\|b_test)$' --output-on-failure` | the tests of these names |
| `build/longhaul/base/base_test --gtest_filter='Json.*'` | cases of one program of tests |
| `LONGHAUL_BIN_DIR=$PWD/build/bin .venv/bin/python3 -m pytest tests/e2e/test_bench.py -k profile` | cases of one Python suite |

A program of C++ tests is built by `cmake --build build --target NAME`. Python suites need the programs (`make`).
A test NAME_2 runs the program NAME with two ranks. A test more_NAME has the cases of suite NAME that take long (`make soak`),
and check_NAME has the cases that `make check` runs. `make test` runs several Python suites in one process (`longhaul_together`);
each has its own name too, for `ctest -R`.
"""


def text(path):
    return path.read_text(encoding="utf-8")


def commands_of(lists):
    """The text of a CMakeLists.txt with its variables and its loops over suites written out."""
    commands = text(lists)
    for variable, value in re.findall(r"set\((\w+)\s+([^)]*)\)", commands):
        commands = commands.replace("${" + variable + "}", value)

    def each_turn(loop):
        return "".join(loop[2].replace("${suite}", suite) for suite in loop[1].split())

    return re.sub(r"foreach\(suite IN ITEMS ([^)]*)\)(.*?)endforeach\(\)", each_turn, commands,
                  flags=re.S)


def cpp_tests():
    """([test names], [source paths from the root]) of each longhaul_test and longhaul_mpi_test."""
    for lists in sorted([*ROOT.glob("longhaul/**/CMakeLists.txt"),
                         *ROOT.glob("tests/**/CMakeLists.txt"), ROOT / "apps/CMakeLists.txt"]):
        for mpi, name, body in re.findall(r"longhaul_(mpi_)?test\(\s*(\w+)([^)]*)\)",
                                          commands_of(lists)):
            files = [(lists.parent / f).resolve() for f in re.findall(r"[\w/.]+\.cpp", body)]
            if "${of_" in body:  # CMake finds them
                files += lists.parent.rglob("*_test.cpp")
            ranks = re.search(r"RANKS((?: \d+)+)", body) if mpi else None
            names = [f"{name}_{n}" for n in ranks[1].split()] if ranks else [name]
            yield names, [f.relative_to(ROOT).as_posix() for f in files if f.exists()]


def python_suites():
    """{path from the root: [names of its tests]} of each longhaul_pytest."""
    found = {}
    for lists in sorted((ROOT / "tests").glob("**/CMakeLists.txt")):
        for name, file, rest in re.findall(r"longhaul_pytest\((\w+) ([\w/.]+\.py)([^)]*)\)",
                                           commands_of(lists)):
            path = (lists.parent / file).resolve().relative_to(ROOT).as_posix()
            names = found.setdefault(path, [])
            names.append(name)
            if re.search(r"\bSOAK\b", rest):
                names.append(f"more_{name}")
            if re.search(r"\bCHECK\b", rest):
                names.append(f"check_{name}")
    return found


def claim(path):
    """The first sentence of a Python suite."""
    words = " ".join((ast.get_docstring(ast.parse(text(ROOT / path))) or "").split())
    return re.split(r"(?<=[.:]) ", words)[0].rstrip(".:")


def rows_of_folders():
    tests = list(cpp_tests())
    folders = sorted(p.name for p in (ROOT / "longhaul").iterdir() if p.is_dir())
    for folder in folders:
        own, others = [], []
        for names, sources in tests:
            inside = [s for s in sources if s.startswith(f"longhaul/{folder}/")]
            uses = any(f'#include "longhaul/{folder}/' in text(ROOT / s) for s in sources
                       if not s.startswith("longhaul/"))
            if inside:
                own += names
            elif uses:
                others += names
        yield folder, own, others


def page():
    lines = [HEAD, "## The library's folders", "",
             "Tests stand beside their source as `NAME_test.cpp`; the second column lists suites in `tests/` "
             "that include the folder's headers.", "",
             "| folder | its own tests | suites that use it | run its own |", "|---|---|---|---|"]
    for folder, own, others in rows_of_folders():
        names = r"\|".join(own)
        build = "build-cuda" if folder == "cuda" else "build"
        run = f"`ctest --test-dir {build} -R '^({names})$'`"
        lines.append(f"| `longhaul/{folder}` | {', '.join(own) or 'none'} | {', '.join(others)} | "
                     f"{run if own else ''} |")
    lines += ["", "## Suites in Python", "",
              "They drive the built programs as a user does.", "",
              "| suite | its tests | what it claims |", "|---|---|---|"]
    for path, names in sorted(python_suites().items()):
        lines.append(f"| `{path}` | {', '.join(names)} | {claim(path)} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        if not PAGE.exists() or text(PAGE) != page():
            raise SystemExit("docs/testing.md is not what the tree gives; run tools/testing_page.py")
        return
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
