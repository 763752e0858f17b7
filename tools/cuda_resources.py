"""What nvcc makes of the CUDA kernels, against the table in longhaul/ops/kernels/cuda/resources.txt.

    tools/cuda_resources.py            compares: a spill, or a kernel with fewer 16-byte accesses
                                       than the table has, fails; with the table's release of nvcc
                                       everything else must agree too
    tools/cuda_resources.py --write    writes the table

Needs nvcc and c++filt, and no GPU. Registers, stack, spills and shared memory are what ptxas says
for each architecture; accesses of global memory are counted by their width in bits in PTX, once
each, however often they run.
"""

import collections
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = ROOT / "longhaul/ops/kernels/cuda/resources.txt"
SETTINGS = ROOT / "cmake/LonghaulCuda.cmake"
HEADING = "# nvcc {}; written by tools/cuda_resources.py --write\n"
WIDE = 128


def setting(name):
    """A list that cmake/LonghaulCuda.cmake sets."""
    match = re.search(rf'set\({name} "?([^")]+?)"?(?: CACHE[^)]*)?\)', SETTINGS.read_text())
    return match.group(1).replace(";", " ").split()


def find_nvcc():
    fetched = sorted(ROOT.glob(".cache/cuda/toolkit-*/bin/nvcc"))
    return shutil.which("nvcc") or (str(fetched[-1]) if fetched else None)


def release_of(nvcc):
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"\bV([\d.]+)", said).group(1)


def short_names(mangled):
    """`forward_kernel<float>` for each mangled name."""
    told = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True,
                          check=True).stdout.split("\n")
    names = {}
    for symbol, text in zip(mangled, told):
        text = re.sub(r"longhaul::(\w+::)*", "", text)
        text = re.sub(r"_GLOBAL__N__\w+::|\(anonymous namespace\)::", "", text)
        text = re.sub(r"^void ", "", text)
        text = text.split("(")[0].replace("unsigned short", "uint16_t")
        names[symbol] = text.replace(" ", "")  # a word of the table
    return names


def resources(ptxas):
    """(architecture, mangled name) -> figures, from what `ptxas -v` said."""
    found, key = {}, None
    for line in ptxas.split("\n"):
        if match := re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line):
            key = match.group(2), match.group(1)
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, "
                                r"(\d+) bytes spill loads", line):
            stack, stores, loads = map(int, match.groups())
            if key and "registers" not in found.get(key, {}):
                found[key] = {"stack": stack, "spill": stores + loads}
        elif (match := re.search(r"Used (\d+) registers", line)) and key:
            shared = re.search(r"(\d+) bytes smem", line)
            found[key] |= {"registers": int(match.group(1)),
                           "shared": int(shared.group(1)) if shared else 0}
    return found


def accesses(ptx):
    """Mangled name -> {"load": {bits: how many}, "store": ...} of global memory."""
    found, kernel = {}, None
    for line in ptx.split("\n"):
        if match := re.match(r"\.(?:visible |weak )?(?:\.)?entry (\w+)\(", line.strip()):
            kernel = found.setdefault(match.group(1), {"load": collections.Counter(),
                                                       "store": collections.Counter()})
        match = re.search(r"\b(ld|st)(?:\.volatile|\.weak)?\.global((?:\.\w+(?:::\w+)?)*)\s", line)
        if match and kernel is not None:
            parts = match.group(2)
            vector = re.search(r"\.v(\d)", parts)
            bits = int(re.search(r"\.[a-z](\d+)$", parts).group(1))
            bits *= int(vector.group(1)) if vector else 1
            kernel["load" if match.group(1) == "ld" else "store"][bits] += 1
    return found


def measure(nvcc):
    """(architecture, file, kernel) -> figures."""
    architectures, table = setting("LONGHAUL_CUDA_ARCH"), {}
    codes = [word for arch in architectures
             for word in ("-gencode", f"arch={arch.replace('sm_', 'compute_')},code={arch}")]
    for source in sorted(ROOT.glob("longhaul/**/*.cu")):
        with tempfile.TemporaryDirectory() as kept:
            done = subprocess.run(
                [nvcc, "-c", str(source), "-o", f"{kept}/object", f"-I{ROOT}", "-Xptxas", "-v",
                 "--keep", "--keep-dir", kept, *setting("LONGHAUL_NVCC_FLAGS"), *codes],
                capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(done.stderr)
            figures = resources(done.stderr)
            names = short_names(sorted({symbol for _, symbol in figures}))
            for arch in architectures:
                virtual = arch.replace("sm_", "compute_")
                wide = accesses(pathlib.Path(f"{kept}/{source.stem}.{virtual}.ptx").read_text())
                for (of, symbol), row in figures.items():
                    if of == arch:
                        table[arch, source.stem, names[symbol]] = row | wide[symbol]
    return table


def text_of(key, row):
    def widths(counter):
        return ",".join(f"{bits}x{counter[bits]}" for bits in sorted(counter, reverse=True)) or "0"
    return (" ".join(key) + f" registers {row['registers']} stack {row['stack']} "
            f"spill {row['spill']} shared {row['shared']} load {widths(row['load'])} "
            f"store {widths(row['store'])}")


def wide_accesses(line):
    """16-byte loads and stores of a line of the table."""
    return [int(match.group(1)) if (match := re.search(rf"{kind} (?:\S+,)?{WIDE}x(\d+)", line))
            else 0 for kind in ("load", "store")]


def problems_of(found, expected, same_release):
    """Lines by (architecture, file, kernel)."""
    problems = []
    for key, line in found.items():
        spill = int(re.search(r"spill (\d+)", line).group(1))
        if spill:
            problems.append(f"{line}: {spill} bytes are spilled")
        if key not in expected:
            problems.append(f"{line}: not in the table")
        elif any(n < before for n, before in zip(wide_accesses(line),
                                                 wide_accesses(expected[key]))):
            problems.append(f"{line}: fewer 16-byte accesses than\n  {expected[key]}")
        elif same_release and line != expected[key]:
            problems.append(f"{line}: not what the table has\n  {expected[key]}")
    problems += [f"{line}: no such kernel" for key, line in expected.items() if key not in found]
    return problems


def keyed(lines):
    return {tuple(line.split()[:3]): line for line in lines if line and line[0] != "#"}


def main():
    nvcc = find_nvcc()
    if nvcc is None:
        print("skipped: no nvcc")
        return
    release = release_of(nvcc)
    found = keyed(text_of(key, row) for key, row in sorted(measure(nvcc).items()))
    if "--write" in sys.argv:
        TABLE.write_text(HEADING.format(release) + "\n".join(found.values()) + "\n")
    text = TABLE.read_text()
    same = text.startswith(HEADING.format(release))
    problems = problems_of(found, keyed(text.split("\n")), same)
    for problem in problems:
        print(problem)
    if problems and same:
        print("if that is meant: tools/cuda_resources.py --write")
    print(f"cuda resources: {len(found)} kernels, nvcc {release}, {len(problems)} problems")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
