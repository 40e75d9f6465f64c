"""The reference decoder against `transformers` on the CPU, for small random checkpoints of each family."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import TINY, write_gguf

import ostinato as ost
from ostinato import models

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

STEPS = 64
PROMPT = [3, 1, 4, 15, 9, 26, 5, 35, 89, 79]
SMALL: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,  # far enough from zero that likely tokens stand out
    "bos_token_id": None,
    "eos_token_id": None,
}
MOE: dict[str, Any] = {"head_dim": 32, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True}),
    "llama-multi-head": ("Llama", {"num_key_value_heads": 4, "head_dim": 32}),
    "llama-scaled": ("Llama", {"rope_parameters": LLAMA3}),
    "llama-linear": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}},
    ),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3-tied": ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen3-window": (
        "Qwen3",
        {"head_dim": 32, "use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
    ),
    "qwen3-moe": ("Qwen3Moe", MOE | {"norm_topk_prob": True}),
    "qwen3-moe-plain": ("Qwen3Moe", MOE | {"norm_topk_prob": False, "num_experts_per_tok": 3}),
    "qwen3-moe-mixed": ("Qwen3Moe", MOE | {"mlp_only_layers": [0], "norm_topk_prob": True}),
    "qwen3-moe-sparse-step": ("Qwen3Moe", MOE | {"decoder_sparse_step": 2}),
    "qwen3-moe-window": ("Qwen3Moe", MOE | {"use_sliding_window": True, "sliding_window": 7}),
}


def made(family: str, options: dict[str, Any], folder: Path) -> Any:
    """A random model of `transformers`, saved in a folder too."""
    torch.manual_seed(7)
    config = getattr(transformers, f"{family}Config")(**SMALL | options)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval().float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:  # all ones would hide a norm that is left out
                parameter.uniform_(0.5, 1.5)
    model.save_pretrained(folder, max_shard_size="60KB" if options.get("tie_word_embeddings") else "1GB")
    return model


def their_logits(model: Any, tokens: list[int]) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(model(torch.tensor([tokens])).logits[0])


def their_generation(model: Any, prompt: list[int], steps: int) -> list[int]:
    found: list[int] = []
    following, cache = prompt, None
    with torch.no_grad():
        for _ in range(steps):
            result = model(torch.tensor([following]), past_key_values=cache, use_cache=True)
            cache = result.past_key_values
            found.append(int(result.logits[0, -1].argmax()))
            following = found[-1:]
    return found


@pytest.mark.parametrize("case", CASES)
def test_logits_and_greedy_tokens_agree_with_transformers(case: str, tmp_path: Path) -> None:
    family, options = CASES[case]
    model = made(family, options, tmp_path)
    decoder = models.ReferenceDecoder(models.load_weights(tmp_path))

    tokens = decoder.generate(PROMPT, STEPS)
    assert tokens == their_generation(model, PROMPT, STEPS)
    assert len(set(tokens)) > 4  # a decoder stuck on one token would prove little

    decoder.reset()
    forced = [*PROMPT, *tokens]
    np.testing.assert_allclose(decoder.forward(forced), their_logits(model, forced), rtol=0, atol=1e-4)


@pytest.mark.parametrize("case", ["llama-scaled", "qwen3-tied"])
def test_the_tensors_of_a_model_serve_a_decoder_as_well(dev: ost.Device, case: str, tmp_path: Path) -> None:
    family, options = CASES[case]
    model = made(family, options, tmp_path)
    weights = models.shared_weights(models.load_weights(tmp_path).config, model.state_dict())
    decoder = models.Decoder(dev, weights, capacity=len(PROMPT) + STEPS)
    assert decoder.generate(PROMPT, STEPS) == their_generation(model, PROMPT, STEPS)

    with torch.no_grad():
        model.model.norm.weight.zero_()
    decoder.reset()
    assert not decoder.prefill(PROMPT).any()  # it is the same memory


def test_a_checkpoint_in_several_files_is_read_as_one(tmp_path: Path) -> None:
    family, options = CASES["qwen3-tied"]
    model = made(family, options, tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    state = model.state_dict()
    weights = models.load_weights(tmp_path)
    for layer in range(3):
        theirs = state[f"model.layers.{layer}.self_attn.k_proj.weight"].numpy()
        np.testing.assert_array_equal(weights[f"layer.{layer}.attn.k"], theirs)


@pytest.mark.parametrize("family", TINY)
def test_gguf_files_mean_to_us_what_they_mean_to_transformers(family: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    # transformers does not read these sizes from GGUF, and takes those of the models that it knows.
    sizes: dict[str, dict[str, Any]] = {"qwen3": {"head_dim": 128}, "qwen3-moe": {"moe_intermediate_size": 768}}
    config = replace(TINY[family], **sizes.get(family, {}))
    path = write_gguf(tmp_path / "model.gguf", models.random_weights(config, seed=3))
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32).eval()
    decoder = models.ReferenceDecoder(models.load_weights(path))
    np.testing.assert_allclose(decoder.forward(PROMPT), their_logits(model, PROMPT), rtol=0, atol=1e-4)
