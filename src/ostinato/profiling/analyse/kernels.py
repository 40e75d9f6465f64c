"""Which kernel is which: kernels of one name that were compiled from different sources or constants are told apart.

Two commands run the same kernel when its name and digest (of source and function constants) are the same. A recording
without digests goes by source file and specialisation. A name that only one kernel has needs nothing more. Of several,
each gets the fewest words that no other of its name has: its file, `(a.metal)`; else a constant or macro,
`[N=4]`; else both; else the beginning of its digest, `#3fa2`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_LONGEST = 60
"""Words beyond this many characters say less than a digest."""
_SHORTEST_DIGEST = 4
_TRANSFER = "(transfer)"


class KernelFacts(NamedTuple):
    """What is recorded of the kernel that a command runs."""

    kind: str
    """Of `NODE_KINDS`: a kernel called "copy" is not a copy."""
    name: str
    source: str
    """The file that it was compiled from; "" if it was a text."""
    digest: str
    constants: tuple[tuple[str, str], ...] = ()
    """Function constants and macros with their values."""


def named(kernel: str, detail: str) -> str:
    """A kernel as reports show it: its name, and what tells it from others of that name."""
    return f"{kernel} {detail}" if detail else kernel


def details(commands: Iterable[KernelFacts]) -> list[str]:
    """For each command the words that tell its kernel from others of its name; "" where no other has its name."""
    kernels: dict[str, dict[tuple[object, ...], KernelFacts]] = {}
    keys = []
    for facts in commands:
        key = _key(facts)
        kernels.setdefault(facts.name, {}).setdefault(key, facts)
        keys.append((facts.name, key))
    words = {
        (name, key): detail
        for name, alike in kernels.items()
        for key, detail in zip(alike, _distinguished(list(alike.values())), strict=True)
    }
    return [words[key] for key in keys]


def _key(facts: KernelFacts) -> tuple[object, ...]:
    if facts.kind != "dispatch":
        return (facts.kind,)
    return (facts.kind, facts.digest) if facts.digest else (facts.kind, "", facts.source, facts.constants)


def _distinguished(kernels: Sequence[KernelFacts]) -> list[str]:
    """Words for each of several kernels of one name."""
    if len(kernels) == 1:
        return [""]
    files, (single, given, missing) = _files(kernels), _constants(kernels)
    both = [" ".join(filter(None, pair)) for pair in zip(files, given, strict=True)]
    chosen = [""] * len(kernels)
    for words in (files, single, given, missing, both):
        count = Counter(words)
        for at, word in enumerate(words):
            if not chosen[at] and word and count[word] == 1 and len(word) <= _LONGEST:
                chosen[at] = word
    digests = _digests([facts.digest for facts in kernels])
    return _distinct([word or digest for word, digest in zip(chosen, digests, strict=True)])


def _distinct(words: list[str]) -> list[str]:
    """Files may be named like anything, even like each other's constants."""
    count = Counter(words)
    return [f"{word} #{number}" if count[word] > 1 else word for number, word in enumerate(words, 1)]


def _files(kernels: Sequence[KernelFacts]) -> list[str]:
    """The name of each file, with as many of its folders as are needed to tell it from the others."""
    paths = {facts.source: re.split(r"[/\\]+", facts.source.rstrip("/\\")) for facts in kernels if facts.source}
    most = max(map(len, paths.values()), default=0)
    shown: dict[str, str] = {}
    for depth in range(1, most + 1):
        ends = {source: "/".join(parts[-depth:]) for source, parts in paths.items() if source not in shown}
        count = Counter("/".join(parts[-depth:]) for parts in paths.values())
        shown |= {source: end for source, end in ends.items() if count[end] == 1}
        if len(shown) == len(paths):
            break
    return [
        _TRANSFER if facts.kind != "dispatch" else f"({shown.get(facts.source, facts.source)})" if facts.source else ""
        for facts in kernels
    ]


def _constants(kernels: Sequence[KernelFacts]) -> tuple[list[str], list[str], list[str]]:
    """Of each kernel's constants and macros: one that no other has; all that differ; those that only others have."""
    values = [dict(facts.constants) for facts in kernels]
    names = dict.fromkeys(name for given in values for name in given)
    differing = [name for name in names if len({given.get(name) for given in values}) > 1]
    pairs = [[f"{name}={given[name]}" for name in differing if name in given] for given in values]
    count = Counter(pair for given in pairs for pair in given)
    single = [next((f"[{pair}]" for pair in given if count[pair] == 1), "") for given in pairs]
    missing = [[f"no {name}" for name in differing if name not in given] for given in values]
    return single, _listed(pairs), _listed(missing)


def _listed(words: Sequence[Sequence[str]]) -> list[str]:
    return [f"[{', '.join(each)}]" if each else "" for each in words]


def _digests(digests: Sequence[str]) -> list[str]:
    """The beginning of each digest, as long as it takes; a number where there is none."""
    known = {digest for digest in digests if digest}
    length = _SHORTEST_DIGEST
    while len({digest[:length] for digest in known}) < len(known):
        length += 1
    return [f"#{digest[:length]}" if digest else f"#{number}" for number, digest in enumerate(digests, 1)]
