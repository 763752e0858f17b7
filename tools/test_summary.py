"""Counts the test cases of a ctest JUnit report: `N passed, N failed[, N skipped]`.

A GoogleTest or pytest binary counts as the cases it ran, anything else as one.
Exits 1 when something failed or nothing passed.
"""

import re
import sys
import xml.etree.ElementTree as ElementTree


def count(case):
    """(passed, failed, skipped) of one ctest entry."""
    status = case.get("status")
    output = case.findtext("system-out") or ""
    if status in ("notrun", "disabled"):
        return (0, 0, 1) if case.find("skipped") is not None else (0, 1, 0)
    passed = failed = skipped = 0
    ran = re.search(r"^\[==========\] (\d+) tests? from", output, re.M)
    pytest = re.findall(r"\b(\d+) (passed|failed|errors?|skipped)\b[^\n]* in [\d.]+s", output)
    if ran:
        good = re.search(r"^\[  PASSED  \] (\d+) tests?\.", output, re.M)
        bad = re.search(r"^\[  FAILED  \] (\d+) tests?, listed below", output, re.M)
        skip = re.search(r"^\[  SKIPPED \] (\d+) tests?, listed below", output, re.M)
        passed, failed, skipped = (int(m.group(1)) if m else 0 for m in (good, bad, skip))
    elif pytest:
        line = re.findall(r"^.*\b(?:passed|failed|skipped|errors?)\b.* in [\d.]+s.*$", output,
                          re.M)[-1]
        numbers = {word: int(n) for n, word in
                   re.findall(r"(\d+) (passed|failed|error|skipped)", line)}
        passed, skipped = numbers.get("passed", 0), numbers.get("skipped", 0)
        failed = numbers.get("failed", 0) + numbers.get("error", 0)
    if status == "run":
        return (passed, failed, skipped) if passed + skipped else (1, 0, 0)
    # A crash or a time-out fails even when no case was reported as failed.
    return (passed, max(failed, 1), skipped)


def main(path):
    cases = ElementTree.parse(path).getroot().iter("testcase")
    passed = failed = skipped = 0
    for case in cases:
        good, bad, skip = count(case)
        passed, failed, skipped = passed + good, failed + bad, skipped + skip
        if bad:
            print(f"failed: {case.get('name')}")
    more = f", {skipped} skipped" if skipped else ""
    print(f"{passed} passed, {failed} failed{more}")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
