"""``typedef float eight __attribute__((ext_vector_type(8)));``, an extension of clang that not every compiler has.

The name becomes one for the shim's own type: Metal's vector of 2, 3 or 4, and a plain array with operators beyond.
"""

from __future__ import annotations

from ..errors import UnsupportedFeature
from .rewriter import Rewriter
from .syntax import Syntax

_BOUNDS = frozenset({";", "{", "}", ""})
"""Tokens between statements; the last is the end of the source."""
_LONGEST_TYPEDEF = 64
"""Tokens of a typedef on either side of the attribute."""


def rewrite_extended_vectors(syntax: Syntax, rewriter: Rewriter) -> None:
    """Rewrites every ``typedef`` and ``using`` with this attribute."""
    texts, match = syntax.texts, syntax.match
    for index, text in enumerate(texts):
        if text.strip("_") != "ext_vector_type" or texts[index - 3 : index] != ["__attribute__", "(", "("]:
            continue
        attribute = range(index - 3, match[index - 2] + 1)
        begin, end = index - 3, attribute.stop
        while begin > index - _LONGEST_TYPEDEF and texts[begin - 1] not in _BOUNDS:
            begin -= 1
        while end < index + _LONGEST_TYPEDEF and texts[end] not in _BOUNDS:
            end += 1
        words = [at for at in range(begin, end) if at not in attribute]
        if texts[begin] == "typedef":
            element = words[1:-1]
        elif texts[begin] == "using" and texts[begin + 2] == "=":
            element = words[3:]
        else:
            element = []
        if not element or match[index + 1] + 2 != match[index - 2]:
            token = syntax.tokens[index]
            raise UnsupportedFeature(
                "ext_vector_type is supported as the only attribute of a typedef", file=token.file, line=token.line
            )
        count = " ".join(texts[index + 2 : match[index + 1]])
        rewriter.delete(attribute.start, attribute.stop)
        rewriter.before(element[0], "__ost::ext_vector<")
        rewriter.after(element[-1], f", {count}>")
