"""Policies side by side on simulated engines."""
