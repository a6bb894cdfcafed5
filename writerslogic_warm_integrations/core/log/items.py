from warm_integrations.core.log.items import *
