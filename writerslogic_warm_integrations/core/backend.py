from warm_integrations.core.backend import *
