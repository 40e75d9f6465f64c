"""A decoder of `transformers` with random weights on a device, and the ways of running it a token at a time.

* eager: the model as it is called, with a cache that grows.
* static: the same with a cache of fixed size, and one mask over all of it.
* graph: that in a `torch.cuda.CUDAGraph`, which is replayed.
* compile: that by `torch.compile`, on a GPU in a graph too.

All of them take the likeliest token in and leave the next one on the device.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import transformers

from ostinato.models import DecoderConfig, Llama3Scaling, parameter_count

CLASSES = {"llama": "Llama", "qwen3": "Qwen3"}


def settings(config: DecoderConfig) -> dict[str, Any]:
    """Our configuration in the words of `transformers`."""
    scaling = config.rope_scaling
    rope = None
    if isinstance(scaling, Llama3Scaling):
        rope = {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low_freq_factor,
            "high_freq_factor": scaling.high_freq_factor,
            "original_max_position_embeddings": scaling.original_positions,
        }
    elif scaling is not None:
        raise ValueError(f"no words for {scaling}")
    return {
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_scaling": rope,
        "tie_word_embeddings": config.tied_embeddings,
        "bos_token_id": None,
        "eos_token_id": None,
        "attn_implementation": "sdpa",
    }


def random_model(config: DecoderConfig, device: str, dtype: str) -> Any:
    """A model with weights made on the device, such that activations stay near one."""
    name = CLASSES.get(config.family)
    if name is None:
        raise ValueError(f"{config.family}: only {', '.join(CLASSES)} are compared")
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        with torch.device(device):
            theirs = getattr(transformers, f"{name}Config")(**settings(config))
            model = getattr(transformers, f"{name}ForCausalLM")(theirs).eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(before)
    torch.manual_seed(7)
    for where, weight in model.named_parameters():
        if "norm" in where:
            weight.uniform_(0.8, 1.2)
        else:
            adds = where.endswith(("o_proj.weight", "down_proj.weight"))
            reach = math.sqrt(3 / weight.shape[-1] / (2 * config.layers if adds else 1))
            weight.uniform_(-reach, reach)
    if sum(weight.numel() for weight in model.parameters()) != parameter_count(config):
        raise ValueError("the model of transformers has another number of weights")
    frequencies = model.model.rotary_emb.inv_freq.float().cpu().numpy()
    np.testing.assert_allclose(frequencies, config.inverse_frequencies(), rtol=1e-5)
    return model


class Eager:
    """The model as it is called."""

    def __init__(self, model: Any, capacity: int) -> None:
        self.model = self.forward = model
        device = model.device
        self.capacity = capacity
        self.token = torch.zeros((1, 1), dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.logits = torch.zeros(model.config.vocab_size, dtype=model.dtype, device=device)
        # Older versions are told where the cache is written; newer ones know.
        self.told = "cache_position" in inspect.signature(type(model.model).forward).parameters
        self.cache = self.new_cache()

    def new_cache(self) -> Any:
        return transformers.DynamicCache()

    @torch.no_grad()
    def start(self, prompt: Sequence[int]) -> None:
        """Forget everything, and take a prompt in."""
        self.cache = self.new_cache()
        ids = torch.tensor([list(prompt)], device=self.token.device)
        where = torch.arange(len(prompt), device=self.token.device)
        self._take(self.model, ids, where, {"logits_to_keep": 1})
        self.position.fill_(len(prompt))

    @torch.no_grad()
    def step(self) -> None:
        self._take(self.forward, self.token, self.position, self.mask())
        self.position.add_(1)

    def mask(self) -> dict[str, Any]:
        """What a step is told about the cache."""
        return {}

    def _take(self, forward: Callable[..., Any], ids: Any, where: Any, more: dict[str, Any]) -> None:
        if self.told:
            more = more | {"cache_position": where}
        found = forward(input_ids=ids, position_ids=where[None], past_key_values=self.cache, use_cache=True, **more)
        self.logits.copy_(found.logits[0, -1])
        self.token.copy_(self.logits.argmax().view(1, 1))

    def read(self) -> int:
        """The next token, when all that came before is done."""
        return int(self.token.item())

    def force(self, token: int) -> np.ndarray:
        """The logits behind a token that is given."""
        self.token.fill_(token)
        self.step()
        found: np.ndarray = self.logits.float().cpu().numpy().copy()
        return found


class Static(Eager):
    """With a cache of fixed size."""

    def new_cache(self) -> Any:
        cache = getattr(self, "cache", None)
        if cache is not None:
            cache.reset()
            return cache
        self.places = torch.arange(self.capacity, device=self.token.device)
        try:
            return transformers.StaticCache(config=self.model.config, max_cache_len=self.capacity)
        except TypeError:
            return transformers.StaticCache(
                self.model.config, 1, self.capacity, device=self.token.device, dtype=self.model.dtype
            )

    def mask(self) -> dict[str, Any]:
        return {"attention_mask": (self.places <= self.position).view(1, 1, 1, -1)}


class Graphed(Static):
    """The step of a static cache in a CUDA graph; `compile_mode` compiles it before."""

    def __init__(self, model: Any, capacity: int, compile_mode: str | None = None) -> None:
        super().__init__(model, capacity)
        if compile_mode is not None:
            self.forward = torch.compile(model.forward, mode=compile_mode, dynamic=False)
        self.start([1, 2, 3])
        for _ in range(3):  # compiles, and lets libraries set themselves up outside of the capture
            super().step()
        self.graph: Any = None
        if model.device.type == "cuda":
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                super().step()

    def step(self) -> None:
        if self.graph is None:
            super().step()
        else:
            self.graph.replay()


def contender(name: str, model: Any, capacity: int, compile_mode: str) -> Eager:
    """One of the ways, by its name."""
    if name == "eager":
        return Eager(model, capacity)
    if name == "static":
        return Static(model, capacity)
    if name == "graph":
        if model.device.type != "cuda":
            raise ValueError("there are graphs on GPUs only")
        return Graphed(model, capacity)
    return Graphed(model, capacity, compile_mode)
