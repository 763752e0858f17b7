#!/usr/bin/env python3
"""Measures a test suite by the faults of tests/planted/faults.json that it finds.

  tools/planted_faults.py check      every fault's text stands exactly once in its file
  tools/planted_faults.py make DIR   copies the tracked tree into DIR, with all faults in it
  tools/planted_faults.py run DIR    runs the suites of each fault until one fails, and prints a table

The faults are in one build: configure and build DIR as this tree. The environment variable
LONGHAUL_PLANTED=NAME switches one fault on when a program runs; without it the copy is the program as
it is. A fault is an expression in place of another, or a statement where its text ends with ';'.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
FAULTS = json.loads((ROOT / "tests/planted/faults.json").read_text(encoding="utf-8"))
HEADER = """#pragma once
#include <cstdlib>
#include <string_view>

static inline bool longhaul_planted(std::string_view name) {
  const char* const planted = std::getenv("LONGHAUL_PLANTED");
  return planted != nullptr && name == planted;
}
// A call site asks once.
#define LONGHAUL_PLANTED(name) \\
  ([] { static const bool is_planted = ::longhaul_planted(name); return is_planted; }())
"""


def check():
    problems, names = [], [fault["name"] for fault in FAULTS]
    for fault in FAULTS:
        source = ROOT / fault["file"]
        count = source.read_text(encoding="utf-8").count(fault["find"]) if source.is_file() else 0
        if count != 1:
            problems.append(f"{fault['name']}: {fault['file']} has {count} times: {fault['find']}")
        if names.count(fault["name"]) > 1 or not fault["suites"]:
            problems.append(f"{fault['name']}: a name that comes twice, or no suites")
    print("\n".join([*problems, f"planted: {len(names)} faults checked, {len(problems)} problems"]))
    return 1 if problems else 0


def planted(fault):
    switch, find, replace = f'LONGHAUL_PLANTED("{fault["name"]}")', fault["find"], fault["replace"]
    if find.endswith(";"):
        return f"{{ if ({switch}) {{ {replace} }} else {{ {find} }} }}"
    return f"({switch} ? ({replace}) : ({find}))"


def make(target):
    if check():
        return 1
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).exists():  # times stay, so that a copied build compiles only what has a fault
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    (target / "longhaul/planted.h").write_text(HEADER, encoding="utf-8")
    for fault in FAULTS:
        file = target / fault["file"]
        source = file.read_text(encoding="utf-8").replace(fault["find"], planted(fault))
        include = '#include "longhaul/planted.h"\n'
        file.write_text(source if include in source else include + source, encoding="utf-8")
    return 0


def run(target, wanted):
    listed = subprocess.run(["ctest", "--test-dir", "build", "--show-only=json-v1"], cwd=target,
                            capture_output=True, text=True, check=True)
    there = {test["name"] for test in json.loads(listed.stdout)["tests"]}
    chosen = [fault for fault in FAULTS if not wanted or fault["name"] in wanted]
    named = {suite for fault in chosen for suite in fault["suites"]}
    if unknown := named - there | set(wanted) - {fault["name"] for fault in chosen}:
        sys.exit("neither a fault nor a suite of this build: " + ", ".join(sorted(unknown)))
    found, passed = 0, {}  # passed: does a suite that has failed pass without any fault?

    def passes(suite, name):
        return subprocess.run(["tools/test.sh", "build", "-R", f"^{suite}$"], cwd=target,
                              env=os.environ | {"LONGHAUL_PLANTED": name},
                              capture_output=True).returncode == 0

    print("| fault | found by | seconds |\n|---|---|---|", flush=True)
    for fault in chosen:
        begin, verdict = time.monotonic(), "not found"
        for suite in fault["suites"]:
            if passes(suite, fault["name"]):
                continue
            if suite not in passed:
                passed[suite] = passes(suite, "")
            verdict = suite if passed[suite] else f"{suite} fails without it"
            found += passed[suite]
            break
        print(f"| {fault['name']} | {verdict} | {time.monotonic() - begin:.0f} |", flush=True)
    print(f"\n{found} of {len(chosen)} found")
    return 0 if found == len(chosen) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["check", "make", "run"])
    parser.add_argument("dir", type=pathlib.Path, nargs="?", help="the copy, for make and run")
    parser.add_argument("--names", nargs="+", default=[], help="run: only these faults")
    asked = parser.parse_args()
    if asked.verb != "check" and asked.dir is None:
        parser.error(f"{asked.verb} needs DIR")
    sys.exit(check() if asked.verb == "check" else
             make(asked.dir) if asked.verb == "make" else run(asked.dir, asked.names))


if __name__ == "__main__":
    main()
