"""The benchmarks still run, and what they compare still agrees. Their timings are not looked at."""

import numpy as np
import pytest
import torch
from benchmarks.asmk_reference import ReferenceIndex, average_precision, train_words
from benchmarks.extraction import seeded_network
from benchmarks.plain import PlainFire


@pytest.mark.slow
def test_plain_fire_equals_ours() -> None:
    """Two implementations written apart: METHOD in plain calls, and the fused network."""
    network = seeded_network()
    plain = PlainFire(dict(network.module.state_dict()))
    image = torch.randn(1, 3, 96, 128, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        vectors, strengths = plain.scale(image, 1.0)
        local = network.fast(image)
    torch.testing.assert_close(local.strengths[0], strengths, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(local.vectors[0], vectors, rtol=1e-4, atol=1e-5)


def test_the_reference_index_finds_an_image_by_itself() -> None:
    random = np.random.default_rng(0)
    images = [random.standard_normal((40, 32)).astype(np.float32) for _ in range(6)]
    index = ReferenceIndex(train_words(np.concatenate(images), 16), images)
    for number, vectors in enumerate(images):
        assert index.scores(vectors).argmax() == number


def test_average_precision_of_known_rankings() -> None:
    assert average_precision(np.array([3, 1, 2]), {3}, set()) == 1.0
    assert average_precision(np.array([0, 3, 1]), {3}, {0}) == 1.0
    assert average_precision(np.array([0, 3]), {3}, set()) == pytest.approx(0.25)
