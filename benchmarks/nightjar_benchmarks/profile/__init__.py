"""Tables from measured step reports: what a step takes, and the best static table for it."""
