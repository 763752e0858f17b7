#!/usr/bin/env python3
"""Fills a template of deploy/ from a file of parameters; refuses whatever is left open.

    deploy/render.py TEMPLATE PARAMETERS > RESULT

Parameters: lines `NAME = value`, each below a comment `# form: REGULAR EXPRESSION` that the
whole value must match. FILL_IN marks what only you can know. In a template, @NAME@ stands for a
value, and a line `#@ include queue-{QUEUES}.yaml.in` for the files of every word of QUEUES. What
stands behind `#@ if NAME: ` is left out where NAME is empty, as its form may allow.
Needs nothing but Python.
"""

import pathlib
import re
import sys

OPEN = "FILL_IN"
NAME = re.compile(r"@([A-Z][A-Z0-9_]*)@")
INCLUDE = re.compile(r"^[ \t]*#@ include (\S+)[ \t]*$", re.M)
OPTIONAL = re.compile(r"^([ \t]*)#@ if ([A-Z][A-Z0-9_]*): (.*\n)", re.M)
SLOT = re.compile(r"\{([A-Z][A-Z0-9_]*)\}")


class Refused(Exception):
    """What a person has to change before there can be a result."""


def read_parameters(path):
    """name -> value; every line is checked, all complaints come at once."""
    found, problems, form = {}, [], None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        where = f"{path}:{number}"
        text = line.strip()
        if text.startswith("# form:"):
            form = text[len("# form:"):].strip()
        if not text or text.startswith("#"):
            continue
        name, separator, value = (part.strip() for part in text.partition("="))
        if not separator or not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
            problems.append(f"{where}: expected NAME = value, found '{text}'")
        elif name in found:
            problems.append(f"{where}: {name} was set before")
        elif form is None:
            problems.append(f"{where}: {name} has no '# form:' line above it")
        elif value == OPEN:
            problems.append(f"{where}: {name} is still {OPEN}")
        elif not re.fullmatch(form, value):
            problems.append(f"{where}: {name} = '{value}' does not look like {form}")
        found[name] = value
        form = None
    if problems:
        raise Refused("\n".join(problems))
    return found


def with_includes(path, parameters, used):
    def included(match):
        slots = SLOT.findall(match.group(1))
        if len(slots) != 1 or slots[0] not in parameters:
            raise Refused(f"{path}: '{match.group(1)}' must name one parameter in braces")
        used.add(slots[0])
        parts = []
        for word in parameters[slots[0]].split():
            part = path.parent / SLOT.sub(lambda _: word, match.group(1))
            if not part.is_file():
                raise Refused(f"{slots[0]} = '{word}': there is no {part}")
            parts.append(part.read_text(encoding="utf-8").rstrip("\n"))
        return "\n".join(parts)

    return INCLUDE.sub(included, path.read_text(encoding="utf-8"))


def render(template, parameters_file):
    """The filled template as text."""
    template, parameters_file = pathlib.Path(template), pathlib.Path(parameters_file)
    parameters, used = read_parameters(parameters_file), set()
    text = with_includes(template, parameters, used)
    text = OPTIONAL.sub(lambda m: m.group(1) + m.group(3) if parameters.get(m.group(2), OPEN)
                        else "", text)
    unknown = sorted({n for n in NAME.findall(text) if n not in parameters})
    if unknown:
        raise Refused(f"{parameters_file}: {', '.join(unknown)} missing; {template} asks for it")

    def value(match):
        used.add(match.group(1))
        return parameters[match.group(1)]

    result = NAME.sub(value, text)
    if OPEN in result:
        raise Refused(f"{template}: {OPEN} left in the result")
    return result


def main(arguments):
    if len(arguments) != 2:
        sys.exit(__doc__)
    try:
        sys.stdout.write(render(*arguments))
    except (Refused, OSError, UnicodeDecodeError, re.error) as error:
        sys.exit(f"render: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
