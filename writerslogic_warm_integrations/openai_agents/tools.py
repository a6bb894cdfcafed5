from warm_integrations.openai_agents.tools import *
