"""What nvcc makes of the CUDA kernels, against the table in longhaul/cuda/kernels/resources.txt.

    tools/cuda_resources.py            compares: a spill, or a kernel with fewer 16-byte accesses
                                       than the table has, fails; with the table's release of nvcc
                                       everything else must agree too
    tools/cuda_resources.py --write    writes the table

Needs nvcc, nvdisasm (tools/deps_cuda.sh) and c++filt, and no GPU. Registers, stack, spills and
shared memory are what ptxas says for each architecture. Accesses of global memory are counted by
their width in bits in the disassembly, which ptxas may have split, merged or unrolled otherwise
than PTX has them: each instruction once, however often it runs, so an unrolled loop counts as
many times as it was unrolled, with its remainder. Those with a generic address count as well.
"""

import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = ROOT / "longhaul/cuda/kernels/resources.txt"
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


def find_nvdisasm():
    # The fetched one first: it is the same on all machines, and reads each architecture.
    fetched = sorted(ROOT.glob(".cache/cuda/nvdisasm-*/bin/nvdisasm"))
    return str(fetched[-1]) if fetched else shutil.which("nvdisasm")


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
        text = re.sub(r"\((?:\w+::)*\w+\)(\d+)", r"\1", text)  # a value of an enum
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


def accesses(disassembly):
    """Mangled name -> {"load": {bits: how many}, "store": ...}, from what `nvdisasm -json` said."""
    found = {}
    for function in json.loads(disassembly)[1]:
        kernel = found.setdefault(function["function-name"], {"load": collections.Counter(),
                                                              "store": collections.Counter()})
        for instruction in function["sass-instructions"]:
            # LDG.E.128.STRONG.GPU: a width is a word of its own, which LTC128B is not.
            name, *parts = instruction["opcode"].split(".")
            if name in ("LDG", "LD", "STG", "ST"):
                widths = [int(match.group(1)) for part in parts
                          if (match := re.fullmatch(r"[US]?(\d+)", part))]
                kernel["load" if name[0] == "L" else "store"][widths[0] if widths else 32] += 1
    return found


def disassembled(nvdisasm, cubin):
    # Labels of jumps are not read, so their analysis is left out.
    done = subprocess.run([nvdisasm, "-json", "-ndf", cubin],
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout


def measure(nvcc, nvdisasm):
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
                wide = accesses(disassembled(nvdisasm, f"{kept}/{source.stem}.{virtual}.cubin"))
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


def has_wide_accesses(line):
    """Whether a line of the table has 16-byte loads, and stores: how many, compilers unroll as
    they like."""
    return [re.search(rf"{kind} (?:\S+,)?{WIDE}x", line) is not None for kind in ("load", "store")]


def problems_of(found, expected, same_release):
    """Lines by (architecture, file, kernel)."""
    problems = []
    for key, line in found.items():
        spill = int(re.search(r"spill (\d+)", line).group(1))
        if spill:
            problems.append(f"{line}: {spill} bytes are spilled")
        if key not in expected:
            problems.append(f"{line}: not in the table")
        elif any(n < before for n, before in zip(has_wide_accesses(line),
                                                 has_wide_accesses(expected[key]))):
            problems.append(f"{line}: no 16-byte accesses any more, as in\n  {expected[key]}")
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
    nvdisasm = find_nvdisasm()
    if nvdisasm is None:
        sys.exit("no nvdisasm; run tools/deps_cuda.sh first")
    release = release_of(nvcc)
    found = keyed(text_of(key, row) for key, row in sorted(measure(nvcc, nvdisasm).items()))
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
