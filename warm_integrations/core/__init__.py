"""Stores, the log and the configuration: what the session and the memory tools are built on."""

from .config import WarmConfig
from .embedder import Embedder, HashingEmbedder
from .errors import WarmError
from .paged import AsyncPagedLog

__all__ = ["AsyncPagedLog", "Embedder", "HashingEmbedder", "WarmConfig", "WarmError"]
