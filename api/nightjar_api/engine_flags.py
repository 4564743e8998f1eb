"""Flags of `vllm serve` that follow from other fields; giving them a second time would contradict those."""

OWNED = {
    "--model": "spec.target.source",
    "--revision": "spec.target.source.hub.revision",
    "--served-model-name": "spec.target.servedName",
    "--dtype": "spec.target.dtype",
    "--max-model-len": "spec.target.maxModelLen",
    "--host": "the runtime",
    "--port": "spec.engine.port",
    "--uds": "spec.engine.port",
    "--tensor-parallel-size": "spec.engine.tensorParallelSize",
    "-tp": "spec.engine.tensorParallelSize",
    "--shutdown-timeout": "spec.drainTimeout",
    "--speculative-config": "spec.draft",
    "-sc": "spec.draft",
    "--additional-config": "spec.engine and spec.fallback",
}

# What vLLM reads as a flag: --max_model_len, --max-model-len=64, --speculative-config.model and unambiguous
# beginnings are all the same to it.
CEL = (
    "self.args.filter(argument, argument.startsWith('-'))"
    ".map(argument, argument.split('=')[0].split('.')[0].replace('_', '-'))"
    ".all(flag, flag.replace('-', '') == '' || !["
    + ", ".join(f"'{name}'" for name in OWNED)
    + "].exists(owned, owned.startsWith(flag)))"
)


def contradictions(arguments: list[str]) -> list[str]:
    """Those of `arguments` that another field decides: `--port, which spec.engine.port decides`."""
    found = []
    for argument in arguments:
        flag = argument.split("=")[0].split(".")[0].replace("_", "-")
        if not flag.startswith("-") or flag.strip("-") == "":
            continue
        owned = next((name for name in OWNED if name.startswith(flag)), None)
        if owned is not None:
            found.append(f"{argument}, which {OWNED[owned]} decides")
    return found
