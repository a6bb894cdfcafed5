from warm_integrations.openai_agents import *
