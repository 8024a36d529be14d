"""What tests of memory orders share: kernels compiled to PTX as they are and in mutants, each of which the test must refuse."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


# What has been compiled: (source, flags) -> the texts that went into it, by their names below the root, and the PTX.
_compiled = {}


def compiler():
    """nvcc for PTX; by ccache, where there is one."""
    tests = Path(__file__).resolve().parent
    ccache = shutil.which("ccache")
    set_up = ["bash", "-c", 'source "$0" && exec "$@"', str(tests.parent / "tools" / "set_up_ccache.sh")]
    return [*([*set_up, ccache] if ccache else []), str(tests / "nvcc_to_ptx.sh")]


def compile_to_ptx(nvcc, root, source, *flags):
    """The PTX of a file of the copy `root`. It is compiled once for all copies in which what it includes is the same."""
    known = _compiled.setdefault((source, flags), [])
    for texts, ptx in known:
        if all((root / name).read_bytes() == text for name, text in texts.items()):
            return ptx
    output, rule = root / "kernels.ptx", root / "kernels.d"
    command = [*compiler(), "-c", "-arch=sm_90a", "-std=c++20", f"-I{root}/include", f"-I{root}/src", *flags, str(root / source),
               "-o", str(output), "-MD", "-MF", str(rule)]
    # The copy is new: without the sloppiness, ccache would not trust files that are as young as the compiler's run.
    environment = {"NVCC": nvcc, "CCACHE_BASEDIR": str(root), "CCACHE_COMPILERTYPE": "nvcc",
                   "CCACHE_COMPILERCHECK": "%compiler% --version", "CCACHE_SLOPPINESS": "include_file_mtime,include_file_ctime"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root, env=os.environ | environment)
    if done.returncode != 0:
        sys.exit(f"nvcc failed:\n{done.stderr}")
    included = {root / name for name in rule.read_text().split(":", 1)[1].replace("\\\n", " ").split()}
    texts = {path.relative_to(root): path.read_bytes() for path in included if path.is_relative_to(root)}
    if Path(source) not in texts:
        sys.exit(f"nvcc does not say what {source} includes: {rule.read_text()[:300]}")
    known.append((texts, output.read_text()))
    return known[-1][1]


def entries_of(ptx):
    """The PTX of each kernel, from its name on."""
    return re.split(r"^\.entry |^\.visible \.entry ", ptx, flags=re.MULTILINE)[1:]


def steps_of(body, instructions):
    """What a kernel does of these (name -> pattern), in order, repetitions left out."""
    steps = []
    for line in body.splitlines():
        for name, pattern in instructions.items():
            if re.search(pattern, line) and (not steps or steps[-1] != name):
                steps.append(name)
    return steps


def copy_of(root, folders, to):
    for folder in folders:
        shutil.copytree(root / folder, to / folder)


def check_mutants(root, folders, mutants, faults_in):
    """faults_in(folder) for a copy of `folders` as they are, where it must find none, and for each mutant (name -> file,
    text, replacement), where it must find some. Returns the exit status."""
    status = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copy_of(root, folders, copy)
        for name, change in [("as it is", None), *mutants.items()]:
            if change:
                path, old, replacement = change
                text = (copy / path).read_text()
                if old not in text:
                    sys.exit(f"mutant '{name}': '{old}' is not in {path}")
                (copy / path).write_text(text.replace(old, replacement))
            faults = faults_in(copy)
            if change:
                (copy / path).write_text(text)
            as_expected = bool(faults) == (change is not None)
            print(f"{name}: {'; '.join(faults) or 'no fault'}{'' if as_expected else '   <- WRONG'}")
            status |= not as_expected
    return status
