"""Kernels that use what is not supported are refused one by one; the others of their file compile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import ostinato as ost
from launching import HEAD, launch
from ostinato.cli import main
from ostinato.msl import parse

PLAIN = "kernel void plain(device float *x, uint i [[thread_position_in_grid]]) { x[i] += 1; }"
MIXED = f"""{HEAD}
constexpr sampler smooth(coord::normalized);
float4 fetched(texture2d<float> image, float2 at) {{ return image.sample(smooth, at); }}
float4 twice(texture2d<float> image) {{ return 2.0f * fetched(image, 0.5f); }}
kernel void shown(texture2d<float, access::write> image [[texture(0)]], uint2 at [[thread_position_in_grid]]) {{
  image.write(1.0f, at);
}}
template <typename T> kernel void summed(device T *x, texture2d<T> image [[texture(0)]]) {{ x[0] = twice(image).x; }}
template [[host_name("summed_float")]] kernel void summed<float>(device float *, texture2d<float>);
vertex float4 corner(uint i [[vertex_id]]) {{ return float4(i); }}
{PLAIN}
kernel void named_alike(device float *x, uint i [[thread_position_in_grid]]) {{ float shown = x[i]; x[i] = shown * 3; }}
"""


def test_kernels_without_textures_run() -> None:
    with ost.open_device("cpu") as dev:
        library = dev.library(MIXED)
        assert set(library) == {"plain", "named_alike"}
        assert launch(dev, library["plain"], np.ones(4, np.float32), threads=4).tolist() == [2] * 4
        assert launch(dev, library["named_alike"], np.ones(4, np.float32), threads=4).tolist() == [3] * 4


@pytest.mark.parametrize(("name", "line"), [("shown", 7), ("summed", 10), ("summed_float", 11)])
def test_a_kernel_with_a_texture_says_where_it_is(name: str, line: int) -> None:
    with ost.open_device("cpu") as dev:
        library = dev.library(MIXED)
        with pytest.raises(ost.UnsupportedFeature, match="textures and samplers") as caught:
            library[name]
    assert caught.value.line == line


def test_what_is_left_is_a_source_of_its_own() -> None:
    module = parse(MIXED)
    again = parse(module.source)
    assert "texture2d" not in module.source
    assert again.kernels.keys() == module.kernels.keys()
    assert "texture2d" not in module.translate("cuda").text


@pytest.mark.parametrize(
    "source",
    [
        "kernel void only(texture2d<float> image [[texture(0)]], device float *x) { x[0] = 1; }",
        f"struct Images {{ texture2d<float> first; }};\n{PLAIN}",
        f"using Image = texture2d<float>;\n{PLAIN}",
    ],
)
def test_a_source_with_nothing_left_or_a_texture_in_a_type_is_refused(source: str) -> None:
    with pytest.raises(ost.UnsupportedFeature, match="textures and samplers"):
        parse(HEAD + source)


def test_variables_may_be_called_sampler() -> None:
    source = f"""{HEAD}
    template <typename S> struct Drawn {{
      S sampler;
      Drawn(const thread S &sampler) : sampler(sampler) {{}}
      float draw() {{ return sampler(); }}
    }};
    struct Half {{ float operator()() const {{ return 0.5f; }} }};
    kernel void k(device float *x) {{ Half half_; Drawn<Half> drawn(half_); x[0] = drawn.draw(); }}
    """
    with ost.open_device("cpu") as dev:
        assert launch(dev, dev.library(source)["k"], np.zeros(1, np.float32)).tolist() == [0.5]


def test_a_variable_called_sampler_may_stand_in_any_expression() -> None:
    source = f"""{HEAD}
    uint drawn(uint sampler, uint m) {{
      if (sampler < 3) return sampler * 3;
      const uint x = sampler & m, y = (sampler * m) + (sampler < m);
      return min(sampler * 2, x + sampler * y);
    }}
    kernel void k(device uint *x) {{ x[0] = drawn(2, 1); x[1] = drawn(5, 4); }}
    """
    with ost.open_device("cpu") as dev:
        assert launch(dev, dev.library(source)["k"], np.zeros(2, np.uint32)).tolist() == [6, 10]


@pytest.mark.parametrize("use", ["sampler s", "thread sampler &s", "const sampler *s", "texture2d<float> t, sampler s"])
def test_a_sampler_is_refused_beside_a_variable_of_this_name(use: str) -> None:
    with pytest.raises(ost.UnsupportedFeature, match="textures and samplers"):
        parse(f"{HEAD}uint other(uint sampler) {{ return sampler; }}\nkernel void k({use}) {{}}")


def test_compile_names_the_kernels_that_were_left_out(tmp_path: Path) -> None:
    path = tmp_path / "mixed.metal"
    path.write_text(MIXED)
    result = CliRunner().invoke(main, ["compile", str(path), "--device", "cpu", "-k", "plain"])
    assert result.exit_code == 0
    assert "plain(" in result.stdout
    assert "left out: shown: " in result.stderr
    assert "mixed.metal:7" in result.stderr


@pytest.mark.parametrize(
    ("argument", "instead"),
    [
        ("device const float (*m)[8]", "write `device const row *m`, with `using row = float[8];`"),
        ("threadgroup float (*m)[2][N]", "write `threadgroup row *m`, with `using row = float[2][N];`"),
        ("constant uint (&m)[4]", "write `constant array<uint, 4> &m`"),
        ("constant uint (&m)[2][4]", "write `constant array<array<uint, 4>, 2> &m`"),
        ("constant four &m", "write `constant array<uint, 4> &m`"),
        ("device float (*m)", "write `device float *m`"),
    ],
)
def test_an_argument_that_points_to_an_array_says_what_to_write(argument: str, instead: str) -> None:
    source = f"{HEAD}\nconstant uint N = 3;\ntypedef uint four[4];\nkernel void k(device float *x, {argument}) {{ x[0] = 1; }}"
    with pytest.raises(ost.UnsupportedFeature) as caught:
        parse(source)
    assert "argument 'm': " in str(caught.value)
    assert str(caught.value).splitlines()[0].endswith(instead)
    assert caught.value.line == source.count("\n") + 1


def test_what_an_argument_can_be_instead_of_an_array_works() -> None:
    source = f"""{HEAD}
    using row = float[2];
    kernel void k(device const row *m, constant array<array<uint, 2>, 2> &n, device row &out, threadgroup row *t) {{
      t[1][1] = m[1][0]; out[0] = t[1][1]; out[1] = n[1][0];
    }}"""
    with ost.open_device("cpu") as dev:
        m, n, out = np.arange(4, dtype=np.float32), np.arange(4, dtype=np.uint32), np.zeros(2, np.float32)
        assert launch(dev, dev.library(source)["k"], m, n, out, shared={0: 16}).tolist() == [2, 2]
