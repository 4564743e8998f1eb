#!/usr/bin/env python3
"""The GPU engine against stock vLLM: every figure of the topic `gpu_engine`.

From the repository root, on a host with one H200, vLLM 0.32.0, and this repository installed:

    python3 benchmarks/gpu/engine.py --commit $(git rev-parse HEAD)
"""

from topic import run

from nightjar_benchmarks.gpu_engine.measure import measure

if __name__ == "__main__":
    run("gpu_engine", "benchmarks/gpu/engine.py", __doc__, {"all": measure})
