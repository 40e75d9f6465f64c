"""The weights of a decoder by ostinato's names, from a file, from another library's memory, or random.

`Weights` is a mapping from name to NumPy array. `config.tensor_shapes` lists the names: `embedding`, `norm`, `head`
(absent if tied), and for each layer `layer.3.attn.q` and the like. All tensors are checked when the weights are opened:
each exists, has its shape, and has a supported dtype, and no other tensors are there. Values are read on access.

An array is a read-only view of the mapped file where the file has the tensor in one piece. Others are made on every
access, so keep them, or copy them to a device one at a time: experts of a Hugging Face folder, and MLX's weights with
scales and biases, which are assembled; queries and keys of a Llama in a GGUF file, whose rows are reordered from
interleaved RoPE to halves; and random weights. Tensors of another library have an array only if they are in host
memory.

Every model here rotates halves: value `i` of a head belongs with value `i + head_dim / 2`.
"""

from __future__ import annotations

import math
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  (teaches NumPy the name "bfloat16")
import numpy as np

from ..base.paths import checked_path
from ..errors import ArgumentError, ModelError, TensorNotFound
from ..graph.file.values import Damaged
from ..runtime import dlpack
from .affine import affine_tensor, is_affine, part_names
from .config import DecoderConfig, tensor_shapes
from .config_files import gguf_config, read_config
from .files import named, reading
from .gguf import READ_FORMATS, GgufFile, read_gguf
from .safetensors import read_safetensors, read_sharded
from .tensors import FLOATS, Array, StoredTensor, is_quantised, stored_shape

_HUGGING_FACE = {
    "embedding": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "head": "lm_head.weight",
    "attn.norm": "model.layers.{layer}.input_layernorm.weight",
    "attn.q": "model.layers.{layer}.self_attn.q_proj.weight",
    "attn.k": "model.layers.{layer}.self_attn.k_proj.weight",
    "attn.v": "model.layers.{layer}.self_attn.v_proj.weight",
    "attn.o": "model.layers.{layer}.self_attn.o_proj.weight",
    "attn.q_norm": "model.layers.{layer}.self_attn.q_norm.weight",
    "attn.k_norm": "model.layers.{layer}.self_attn.k_norm.weight",
    "mlp.norm": "model.layers.{layer}.post_attention_layernorm.weight",
    "mlp.gate": "model.layers.{layer}.mlp.gate_proj.weight",
    "mlp.up": "model.layers.{layer}.mlp.up_proj.weight",
    "mlp.down": "model.layers.{layer}.mlp.down_proj.weight",
    "mlp.router": "model.layers.{layer}.mlp.gate.weight",
    "mlp.experts.gate": "model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight",
    "mlp.experts.up": "model.layers.{layer}.mlp.experts.{expert}.up_proj.weight",
    "mlp.experts.down": "model.layers.{layer}.mlp.experts.{expert}.down_proj.weight",
}
# MLX keeps all experts of a layer in one tensor.
_MLX_EXPERTS = {
    "mlp.experts.gate": "model.layers.{layer}.mlp.switch_mlp.gate_proj.weight",
    "mlp.experts.up": "model.layers.{layer}.mlp.switch_mlp.up_proj.weight",
    "mlp.experts.down": "model.layers.{layer}.mlp.switch_mlp.down_proj.weight",
}
_GGUF = {
    "embedding": "token_embd.weight",
    "norm": "output_norm.weight",
    "head": "output.weight",
    "attn.norm": "blk.{layer}.attn_norm.weight",
    "attn.q": "blk.{layer}.attn_q.weight",
    "attn.k": "blk.{layer}.attn_k.weight",
    "attn.v": "blk.{layer}.attn_v.weight",
    "attn.o": "blk.{layer}.attn_output.weight",
    "attn.q_norm": "blk.{layer}.attn_q_norm.weight",
    "attn.k_norm": "blk.{layer}.attn_k_norm.weight",
    "mlp.norm": "blk.{layer}.ffn_norm.weight",
    "mlp.gate": "blk.{layer}.ffn_gate.weight",
    "mlp.up": "blk.{layer}.ffn_up.weight",
    "mlp.down": "blk.{layer}.ffn_down.weight",
    "mlp.router": "blk.{layer}.ffn_gate_inp.weight",
    "mlp.experts.gate": "blk.{layer}.ffn_gate_exps.weight",
    "mlp.experts.up": "blk.{layer}.ffn_up_exps.weight",
    "mlp.experts.down": "blk.{layer}.ffn_down_exps.weight",
}
# Tensors that may be unused: a copy of tied embeddings, and tables that follow from the configuration.
_UNUSED = re.compile(
    r"lm_head\.(weight|scales|biases)|model(\.layers\.\d+\.self_attn)?\.rotary_emb\.inv_freq|rope_freqs\.weight"
)
_LAYER = re.compile(r"layer\.(\d+)\.(.+)")
_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class _Source:
    """A checked tensor, and how to get its array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    array: Callable[[], Array]
    lent: Any = None
    """The tensor of another library that holds the values, if any."""

    @property
    def nbytes(self) -> int:
        return math.prod(stored_shape(self.shape, self.dtype)) * self.dtype.itemsize


class Weights(Mapping[str, Array]):
    """The tensors of a decoder by name; `origin` describes their source."""

    def __init__(self, config: DecoderConfig, origin: str, sources: Mapping[str, _Source]) -> None:
        self.config = config
        self.origin = origin
        self._sources = sources

    def __getitem__(self, name: str) -> Array:
        return self._source(name).array()

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __repr__(self) -> str:
        return f"Weights({self.origin!r}, {len(self)} tensors, {self.nbytes} bytes)"

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor in weights, without reading it."""
        return self._source(name).shape

    def dtype(self, name: str) -> np.dtype[Any]:
        """The dtype that the array of a tensor has."""
        return self._source(name).dtype

    def lent(self, name: str) -> Any:
        """Another library's tensor that holds these weights, to be used in place; None for all others."""
        return self._source(name).lent

    @property
    def nbytes(self) -> int:
        """Total size of all tensors, as stored."""
        return sum(source.nbytes for source in self._sources.values())

    def _source(self, name: str) -> _Source:
        source = self._sources.get(name)
        if source is None:
            raise TensorNotFound(f"no tensor {name!r} in {self.origin}")
        return source


def load_weights(path: str | os.PathLike[str]) -> Weights:
    """The weights in a Hugging Face folder (`config.json` and safetensors) or in a GGUF file, checked but not read."""
    place = checked_path(path, "load_weights", ModelError)
    with reading(place):
        if place.is_dir():
            return _folder_weights(place)
        if not place.exists():
            raise Damaged("there is no such file or folder")
        if place.name.endswith((".safetensors", ".json")):
            raise Damaged("pass its folder, which also has the config.json")
        file = read_gguf(place)
        config = gguf_config(file)
        return Weights(config, str(place), _gguf_sources(config, file))


def random_weights(config: DecoderConfig, dtype: Any = "float32", seed: int = 0) -> Weights:
    """Random weights that keep activations near 1, made on access; deterministic by name, shape and seed."""
    kind = _float_dtype(dtype)
    if type(seed) is not int or not 0 <= seed < 1 << 64:
        raise ArgumentError(f"random_weights: seed={seed!r}: expected an integer from 0 to 2⁶⁴ − 1")
    sources = {
        name: _Source(shape, kind, partial(_random, config, name, shape, kind, seed))
        for name, shape in tensor_shapes(config).items()
    }
    return Weights(config, f"random {config.family}, seed {seed}", sources)


def shared_weights(config: DecoderConfig, tensors: Mapping[str, Any]) -> Weights:
    """Weights in the memory of another library, by ostinato's or Hugging Face's names: torch's `model.state_dict()`.

    A tensor is anything with `__dlpack__`. A `Decoder` with the same device and dtype reads it in place: it is not
    copied and must not be changed meanwhile. Otherwise it is copied, which needs a tensor in host memory. NumPy arrays
    are always copied.
    """
    sources, used = {}, set()
    for name, shape in tensor_shapes(config).items():
        theirs = name if name in tensors else _their_name(_HUGGING_FACE, name)
        if theirs not in tensors:
            other = " (all experts of a layer in one)" if "{expert}" in theirs else f", nor {theirs!r}"
            raise ArgumentError(f"shared_weights: there is no tensor {name!r}{other}")
        used.add(theirs)
        sources[name] = _shared(theirs, tensors[theirs], shape)
    for name in tensors:
        if name not in used and not _UNUSED.fullmatch(name):
            raise ArgumentError(f"shared_weights: tensor {named(name)} does not belong to this kind of decoder")
    return Weights(config, f"{config.family} in memory", sources)


def _shared(name: str, tensor: Any, shape: tuple[int, ...]) -> _Source:
    lent = None if isinstance(tensor, np.ndarray) else tensor
    try:
        actual, dtype = (tensor.shape, tensor.dtype) if lent is None else dlpack.described(tensor)
    except AttributeError:
        raise ArgumentError(f"shared_weights: {name!r} is a {type(tensor).__name__}, which has no __dlpack__") from None
    except (RuntimeError, BufferError, TypeError, ValueError) as error:
        raise ArgumentError(f"shared_weights: {name!r}: {error}") from None
    if actual != shape:
        raise ArgumentError(f"shared_weights: {name!r} has shape {list(actual)}; the decoder needs {list(shape)}")
    if dtype not in FLOATS:
        raise ArgumentError(f"shared_weights: {name!r} is {dtype.name}; float32, float16 and bfloat16 are supported")
    return _Source(shape, dtype, (lambda: tensor) if lent is None else partial(_on_host, name, tensor, dtype), lent)


def _on_host(name: str, tensor: Any, dtype: np.dtype[Any]) -> Array:
    try:
        return dlpack.adopt(tensor)
    except (RuntimeError, BufferError, TypeError, ValueError):
        raise ArgumentError(
            f"tensor {name!r} is in device memory, as {dtype.name}; only a Decoder of this dtype on that"
            " device can use it"
        ) from None


# --- Hugging Face folders -------------------------------------------------------------------------------------------


def _folder_weights(folder: Path) -> Weights:
    if not (folder / "config.json").is_file():
        raise Damaged("there is no config.json in it, so it is not a Hugging Face folder")
    config = read_config(folder)
    return Weights(config, str(folder), _folder_sources(config, _folder_tensors(folder)))


def _folder_tensors(folder: Path) -> dict[str, StoredTensor]:
    if (folder / _INDEX).is_file():
        return read_sharded(folder / _INDEX)
    single = folder / "model.safetensors"
    files = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    if len(files) > 1:
        raise Damaged(f"it has {len(files)} safetensors files, but no {_INDEX}")
    if not files:
        pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt*"))
        hint = "; pickled checkpoints contain code and are not loaded" if pickled else ""
        raise Damaged(f"there are no safetensors files in it{hint}")
    return read_safetensors(files[0])


def _folder_sources(config: DecoderConfig, tensors: Mapping[str, StoredTensor]) -> dict[str, _Source]:
    sources = {}
    used: set[str] = set()
    for name, shape in tensor_shapes(config).items():
        theirs = _their_name(_HUGGING_FACE, name)
        if "{expert}" in theirs and _their_name(_MLX_EXPERTS, name) in tensors:
            theirs = _their_name(_MLX_EXPERTS, name)
        if "{expert}" not in theirs:
            sources[name] = _folder_source(tensors, theirs, shape, used)
            continue
        parts = []
        for expert in range(config.experts):
            theirs_too = theirs.replace("{expert}", str(expert))
            used.add(theirs_too)
            parts.append(_checked(tensors, theirs_too, shape[1:]))
        if len({part.format for part in parts}) > 1:
            raise Damaged(f"tensors {theirs!r} do not all have the same dtype")
        sources[name] = _Source(shape, _dtype(parts[0]), partial(_stacked, parts))
    _refuse_rest(tensors, used)
    return sources


def _folder_source(tensors: Mapping[str, StoredTensor], theirs: str, shape: tuple[int, ...], used: set[str]) -> _Source:
    if is_affine(tensors, theirs):
        used.update(part_names(theirs))
        groups = affine_tensor(tensors, theirs, shape)
        return _Source(shape, groups.dtype, groups.array)
    used.add(theirs)
    tensor = _checked(tensors, theirs, shape)
    return _Source(shape, _dtype(tensor), tensor.array)


def _stacked(parts: list[StoredTensor]) -> Array:
    return np.stack([part.array() for part in parts])


# --- GGUF files -----------------------------------------------------------------------------------------------------


def _gguf_sources(config: DecoderConfig, file: GgufFile) -> dict[str, _Source]:
    sources = {}
    used: set[str] = set()
    for name, shape in tensor_shapes(config).items():
        theirs = _their_name(_GGUF, name)
        used.add(theirs)
        tensor = _checked(file.tensors, theirs, shape)
        array = tensor.array
        if config.family == "llama" and name.endswith((".attn.q", ".attn.k")):
            heads = config.heads if name.endswith("q") else config.kv_heads
            array = partial(_halves, tensor, heads)
        sources[name] = _Source(shape, _dtype(tensor), array)
    _refuse_rest(file.tensors, used)
    return sources


def _halves(tensor: StoredTensor, heads: int) -> Array:
    """Rows of each head, reordered from interleaved pairs to two halves; whole rows, so that blocks are unchanged."""
    array = tensor.array()
    rows, columns = array.shape
    pairs = array.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, columns)


# --- what is checked ------------------------------------------------------------------------------------------------


def _their_name(names: Mapping[str, str], ours: str) -> str:
    match = _LAYER.fullmatch(ours)
    return names[ours] if match is None else names[match[2]].replace("{layer}", match[1])


def _checked(tensors: Mapping[str, StoredTensor], name: str, shape: tuple[int, ...]) -> StoredTensor:
    tensor = tensors.get(name)
    if tensor is None:
        raise Damaged(f"tensor {name!r} is missing")
    if tensor.shape != shape:
        raise Damaged(f"tensor {name!r} has shape {list(tensor.shape)}; the configuration needs {list(shape)}")
    if tensor.dtype is None:
        raise Damaged(f"tensor {name!r} is in {tensor.format}; {', '.join(READ_FORMATS)} are supported")
    if not (tensor.dtype in FLOATS or (is_quantised(tensor.dtype) and len(shape) > 1)):
        raise Damaged(f"tensor {name!r} is in {tensor.format}, which is not supported for this tensor")
    return tensor


def _dtype(tensor: StoredTensor) -> np.dtype[Any]:
    assert tensor.dtype is not None  # _checked refuses those
    return tensor.dtype


def _refuse_rest(tensors: Mapping[str, StoredTensor], used: set[str]) -> None:
    for name in tensors:
        if name not in used and not _UNUSED.fullmatch(name):
            raise Damaged(f"tensor {named(name)} does not belong to this kind of decoder")


# --- random weights -------------------------------------------------------------------------------------------------


def _float_dtype(dtype: Any) -> np.dtype[Any]:
    for supported in FLOATS:
        with suppress(TypeError):
            if np.dtype(dtype) == supported:
                return supported
    raise ArgumentError(f"random_weights: dtype={dtype!r}: expected float32, float16 or bfloat16")


def _random(config: DecoderConfig, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> Array:
    """Uniform values from a table of 2¹⁶ values: as fast as memory, with no more memory than the tensor and a chunk."""
    mean, deviation = _moments(config, name, shape)
    reach = math.sqrt(3) * deviation
    table = (mean + np.linspace(-reach, reach, 1 << 16)).astype(dtype)
    bits = np.random.PCG64(np.random.SeedSequence((seed, zlib.crc32(name.encode()))))
    weights = np.empty(math.prod(shape), dtype)
    chunk = 1 << 17
    for begin in range(0, weights.size, chunk):
        some = weights[begin : begin + chunk]
        draws = np.asarray(bits.random_raw(-(-some.size // 4))).astype("<u8", copy=False).view("<u2")
        table.take(draws[: some.size], out=some, mode="clip")  # no index is out of range, so none is checked
    return weights.reshape(shape)


def _moments(config: DecoderConfig, name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    """Mean and deviation, such that products keep the size of their input and the layers' sum stays bounded."""
    if name.endswith("norm"):
        return 1.0, 0.1
    if name.endswith((".o", ".down")):
        return 0.0, 1 / math.sqrt(shape[-1] * 2 * config.layers)
    return 0.0, 1 / math.sqrt(shape[-1])
