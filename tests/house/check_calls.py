"""Calls after which a user would see a library's exception: JSON is written, and threads that work
together are started, by the project's own functions only."""

import re

import house

# For each rule: a pattern of the call, the files that may make it, and what other files do instead.
RULES = (
    (re.compile(r"(?:\.|->)dump\("), re.compile(r"^longhaul/base/json"),
     "json_text() writes JSON: dump() throws where a string is no UTF-8"),
    (re.compile(r"vector<std::thread>"),
     re.compile(r"^longhaul/(system/worker_pool\.h|comm/fake\.cpp)$"),
     "run_on_threads() and share_among_threads() start threads: a vector of threads ends the "
     "process where one cannot be had"),
)


def problems_of(name, source):
    source = house.without_comments(source)
    return [f"{name}:{source.count(chr(10), 0, match.start()) + 1}: {advice}"
            for pattern, owner, advice in RULES if not owner.search(name)
            for match in pattern.finditer(source)]


def in_scope(name):
    return (name.startswith(("longhaul/", "apps/"))
            and not re.search(r"_test\.\w+$|/(test|made_up)_\w+\.h$", name))


def main():
    files = [n for n in house.files(*house.CODE) if in_scope(n)]
    problems = [p for n in files for p in problems_of(n, house.text(n))]
    house.finish("calls", problems, len(files))


if __name__ == "__main__":
    main()
