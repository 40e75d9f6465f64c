"""Quantised checkpoints on a CPU, beside llama.cpp on the same files and cores: tokens per second, and logits.

    python bench/quantised.py --llama BUILD --folder /tmp/files

BUILD is a build of llama.cpp with `libllama.so` and `llama-quantize` in its `bin`, made from the source in the sdist of
llama-cpp-python (`pip download --no-binary :all: --no-deps llama-cpp-python`):

    cmake -S llama_cpp_python-*/vendor/llama.cpp -B BUILD -DCMAKE_BUILD_TYPE=Release -DLLAMA_CURL=OFF
    cmake --build BUILD --target llama llama-quantize

The Python package `llama_cpp` of the same sdist must be importable; it loads that library. Files are random weights of
Qwen3-0.6B's shape, written as BF16 with the package `gguf` and quantised by llama.cpp's own tool; they are kept in the
folder. Contenders take turns, with as many threads each. The difference of logits is against the same weights in
float32 with NumPy, so it shows what the arithmetic adds to the rounding of the weights.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ostinato as ost
from harness import Table, interleaved, median, ratio, report
from ostinato import models

KINDS = ("BF16", "Q8_0", "Q4_0", "Q4_K_M")
PROMPT, ANSWER, CAPACITY = 128, 32, 256
COMPARED = 12
"""Tokens whose logits are compared."""


def write_random(path: Path, config: models.DecoderConfig) -> None:
    """A GGUF file of random weights in bfloat16, without a vocabulary."""
    import gguf

    weights = models.random_weights(config, "bfloat16", seed=1)
    writer = gguf.GGUFWriter(str(path), config.family)
    writer.add_block_count(config.layers)
    writer.add_context_length(config.max_positions)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for name in weights:
        array = weights[name]
        theirs = their_name(name)
        if array.ndim == 1:
            writer.add_tensor(theirs, array.astype(np.float32))
        else:
            writer.add_tensor(theirs, array.view(np.uint8), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def their_name(name: str) -> str:
    """GGUF's name of a tensor."""
    ends = {"embedding": "token_embd.weight", "norm": "output_norm.weight", "head": "output.weight"}
    if name in ends:
        return ends[name]
    _, layer, part = name.split(".", 2)
    parts = {"attn.o": "attn_output", "mlp.norm": "ffn_norm"}
    return f"blk.{layer}.{parts.get(part) or part.replace('.', '_').replace('mlp_', 'ffn_')}.weight"


def file_of(kind: str, folder: Path, build: Path, preset: str) -> Path:
    """The file of a kind, made if it is not there."""
    path, whole = folder / f"{preset}-{kind}.gguf", folder / f"{preset}-BF16.gguf"
    if not whole.exists():
        write_random(whole.with_suffix(".part"), models.preset(preset))
        whole.with_suffix(".part").rename(whole)
    if not path.exists():
        tool = build / "bin" / "llama-quantize"
        subprocess.run([str(tool), str(whole), str(path), kind], check=True, capture_output=True)
    return path


class LlamaCpp:
    """A model in llama.cpp."""

    def __init__(self, path: Path, threads: int) -> None:
        import llama_cpp

        self.api = api = llama_cpp
        api.llama_log_set(_QUIET, ctypes.c_void_p(0))
        self.model = api.llama_model_load_from_file(str(path).encode(), api.llama_model_default_params())
        params = api.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = CAPACITY, PROMPT, PROMPT
        params.n_threads = params.n_threads_batch = threads
        self.context = api.llama_init_from_model(self.model, params)
        self.size = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))

    def take(self, tokens: list[int]) -> None:
        ids = (self.api.llama_token * len(tokens))(*tokens)
        if self.api.llama_decode(self.context, self.api.llama_batch_get_one(ids, len(tokens))):
            raise RuntimeError("llama_decode failed")

    def logits(self) -> np.ndarray:
        return np.ctypeslib.as_array(self.api.llama_get_logits_ith(self.context, -1), (self.size,)).copy()

    def reset(self) -> None:
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)

    def close(self) -> None:
        self.api.llama_free(self.context)
        self.api.llama_model_free(self.model)


def _quiet(*_: object) -> None:
    pass


_QUIET: Any = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_quiet)


class Ours:
    """A model in a decoder."""

    def __init__(self, device: ost.Device, weights: models.Weights, dtype: str, rounds: bool | None) -> None:
        self.decoder = models.Decoder(device, weights, CAPACITY, dtype, round_activations=rounds)

    def take(self, tokens: list[int]) -> None:
        if len(tokens) > 1:
            self.decoder.prefill(tokens)
        else:
            self.decoder.force(tokens[0])

    def logits(self) -> np.ndarray:
        return self.decoder.logits()

    def reset(self) -> None:
        self.decoder.reset()

    def close(self) -> None:
        del self.decoder


def speeds(contenders: dict[str, Any], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Tokens per second of each contender, for the prompt and for the answer."""
    prompt = list(range(100, 100 + PROMPT))
    answers: dict[str, list[float]] = {name: [] for name in contenders}

    def run(name: str) -> Callable[[], float]:
        def once() -> float:
            contender = contenders[name]
            contender.reset()
            begin = time.perf_counter()
            contender.take(prompt)
            middle = time.perf_counter()
            for token in range(ANSWER):
                contender.take([1000 + token])
                contender.logits()
            answers[name].append(ANSWER / (time.perf_counter() - middle))
            return PROMPT / (middle - begin)

        return once

    prompts = interleaved({name: run(name) for name in contenders}, rounds)
    return {"prompt": prompts, "answer": {name: values[1:] for name, values in answers.items()}}


def difference(contender: Any, expected: np.ndarray) -> float:
    """The root of the mean square of differences of logits, as a share of the logits' own."""
    contender.reset()
    contender.take([5, 6, 7])
    found = [contender.logits()]
    for token in range(COMPARED - 1):
        contender.take([50 + token])
        found.append(contender.logits())
    errors = np.stack(found) - expected
    return float(np.sqrt((errors**2).mean() / (expected**2).mean()))


def reference(weights: models.Weights) -> np.ndarray:
    decoder = models.ReferenceDecoder(weights, CAPACITY)
    rows = [decoder.forward([5, 6, 7])[-1]]
    rows += [decoder.forward([50 + token])[0] for token in range(COMPARED - 1)]
    return np.stack(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", type=Path, required=True, help="folder of a build of llama.cpp")
    parser.add_argument("--folder", type=Path, required=True, help="folder for the files, 2.5 GB")
    parser.add_argument("--preset", default="qwen3-0.6b")
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--no-logits", action="store_true", help="leave out the comparison of logits")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    os.environ["LLAMA_CPP_LIB_PATH"] = str(options.llama / "bin")
    options.folder.mkdir(exist_ok=True, parents=True)
    device = ost.open_device("cpu", workers=options.threads)
    rows = []
    for kind in options.kinds:
        path = file_of(kind, options.folder, options.llama, options.preset)
        weights = models.load_weights(path)
        dtype = "bfloat16" if kind == "BF16" else "float32"
        contenders: dict[str, Any] = {
            "ours": Ours(device, weights, dtype, None),
            "llama.cpp": LlamaCpp(path, options.threads),
        }
        found = speeds(contenders, options.rounds)
        errors: list[object] = ["–"] * 3
        if not options.no_logits:
            expected = reference(weights)
            errors = [difference(contender, expected) for contender in contenders.values()]
            if kind != "BF16":
                contenders["exact"] = Ours(device, weights, dtype, False)
                errors.insert(1, difference(contenders["exact"], expected))
            else:
                errors.insert(1, "–")
        row: list[object] = [kind]
        for part in ("prompt", "answer"):
            ours, theirs = found[part]["ours"], found[part]["llama.cpp"]
            row += [median(ours), median(theirs), ratio(ours, theirs)]
        rows.append([*row, *errors])
        for contender in contenders.values():
            contender.close()
    columns = ["file", "prompt", "llama.cpp", "ratio", "answer", "llama.cpp", "ratio"]
    columns += ["logits off", "without rounding", "llama.cpp"]
    title = f"{options.preset}: prompt of {PROMPT} and answer of {ANSWER}, tokens per second, {options.threads} threads"
    report([Table(title, columns, rows)], options.json)


if __name__ == "__main__":
    main()
