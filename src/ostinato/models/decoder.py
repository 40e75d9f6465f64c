"""A decoder on a device: prefill for the prompt, then one captured graph that is replayed per token.

    decoder = Decoder(device, random_weights(preset("tiny")))
    tokens = decoder.generate([72, 101, 108], 16)

Weights are copied to the device once, or used in place if another library has them there; matrices that multiply the
same vector are joined. Every operation has its own scope (`decode/layer.3/attn/sdpa`), so a profile can be summed at
any level. A replay reads the token that the previous replay chose, so only the position goes to the device, and only
results that are read come back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np

from .. import ops
from ..encode.encoder import CommandEncoder, capture
from ..errors import ArgumentError
from ..graph.graph import Graph
from ..graph.replay import Replayable
from ..ir.params import param
from ..runtime.buffer import Buffer
from ..runtime.queue import OnQueue, queue_of
from .config import DecoderConfig
from .placed import JOINED, PlacedWeights
from .sampling import Sampling
from .weights import Weights

DTYPES = ("float32", "float16", "bfloat16")
CHUNK = 64
"""Tokens of a prompt that are processed at a time."""
CHUNK_ON_GPU = 2048
"""The same on a GPU, which a few tokens do not fill."""

_LARGE = 1 << 16
"""Weights of a matrix from which on it is worth a kernel of its own to multiply many rows."""

Route = Callable[..., None]


class DecoderDevice(OnQueue, Protocol):
    """What a decoder needs of a device."""

    def array(self, values: Any) -> Buffer: ...

    def from_dlpack(self, producer: Any) -> Buffer: ...

    def zeros(self, shape: Any, dtype: Any) -> Buffer: ...

    def empty(self, shape: Any, dtype: Any) -> Buffer: ...

    def command_encoder(self, label: str | None = None) -> CommandEncoder: ...


class _Scratch:
    """Buffers for the activations of `tokens` tokens."""

    def __init__(self, device: DecoderDevice, config: DecoderConfig, tokens: int, dtype: str) -> None:
        def room(*shape: int, kind: str = dtype) -> Buffer:
            return device.empty((tokens, *shape), kind)

        self.tokens = room(kind="uint32")
        self.hidden, self.normed, self.delta = (room(config.hidden_size) for _ in range(3))
        self.qkv = room(config.heads + 2 * config.kv_heads, config.head_dim)
        self.query, self.mixed = room(config.heads, config.head_dim), room(config.heads, config.head_dim)
        if any(not config.has_experts(layer) for layer in range(config.layers)):
            self.gate_up, self.gated = room(2, config.intermediate_size), room(config.intermediate_size)
        if config.experts:
            chosen, inner = config.experts_per_token, config.moe_intermediate_size
            self.scores = room(config.experts)
            self.indices, self.shares = room(chosen, kind="uint32"), room(chosen, kind="float32")
            self.expert_gated, self.expert_out = room(chosen, inner), room(chosen, config.hidden_size)
            self.expert_gate_up = room(chosen, 2 * inner)
            self.order, self.starts = room(chosen, kind="uint32"), device.empty(config.experts + 1, "uint32")


class Decoder:
    """A decoder on a device: its weights, its KV cache and the graph of a token."""

    def __init__(
        self,
        device: DecoderDevice,
        weights: Weights,
        capacity: int = 256,
        dtype: str = "float32",
        route: Route = ops.moe_route,
        round_activations: bool | None = None,
    ) -> None:
        """`capacity` is how many tokens the cache holds; `route` chooses the experts of a token.

        With `round_activations` what is multiplied with quantised matrices is rounded to 8 bits in blocks of 32, as
        llama.cpp does; None: where that is faster, which it is on CPUs whose simdgroups run as vectors.
        """
        if dtype not in DTYPES:
            raise ArgumentError(f"Decoder: dtype is one of {', '.join(DTYPES)}, not {dtype!r}")
        if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
            raise ArgumentError(f"Decoder: capacity is a number of tokens, not {capacity!r}")
        queue_of(device, "Decoder")
        self.config = config = weights.config
        self.capacity = capacity
        self.position = 0
        """Tokens in the cache."""
        self._device = device
        self._route = route
        self._dtype = dtype
        self._weights = PlacedWeights(device, weights, dtype, round_activations)
        self._rounded = self._room_for_rounded()
        self._wide: Buffer | None = None
        row_bytes = config.hidden_size * np.dtype(dtype).itemsize
        plain = device._queue.backend.capabilities.plain_loops
        self._chunk = CHUNK if plain else CHUNK_ON_GPU
        self._folds = not plain and row_bytes <= ops.linear.most_staged(device._queue)
        """Whether norms are fused with the products that follow them, which saves a GPU launches."""
        self._frequencies = device.array(config.inverse_frequencies())
        shape = (config.kv_heads, capacity, config.head_dim)
        self._keys = [device.zeros(shape, dtype) for _ in range(config.layers)]
        self._values = [device.zeros(shape, dtype) for _ in range(config.layers)]
        parts = ops.attention_parts(device, config.kv_heads, capacity)
        shape = (parts, config.heads, config.head_dim + 2)
        self._partial = device.empty(shape, "float32") if parts > 1 else None
        """Where the groups that split the keys of a token leave their sums."""
        self._one = _Scratch(device, config, 1, dtype)
        self._prompt: _Scratch | None = None
        self._logits = device.zeros(config.vocab_size, dtype)
        self._largest = device.empty((ops.argmax_parts(config.vocab_size), 2), "uint32")
        """Where the groups that choose a token leave the largest of their logits."""
        self._kept: list[tuple[Replayable, Buffer]] = []
        self.graph = self.captured()
        """The graph that is replayed for each token."""
        self._run = self.graph.optimise().instantiate()
        self._sampled_run: Replayable | None = None

    def captured(self, sampled: bool = False) -> Graph:
        """The graph of a token as operations encode it now; it takes the parameter `position`.

        With `sampled`, the next token is drawn, by the parameters `random`, `temperature` and `top_p`.
        """
        choose = self._sample if sampled else self._most_likely
        position = param("position", np.uint32)
        graph = capture(self._device._queue, lambda enc: self._token(enc, position, choose), label="token")
        return graph.with_outputs(self._logits, self._one.tokens, *self._keys, *self._values)

    # --- tokens ------------------------------------------------------------------------------------------------------

    def prefill(self, tokens: Sequence[int]) -> np.ndarray:
        """Process a prompt, after what the cache holds already, and return the logits of its last token as float32.

        The prompt is processed in chunks (`CHUNK`, `CHUNK_ON_GPU`), which bounds the memory for activations.
        """
        ids, chunk = self._checked(tokens), self._chunk
        for begin in range(0, len(ids), chunk):
            piece = ids[begin : begin + chunk]
            scratch = self._scratch_for(len(piece))
            scratch.tokens.write(piece)
            encoder = self._device.command_encoder("prefill")
            with encoder.scope("prefill"):
                self._layers(encoder, scratch, self.position)
                if begin + chunk >= len(ids):
                    self._head(encoder, scratch)
                    self._most_likely(encoder)
            encoder.commit_labeled("prefill").wait()
            self.position += len(piece)
        return self.logits()

    def _scratch_for(self, tokens: int) -> _Scratch:
        """Room for the activations of a chunk, kept for the next one of this length: new memory takes milliseconds."""
        if self._prompt is None or self._prompt.tokens.size != tokens:
            self._prompt = None
            self._prompt = _Scratch(self._device, self.config, tokens, self._dtype)
        return self._prompt

    def step(self) -> int:
        """Append the most likely token, and return the most likely token after it."""
        if not self.position:
            raise ArgumentError("step: there is no token yet; prefill a prompt first")
        self._replay()
        return self.next_token

    @property
    def next_token(self) -> int:
        """The most likely token after those processed so far."""
        return int(self._one.tokens.numpy()[0])

    def force(self, token: int) -> np.ndarray:
        """Append the given token, and return its logits as float32."""
        self._one.tokens.write(self._checked([token]))
        self._replay()
        return self.logits()

    def generate(
        self,
        prompt: Sequence[int],
        count: int,
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: Collection[int] = (),
    ) -> list[int]:
        """Process a prompt and return tokens after it, `count` or up to a `stop` token, which is the last of them.

        With a temperature of 0 they are the most likely ones. Otherwise each is drawn from the most probable tokens
        that together reach `top_p`; the same `seed` draws the same tokens.
        """
        if count < 1:
            return []
        self.prefill(prompt)
        return list(self.following(count, temperature=temperature, top_p=top_p, seed=seed, stop=stop))

    def following(
        self,
        count: int,
        *,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: Collection[int] = (),
    ) -> Generator[int, None, None]:
        """The tokens that `generate` returns, one by one, after a prompt that is in the cache.

        Each is read while the next is computed. A caller that stops early, and a stop token, leave the decoder as if
        nothing after the last token had been computed.
        """
        if not self.position:
            raise ArgumentError("following: there is no token yet; prefill a prompt first")
        if count < 1:
            return
        sampling = Sampling(temperature, top_p, seed)
        before = self.next_token if sampling.greedy else self._drawn(sampling)
        yield before
        if before in stop:
            return
        ahead: dict[str, Any] | None = None  # the values of a replay that has been started already
        for turn in range(count - 1):
            values = self._start(turn, sampling) if ahead is None else ahead
            goes_on = turn + 2 < count and self.position < self.capacity
            ahead = self._start(turn + 1, sampling) if goes_on else None
            token = int(self._kept[turn % 2][1].numpy()[0])
            ends = True
            try:
                yield token
                ends = token in stop
            finally:
                if ends and ahead is not None:  # the step that chose this token once more: it leaves the same logits
                    self._one.tokens.write(np.array([before], np.uint32))
                    self.position -= 2
                    self._replay(self._run_for(sampling), **values)
            if ends:
                return
            before = token

    def _drawn(self, sampling: Sampling) -> int:
        """A token that is drawn from the logits at hand."""
        encoder = self._device.command_encoder("sample")
        with encoder.scope("sample"):
            ops.sample_top_p(encoder, self._logits, self._one.tokens, **sampling.values())
        encoder.commit_and_wait()
        return self.next_token

    def _run_for(self, sampling: Sampling) -> Replayable:
        if sampling.greedy:
            return self._run
        if self._sampled_run is None:
            self._sampled_run = self.captured(sampled=True).optimise().instantiate()
        return self._sampled_run

    def _start(self, turn: int, sampling: Sampling) -> dict[str, Any]:
        """Start a replay, and a copy of its token: every second goes to the same place. Returns the replay's values."""
        while len(self._kept) < 2:
            kept = self._device.empty(1, np.uint32)
            copying = capture(self._device._queue, partial(_copy, self._one.tokens, kept), label="keep")
            self._kept.append((copying.instantiate(), kept))
        values: dict[str, Any] = {} if sampling.greedy else sampling.values()
        self._replay(self._run_for(sampling), **values)
        self._kept[turn % 2][0].replay()
        return values

    def logits(self) -> np.ndarray:
        """The logits of the last token, as float32."""
        return self._logits.numpy().astype(np.float32)

    def reset(self) -> None:
        """Forget all tokens."""
        self.position = 0

    def _replay(self, run: Replayable | None = None, **values: Any) -> None:
        if self.position >= self.capacity:
            raise ArgumentError(
                f"the cache holds {self.capacity} tokens and is full; make a Decoder of larger capacity"
            )
        (self._run if run is None else run).replay(position=self.position, **values)
        self.position += 1

    def _checked(self, tokens: Sequence[int]) -> np.ndarray:
        ids = np.asarray(tokens)
        if ids.ndim != 1 or not ids.size or ids.dtype.kind not in "iu":
            raise ArgumentError("expected token ids, at least one")
        if ids.min() < 0 or ids.max() >= self.config.vocab_size:
            raise ArgumentError(f"token ids go from 0 to {self.config.vocab_size - 1}; got {ids.min()} to {ids.max()}")
        if self.position + ids.size > self.capacity:
            raise ArgumentError(
                f"{self.position + ids.size} tokens are too many for a cache of {self.capacity};"
                " make a Decoder of larger capacity"
            )
        return ids.astype(np.uint32)

    # --- what is encoded ---------------------------------------------------------------------------------------------

    def _token(self, encoder: CommandEncoder, position: Any, choose: Callable[[CommandEncoder], None]) -> None:
        with encoder.scope("decode"):
            self._layers(encoder, self._one, position)
            self._head(encoder, self._one)
            choose(encoder)

    def _layers(self, enc: CommandEncoder, s: _Scratch, position: Any) -> None:
        with enc.scope("embed"):
            table, form = self._weights["embedding"], self._weights.formats.get("embedding")
            if form is None:
                ops.embedding(enc, table, s.tokens, s.hidden)
            else:
                ops.embedding_blocks(enc, form, table, s.tokens, s.hidden)
        for layer in range(self.config.layers):
            with enc.scope(f"layer.{layer}"):
                with enc.scope("attn"):
                    self._attention(enc, s, layer, position)
                with enc.scope("mlp"):
                    (self._experts if self.config.has_experts(layer) else self._dense)(enc, s, layer)

    def _attention(self, enc: CommandEncoder, s: _Scratch, layer: int, position: Any) -> None:
        name, keys, values = f"layer.{layer}.attn", self._keys[layer], self._values[layer]
        weight, eps = self._floats(f"{name}.qkv"), self.config.norm_eps
        if weight is not None and self._folds and s.hidden.shape[0] == 1 and not self.config.qk_norm:
            norm, width = self._weights[f"{name}.norm"], s.hidden.shape[1]
            weight = weight.view(shape=(weight.size // width, width))
            with enc.scope("qkv"):
                ops.qkv_matvec(enc, weight, s.hidden, norm, self._frequencies, s.query, keys, values, position, eps)
        else:
            self._linears(enc, layer, "attn.qkv", f"{name}.norm", s, s.qkv)
            norms = {}
            if self.config.qk_norm:
                norms = {"query_norm": self._weights[f"{name}.q_norm"], "key_norm": self._weights[f"{name}.k_norm"]}
            with enc.scope("rope"):
                ops.rope_append(enc, s.qkv, self._frequencies, s.query, keys, values, position, **norms, eps=eps)
        with enc.scope("sdpa"):
            window = self.config.window(layer) or 0
            ops.sdpa(enc, s.query, keys, values, s.mixed, position, window=window, partial=self._partial)
        self._add_linear(enc, f"{name}.o", s.mixed, s)

    def _dense(self, enc: CommandEncoder, s: _Scratch, layer: int) -> None:
        name = f"layer.{layer}.mlp"
        joined = self._floats(f"{name}.gate_up") if s.hidden.shape[0] == 1 else None
        if joined is None:
            self._linears(enc, layer, "mlp.gate_up", f"{name}.norm", s, s.gate_up)
            with enc.scope("silu"):
                ops.silu_mul_halves(enc, s.gate_up, s.gated)
        elif self._folds:
            with enc.scope("gate_up"):
                norm = self._weights[f"{name}.norm"]
                ops.norm_gated_matvec(enc, joined, s.hidden, norm, s.gated, self.config.norm_eps)
        else:
            self._norm(enc, s.hidden, f"{name}.norm", s.normed)
            with enc.scope("gate_up"):
                ops.gated_matvec(enc, joined, s.normed, s.gated)
        self._add_linear(enc, f"{name}.down", s.gated, s)

    def _experts(self, enc: CommandEncoder, s: _Scratch, layer: int) -> None:
        name = f"layer.{layer}.mlp"
        self._norm(enc, s.hidden, f"{name}.norm", s.normed)
        self._linear(enc, f"{name}.router", s.normed, s.scores)
        with enc.scope("route"):
            self._route(enc, s.scores, s.indices, s.shares, renormalise=self.config.norm_topk_prob)
        lists: dict[str, Buffer] = {}
        if s.hidden.shape[0] > 1 and self._gathers_tokens(f"{name}.experts."):
            lists = {"order": s.order, "starts": s.starts}
            with enc.scope("lists"):
                ops.expert_lists(enc, s.indices, s.order, s.starts)
        with enc.scope("gate_up"):
            self._gated_experts(enc, f"{name}.experts", s, lists)
        with enc.scope("down"):
            self._by_experts(enc, f"{name}.experts.down", s.expert_gated, s, s.expert_out, lists)
        with enc.scope("mix"):
            ops.weighted_sum(enc, s.expert_out, s.shares, s.delta)
        with enc.scope("residual"):
            ops.add(enc, s.hidden, s.delta, s.hidden)

    def _gathers_tokens(self, experts: str) -> bool:
        """Whether each expert takes all its tokens at once: on a CPU experts of floats are faster token by token."""
        plain = self._device._queue.backend.capabilities.plain_loops
        return not plain or any(name.startswith(experts) for name in self._weights.formats)

    def _gated_experts(self, enc: CommandEncoder, name: str, s: _Scratch, lists: dict[str, Buffer]) -> None:
        """silu(gate · x) · (up · x) of the experts of each token."""
        joined = self._weights.get(f"{name}.gate_up")
        halves = s.expert_gate_up.view(shape=(s.indices.size, 2, s.expert_gate_up.shape[-1] // 2))
        if joined is None:  # in two formats
            gates, ups = (part.view(shape=s.expert_gated.shape) for part in _two_parts(s.expert_gate_up))
            self._by_experts(enc, f"{name}.gate", s.normed, s, gates, lists)
            self._by_experts(enc, f"{name}.up", s.normed, s, ups, lists)
            ops.silu_mul(enc, gates, ups, s.expert_gated)
        elif f"{name}.gate_up" in self._weights.formats or (lists and joined.shape[-1] % ops.formats.STEP == 0):
            self._by_experts(enc, f"{name}.gate_up", s.normed, s, s.expert_gate_up, lists)
            ops.silu_mul_halves(enc, halves, s.expert_gated)
        else:
            ops.expert_gated_matvec(enc, joined, s.normed, s.indices, s.expert_gated)

    def _by_experts(
        self, enc: CommandEncoder, name: str, x: Buffer, s: _Scratch, out: Buffer, lists: dict[str, Buffer]
    ) -> None:
        """The products with the experts of each token; those of several tokens are read once for all of them."""
        weight, form = self._weights[name], self._weights.formats.get(name)
        if form is None and not (lists and weight.shape[-1] % ops.formats.STEP == 0):
            ops.expert_matvec(enc, weight, x, s.indices, out)
            return
        if form is None:
            experts, width = weight.shape[0], weight.shape[-1]
            weight = weight.view(shape=(experts, weight.size // experts // width, width))
        ops.expert_matmul(enc, form, weight, x, s.indices, out, **lists)

    def _head(self, enc: CommandEncoder, s: _Scratch) -> None:
        """The logits of the last token."""
        name, last = "embedding" if self.config.tied_embeddings else "head", s.hidden.shape[0] - 1
        if self._folds and name not in self._weights.formats:
            with enc.scope("head"):
                norm, hidden = self._weights["norm"], s.hidden[last]
                ops.norm_matvec(enc, self._weights[name], hidden, norm, self._logits, self.config.norm_eps)
        else:
            normed = s.normed[last : last + 1]
            self._norm(enc, s.hidden[last : last + 1], "norm", normed)
            self._linear(enc, name, normed, self._logits, "head")

    def _most_likely(self, enc: CommandEncoder) -> None:
        """The most likely token, where the next replay reads it."""
        with enc.scope("argmax"):
            ops.argmax(enc, self._logits, self._one.tokens, partial=self._largest)

    def _sample(self, enc: CommandEncoder) -> None:
        """A token that is drawn, where the next replay reads it."""
        values = {name: param(name, np.float32) for name in ("random", "temperature", "top_p")}
        with enc.scope("sample"):
            ops.sample_top_p(enc, self._logits, self._one.tokens, **values)

    def _norm(self, enc: CommandEncoder, x: Buffer, name: str, out: Buffer) -> None:
        with enc.scope(name.rpartition(".")[2]):
            ops.rms_norm(enc, x, self._weights[name], out, eps=self.config.norm_eps)

    def _linears(self, enc: CommandEncoder, layer: int, name: str, norm: str, s: _Scratch, out: Buffer) -> None:
        """The products of the normalised input with joined matrices, side by side in each row of `out`."""
        tokens, width = s.hidden.shape
        whole = self._floats(f"layer.{layer}.{name}")
        if whole is not None:
            whole = whole.view(shape=(whole.size // width, width))
            if self._folds and tokens == 1:
                with enc.scope(name.rpartition(".")[2]):
                    ops.norm_matvec(enc, whole, s.hidden, self._weights[norm], out, self.config.norm_eps)
                return
        self._norm(enc, s.hidden, norm, s.normed)
        if whole is not None:
            with enc.scope(name.rpartition(".")[2]):
                (ops.matvec if tokens == 1 else self._matmul)(enc, whole, s.normed, out)
            return
        if f"layer.{layer}.{name}" in self._weights.formats:
            self._linear(enc, f"layer.{layer}.{name}", s.normed, out)
            return
        begin, rounded = 0, None
        for part in JOINED[name]:  # matrices in several formats are not joined
            rounded = self._linear(enc, f"layer.{layer}.{part}", s.normed, out, column=begin, rounded=rounded)
            begin += self._rows(f"layer.{layer}.{part}")

    def _add_linear(self, enc: CommandEncoder, name: str, x: Buffer, s: _Scratch) -> None:
        """Add a product to the residual stream."""
        if s.hidden.shape[0] == 1 and name not in self._weights.formats:
            with enc.scope(name.rpartition(".")[2]):
                ops.matvec(enc, self._weights[name], x, s.hidden, addend=s.hidden)
            return
        self._linear(enc, name, x, s.delta)
        with enc.scope("residual"):
            ops.add(enc, s.hidden, s.delta, s.hidden)

    def _linear(
        self,
        enc: CommandEncoder,
        name: str,
        x: Buffer,
        out: Buffer,
        scope: str | None = None,
        column: int = 0,
        rounded: ops.Rounded | None = None,
    ) -> ops.Rounded | None:
        """The product of each row of x, in the rows of `out` from a column on; returns x rounded, if it has been."""
        packed = self._weights.packed.get(name)
        if packed is not None and self._rounded is not None:
            with enc.scope(scope or name.rpartition(".")[2]):
                rounded = rounded or ops.round_rows(enc, x, packed.width, self._rounded)
                ops.matmul_packed(enc, packed, rounded, out, column=column)
            return rounded
        weight, form = self._weights[name], self._weights.formats.get(name)
        tokens = x.shape[0]
        with enc.scope(scope or name.rpartition(".")[2]):
            if form is not None:
                ops.matmul_blocks(enc, form, weight, x, out, column=column)
            elif tokens == 1:
                row = out.view(shape=(out.size,))
                ops.matvec(enc, weight, x, row[column : column + weight.shape[0]])
            elif out.size == tokens * weight.shape[0]:
                self._matmul(enc, weight, x, out)
            else:  # a matrix in floats beside quantised ones
                for token in range(tokens):
                    row = out[token].view(shape=(out.size // tokens,))
                    ops.matvec(enc, weight, x[token], row[column : column + weight.shape[0]])
        return rounded

    def _matmul(self, enc: CommandEncoder, weight: Buffer, x: Buffer, out: Buffer) -> None:
        """The product of several rows with a matrix of floats."""
        large = weight.size >= _LARGE and weight.shape[1] % ops.many_rows.STEP == 0
        if not (large and ops.many_rows.multiplies_many(self._device._queue, self._dtype)):
            ops.matmul(enc, weight, x, out)
            return
        if self._wide is None or self._wide.size < x.size:
            self._wide = self._device.empty(CHUNK * x.size // x.shape[0], "float32")
        ops.matmul_many(enc, weight, x, out, self._wide)

    def _rows(self, name: str) -> int:
        packed = self._weights.packed.get(name)
        return self._weights[name].shape[0] if packed is None else packed.rows

    def _room_for_rounded(self) -> ops.Rounded | None:
        """Room for the rounded activations of a chunk, if any are rounded."""
        width = max((matrix.width for matrix in self._weights.packed.values()), default=0)
        if not width:
            return None
        numbers, scales = ops.packed.rounded_shapes(CHUNK, width)
        return ops.Rounded(self._device.empty(numbers, "int8"), self._device.empty(scales, "float32"))

    @property
    def rounds_activations(self) -> bool:
        """Whether activations are rounded to 8 bits where they are multiplied with quantised matrices."""
        return self._rounded is not None

    def _floats(self, name: str) -> Buffer | None:
        """A matrix, if there is one of this name that is not quantised."""
        return None if name in self._weights.formats else self._weights.get(name)


def _two_parts(whole: Buffer) -> tuple[Buffer, Buffer]:
    flat = whole.view(shape=(whole.size,))
    return flat[: whole.size // 2], flat[whole.size // 2 :]


def _copy(source: Buffer, target: Buffer, encoder: CommandEncoder) -> None:
    encoder.copy(source, target)
