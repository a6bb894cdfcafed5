from warm_integrations.core.log.reading import *
