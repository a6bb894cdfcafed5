from warm_integrations.core.digests import *
