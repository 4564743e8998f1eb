"""Streamed OpenAI requests in phases, what came of each, and statistics over them."""
