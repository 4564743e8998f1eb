"""Prompt and output lengths, and regions of content with their acceptance, like those of public data sets.

Alpaca and ShareGPT: log-normal with the mean input and output lengths that the PagedAttention paper (SOSP 2023,
arXiv 2309.06180, figure 11) gives, 19.31 / 58.45 and 161.31 / 337.99 tokens; the spread is assumed. SpecBench
(arXiv 2401.07851): 480 questions in six tasks of 80; the mix is the benchmark's, the lengths per task are assumed.
Acceptance per region, and which regions a data set holds, are assumed throughout.
"""

from dataclasses import dataclass

import numpy as np

from nightjar_benchmarks.simulator.state import Floats, Ints

# The chance that a draft is accepted given those before it, at the first position, by region of content.
REGIONS = {"code": 0.86, "chat": 0.74, "prose": 0.60}
# How it falls from one position to the next.
POSITION_DECAY = 0.98


@dataclass(frozen=True)
class LogNormal:
    """Token counts with a mean and a spread of their logarithm, cut to 1 … most."""

    mean: float
    sigma: float
    most: int

    def draw(self, rng: np.random.Generator, size: int) -> Ints:
        drawn = rng.lognormal(np.log(self.mean) - self.sigma**2 / 2, self.sigma, size)
        return np.clip(np.rint(drawn), 1, self.most).astype(np.int64)


@dataclass(frozen=True)
class Part:
    """One kind of request: its share, lengths and content."""

    share: float
    prompt: LogNormal
    output: LogNormal
    regions: tuple[float, float, float]


@dataclass(frozen=True)
class Dataset:
    """A mixture of parts."""

    name: str
    parts: tuple[Part, ...]

    def draw(self, rng: np.random.Generator, size: int) -> tuple[Ints, Ints, Ints]:
        """(prompt tokens, output tokens, region) of `size` requests."""
        kinds = rng.choice(len(self.parts), size, p=[part.share for part in self.parts])
        prompt, output, region = (np.zeros(size, np.int64) for _ in range(3))
        for kind, part in enumerate(self.parts):
            mask = kinds == kind
            count = int(mask.sum())
            prompt[mask] = part.prompt.draw(rng, count)
            output[mask] = part.output.draw(rng, count)
            region[mask] = rng.choice(len(part.regions), count, p=part.regions)
        return prompt, output, region

    def means(self) -> tuple[float, float]:
        """Mean prompt and output tokens, seen in a large draw."""
        prompt, output, _ = self.draw(np.random.default_rng(0), 20_000)
        return float(prompt.mean()), float(output.mean())

    def context(self) -> float:
        """Mean tokens before the one that a request decodes, over the tokens of a large draw.

        A long output is being decoded for long, so a running request's context is well above that of the mean request.
        """
        prompt, output, _ = self.draw(np.random.default_rng(0), 20_000)
        return float((output * (prompt + output / 2)).sum() / output.sum())

    def mix(self) -> Floats:
        """Share of each region among output tokens."""
        _, output, region = self.draw(np.random.default_rng(0), 20_000)
        shares: Floats = np.bincount(region, weights=output, minlength=len(REGIONS)) / output.sum()
        return shares


def _task(prompt: float, output: float, *regions: float) -> Part:
    code, chat, prose = regions
    return Part(1 / 6, LogNormal(prompt, 0.5, 1500), LogNormal(output, 0.5, 500), (code, chat, prose))


ALPACA = Dataset("alpaca", (Part(1.0, LogNormal(19.31, 0.6, 500), LogNormal(58.45, 0.9, 500), (0.15, 0.6, 0.25)),))
SHAREGPT = Dataset(
    "sharegpt", (Part(1.0, LogNormal(161.31, 1.2, 1000), LogNormal(337.99, 0.8, 1000), (0.3, 0.5, 0.2)),)
)
SPECBENCH = Dataset(
    "specbench",
    (
        _task(80, 300, 0.3, 0.5, 0.2),  # multi-turn conversation
        _task(60, 60, 0.0, 0.3, 0.7),  # translation
        _task(700, 120, 0.4, 0.4, 0.2),  # summarisation
        _task(25, 120, 0.0, 0.7, 0.3),  # question answering
        _task(80, 180, 0.8, 0.2, 0.0),  # mathematical reasoning
        _task(900, 120, 0.3, 0.5, 0.2),  # retrieval-augmented generation
    ),
)
# What the demo asks for: short requests of one kind of content.
DEMO = Dataset("demo", (Part(1.0, LogNormal(32, 0.3, 64), LogNormal(96, 0.2, 128), (1.0, 0.0, 0.0)),))
DATASETS = {dataset.name: dataset for dataset in (ALPACA, SHAREGPT, SPECBENCH)}
