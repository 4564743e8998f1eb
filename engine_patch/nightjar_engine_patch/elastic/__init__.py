"""Elastic memory: the draft's room becomes KV blocks of the target, and comes back."""
