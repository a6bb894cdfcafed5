from warm_integrations.core.limits import *
