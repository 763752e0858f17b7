"""Programs and libraries load nothing from where they are started, and what the loader has bound
cannot be changed.

  check_elf.py [--guarded] [--theirs FOLDER]... FOLDER...

Reads the headers of every program and library below the folders; of a folder that Ninja builds, of
all that is linked there. No entry of a RUNPATH or RPATH is empty or relative, for the loader takes such an entry from the
working directory; no library is named by a relative path; no stack can be executed. What is
compiled here has full RELRO as well (--theirs: libraries of others, which came along), and a program
guards its stacks (--guarded: of a build with LONGHAUL_HARDEN and without a sanitizer).
"""

import pathlib
import re
import struct
import sys

PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_GNU_STACK, PT_GNU_RELRO = 1, 2, 3, 0x6474E551, 0x6474E552
DT_NEEDED, DT_STRTAB, DT_RPATH, DT_BIND_NOW, DT_RUNPATH, DT_FLAGS = 1, 5, 15, 24, 29, 30
DT_FLAGS_1 = 0x6FFFFFFB
EXECUTABLE_STACK = 1
PROGRAM, LIBRARY = 2, 3


class Elf:
    """What the loader reads of a 64-bit little-endian ELF file."""

    def __init__(self, content):
        self.kind = struct.unpack_from("<H", content, 16)[0]
        self.guards_stacks = b"\0__stack_chk_fail\0" in content
        offset, size, count = struct.unpack_from("<Q", content, 32) + struct.unpack_from(
            "<HH", content, 54)
        self.segments = {}
        loads, tags = [], []
        for number in range(count):
            kind, flags, start, address, _, length = struct.unpack_from(
                "<IIQQQQ", content, offset + number * size)
            self.segments[kind] = flags
            if kind == PT_LOAD:
                loads.append((address, start, length))
            if kind == PT_DYNAMIC:
                tags = list(struct.iter_unpack("<qQ", content[start:start + length // 16 * 16]))
        self.tags = dict(tags[:tags.index((0, 0))] if (0, 0) in tags else tags)
        names = next((start + self.tags[DT_STRTAB] - address for address, start, length in loads
                      if DT_STRTAB in self.tags
                      and address <= self.tags[DT_STRTAB] < address + length), 0)

        def text(place):
            return content[names + place:content.index(b"\0", names + place)].decode()

        self.needed = [text(value) for tag, value in tags if tag == DT_NEEDED]
        self.run_paths = [text(value).split(":") for tag, value in tags
                          if tag in (DT_RPATH, DT_RUNPATH)]


def problems_of(elf, ours=True, guarded=False):
    """What is wrong with a file, as lines."""
    found = []
    for entry in sum(elf.run_paths, []):
        if entry.split("/")[0] not in ("", "$ORIGIN", "${ORIGIN}") or not entry:
            found.append(f"searches '{entry}' of the working directory for libraries")
    found += [f"needs '{name}', which is no absolute path" for name in elf.needed
              if "/" in name and not name.startswith("/")]
    if elf.segments.get(PT_GNU_STACK, EXECUTABLE_STACK) & EXECUTABLE_STACK:
        found.append("has a stack that can be executed")
    if ours:
        now = (DT_BIND_NOW in elf.tags or elf.tags.get(DT_FLAGS, 0) & 8
               or elf.tags.get(DT_FLAGS_1, 0) & 1)
        if not now:
            found.append("is bound while it runs; link it with -z now")
        if PT_GNU_RELRO not in elf.segments:
            found.append("keeps its tables writable; link it with -z relro")
        if guarded and PT_INTERP in elf.segments and not elf.guards_stacks:
            found.append("guards no stack; compile it with -fstack-protector-strong")
    return found


def read(path):
    """The program or library in a file; None for a file that is neither."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return None
        file.seek(0)
        elf = Elf(file.read())
    return elf if elf.kind in (PROGRAM, LIBRARY) else None


def files_of(folder):
    """The files to check in a folder. Files that only an earlier build has left there are not among
    them."""
    if (folder / "build.ninja").exists():
        rules = (folder / "build.ninja").read_text()
        names = re.findall(r"^build (\S+)[^:\n]*: CXX_(?:EXECUTABLE|SHARED_LIBRARY|MODULE_LIBRARY)_",
                           rules, re.M)
        paths = [folder / name for name in names]
    else:
        paths = folder.rglob("*")
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def check(folders, ours, guarded=False):
    """(problems, number of files)."""
    problems, checked = [], 0
    for folder in folders:
        for path in files_of(pathlib.Path(folder)):
            elf = read(path)
            if elf is None:
                continue
            checked += 1
            problems += [f"{path}: {problem}" for problem in problems_of(elf, ours, guarded)]
    return problems, checked


def main():
    theirs, ours = [], []
    guarded = "--guarded" in sys.argv
    words = iter(word for word in sys.argv[1:] if word != "--guarded")
    for word in words:
        if word == "--theirs":
            theirs.append(next(words))
        else:
            ours.append(word)
    problems, checked = check(ours, True, guarded)
    more, others = check(theirs, False)
    for problem in problems + more:
        print(problem, file=sys.stderr)
    if not checked:
        print("elf: no program was found", file=sys.stderr)
    print(f"elf: {checked} of ours and {others} of others checked, "
          f"{len(problems) + len(more)} problems")
    sys.exit(1 if problems or more or not checked else 0)


if __name__ == "__main__":
    main()
