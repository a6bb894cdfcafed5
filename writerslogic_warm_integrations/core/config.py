from warm_integrations.core.config import *
