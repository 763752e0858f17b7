"""Every folder includes only what its row of the include table allows (docs/tour.md), every room of a
folder only the rooms that stand before it there, and what tests share only tests. No folder and room
of it include each other.

Rows are transitive. Beyond the rows: kernels and the Torch-free folders include nothing of
LibTorch, and nobody includes the header that drags in all of it. A program that computes with
LibTorch begins by warming up its vector mathematics (longhaul/tensor/vector_math.h). A header
declares its names in the namespace of its folder.
"""

import re

import house

# The rooms of a folder in their order: each may include those before it. What lies in the folder
# itself includes a room, or the room includes it: never both.
ROOMS = {
    "base": ["json"],
    "checkpoint": ["write", "read", "hf", "gguf", "mirror", "examine"],
    "cluster": ["control", "process", "health", "watch", "verdict", "record", "fleet", "slurm",
                "supervisor", "agent"],
    "cuda": ["kernels"],
    "objects": ["service"],
    "serve": ["service"],
    "families": ["description", "layers"],
    "data": ["places", "input", "sources", "store", "store/build", "tasks", "order", "bert/shards", "bert"],
    "layout": ["pipeline"],
    "imports": ["pickle"],
    "models": ["source"],
    "ops": ["kernels", "narrow", "common", "fused", "linear", "attention", "experts"],
    "optim": ["kernels"],
    "parallel": ["recompute", "tensor", "context", "expert", "data", "pipeline"],
    "tokenizer": ["tables", "unicode", "split", "pieces", "file", "learn"],
    "train": ["history", "start", "log", "step", "proof", "save"],
    "apps": ["arguments", "objects", "start", "inputs", "pages", "passport", "version", "new", "try", "serve", "why", "links", "verbs", "compile"],
}
EVERYWHERE = {"base", "system", "objects", "run", "config", "format", "families"}
ROWS = {
    "base": set(), "system": {"base"}, "objects": {"base", "system"}, "run": {"base", "system"}, "dictionary": {"base"},
    "config": {"base", "dictionary", "run", "objects"},
    "format": {"base", "config"}, "families": {"base", "config", "format"},
    "layout": {"base", "config", "format", "families"},
    "comm": {"layout"}, "tokenizer": set(), "chat": {"tokenizer"}, "serve": {"chat"}, "data": {"chat"}, "cluster": set(),
    "monitor": set(), "translate": {"dictionary"}, "drill": {"cluster", "monitor"}, "doctor": {"cluster", "comm"},
    "device": {"comm", "tensor"}, "neuron": {"device", "tensor", "cluster"}, "measure": {"device", "ops", "data"},
    "cuda": {"device", "ops", "optim"}, "tensor": {"comm"}, "ops": {"tensor"}, "nn": {"ops"}, "models": {"nn"},
    "parallel": {"nn", "comm"}, "optim": {"ops", "comm"},
    "checkpoint": {"comm", "tensor", "tokenizer"}, "imports": {"checkpoint"}, "infer": {"tensor", "data"},
    "session": {"device", "models", "parallel", "checkpoint", "infer", "serve"},
    "plan": {"layout"},
    "train": {"session", "optim", "measure", "monitor"}, "rehearsal": {"train"},
}
STRICT = {"base", "system", "objects", "run", "dictionary", "config", "format", "families"}
TORCH_FREE = {"base", "system", "objects", "run", "dictionary", "config", "format", "families", "layout", "tokenizer", "chat", "serve",
              "data", "comm", "cluster", "monitor", "drill", "doctor", "translate", "plan"}
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
# The kernels, and the records of a run, are free of LibTorch.
COMPUTES = re.compile(r"^((torch|ATen|c10)/|longhaul/(tensor|nn|models|parallel|infer|session)/"
                      r"|longhaul/ops/(?!kernels/)|longhaul/train/(?!log/metrics\.h))")
MAIN = re.compile(r"^int main\(", re.M)
WARM_UP = "warm_up_vector_math();"
# The names that these folders declare for everybody lie in the namespace `longhaul`. ops and optim
# also use the kernels' namespaces, and cuda those of the kernels that it implements.
COMMON_NAMES = {"base", "config", "families", "ops", "optim", "cuda"}
# A program that only runs a model must not include, on any way, what trains one.
NEVER_REACHES = {("apps/verbs/verb_eval.cpp", "apps/verbs/verb_export.cpp", "apps/verbs/verb_generate.cpp",
                  "apps/serve/verb_serve.cpp"): ("train", "optim")}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)


def allowed(folder, rows=None):
    """The folders that `folder` may include, itself among them."""
    rows = ROWS if rows is None else rows
    seen, todo = set(), [folder]
    while todo:
        current = todo.pop()
        if current in seen:
            continue
        seen.add(current)
        todo += rows[current]
    return seen if folder in STRICT else seen | EVERYWHERE


def place_of(path):
    """The folder and the room of a file, the room empty for what lies in the folder itself."""
    parts = path.split("/")
    parts = parts[1:] if parts[0] == "longhaul" else parts if parts[0] == "apps" else []
    return (parts[0], "/".join(parts[1:-1])) if len(parts) > 1 else (None, "")


def room_problem(name, target):
    """What is wrong with a file of a room that includes this header; None where nothing is."""
    folder, room = place_of(name)
    other_folder, other = place_of(target)
    if folder and target.startswith("tests/"):
        return f"only tests may include what tests share ({target})"
    rooms = ROOMS.get(folder, [])
    if folder != other_folder or room not in rooms or other not in rooms:
        return None
    if rooms.index(other) <= rooms.index(room):
        return None
    return f"{folder}/{room} may not include {folder}/{other} ({target})"


def problems_of(name, source):
    """Broken include rules of one file of the tree."""
    parts = name.split("/")
    in_library = parts[0] == "longhaul" and len(parts) > 2
    folder = parts[1] if in_library else None
    found = []

    def report(position, message):
        line = source.count("\n", 0, position) + 1
        found.append(f"{name}:{line}: {message}")

    if not name.endswith("_test.cpp"):
        for match in INCLUDE.finditer(source):
            message = room_problem(name, match.group(2))
            if message:
                report(match.start(), message)
    if in_library and folder not in ROWS:
        report(0, f"folder longhaul/{folder} has no row in the include table")
        return found
    for match in INCLUDE.finditer(source):
        quote, target = match.groups()
        if target == "torch/torch.h":
            report(match.start(), "torch/torch.h compiles for 17 s; include what is used")
        if not in_library:
            continue
        head = target.split("/")
        if head[0] == "longhaul" and len(head) > 2:
            if head[1] not in allowed(folder):
                report(match.start(), f"{folder} may not include {head[1]} ({target})")
            if quote == "<":
                report(match.start(), f"our own header in angle brackets ({target})")
        elif head[0] == "apps":
            report(match.start(), f"the library may not include the program ({target})")
        elif quote == '"' and "/" not in target and target != "longhaul_commit.h":
            report(match.start(), f"include from the root of the tree ({target})")
        if TORCH.match(target):
            if folder in TORCH_FREE:
                report(match.start(), f"{folder} is free of LibTorch ({target})")
            if name.startswith("longhaul/ops/kernels/"):
                report(match.start(), f"kernels are free of LibTorch ({target})")
    if in_library and name.endswith(".h") and folder not in COMMON_NAMES \
            and f"\nnamespace longhaul::{folder}" not in source:
        report(0, f"the names of this header belong into namespace longhaul::{folder}")
    main_function = MAIN.search(source)
    computes = any(COMPUTES.match(m.group(2)) for m in INCLUDE.finditer(source))
    if main_function and (computes or name == "apps/main_torch.cpp") and WARM_UP not in source:
        report(main_function.start(), f"a main that uses LibTorch begins with {WARM_UP}")
    return found


def way_to(roots, folders, sources):
    """The shortest way along includes from one of these files into one of these folders of the
    library; nothing where there is none. A header leads to the sources that implement it: the one
    of its name, and those of its folder whose first include it is."""
    implementing = {}
    for name, source in sources.items():
        first = INCLUDE.search(source)
        if name.endswith(".cpp") and not name.endswith("_test.cpp") and first:
            if first.group(2).rpartition("/")[0] == name.rpartition("/")[0]:
                implementing.setdefault(first.group(2), []).append(name)
    todo, came_from = list(roots), dict.fromkeys(roots)
    for name in todo:
        if name.startswith(tuple(f"longhaul/{folder}/" for folder in folders)):
            way = [name]
            while came_from[way[0]]:
                way.insert(0, came_from[way[0]])
            return way
        targets = [m.group(2) for m in INCLUDE.finditer(sources.get(name, ""))]
        named = name.removesuffix(".h") + ".cpp"
        for target in targets + implementing.get(name, []) + [named]:
            if target in sources and target not in came_from:
                came_from[target] = name
                todo.append(target)
    return []


def circles(sources):
    """Folders and rooms that include each other, of sources by name; the folder is any above the room."""
    ways = {}
    for name, source in sources.items():
        if not name.startswith(("longhaul/", "apps/")) or name.endswith("_test.cpp"):
            continue
        own = name.rpartition("/")[0]
        for _, target in INCLUDE.findall(source):
            other = target.rpartition("/")[0]
            if own.startswith(other + "/") or other.startswith(own + "/"):
                ways.setdefault((own, other), f"{name} includes {target}")
    return [f"{folder} and its room {room} include each other: {how}; {ways[room, folder]}"
            for (folder, room), how in sorted(ways.items())
            if room.startswith(folder + "/") and (room, folder) in ways]


def main():
    names = house.files(*house.CODE)
    sources = {n: house.text(n) for n in names}
    problems = [p for n in names for p in problems_of(n, sources[n])] + circles(sources)
    for roots, folders in NEVER_REACHES.items():
        problems += [f"{roots} reach {way[-1]} by {way}" for root in roots
                     if (way := way_to([root], folders, sources))]
    house.finish("includes", problems, len(names))


if __name__ == "__main__":
    main()
