"""What the models of slots share: words on a small circle, and the search of all states."""
from collections import deque

CIRCLE = 16  # words are numbers modulo this; the longest way ahead on it is half of it


def has_reached(seen, expected):
    return (seen - expected) % CIRCLE < CIRCLE // 2


def explore(start, steps, ops):
    """(states, None or the failure). steps(state) yields what may follow, or the text of a failure. The first part of a
    state has a tuple for each rank's thread that begins with the number of ops it has ended; each ends `ops`.
    """
    seen, pending = {start}, deque([start])
    while pending:
        state = pending.popleft()
        stuck = any(thread[0] < ops for thread in state[0])
        for after in steps(state):
            if isinstance(after, str):
                return len(seen), after
            stuck = False
            if after not in seen:
                seen.add(after)
                pending.append(after)
        if stuck:
            return len(seen), f"nothing can move: {state[0]}"
    return len(seen), None
