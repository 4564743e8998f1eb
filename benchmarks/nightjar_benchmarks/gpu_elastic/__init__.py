"""Elastic memory of a GPU engine, measured: the topic `elastic`."""
