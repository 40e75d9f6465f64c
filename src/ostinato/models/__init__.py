"""Transformer decoders as a workload: configurations, weights, tokenizers, and the decoder itself.

    from ostinato import models

    weights = models.load_weights("Qwen3-0.6B")      # a Hugging Face folder (MLX's too), or a GGUF file
    weights = models.random_weights(models.preset("tiny-moe"))
    weights = models.shared_weights(config, torch_model.state_dict())
    weights["layer.0.attn.q"]                        # a NumPy array, often a view of the file
    models.ReferenceDecoder(weights).generate([1, 2, 3], steps=8)
    models.Decoder(device, weights).generate([1, 2, 3], 8)

Files are data: nothing in them is executed, sizes in them are checked against the file, and a damaged file raises a
`ModelError`. Only `Decoder` needs a device.
"""

from ..ops.formats import FORMATS, Format, affine_format
from .config import (
    PRESETS,
    DecoderConfig,
    FrequencyFactors,
    LinearScaling,
    Llama3Scaling,
    parameter_count,
    preset,
    tensor_shapes,
)
from .decoder import Decoder
from .reference import ReferenceDecoder
from .tensors import as_float32, is_quantised, weight_shape
from .tokenizer import ByteTokenizer, CheckpointTokenizer, TextStream, Tokenizer, load_tokenizer
from .weights import Weights, load_weights, random_weights, shared_weights

__all__ = [
    "FORMATS",
    "PRESETS",
    "ByteTokenizer",
    "CheckpointTokenizer",
    "Decoder",
    "DecoderConfig",
    "Format",
    "FrequencyFactors",
    "LinearScaling",
    "Llama3Scaling",
    "ReferenceDecoder",
    "TextStream",
    "Tokenizer",
    "Weights",
    "affine_format",
    "as_float32",
    "is_quantised",
    "load_tokenizer",
    "load_weights",
    "parameter_count",
    "preset",
    "random_weights",
    "shared_weights",
    "tensor_shapes",
    "weight_shape",
]
