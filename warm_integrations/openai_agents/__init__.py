"""Sessions and memory tools for the OpenAI Agents SDK."""

try:
    import agents as agents
except ImportError as error:
    raise ImportError(
        "warm_integrations.openai_agents needs the OpenAI Agents SDK: "
        'pip install "writerslogic-warm-integrations[openai-agents]"'
    ) from error

from ..core.memory import user_memory
from .items import ItemError
from .session import ItemHit, SessionInfo, WarmSession
from .tools import memory_tools

__all__ = ["ItemError", "ItemHit", "SessionInfo", "WarmSession", "memory_tools", "user_memory"]
