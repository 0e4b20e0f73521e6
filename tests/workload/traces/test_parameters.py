"""Parameter counts of models, counted again from their layers."""

from __future__ import annotations

from headway.workload.traces.parameters import PARAMETERS


def layer(inputs: int, outputs: int, kernel: int = 1) -> int:
    """Return the weights and biases of a dense layer, or of a convolution with a square kernel."""
    return inputs * outputs * kernel**2 + outputs


def vgg(convolutions: list[int]) -> int:
    """Return the parameters of a VGG with so many convolutions of 64, 128, 256, 512, 512."""
    total, inputs = 0, 3
    for count, width in zip(convolutions, (64, 128, 256, 512, 512), strict=True):
        for _ in range(count):
            total += layer(inputs, width, 3)
            inputs = width
    return total + layer(512 * 49, 4096) + layer(4096, 4096) + layer(4096, 1000)


def transformer(words: int, positions: int) -> int:
    """Return the parameters of 12 layers of width 768 with embeddings and no head."""
    width = 768
    block = 4 * layer(width, width) + 2 * 2 * width + layer(width, 4 * width)
    block += layer(4 * width, width)
    return (words + positions) * width + 12 * block


def test_vgg() -> None:
    assert PARAMETERS["vgg16"] == vgg([2, 2, 3, 3, 3])
    assert PARAMETERS["vgg19"] == vgg([2, 2, 4, 4, 4])


def test_gpt2_with_its_last_norm() -> None:
    assert PARAMETERS["gpt2"] == transformer(50_257, 1024) + 2 * 768


def test_bert_with_kinds_of_sentences_a_norm_and_the_head_of_a_masked_language_model() -> None:
    head = layer(768, 768) + 2 * 768 + 30_522
    assert PARAMETERS["bert"] == transformer(30_522, 512) + 2 * 768 + 2 * 768 + head


def test_dqn_and_a2c() -> None:
    body = layer(4, 32, 8) + layer(32, 64, 4) + layer(64, 64, 3) + layer(64 * 49, 512)
    assert PARAMETERS["dqn"] == body + layer(512, 4)
    assert PARAMETERS["a2c"] == body + layer(512, 4) + layer(512, 1)
