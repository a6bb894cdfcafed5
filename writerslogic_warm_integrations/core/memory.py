from warm_integrations.core.memory import *
