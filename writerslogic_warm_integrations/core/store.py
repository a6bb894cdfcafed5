from warm_integrations.core.store import *
