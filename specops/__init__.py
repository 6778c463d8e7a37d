"""Measure, roll out and guard speculative decoding for LLM serving."""

__version__ = "0.1.0"
