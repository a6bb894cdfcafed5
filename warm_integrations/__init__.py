"""A memory that lasts, for agents written with the OpenAI Agents SDK."""

__version__ = "0.1.0"
