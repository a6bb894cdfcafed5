from warm_integrations.core.log.ids import *
