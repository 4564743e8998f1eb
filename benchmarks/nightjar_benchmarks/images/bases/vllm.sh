#!/bin/sh
# `vllm serve MODEL …` for vLLM's CPU build, whose own `vllm` asks for the version of a distribution that is named
# otherwise and exits. The module is the server that `vllm serve` runs; it takes the model by a flag.
set -eu
if [ "${1-}" != serve ]; then
    echo "vllm: 'serve MODEL …' is required, found '$*'; this image is for tests on processors" >&2
    exit 2
fi
shift
# Without Intel's OpenMP vLLM binds its threads to one core.
export LD_PRELOAD=/opt/vllm/lib/libiomp5.so
exec python3 -m vllm.entrypoints.launchers.api_server.entry --model "$@"
