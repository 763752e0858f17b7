"""A rule whose problems of today are counted per file, in a baseline that only shrinks.

A file without a line in the baseline has no problem left. A file may not have more problems than
its line says, and a count that is too high is lowered by --write, which raises none: delete the
baseline to begin it anew.
"""

import sys

import house


def read(text):
    pairs = (line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    return {name: int(count) for count, name in pairs}


class Rule:
    """`what` is a plural: "comments". check_<what>.py is the rule's script."""

    def __init__(self, what):
        self.what = what
        self.file = f"tests/house/{what}_baseline.txt"

    def compare(self, problems, baseline):
        """The lines to print: problems of files that have too many, and counts of the baseline that
        are too high."""
        found = []
        for name in sorted(problems.keys() | baseline.keys()):
            count, allowed = len(problems.get(name, [])), baseline.get(name, 0)
            if count > allowed:
                found += problems[name]
                found.append(f"{name}: {count} {self.what} to mend, at most {allowed}")
            elif count < allowed:
                found.append(f"{name}: {count} {self.what} to mend, but {self.file} has {allowed}: "
                             f"lower it with tests/house/check_{self.what}.py --write")
        return found

    def lowered(self, problems, baseline):
        """The counts for the next baseline. Without an old one (None) all problems are counted
        anew."""
        counts = {name: len(found) if baseline is None else min(len(found), baseline.get(name, 0))
                  for name, found in problems.items()}
        return "".join(f"{count} {name}\n" for name, count in sorted(counts.items()) if count)

    def main(self, names, problems_of):
        """Checks the files of these names, or prints every problem below the paths that are given."""
        problems = {n: found for n in names if (found := problems_of(n, house.text(n)))}
        path = house.ROOT / self.file
        there = path.exists()
        allowed = read(house.text(self.file)) if there else {}
        if "--write" in sys.argv:
            path.write_text(self.lowered(problems, allowed if there else None), encoding="utf-8")
            allowed = read(house.text(self.file))
        elif sys.argv[1:]:
            below = tuple(argument.rstrip("/") for argument in sys.argv[1:])
            shown = [p for n, found in problems.items() if n.startswith(below) for p in found]
            house.finish(self.what, shown, sum(n.startswith(below) for n in names))
        house.finish(self.what, self.compare(problems, allowed), len(names))
