"""Where a table in a page differs from what the results say. A part of readme_tables.py."""
import difflib


def cells(line):
    return [c.strip() for c in line.strip("|").split("|")] if line.startswith("|") else [line]


def differences(page, first_line, files, now, then):
    """Lines that say where text `now`, which begins at `first_line` of a page, differs from `then`, made of `files`."""
    matcher = difflib.SequenceMatcher(None, now.splitlines(), then.splitlines(), autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            continue
        old, new = matcher.a[a:b], matcher.b[c:d]
        for i in range(max(len(old), len(new))):
            where = f"{page}:{first_line + a + min(i, max(0, len(old) - 1))}: "
            if i >= len(old):
                yield f"{where}lacks the line '{new[i]}' of {files}"
            elif i >= len(new):
                yield f"{where}'{old[i]}' is not in {files}"
            elif len(x := cells(old[i])) != len(y := cells(new[i])):
                yield f"{where}'{old[i]}' should be '{new[i]}', by {files}"
            else:
                row = f" in the row of '{y[0]}'" if len(y) > 1 else ""
                yield from (f"{where}'{was}' should be '{shall}'{row}, by {files}" for was, shall in zip(x, y) if was != shall)
