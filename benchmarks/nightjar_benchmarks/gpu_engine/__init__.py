"""The GPU engine against stock vLLM, on engines that share one GPU and take turns."""
