#!/usr/bin/env python3
"""The reference of the public headers, by Doxygen: make_docs.py [FOLDER]

Writes FOLDER/html/index.html (default: build/docs): every public header, a page for each module with its place in the
house, and a search. Exits 1 at any warning of Doxygen, and 77 where there is no Doxygen.
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

from check_layers import HEADERS_OF, MAY_INCLUDE, allowed_modules, module_of

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = 77

# Module -> what it is for. A module without public headers has a place in the picture and no page.
MODULES = {
    "base": "Errors, element types, views and tensors, settings. Every other module stands on it.",
    "io": "Files of tensors: .npy, .safetensors, and checkpoints of several files.",
    "trace": "What an op enqueued, as text; when its steps ran, their summary, and the page that shows them.",
    "cost": "Times that were measured, and the models that predict the others.",
    "graph": "Captured PyTorch graphs, and passes that put fused ops into them.",
    "bootstrap": "Stores, groups of ranks, and a launcher of local ranks.",
    "device": "Devices, streams, events and graphs.",
    "cpu": "Host code in the order of a CPU stream.",
    "cuda": "CUDA streams behind tandem's streams, and the other way round.",
    "symm": "Memory that all ranks of a group can reach, and signals in it.",
    "transport": "Carries rows between ranks on different hosts: MPI.",
    "timeline": "Notes when the steps of a group's ops run.",
    "gemm": "Products on one device, also of operands that still arrive.",
    "coll": "All-gather, reduce-scatter and all-reduce, and those that run beside a product.",
    "program": "Steps of an op as data, and what enqueues them. It has no public header.",
    "fused": "Products with their communication inside.",
    "graph/interpreter": "Runs captured graphs on CPU ranks.",
    "backend": "Opens devices, and knows which backends exist.",
}


def levels():
    """Module -> its floor in the house; what it may include is below."""
    found = {}

    def level(module):
        if module not in found:
            found[module] = 1 + max((level(below) for below in MAY_INCLUDE[module]), default=-1)
        return found[module]

    for module in MAY_INCLUDE:
        level(module)
    return found


def direct(module):
    """What a module may include and does not get through another one: the arrows of the picture."""
    below = MAY_INCLUDE[module]
    return [one for one in below if not any(one in allowed_modules(other) for other in below if other != one)]


BOX, GAP, FLOOR = (124, 30), 16, 62


def house(chosen):
    """The modules as an SVG, one floor a level; `chosen` and the ways down from it stand out."""
    rows = {}
    for module, level in levels().items():
        rows.setdefault(level, []).append(module)
    width = max(len(row) for row in rows.values()) * (BOX[0] + GAP) + GAP
    height = len(rows) * FLOOR + 8
    place = {}
    for level, row in rows.items():
        left = (width - len(row) * (BOX[0] + GAP) + GAP) / 2
        for i, module in enumerate(row):
            place[module] = (left + i * (BOX[0] + GAP), height - (level + 1) * FLOOR + 8)
    reached = allowed_modules(chosen) if chosen else set()
    lines, boxes = [], []
    for module, (x, y) in place.items():
        for below in direct(module):
            to_x, to_y = place[below]
            strong = module in reached
            lines.append(f'<line x1="{x + BOX[0] / 2}" y1="{y + BOX[1]}" x2="{to_x + BOX[0] / 2}" y2="{to_y}" '
                         f'stroke="{"#1f5fa8" if strong else "#b8b8b8"}" stroke-width="{1.6 if strong else 1}"/>')
        fill = "#1f5fa8" if module == chosen else "#d6e6f7" if module in reached else "#f4f4f4"
        boxes.append(f'<rect x="{x}" y="{y}" width="{BOX[0]}" height="{BOX[1]}" rx="4" fill="{fill}" stroke="#707070"/>'
                     f'<text x="{x + BOX[0] / 2}" y="{y + 20}" text-anchor="middle" '
                     f'fill="{"#ffffff" if module == chosen else "#202020"}">{module}</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">\n'
            + "\n".join(lines + boxes) + "\n</svg>\n")


def headers():
    """Module -> its public headers, as they are included."""
    found = {module: [] for module in MAY_INCLUDE}
    include = ROOT / "include"
    for path in sorted((include / "tandem").rglob("*.*h*")):
        parts = path.relative_to(include).parts
        if len(parts) > 2:
            found[module_of(parts[1:])].append("/".join(parts))
        elif parts[1] in HEADERS_OF:
            found[HEADERS_OF[parts[1]]].append("/".join(parts))
    return found


def page_name(module):
    return "module_" + module.replace("/", "_")


def module_page(module, files):
    name = page_name(module)
    linked = [f"@ref {page_name(below)} \"{below}\"" for below in sorted(allowed_modules(module) - {module})]
    lines = [f"/** @page {name} {module}", MODULES[module], "",
             f"@image html {name}.svg \"What {module} may include is blue.\"", ""]
    if files:
        lines += ["@section " + name + "_headers Headers", *(f"- @ref {file} \"{file}\"" for file in files), ""]
    lines.append("It may include: " + (", ".join(linked) if linked else "no other module") + ".")
    return "\n".join(lines) + "\n*/\n"


def main_page(found):
    lines = ["/** @mainpage tandem",
             "Tensor-parallel matrix products with their communication hidden inside them.", "",
             "Include <tandem/tandem.hpp> for everything but the file formats and captured graphs. Start with "
             "@ref tandem::fused_all_gather_matmul, @ref tandem::fused_matmul_reduce_scatter, @ref tandem::Group, "
             "@ref tandem::Stream and @ref tandem::TensorView.", "",
             "@image html house.svg \"Each module may include what is below it.\"", "", "| module | |", "|---|---|"]
    lines += [f"| @subpage {page_name(module)} \"{module}\" | {MODULES[module]} |" for module in found]
    return "\n".join(lines) + "\n*/\n"


def write_pages(folder):
    folder.mkdir(parents=True, exist_ok=True)
    found = headers()
    (folder / "house.svg").write_text(house(None), encoding="utf-8")
    (folder / "main.dox").write_text(main_page(found), encoding="utf-8")
    for module, files in found.items():
        (folder / f"{page_name(module)}.svg").write_text(house(module), encoding="utf-8")
        (folder / f"{page_name(module)}.dox").write_text(module_page(module, files), encoding="utf-8")


EXAMPLE = re.compile(r"(^///\n)((?:///   [^\n]*\n)+)", re.MULTILINE)
FACT = re.compile(r"^(\s*///) (Shapes|Types|Units|Memory|Order|Errors|Source):\s+", re.MULTILINE)


def filtered(text):
    """A header as Doxygen gets it: each fact of a contract is a paragraph with its name as title, and an example that
    stands apart and is indented is code."""
    def as_code(match):
        return match[1] + re.sub(r"///   ", "///     ", match[2])
    return FACT.sub(r"\1 @par \2\n\1 ", EXAMPLE.sub(as_code, text))


def run_doxygen(folder):
    settings = (ROOT / "tools/Doxyfile").read_text(encoding="utf-8")
    settings += (f"\nPROJECT_NUMBER = {project_version()}\nOUTPUT_DIRECTORY = {folder}\n"
                 f"INPUT = {ROOT}/include/tandem {folder}/pages\nIMAGE_PATH = {folder}/pages\n"
                 f"STRIP_FROM_PATH = {ROOT}/include\nSTRIP_FROM_INC_PATH = {ROOT}/include\n"
                 f"INPUT_FILTER = \"{sys.executable} {Path(__file__).resolve()} --filter\"\n")
    return subprocess.run(["doxygen", "-"], input=settings, text=True, check=False, cwd=ROOT).returncode


def project_version():
    return re.search(r"VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8").split("project(")[1]).group(1)


def main(arguments):
    if arguments[:1] == ["--filter"]:
        sys.stdout.write(filtered(Path(arguments[1]).read_text(encoding="utf-8")))
        return 0
    if set(MODULES) != set(MAY_INCLUDE):
        print(f"make_docs.py: MODULES and the levels differ: {sorted(set(MODULES) ^ set(MAY_INCLUDE))}")
        return 1
    if shutil.which("doxygen") is None:
        print("skipped: no doxygen here (tools/install_packages.sh docs installs it)")
        return SKIPPED
    folder = Path(arguments[0] if arguments else ROOT / "build/docs").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    write_pages(folder / "pages")
    if run_doxygen(folder) != 0:
        print("make_docs.py: doxygen has warnings; each is a line above")
        return 1
    print(f"{folder}/html/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
