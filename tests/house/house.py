"""What the house rules share: the files of the project, and how a rule reports."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE = (".h", ".cpp", ".cu", ".cuh")


def files(*suffixes):
    """Tracked and new files, without what git ignores, as paths from the root."""
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:  # no git: an unpacked archive
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*")
                 if p.is_file() and not re.match(r"(build|\.|runs)", str(p.relative_to(ROOT)))]
    else:
        names = listed.stdout.splitlines()
    names = [n for n in names if (ROOT / n).is_file()]
    return sorted(n for n in names if not suffixes or n.endswith(suffixes))


def text(name):
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")


def without_comments(source):
    """C++ with comments and string contents blanked; line numbers stay."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"([^()\s\\]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'
        r"(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'", re.S)

    def blank(match):
        found = match.group(0)
        kept = "\n" * found.count("\n")
        return kept if found.startswith("/") else '""' + kept

    return pattern.sub(blank, source)


def finish(rule, problems, checked):
    for problem in problems:
        print(problem, file=sys.stderr)
    if not checked:
        print(f"{rule}: nothing was checked", file=sys.stderr)
        sys.exit(1)
    print(f"{rule}: {checked} checked, {len(problems)} problems")
    sys.exit(1 if problems else 0)
