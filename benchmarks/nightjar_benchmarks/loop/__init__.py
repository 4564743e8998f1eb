"""The figures of topic `loop`: the whole loop on real vLLM."""
