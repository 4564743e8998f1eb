"""The fused draft pass inside the GPU engine, measured: the topic `fused_draft`, but for passes by themselves."""
