"""The images of a cluster, built without a registry: on bases made here, with the Dockerfiles that people use.

debian ──┬─► operator
         ├─► sidecar
         └─► vllm-cpu ──► engine

The tag of an image is a hash of what goes into it: one that exists is up to date, and vLLM is built rarely.
"""
