#!/usr/bin/env python3
"""Writes _contract.py (structs) and _enums.py of harness/python/attnbench from the headers of kernels/contract.

    ./scripts/python_structs.py            # writes them
    ./scripts/python_structs.py --check    # writes nothing; fails if a file differs from the headers
"""
import argparse
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "harness/python/attnbench"
HEADERS = ["dtype.h", "attention_params.h", "merge_params.h", "attention_backward_params.h", "move_params.h", "kernel.h", "plugin.h"]
SCALARS = {"uint64_t": "c_uint64", "int64_t": "c_int64", "uint32_t": "c_uint32", "int32_t": "c_int32", "float": "c_float",
           "double": "c_double", "char": "c_char", "std::size_t": "c_size_t"}
STRUCTS = ["RotaryParams", "AttentionParams", "ScaleParams", "KvAppendParams", "MergeStatesParams", "AttentionBackwardParams", "KvMoveParams", "OpParams", "Numerics",
           "KernelMessage", "ReturnedOutputs", "LaunchContext", "Tile", "Kernel", "Plugin"]
ENUMS = ["DType", "RotaryQ", "Feature", "Op", "DeviceKind", "KernelStatus", "KernelFlag"]


def without_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def body(text, head):
    """What stands between the braces after `head`."""
    begin = text.index("{", re.search(head, text).end() - 1) + 1
    depth, at = 1, begin
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return text[begin:at - 1]


def python_name(constant):
    """kPagedKv -> PAGED_KV, kE4m3Kv -> E4M3_KV, kVIsK -> V_IS_K."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", constant[1:]).upper()


def enum(text, name):
    rows = []
    for item in body(text, rf"enum (class )?{name} : \w+ \{{").split(","):
        if item.strip():
            constant, value = (part.strip() for part in item.split("="))
            value = re.sub(r"(\d)u?l*\b", r"\1", value)
            rows.append(f"    {python_name(constant)} = {value}")
    base = "enum.IntFlag" if name in ("Feature", "KernelFlag") else "_Names"
    return f"class {name}({base}):\n" + "\n".join(rows)


def ctype(declared):
    declared = declared.replace("const ", "").strip()
    if declared.endswith("*"):
        return "c_char_p" if declared == "char*" else "c_void_p"
    if declared in SCALARS:
        return SCALARS[declared]
    if declared in ENUMS:
        return "c_uint64" if declared == "Feature" else "c_int32"
    assert declared in STRUCTS, declared
    return declared


def fields(text, constants):
    rows = []
    for line in re.sub(r"\s+", " ", text).split(";"):
        line = line.strip()
        if not line:
            continue
        pointer = re.fullmatch(r"[\w:]+ \(\*(\w+)\)\(.*\)( = nullptr)?", line)
        if pointer:
            rows.append((pointer[1], "c_void_p"))
            continue
        line = line.split("=")[0].strip().replace("* const*", "*")
        declared, names = re.fullmatch(r"((?:const )?[\w:]+\*?) ([\w, \[\]]+)", line).groups()
        for name in names.split(","):
            array = re.fullmatch(r"(\w+)\[(\w+)\]", name.strip())
            if array:
                rows.append((array[1], f"{ctype(declared)} * {constants.get(array[2], array[2])}"))
            else:
                rows.append((name.strip(), ctype(declared)))
    return rows


def struct(text, name, constants):
    inside = body(text, rf"struct {name} \{{")
    base, extra = "Structure", ""
    if "union {" in inside:
        union = body(inside, r"union \{")
        rows = "\n".join(f'        ("{n}", {t}),' for n, t in fields(union, constants))
        extra = f"class _{name}Union(Union):\n    _fields_ = [\n{rows}\n    ]\n\n\n"
        inside = inside[:inside.index("union {")] + f"_{name}Union u;"
        members = [(n, t) for n, t in fields(inside.replace(f"_{name}Union u;", ""), constants)] + [("u", f"_{name}Union")]
        anonymous = '    _anonymous_ = ("u",)\n'
    else:
        members, anonymous = fields(inside, constants), ""
    rows = "\n".join(f'        ("{n}", {t}),' for n, t in members)
    return f"{extra}class {name}({base}):\n{anonymous}    _fields_ = [\n{rows}\n    ]"


def written():
    """The text of each file, by its name."""
    text = "\n".join(without_comments((ROOT / "kernels/contract" / h).read_text()) for h in HEADERS)
    constants = dict(re.findall(r"inline constexpr \w+ (k\w+) = (\w+);", text))
    names = re.findall(r'\{k(\w+), "(\w+)"\}', body(text, r"kFeatureNames\[\] = \{"))
    table = "\n".join(f'    "{name}": Feature.{python_name("k" + constant)},' for constant, name in names)
    by = f"Written by scripts/{pathlib.Path(__file__).name}."
    enums = [f'"""Numbers and names of the contract of kernels, kernels/contract/*.h. {by}"""\nimport enum\n\n'
             f"ABI_VERSION = {constants['kKernelAbiVersion']}\nPLUGIN_MAGIC = {constants['kPluginMagic']}"]
    enums.append('class _Names(enum.IntEnum):\n    """Prints as its name."""\n\n    def __str__(self):\n        return self.name.lower()')
    enums += [enum(text, name) for name in ENUMS]
    enums.append(f"#: Features by the names of `attnbench kernels`.\nFEATURES = {{\n{table}\n}}")
    shared = ", ".join(["ABI_VERSION", "FEATURES", "PLUGIN_MAGIC", *sorted(ENUMS)])
    structs = [f'"""The contract of kernels, kernels/contract/*.h, for ctypes. {by}"""\n'
               "from ctypes import (Structure, Union, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t,\n"
               "                    c_uint32, c_uint64, c_void_p)\n\n"
               + textwrap.fill(f"from ._enums import ({shared})", 100, subsequent_indent=" " * 21) + "  # noqa: F401"]
    structs += [struct(text, name, constants) for name in STRUCTS]
    told = ", ".join(re.findall(r"sizeof\((\w+)\)", re.search(r"\.struct_bytes = \{([^}]*)\}", text)[1]))
    structs.append("#: The structs whose sizes a plug-in tells, in their order.\n" +
                   textwrap.fill(f"PLUGIN_STRUCTS = ({told})", 100, subsequent_indent=" " * 18))
    return {name: "\n\n\n".join(parts) + "\n" for name, parts in (("_enums.py", enums), ("_contract.py", structs))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs")
    check = parser.parse_args().check
    for name, wanted in written().items():
        out = OUT / name
        if not check:
            out.write_text(wanted)
        elif not out.exists() or out.read_text() != wanted:
            sys.exit(f"{out.relative_to(ROOT)} differs from kernels/contract: run scripts/{pathlib.Path(__file__).name}")


if __name__ == "__main__":
    main()
