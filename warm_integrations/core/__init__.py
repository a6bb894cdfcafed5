"""Stores, logs, records and the configuration: what sessions and memory tools are built on."""

from .backend import AsyncWarmBackend, Recalled, Record, WarmBackend, reembed
from .config import WarmConfig
from .embedder import Embedder, HashingEmbedder
from .errors import WarmError
from .memory import Memory, UserMemory, user_memory
from .paged import AsyncPagedLog
from .sqlite_store import drop_memory

__all__ = [
    "AsyncPagedLog",
    "AsyncWarmBackend",
    "Embedder",
    "HashingEmbedder",
    "Memory",
    "Recalled",
    "Record",
    "UserMemory",
    "WarmBackend",
    "WarmConfig",
    "WarmError",
    "drop_memory",
    "reembed",
    "user_memory",
]
