from warm_integrations.openai_agents.session import *
