"""Sessions for the OpenAI Agents SDK."""

from .session import ItemError, ItemHit, SessionInfo, WarmSession

__all__ = ["ItemError", "ItemHit", "SessionInfo", "WarmSession"]
