from warm_integrations.openai_agents.items import *
