"""Names of objects, and checks of how a call of the program has ended."""

WRONG = 78


def address(name):
    return f"s3://corpus/{name}"


def files(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file()}


def refused(result, *words, code=WRONG):
    said = result.stderr
    assert result.returncode == code, (result.returncode, result.stdout, said)
    assert "longhaul: error: " in said and "please report" not in said, said
    for word in words:
        assert word in said, (word, said)
