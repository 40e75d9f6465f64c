"""Graphs on paper: the text and the picture say what is in the graph, whatever its labels hold."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import ostinato as ost
from ostinato.base.printable import printable
from ostinato.graph.drawing import to_dot, to_text

LENGTH = 64
Encode = Callable[[ost.CommandEncoder], None]

# --- a reader of Graphviz's language: enough to tell whether `dot` would take a text, and what it would draw ---------

_DOT_TOKEN = re.compile(r'\s*(?:("(?:\\.|[^"\\\n])*")|([A-Za-z_]\w*|-?[0-9.]+)|(->|[{}\[\];,=]))')


@dataclass
class Picture:
    """What a text in Graphviz's language draws."""

    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    clusters: dict[str, set[str]] = field(default_factory=dict)
    title: str = ""


def drawn(text: str) -> Picture:
    tokens: list[str] = []
    position = 0
    while text[position:].strip():
        found = _DOT_TOKEN.match(text, position)
        assert found, text[position : position + 40]
        tokens.append(found.group().strip())
        position = found.end()
    picture = Picture()
    assert [tokens.pop(0), tokens.pop(0)] == ["digraph", "ostinato"]
    statements(tokens, picture, None)
    assert not tokens
    return picture


def statements(tokens: list[str], picture: Picture, cluster: str | None) -> None:
    members: set[str] = set()
    label = ""
    assert tokens.pop(0) == "{"
    while tokens[0] != "}":
        name = tokens.pop(0)
        assert re.fullmatch(r"\w+", name), name
        if name == "subgraph":
            statements(tokens, picture, tokens.pop(0))
            continue
        if tokens[0] == "=":
            tokens.pop(0)
            label = string(tokens.pop(0))
        elif tokens[0] == "->":
            tokens.pop(0)
            edge = (name, tokens.pop(0))
            assert edge not in picture.edges
            picture.edges[edge] = attributes(tokens)
        else:
            found = attributes(tokens)
            if name == "graph":
                picture.title = found["label"]
            elif name not in ("node", "edge"):
                assert name not in picture.nodes
                picture.nodes[name] = found
                members.add(name)
        assert tokens.pop(0) == ";"
    tokens.pop(0)
    if cluster is not None:
        assert cluster.startswith("cluster_")
        picture.clusters[label] = members


def attributes(tokens: list[str]) -> dict[str, str]:
    found = {}
    assert tokens.pop(0) == "["
    while tokens[0] != "]":
        key, equals = tokens.pop(0), tokens.pop(0)
        assert (equals, key in found) == ("=", False)
        found[key] = string(tokens.pop(0))
        if tokens[0] == ",":
            tokens.pop(0)
    tokens.pop(0)
    return found


def string(token: str) -> str:
    """A value as it would be shown; an escape of Graphviz other than a new line would mean something of its own."""
    if not token.startswith('"'):
        return token
    inside = re.sub(r"\\(.)", lambda found: {"n": "\n", "\\": "\\", '"': '"'}[found[1]], token[1:-1])
    return html.unescape(inside)


# --- what the tests share -------------------------------------------------------------------------------------------


@pytest.fixture
def x(dev: ost.Device) -> ost.Buffer:
    return dev.zeros(LENGTH, np.float32)


@pytest.fixture
def y(dev: ost.Device) -> ost.Buffer:
    return dev.zeros(LENGTH, np.float32)


@pytest.fixture
def graph(dev: ost.Device, kernels: ost.Library, x: ost.Buffer, y: ost.Buffer) -> ost.Graph:
    def encode(enc: ost.CommandEncoder) -> None:
        with enc.scope("layer 0"), enc.scope("norm"):
            enc.dispatch(kernels["scale"], x, y, ost.param("factor", np.float32), threads=LENGTH)
        with enc.scope("layer 0"):
            enc.dispatch(kernels["scale"], y[:32], x[32:], 0.5, groups=(2, 1, 1), group_size=(4, 4))
        enc.memory_barrier()
        enc.copy(x[:4], y[4:8])
        enc.fill(x[:4], 1.0)
        enc.dispatch(kernels["bump"], y, threads=LENGTH, reads=ost.UNKNOWN)

    return dev.capture(encode, "token").named(hidden=x)


# --- text -----------------------------------------------------------------------------------------------------------


def test_the_text_says_what_each_node_is_does_and_waits_for(graph: ost.Graph, y: ost.Buffer) -> None:
    number = y._allocation().backing.number
    lines = str(graph).splitlines()
    assert lines[0] == "graph 'token' on 'cpu': 6 nodes (3 dispatches, 1 copy, 1 fill, 1 barrier)"
    assert lines[1] == "memory: 2 buffers of 512 bytes in all"
    assert "parameters: {factor} float32" in lines
    nodes = [re.sub(r" +", " ", line) for line in lines[-6:]]
    assert nodes[0].startswith(
        f"0 layer 0/norm/scale 64 threads by 64 hidden →m{number}[0:256] {{factor}} test_drawing"
    )
    assert f"2 groups by 4×4 m{number}[0:128] →hidden[128:256] 0.5 waits for 0 " in nodes[1]
    assert nodes[2].startswith("2 barrier waits for 1 ")
    assert nodes[3].startswith(f"3 copy hidden[0:16] →m{number}[16:32] waits for 2 ")
    assert nodes[4].startswith("4 fill 0x3f800000 →hidden[0:16] waits for 3 ")
    assert "touches: unknown" in nodes[5]


def test_what_is_not_ordered_by_itself_needs_rather_than_waits(
    dev: ost.Device, kernels: ost.Library, x: ost.Buffer
) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        enc.dispatch(kernels["bump"], x, threads=LENGTH)
        enc.dispatch(kernels["bump"], x, threads=LENGTH)

    assert "  needs 0" in str(dev.capture(encode, barriers="manual"))


def test_reports_splits_and_outputs_are_in_the_header(graph: ost.Graph, x: ost.Buffer) -> None:
    text = str(graph.with_outputs(x[2:4]).with_nodes(graph.nodes, splits=(3,), reports=("fused 2 nodes\nmore", "")))
    assert "\nnew submissions begin before: 3\nreport: fused 2 nodes\nreport:" in text
    assert "\n3 |copy" in text
    assert "outputs: hidden[8:16]" in str(graph.with_outputs(x[2:4]))


def test_a_long_graph_shows_its_beginning_and_its_end(dev: ost.Device, kernels: ost.Library, x: ost.Buffer) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        for _ in range(100):
            enc.dispatch(kernels["bump"], x, threads=LENGTH)

    graph = dev.capture(encode)

    def shown(text: str) -> list[int]:
        return [int(line.split()[0]) for line in text.splitlines() if re.match(r" *\d+  bump", line)]

    assert shown(str(graph)) == [*range(40), *range(80, 100)]
    assert "\n …  40 more\n" in str(graph)
    assert shown(to_text(graph, limit=None)) == list(range(100))
    assert shown(to_text(graph, limit=3)) == [0, 1, 99]
    assert to_text(graph, limit=0).endswith("…  100 more")
    assert shown(to_text(graph, limit=100)) == list(range(100))
    for limit in (-1, True, "all"):
        with pytest.raises(ost.ArgumentError, match="limit"):
            to_text(graph, limit)  # type: ignore[arg-type]


def test_a_graph_of_nothing_is_shown_too(dev: ost.Device) -> None:
    graph = dev.capture(lambda enc: None)
    assert str(graph).startswith("graph on 'cpu': 0 nodes\nmemory: 0 buffers of 0 bytes in all")
    assert not drawn(graph.to_dot()).nodes


LABELS = st.text(st.characters(codec=None), min_size=1, max_size=200)


@given(LABELS)
@example("\x1b[31mred\x1b[0m")
@example("a\nb\tc\r\0")
@example("\ud800 \u202e \u2028")
@example('"]; evil [label="')
@example("\\N \\G \\l &lt;b&gt; <b> {|} \\")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_labels_are_shown_and_never_obeyed(dev: ost.Device, kernels: ost.Library, x: ost.Buffer, label: str) -> None:
    def encode(enc: ost.CommandEncoder) -> None:
        with enc.scope(label):
            enc.dispatch(kernels["bump"], x, threads=LENGTH)
        with enc.scope("rest"), enc.scope(label):
            enc.dispatch(kernels["bump"], x, threads=LENGTH)

    graph = dev.capture(encode, label)
    text = str(graph)
    assert all(line.isprintable() and len(line) <= 120 for line in text.splitlines())
    assert len(text.splitlines()) == 5
    picture = drawn(to_dot(graph))
    assert list(picture.nodes) == ["n0", "n1"]
    assert picture.clusters.keys() == {printable(label.partition("/")[0]), "rest"}
    assert picture.nodes["n1"]["label"].splitlines()[0] == f"1  {printable(label)}/bump"
    assert all(one.isprintable() for one in to_dot(graph).splitlines())


def test_lines_are_never_wider_than_a_hundred_and_twenty_columns(
    dev: ost.Device, kernels: ost.Library, x: ost.Buffer
) -> None:
    many = [dev.zeros(LENGTH, np.float32) for _ in range(20)]

    def encode(enc: ost.CommandEncoder) -> None:
        for one in many:
            enc.dispatch(kernels["bump"], one, threads=LENGTH)
        with enc.scope("x" * 300):
            enc.dispatch(kernels["inc_one"], x, many[0], threads=LENGTH, reads=many, writes=[many[0]])

    graph = dev.capture(encode).named(**{f"a_rather_long_name_{at}": one for at, one in enumerate(many)})
    lines = str(graph).splitlines()
    assert max(map(len, lines)) == 120
    assert "waits for 0, 1, 2, 3, 4, 5, …  test_drawing.py:" in lines[-1]


# --- picture --------------------------------------------------------------------------------------------------------


def test_the_picture_has_every_node_and_every_edge(graph: ost.Graph) -> None:
    picture = drawn(graph.to_dot())
    assert list(picture.nodes) == ["n0", "n1", "n2", "n3", "n4", "n5"]
    assert picture.edges.keys() == {(f"n{before}", f"n{after}") for before, after in graph.edges.tolist()}
    assert picture.clusters == {"layer 0": {"n0", "n1"}}
    assert picture.title.startswith("token: ")
    assert picture.nodes["n2"]["shape"] == "point"
    assert picture.nodes["n5"]["style"] == "dashed"
    assert picture.nodes["n0"]["label"].startswith("0  norm/scale\n64 threads by 64")


def test_edges_say_which_bytes_make_one_wait(graph: ost.Graph, y: ost.Buffer) -> None:
    picture = drawn(graph.to_dot())
    memory = f"memory {y._allocation().backing.number}"
    assert set(picture.edges["n0", "n1"]["label"].split("\n")) == {f"RAW {memory}[0:128]", "WAR hidden[128:256]"}
    assert picture.edges["n1", "n2"] == {"style": "dotted"}
    assert picture.edges["n3", "n4"] == {"label": "WAR hidden[0:16]"}


def test_a_new_submission_has_a_double_outline(graph: ost.Graph) -> None:
    picture = drawn(graph.with_nodes(graph.nodes, splits=(1,)).to_dot())
    assert [name for name, one in picture.nodes.items() if "peripheries" in one] == ["n1"]
