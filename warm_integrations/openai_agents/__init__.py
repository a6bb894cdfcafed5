"""Sessions and memory tools for the OpenAI Agents SDK."""

from ..core.memory import user_memory
from .session import ItemError, ItemHit, SessionInfo, WarmSession
from .tools import memory_tools

__all__ = ["ItemError", "ItemHit", "SessionInfo", "WarmSession", "memory_tools", "user_memory"]
