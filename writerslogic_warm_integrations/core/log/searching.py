from warm_integrations.core.log.searching import *
