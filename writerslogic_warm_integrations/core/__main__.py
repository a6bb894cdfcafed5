from warm_integrations.core.__main__ import *
