from warm_integrations.core.filters import *
