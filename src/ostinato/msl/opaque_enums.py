"""``typedef enum E : int E;``, as in headers that are shared with other languages: two declarations in C++."""

from __future__ import annotations

from .rewriter import Rewriter
from .syntax import Syntax


def rewrite_opaque_enums(syntax: Syntax, rewriter: Rewriter) -> None:
    """Turns every ``typedef enum E : int Name;`` into ``enum E : int; typedef E Name;``."""
    texts = syntax.texts
    for index, text in enumerate(texts):
        if text != "typedef" or texts[index + 1] != "enum":
            continue
        title_at = index + 2 + (texts[index + 2] in ("class", "struct"))
        closing = syntax.statement_end(index, syntax.count)
        if texts[title_at + 1] == ":" and "{" not in texts[title_at:closing]:
            rewriter.replace(index, "")
            rewriter.before(closing - 1, f"; typedef {texts[title_at]}")
