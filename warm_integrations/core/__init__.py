"""Stores, logs, records and the configuration: what sessions and memory tools are built on."""

from .backend import AsyncWarmBackend
from .blocking import WarmBackend
from .config import WarmConfig
from .connection import connect, drop_memory, ping
from .embedder import Embedder, HashingEmbedder
from .errors import WarmError
from .memory import Memory, UserMemory, user_memory
from .paged import AsyncPagedLog
from .records import Recalled, Record
from .reembedding import reembed

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
    "connect",
    "drop_memory",
    "ping",
    "reembed",
    "user_memory",
]
