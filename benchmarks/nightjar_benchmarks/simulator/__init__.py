"""A discrete-event model of continuous batching that drives the sidecar's own policies."""
