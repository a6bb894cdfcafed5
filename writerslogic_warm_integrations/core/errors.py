from warm_integrations.core.errors import *
