#!/usr/bin/env python3
"""Collects the licences of what a build carries besides its own code.

  tools/licences.py OUT LIBRARY...

Copies to OUT the copyright file of each Debian package that a shared library LIBRARY is from,
of each package that is compiled into the programs, the licences of what tools/deps.sh fetches, and of the Python packages whose libraries
are among LIBRARY (LibTorch, Arrow). A text to which a copyright file points in
/usr/share/common-licenses is copied to OUT/common-licenses. Ends with 1 and names what has no
licence; without dpkg, which other distributions lack, it names those libraries and goes on.
"""

import pathlib
import re
import shutil
import subprocess
import sys

# Debian packages of which headers or static libraries are compiled into the programs.
COMPILED_IN = ("libcli11-dev", "libtomlplusplus-dev", "nlohmann-json3-dev", "libhdf5-dev",
               "libaec-dev", "libsodium-dev", "libcmark-gfm-dev", "libyaml-dev")
# What tools/deps.sh fetches beside the packages: {name: its licence}.
ENGINE = pathlib.Path(__file__).parents[1] / ".cache/jinja"
FETCHED = {"llama.cpp": ENGINE / "LICENSE", "cpp-httplib": ENGINE / "cpp-httplib/LICENSE"}
DOC = pathlib.Path("/usr/share/doc")
COMMON = pathlib.Path("/usr/share/common-licenses")


def package_of(library):
    """The Debian package that the file is from. With merged /usr, dpkg may know the file by
    its path below /lib alone."""
    path = pathlib.Path(library).resolve()
    names = [path]
    if path.is_relative_to("/usr/lib"):
        names.append(pathlib.Path("/") / path.relative_to("/usr"))
    for name in names:
        owner = subprocess.run(["dpkg", "-S", str(name)], capture_output=True, text=True)
        if owner.returncode == 0:
            return owner.stdout.split(":")[0]
    return None


def licences_of_python_package(library):
    """{name: path} of the licence files of the Python package that the library lies in; None
    where it lies in none."""
    for folder in pathlib.Path(library).resolve().parents:
        info = sorted(folder.parent.glob(f"{folder.name}-*.dist-info"))
        if info:
            texts = info[-1] / "licenses"
            return {f"{folder.name}/{p.relative_to(texts)}": p
                    for p in sorted(texts.rglob("*")) if p.is_file()}
    return None


def common_texts(files):
    """Names of the texts in Debian's folder of licences to which the files point."""
    found = set()
    for path in files:
        text = path.read_text(encoding="utf-8", errors="replace")
        found.update(re.findall(rf"{COMMON}/([\w+-]+(?:\.\w+)*)", text))
    return sorted(found)


def licences(libraries):
    """({file name: its source}, [what has no licence])."""
    files, missing = {}, []
    debian = shutil.which("dpkg") is not None
    packages = set(COMPILED_IN) if debian else set()
    for library in libraries:
        of_python = licences_of_python_package(library)
        if of_python:
            files.update(of_python)
        elif of_python is None and debian and (package := package_of(library)):
            packages.add(package)
        else:
            missing.append(str(library))
    for name, text in FETCHED.items():
        if text.exists():
            files[name] = text
        else:
            missing.append(name)
    for package in sorted(packages):
        text = DOC / package / "copyright"
        if text.exists():
            files[package] = text.resolve()
        else:
            missing.append(package)
    for name in common_texts(files.values()):
        if (COMMON / name).exists():
            files[f"{COMMON.name}/{name}"] = (COMMON / name).resolve()
        else:
            missing.append(str(COMMON / name))
    return files, missing


def collect(out, libraries):
    """Copies the licences to the directory `out`; returns how many there are."""
    files, missing = licences(libraries)
    if missing:
        message = f"licences: none found of {', '.join(missing)}"
        if shutil.which("dpkg"):
            raise SystemExit(message)
        print(message)
    out.mkdir(parents=True, exist_ok=True)
    for name, source in sorted(files.items()):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, out / name)
    return len(files)


def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    count = collect(pathlib.Path(sys.argv[1]), sys.argv[2:])
    print(f"licences: {count} files in {sys.argv[1]}")


if __name__ == "__main__":
    main()
