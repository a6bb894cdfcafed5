from warm_integrations.core.clock import *
