"""What the doorbell's sources do, in terms of the model in doorbell.py: the model's proof then is one of the sources."""
import pathlib
import re

BOOTSTRAP = pathlib.Path(__file__).resolve().parents[2] / "src/bootstrap"
# A read-modify-write of weaker order would be a full barrier on x86 only.
STRONG = "std::memory_order_seq_cst"
# Each operation of a body that matters, in the model's words.
OPERATIONS = {
    rf"sleepers\.fetch_add\(0, {STRONG}\)": "read sleepers by a read-modify-write",
    r"sleepers\.load\([^)]*\)|sleepers\.fetch_add\(0,[^)]*\)|\bsleepers\b(?=\s*[!=])": "read sleepers",
    rf"sleepers\.fetch_add\(1, {STRONG}\)": "register",
    rf"sleepers\.fetch_sub\(1, {STRONG}\)": "unregister",
    r"sleepers\.store\([^)]*\)|sleepers\.fetch_(?:add|sub)\(1,[^)]*\)|(?:\+\+|--)[\w.]*sleepers": "write sleepers weakly",
    r"bell\.load\(std::memory_order_(?:acquire|seq_cst)\)": "read bell",
    rf"bell\.fetch_add\(1, {STRONG}\)": "bump",
    r"futex\([\w.]*bell, FUTEX_WAKE, INT_MAX, nullptr\)": "wake all",
    r"futex\([\w.]*bell, FUTEX_WAKE, 1, nullptr\)": "wake one",
    r"futex\([\w.]*bell, FUTEX_WAIT, seen_, &timeout\)": "sleep on the bell that was read",
    r"ring_always\(\)": "ring always",
    r"Sleeper sleeper\(own\(\)\.doorbell\)": "make a sleeper",
    r"Look result = look\(wait\)": "look",
    r"sleeper\.sleep\(": "sleep",
}


def body_of(file, head):
    """The text between the braces behind `head`, without comments."""
    text = re.sub(r"//[^\n]*", "", (BOOTSTRAP / file).read_text())
    start = text.index("{", text.index(head))
    depth = 0
    for end in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[start + 1 : end]
    raise ValueError(f"{file}: no end of {head}")


def operations(file, head):
    body = body_of(file, head)
    found = []
    at = 0
    while at < len(body):
        for pattern, name in OPERATIONS.items():
            if match := re.compile(pattern).match(body, at):
                found.append(name)
                at = match.end()
                break
        else:
            at += 1
    return found


def protocol(make):
    """`make(**choices)` of the model's Protocol, by what the sources say."""
    ring = operations("doorbell.hpp", "void ring()")
    always = operations("doorbell.cpp", "void Doorbell::ring_always()")
    register = operations("doorbell.hpp", "explicit Sleeper(")
    unregister = operations("doorbell.hpp", "~Sleeper()")
    sleep = operations("doorbell.cpp", "void Sleeper::sleep(")
    wait = operations("group_control.cpp", "GroupControl::sleep_and_look(")
    if len(ring) != 2 or ring[1] != "ring always" or sleep != ["sleep on the bell that was read"]:
        raise ValueError(f"the model does not know this: ring {ring}, sleep {sleep}")
    before_sleep = [step for step in wait if step in ("make a sleeper", "look", "sleep")]
    return make(
        ringer_fence=ring[0] == "read sleepers by a read-modify-write",
        ringer_bumps="bump" in always,
        monitor_bumps="bump" in always,
        wake_all="wake all" in always,
        register="add" if "register" in register and unregister == ["unregister"] else "flag",
        register_before_look=before_sleep[:1] == ["make a sleeper"],
        bell_before_look=register[-1:] == ["read bell"],
        look_again=before_sleep[-2:] == ["look", "sleep"] or before_sleep == ["look", "make a sleeper", "sleep"],
    )
