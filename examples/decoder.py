"""A small mixture-of-experts decoder with random weights: one replayed graph per token, checked against NumPy."""

import time

import ostinato as ost
from ostinato import models


def main() -> None:
    prompt, count = list(b"An ostinato"), 16
    weights = models.random_weights(models.preset("tiny-moe"), seed=0)

    dev = ost.open_device()
    decoder = models.Decoder(dev, weights, capacity=64)
    decoder.generate(prompt, 2)  # compiles the kernels
    decoder.reset()

    begin = time.perf_counter()
    tokens = decoder.generate(prompt, count)
    seconds = time.perf_counter() - begin

    assert tokens == models.ReferenceDecoder(weights).generate(prompt, count)
    print(f"{len(decoder.graph)} dispatches per token, {count / seconds:.0f} tokens/s on {dev.name!r}: same as NumPy")


if __name__ == "__main__":
    main()
